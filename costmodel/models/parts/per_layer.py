"""Inputs per layer (Gemma 3n and 4): a second table gives each layer a short vector of every token."""

from __future__ import annotations

from costmodel.models.parts.builder import Builder
from costmodel.models.spec import Weights


def per_layer_input(b: Builder, name: str, width: int) -> tuple[Weights, ...]:
    """A layer's gate on its vector and the projection back."""
    return (
        b.matrix("per-layer input gate", f"{name}.per_layer_input_gate", width, b.hidden,
                 "replicated"),
        b.matrix("per-layer projection", f"{name}.per_layer_projection", b.hidden, width,
                 "replicated"),
    )  # fmt: skip


def per_layer_tables(b: Builder, rows: int, width: int, count: int) -> tuple[Weights, ...]:
    """A second embedding table with a short vector per layer, and its projection."""
    table = b.matrix("per-layer embedding", "model.embed_tokens_per_layer", rows, count * width,
                     "vocab", role="plain")  # fmt: skip
    projection = b.matrix("per-layer model projection", "model.per_layer_model_projection",
                          count * width, b.hidden, "replicated")  # fmt: skip
    unread = Weights(table.name, table.params, table.num_bytes, table.dtype, "vocab", 0)
    return (unread, projection, b.vector("per-layer norm", width))
