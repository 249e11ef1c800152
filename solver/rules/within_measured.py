"""Shapes that were not measured are not enumerated where the question keeps to what was."""

OF = "replica"
HOLDS = (
    "shapes are enumerated within the measured ones; the batch of a rank is bounded by the limits"
)
