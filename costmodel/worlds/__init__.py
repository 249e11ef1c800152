"""The fit's uncertainty: parameter sets that the measurements allow as well, and a layout in all of them."""
