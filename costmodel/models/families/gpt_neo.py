"""GPT-Neo: layers with full attention and layers with a window in turns, learned positions."""

from __future__ import annotations

from typing import Any

from costmodel.models.config import MAX_LAYERS
from costmodel.models.parts.attention import grouped_query
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import MAX_POSITIONS, decoder, layer
from costmodel.models.parts.ffn import dense_ffn
from costmodel.models.registry import Family
from costmodel.models.spec import Layer, ModelSpec, Weights


def read(b: Builder) -> ModelSpec:
    """``attention_layers``, or ``attention_types``: patterns and how often each repeats."""
    c, count = b.config, b.num_layers
    heads, dim = b.heads, b.head_dim()
    width = c.size("intermediate_size", default=4 * b.hidden, because="four times the hidden size")
    window = c.size("window_size", default=256, high=MAX_POSITIONS)
    kinds = c.strings("attention_layers", ("global", "local"), count) or _expanded(b, count)
    rows = c.size("max_position_embeddings", default=2048, high=MAX_POSITIONS)
    c.ignore("attention_types", "classifier_dropout", "resid_dropout", "embed_dropout")

    def at(index: int) -> Layer:
        name = f"transformer.h.{index}"
        attention = grouped_query(
            b, f"{name}.attn.attention", heads, heads, dim, o_bias=True,
            window=window if kinds[index] == "local" else None,
        )  # fmt: skip
        ffn = dense_ffn(b, f"{name}.mlp", width, gated=False, bias=True)
        return layer(b, attention, ffn, norms=4 * b.hidden)

    table = b.matrix("positions", "transformer.wpe", rows, b.hidden, "vocab", role="plain")
    positions = Weights("positions", table.params, table.num_bytes, table.dtype, "vocab", 0)
    return decoder(b, at, tied_default=True, final_norm=2 * b.hidden, extra_embedding=(positions,))


def _expanded(b: Builder, count: int) -> list[str]:
    """``[[["global", "local"], 12]]`` as a list with one entry per layer."""
    given: Any = b.config.data.get("attention_types")
    if given is None:
        b.config.log.note("assumed: attention_types not given: global and local in turns")
        return ["local" if index % 2 else "global" for index in range(count)]
    found: list[str] = []
    for entry in given if isinstance(given, list) else [None]:
        kinds, times = entry if isinstance(entry, list) and len(entry) == 2 else (None, None)
        if (
            not isinstance(kinds, list)
            or not all(kind in ("global", "local") for kind in kinds)
            or not isinstance(times, int)
            or not 0 < times * len(kinds) <= MAX_LAYERS
        ):
            raise b.config.fail("attention_types", 'expected [[["global", "local"], times], ...]')
        found += kinds * times
    if len(found) != count:
        raise b.config.fail("attention_types", f"names {len(found)} layers of {count}")
    return found


FAMILY = Family("gpt_neo", ("gpt_neo",), ("GPTNeoForCausalLM",), read)
