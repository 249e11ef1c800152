"""One file per architecture family; each is found by its file name."""
