"""How matrices are stored: formats, what a checkpoint says of them, and whose names its lists use."""
