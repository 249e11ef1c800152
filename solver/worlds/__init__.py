"""One layout for every parameter set that the measurements allow: the least cost at a confidence, with a bound."""
