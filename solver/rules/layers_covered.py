"""Cuts of layers into stages are consecutive and complete."""

HOLDS = "stages are cuts of all layers in order"
