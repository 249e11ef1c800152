"""Layers by machine: the bound on what flows through unlike machines, and the search for their layers."""
