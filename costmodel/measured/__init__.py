"""Measured serving runs: read, turned into instances and layouts, predicted, scored, fitted."""
