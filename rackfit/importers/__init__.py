"""Deployments that a person already runs, read from their engine's own files."""
