"""What whole units carry at most, and what a plan costs at least."""
