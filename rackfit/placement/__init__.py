"""Expert placement as people ask for it."""
