"""Softmax attention with keys and values per head: MHA, GQA, MQA, windowed and chunked."""

from __future__ import annotations

from costmodel.models.parts.builder import Builder
from costmodel.models.spec import Attention, Weights


def kind_of(heads: int, kv_heads: int) -> str:
    """``mha``, ``gqa`` or ``mqa``."""
    if kv_heads == heads and heads > 1:
        return "mha"
    return "mqa" if kv_heads == 1 else "gqa"


def grouped_query(
    b: Builder,
    at: str,
    heads: int,
    kv_heads: int,
    head_dim: int,
    *,
    v_dim: int | None = None,
    kind: str | None = None,
    window: int | None = None,
    qkv_bias: bool = False,
    o_bias: bool = False,
    vectors: int = 0,
    gate_rows: int = 0,
    gate_in: str = "g_proj",
    has_kv: bool = True,
    has_v: bool = True,
    extra: tuple[Weights, ...] = (),
    index: tuple[int, int, int] | None = None,
    input_dim: int | None = None,
    query_rank: int | None = None,
) -> Attention:
    """Attention with ``heads`` query and ``kv_heads`` key/value heads of ``head_dim``.

    ``vectors`` counts norms and sinks; ``gate_rows`` rows of an output gate are projected beside the
    queries, by the module ``gate_in``; ``has_kv`` False means the layer reads another layer's cache; ``has_v`` False means
    values come from the key projection but are cached. ``index`` is (top_k tokens, index heads,
    index width) of block-sparse attention. ``input_dim`` is what is projected, the hidden size unless
    given. ``query_rank`` projects queries in two steps of that width, the first the same for all heads.
    """
    h, v_width = input_dim or b.hidden, head_dim if v_dim is None else v_dim
    weights = [
        b.matrix("query", f"{at}.q_proj" if query_rank is None else f"{at}.wq", heads * head_dim,
                 query_rank or h, "heads", bias=qkv_bias),
        b.matrix(
            "attention output", f"{at}.o_proj", b.hidden, heads * v_width, "heads", bias=o_bias
        ),
    ]  # fmt: skip
    if query_rank is not None:
        weights.append(b.matrix("query down", f"{at}.q_proj", query_rank, h, "replicated"))
    if has_kv:
        weights.append(
            b.matrix("key", f"{at}.k_proj", kv_heads * head_dim, h, "kv_heads", bias=qkv_bias)
        )
        if has_v:
            weights.append(
                b.matrix("value", f"{at}.v_proj", kv_heads * v_width, h, "kv_heads", bias=qkv_bias)
            )
    if gate_rows:
        weights.append(b.matrix("output gate", f"{at}.{gate_in}", gate_rows, h, "heads"))
    if vectors:
        weights.append(b.vector("attention norms and sinks", vectors))
    base = kind_of(heads, kv_heads)
    top_k, index_heads, index_dim = index or (None, 0, 0)
    return Attention(
        kind=kind or (base if window is None else f"{base}-swa"),
        weights=(*weights, *extra),
        query_heads=heads,
        kv_heads=kv_heads,
        kv_elements=kv_heads * (head_dim + v_width),
        decode_qk_dim=head_dim,
        decode_v_dim=v_width,
        prefill_qk_dim=head_dim,
        prefill_v_dim=v_width,
        window=window,
        index_elements=index_dim,
        index_heads=index_heads,
        index_dim=index_dim,
        read_top_k=top_k,
        owns_cache=has_kv,
    )
