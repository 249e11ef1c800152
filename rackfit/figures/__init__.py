"""Charts and pictures as SVG or HTML text."""
