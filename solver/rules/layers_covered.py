"""Cuts of layers into stages are consecutive and complete."""

OF = "replica"
HOLDS = "stages are cuts of all layers in order"
