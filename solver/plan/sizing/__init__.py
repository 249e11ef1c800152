"""How many whole units carry a peak after a loss: of one kind, of several together, for even requests or for traffic."""
