"""Peers of Rackfit's searches, written from their published descriptions."""
