"""The lecture's closed forms, for reasoning and tests."""
