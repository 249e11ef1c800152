"""Pools hold the usable chips of a cluster, nothing else."""

HOLDS = "pools are made of usable chips"
