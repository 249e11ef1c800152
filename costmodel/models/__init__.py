"""Model specs and the readers that build them from a config.json."""
