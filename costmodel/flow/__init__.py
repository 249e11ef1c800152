"""Layers by machine: unlike machines that each hold some layers, and what flows through them."""
