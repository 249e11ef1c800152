"""Why nothing fits, what binds, and what would fit."""
