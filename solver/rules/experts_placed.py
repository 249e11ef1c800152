"""Every expert gets a slot: placements start from one of each, copies fill what is left."""

OF = "replica"
HOLDS = "placements hold every expert at least once and none twice on a chip"
