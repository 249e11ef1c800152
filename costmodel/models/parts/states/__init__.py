"""What keeps a constant state per sequence: linear attention, state spaces, other recurrences."""
