"""One rule per file: what makes a layout invalid."""
