"""Layouts for traffic: percentiles are targets, a replay is the judge, and the proof holds for every schedule."""
