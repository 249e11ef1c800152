"""Readers of benchmark tools' results, one file each; :mod:`rackfit.measurements.rows` finds them by their place.

A reader has ``TITLE``, ``recognises(entry) -> bool`` for one JSON object, cheap and never raising, and
``read(entry, place) -> list[Bench]``. Of two that recognise an object the first by name reads it.
"""
