"""Results for people: text, pages, comparisons."""
