"""What the busiest chip of a MoE layer does at least: experts anywhere, in order, in shared slots, cut."""
