"""Which layers are MoE and which slide: the many ways configs say so."""

from __future__ import annotations

from costmodel.models.config import MAX_LAYERS
from costmodel.models.parts.builder import Builder


def sparse_layers(b: Builder, count: int, *, first_default: int | None = None) -> list[bool]:
    """MoE layers of the DeepSeek convention.

    ``first_k_dense_replace`` dense layers, then every ``moe_layer_freq``-th is MoE; the latter may
    be a 0/1 list, and ``mlp_layer_types``, where present, must agree.
    """
    c = b.config
    freq = c.data.get("moe_layer_freq")
    if c.has("mlp_layer_types") and not c.has("first_k_dense_replace") and freq is None:
        types = c.strings("mlp_layer_types", ("dense", "sparse"), count)
        return [kind == "sparse" for kind in types or ()]
    if isinstance(freq, list):
        flags = c.sizes("moe_layer_freq", count, high=1) or []
        c.ignore("first_k_dense_replace")
        result = [flag == 1 for flag in flags]
    else:
        first = c.size(
            "first_k_dense_replace", default=first_default, because="family default", low=0,
            high=MAX_LAYERS,
        )  # fmt: skip
        step = c.size("moe_layer_freq", default=1, because="every layer", high=MAX_LAYERS)
        result = [index >= first and index % step == 0 for index in range(count)]
    types = c.strings("mlp_layer_types", ("dense", "sparse"), count)
    if types is not None and [kind == "sparse" for kind in types] != result:
        raise c.fail("mlp_layer_types", "contradicts first_k_dense_replace and moe_layer_freq")
    return result


def listed_sparse_layers(
    b: Builder, count: int, first_keys: tuple[str, ...], default: int
) -> list[bool]:
    """MoE layers in any of the usual spellings; ``mlp_layer_types`` wins where it is given.

    Else leading dense layers (``first_keys``, ``default`` where absent), ``moe_layer_freq``,
    ``decoder_sparse_step`` and ``mlp_only_layers``.
    """
    c = b.config
    types = c.strings("mlp_layer_types", ("dense", "sparse"), count)
    if types is not None:
        c.ignore(*first_keys, "moe_layer_freq", "decoder_sparse_step", "mlp_only_layers")
        return [kind == "sparse" for kind in types]
    if c.has("moe_layer_freq"):
        return sparse_layers(b, count, first_default=default)
    first = c.size(*first_keys, default=default, because="class default", low=0, high=MAX_LAYERS)
    step = c.size("decoder_sparse_step", default=1, because="every layer", high=MAX_LAYERS)
    only = c.indices("mlp_only_layers", count) or []
    return [
        index >= first and (index + 1) % step == 0 and index not in only for index in range(count)
    ]


def index_owners(b: Builder, count: int) -> list[bool]:
    """Layers of sparse attention that run an index of their own; the others reuse the last choice."""
    types = b.config.strings("indexer_types", ("full", "shared"), count)
    if types is None:
        freq = b.config.optional_size(
            "index_topk_freq", because="every layer owns an indexer", high=MAX_LAYERS
        )
        offset = b.config.size(
            "index_skip_topk_offset", default=0, because="from the first", low=0, high=MAX_LAYERS
        )
        return [max(index + 1 - offset, 0) % (freq or 1) == 0 for index in range(count)]
    return [kind == "full" for kind in types]


def windowed_layers(
    b: Builder, count: int, *, pattern: int | None, because: str, sliding: str = "sliding_attention"
) -> list[bool]:
    """Layers with a sliding window: from ``layer_types``, else every ``pattern``-th is full.

    ``pattern`` None means that no pattern is known and ``layer_types`` is required.
    """
    c = b.config
    types = c.strings("layer_types", ("full_attention", sliding), count)
    if types is not None:
        return [kind == sliding for kind in types]
    if pattern is None:
        raise c.fail("layer_types", "is missing: which layers slide is not known")
    c.log.note(
        f"assumed: layer_types not given: one layer in {pattern} has full attention ({because})"
    )
    c.log.read(f"{c.path}layer_types", f"one in {pattern} full", because)
    return [(index + 1) % pattern != 0 for index in range(count)]
