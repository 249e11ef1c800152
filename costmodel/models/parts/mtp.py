"""Multi-token-prediction modules as DeepSeek-V3 builds them."""

from __future__ import annotations

from collections.abc import Callable

from costmodel.models.config import MAX_LAYERS
from costmodel.models.parts.builder import Builder
from costmodel.models.spec import MTP, Layer


def num_modules(b: Builder, *names: str, default: int = 0) -> int:
    """Number of MTP modules the config declares."""
    return b.config.size(
        *(names or ("num_nextn_predict_layers",)),
        default=default,
        because="no MTP module declared" if not default else "family default",
        low=0,
        high=MAX_LAYERS // 8,
    )


def next_token_modules(
    b: Builder, count: int, layer_at: Callable[[int], Layer], first: int, *, num_norms: int = 3
) -> MTP | None:
    """``count`` modules of one layer, a projection of two hidden vectors to one, and norms.

    Embedding and head are shared with the main model, but repeated in the checkpoint. Source: DeepSeek-V3 report, section 2.2.
    """
    if count == 0:
        return None
    extra = []
    for index in range(first, first + count):
        extra.append(
            b.matrix("MTP projection", f"model.layers.{index}.eh_proj", b.hidden, 2 * b.hidden,
                     "replicated", role="plain")
        )  # fmt: skip
        extra.append(b.vector("MTP norms", num_norms * b.hidden))
    layers = tuple(layer_at(index) for index in range(first, first + count))
    return MTP(count, layers, tuple(extra), copies_tables=True)
