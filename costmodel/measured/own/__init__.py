"""One's own runs: what they say beyond the shipped measurements, and what to measure next."""
