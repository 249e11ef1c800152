"""One command per file; each has ``register(app)``."""
