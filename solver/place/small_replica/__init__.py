"""Replicas so small that CP-SAT models every slot, stage and sequence."""
