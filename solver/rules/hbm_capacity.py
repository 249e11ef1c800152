"""Batches are bounded by what HBM holds, and probed with the evaluator's bytes."""

OF = "replica"
HOLDS = "bounds count the least bytes a chip needs of the HBM that the engine leaves; a realised batch is probed by the evaluator"
