"""Expert placement beside peers and bounds, on one and on several workloads."""
