"""Random questions, asked and checked from end to end: ``make hunt N=2000``."""
