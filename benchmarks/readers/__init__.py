"""Benchmark tools run against a small endpoint, and what Rackfit reads of their files beside what the endpoint sent."""
