"""What to buy: how many whole units of hardware serve a rate."""
