"""Sliding windows: when a config's window is on, and how wide it is."""

from __future__ import annotations

from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import MAX_POSITIONS


def uniform_window(b: Builder) -> int | None:
    """Window of all layers: null means none, and so does one as long as the model's context."""
    c = b.config
    window = c.optional_size("sliding_window", because="no window", high=MAX_POSITIONS)
    positions = c.data.get("max_position_embeddings")
    if window is not None and isinstance(positions, int) and window >= positions:
        c.log.note(f"sliding_window {window} covers all {positions} positions: no window")
        return None
    return window


def switched_window(b: Builder) -> int | None:
    """Qwen's window: only where ``use_sliding_window`` is true (it is false in every release)."""
    c = b.config
    if c.flag("use_sliding_window", default=False):
        return uniform_window(b)
    c.ignore("sliding_window")
    return None
