"""Shapes that the named engine refuses are not enumerated; experts lie as it would place them."""

OF = "replica"
HOLDS = (
    "shapes are enumerated within the engine's limits and placed as it loads them; rates, and with them the "
    "largest batch of a decode pass, are those of its exchange"
)
