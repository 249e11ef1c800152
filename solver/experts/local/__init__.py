"""Searches that start from a placement and improve it."""
