"""Batches end where TPOT would exceed its target, in bounds and in probes."""

OF = "replica"
HOLDS = "the largest batch within TPOT bounds a shape; a realised batch is probed by the evaluator"
