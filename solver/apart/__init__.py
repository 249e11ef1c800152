"""Shapes of two groups, attention and routed experts on chips of their own: listed, bounded and placed."""
