"""How a layout is found: shapes, bounds, CP-SAT models, search and certificate."""
