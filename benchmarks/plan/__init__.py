"""Plans of a day beside doing without."""
