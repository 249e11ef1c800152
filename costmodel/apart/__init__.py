"""Attention and routed experts on chips of their own, with microbatches in flight between them."""
