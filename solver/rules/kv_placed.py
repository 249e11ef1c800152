"""Sequences are spread over the chips of their rank when a replica is built."""

OF = "replica"
HOLDS = "a replica is built with its whole batch on its own chips"
