"""Expert placements as tables and in the formats that engines load."""
