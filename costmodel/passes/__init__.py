"""What one forward pass costs: operations, rooflines, collectives."""
