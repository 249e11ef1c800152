"""Options that a question leaves to the search."""
