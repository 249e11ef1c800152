"""No shape has more stages or domains, and no batch more sequences on a rank, than the question allows."""

OF = "replica"
HOLDS = "shapes are made, and batches bounded and tried, within the limits"
