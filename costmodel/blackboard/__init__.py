"""The lecture's closed forms, for studies, reasoning and tests."""
