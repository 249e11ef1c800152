"""One placement for several recorded windows."""
