"""Pools hold the usable chips of a cluster, nothing else."""

OF = "replica"
HOLDS = "pools are made of usable chips"
