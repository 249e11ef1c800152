"""Measurements against peers, run by hand."""
