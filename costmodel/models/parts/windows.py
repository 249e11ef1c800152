"""Sliding windows: when a config's window is on, and how wide it is."""

from __future__ import annotations

from collections.abc import Callable

from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import MAX_POSITIONS
from costmodel.models.parts.schedule import windowed_layers


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


def upper_windows(b: Builder, count: int) -> list[int | None]:
    """Qwen2's dense windows: layers from ``max_window_layers`` up slide, if windows are on at all."""
    c = b.config
    if not c.flag("use_sliding_window", default=False):
        c.ignore("sliding_window", "max_window_layers", "layer_types")
        return [None] * count
    window = uniform_window(b)
    types = c.strings("layer_types", ("full_attention", "sliding_attention"), count)
    if types is not None:
        c.ignore("max_window_layers")
        return [window if kind == "sliding_attention" else None for kind in types]
    first = c.size("max_window_layers", default=28, because="class default", low=0)
    return [window if index >= first else None for index in range(count)]


def listed_windows(b: Builder, count: int) -> list[int | None]:
    """Windows by ``layer_types``; a window without a list of layers is refused, not guessed."""
    c = b.config
    if not c.has("sliding_window") or c.data.get("use_sliding_window") is False:
        c.ignore("sliding_window", "use_sliding_window", "max_window_layers")
        types = c.strings("layer_types", ("full_attention",), count)
        c.log.note(
            "assumed: full attention in every layer" + ("" if types else " (no window given)")
        )
        return [None] * count
    c.ignore("use_sliding_window")
    window = uniform_window(b)
    types = c.strings("layer_types", ("full_attention", "sliding_attention"), count)
    if types is None and window is not None:
        raise c.fail("layer_types", "is missing: which layers slide is not known")
    if types is None:
        return [None] * count
    return [window if kind == "sliding_attention" else None for kind in types]


def patterned_windows(
    b: Builder, count: int, pattern: int, keys: tuple[str, ...] = ()
) -> list[int | None]:
    """Windows by ``layer_types``, or in all but one of ``pattern`` layers; null switches them off.

    ``keys`` name the pattern where the config may give it.
    """
    c = b.config
    if c.has("layer_types"):
        c.ignore(*keys)
    elif keys:
        pattern = c.size(*keys, default=pattern, because="class default")
    window = uniform_window(b)
    if window is None:
        c.ignore("layer_types")
        return [None] * count
    slides = windowed_layers(b, count, pattern=pattern, because="class default")
    return [window if slide else None for slide in slides]


#: Names that configs use for a layer whose attention has a window.
SLIDING = (
    "sliding_attention",
    "hybrid_sliding",
    "local",
    "sliding",
    "local_attention",
    "sliding_window",
)
#: Names of the others.
FULL = ("full_attention", "hybrid", "global", "full", "global_attention", "attention")


def typed_windows(
    b: Builder, count: int, slides: Callable[[int, int], bool] | None = None
) -> list[int | None]:
    """Windows by ``layer_types`` in any spelling.

    Without the list the class's rule ``slides(layer, layers)`` holds; a class without one has the
    window in every layer, or in none where the config gives no window.
    """
    c = b.config
    types = c.strings("layer_types", (*SLIDING, *FULL), count)
    names = ("sliding_window", "sliding_window_size", "window_size", "attention_window_size")
    c.ignore("use_sliding_window", "max_window_layers")
    if types is not None and not set(types) & set(SLIDING):
        c.ignore(*names)
        return [None] * count
    if c.data.get("use_sliding_window") is False:
        c.ignore(*names)
        return [None] * count
    window = c.optional_size(*names, because="no window", high=MAX_POSITIONS)
    if types is None and window is not None:
        c.log.note("assumed: layer_types not given: the class's rule decides which layers slide")
        return [
            window if slides is None or slides(index, count) else None for index in range(count)
        ]
    return [window if kind in SLIDING else None for kind in types or ["full"] * count]
