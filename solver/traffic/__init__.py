"""Layouts for traffic: percentiles are targets, a replay is the judge, and the bound holds for every order of requests."""
