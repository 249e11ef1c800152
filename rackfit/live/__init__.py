"""Servers that run, beside the layout that they were exported from."""
