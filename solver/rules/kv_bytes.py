"""Shares of KV are written with the bytes that the evaluator counts."""

OF = "replica"
HOLDS = "a replica is built with the evaluator's own bytes of its sequences"
