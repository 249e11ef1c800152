"""Plans through the hours of a day: which whole units run which model when, and what makes such a plan invalid."""
