"""What a layout achieves: model specs, roofline, communication, memory, price. Never sees the solver."""
