"""Lower bounds on the busiest chip of a layer."""
