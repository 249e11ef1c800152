"""Readers of operators' files, one file each; :mod:`rackfit.discovery.shelf` finds them by their place."""
