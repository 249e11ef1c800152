"""Parts that architecture families share: weights, precision, attention kinds, FFN and MoE."""
