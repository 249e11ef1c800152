"""Whole systems that studies compare: steps between real ones, plain layouts, measured pairs, balanced decode."""
