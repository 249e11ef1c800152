"""Multi-head latent attention (DeepSeek-V2) and its sparse form with an indexer (DeepSeek-V3.2).

Source of the form: DeepSeek-V2 report, section 2.1, and DeepSeek-V3.2 report, section 2.1.
"""

from __future__ import annotations

from dataclasses import dataclass

from costmodel.models.parts.builder import Builder
from costmodel.models.spec import Attention, Weights


@dataclass(frozen=True)
class Latent:
    """Widths of latent attention."""

    heads: int
    q_rank: int | None
    kv_rank: int
    nope: int
    rope: int
    v: int

    @classmethod
    def read(cls, b: Builder, *, low_rope: int = 1) -> Latent:
        """The usual keys. A null ``q_lora_rank`` means one plain query projection."""
        c = b.config
        b.kv_heads()
        return cls(
            b.heads,
            c.optional_size("q_lora_rank", because="one plain query projection", high=2**17),
            c.size("kv_lora_rank", high=2**17),
            c.size("qk_nope_head_dim", high=2**14),
            c.size("qk_rope_head_dim", low=low_rope, high=2**14),
            c.size("v_head_dim", high=2**14),
        )


@dataclass(frozen=True)
class Indexer:
    """Sparse attention's index: its own query heads, one key per token, the best ``top_k`` read."""

    heads: int
    dim: int
    top_k: int

    @classmethod
    def read(cls, b: Builder) -> Indexer:
        """``index_n_heads``, ``index_head_dim`` and ``index_topk``."""
        c = b.config
        return cls(
            c.size("index_n_heads", high=2**12),
            c.size("index_head_dim", high=2**14),
            c.size("index_topk"),
        )


def latent_attention(
    b: Builder,
    at: str,
    latent: Latent,
    *,
    indexer: Indexer | None = None,
    owns_index: bool = True,
    bias: bool = False,
    gate_rows: int = 0,
    vectors: int = 0,
    input_dim: int | None = None,
) -> Attention:
    """MLA. Caches one latent of ``kv_rank + rope`` elements whatever the number of heads.

    Decode is absorbed: scores over ``kv_rank + rope``, values over ``kv_rank``. The latent
    projections are replicated under tensor parallelism. ``input_dim`` is what is projected, the hidden size unless given.
    """
    h, heads = input_dim or b.hidden, latent.heads
    qk = latent.nope + latent.rope
    weights: list[Weights] = []
    norms = latent.kv_rank + vectors
    if latent.q_rank is None:
        weights.append(b.matrix("query", f"{at}.q_proj", heads * qk, h, "heads"))
    else:
        norms += latent.q_rank
        weights += [
            b.matrix("query down", f"{at}.q_a_proj", latent.q_rank, h, "replicated", bias=bias),
            b.matrix("query up", f"{at}.q_b_proj", heads * qk, latent.q_rank, "heads"),
        ]
    latent_width = latent.kv_rank + latent.rope
    weights += [
        b.matrix("key/value down", f"{at}.kv_a_proj_with_mqa", latent_width, h, "replicated",
                 bias=bias),
        b.matrix("key/value up", f"{at}.kv_b_proj", heads * (latent.nope + latent.v),
                 latent.kv_rank, "heads"),
        b.matrix("attention output", f"{at}.o_proj", b.hidden, heads * latent.v, "heads", bias=bias),
    ]  # fmt: skip
    if gate_rows:
        weights.append(b.matrix("output gate", f"{at}.g_proj", gate_rows, h, "heads"))
    weights.append(b.vector("attention norms", norms))
    kind = "mla"
    if indexer is not None:
        kind = "dsa" if owns_index else "dsa-shared"
        if owns_index:
            weights += _index_weights(b, f"{at}.indexer", indexer, latent.q_rank or h)
    owner = indexer if owns_index else None
    return Attention(
        kind=kind,
        weights=tuple(weights),
        query_heads=heads,
        kv_heads=1,
        kv_elements=latent_width,
        decode_qk_dim=latent_width,
        decode_v_dim=latent.kv_rank,
        prefill_qk_dim=qk,
        prefill_v_dim=latent.v,
        index_elements=owner.dim if owner else 0,
        index_heads=owner.heads if owner else 0,
        index_dim=owner.dim if owner else 0,
        read_top_k=indexer.top_k if indexer else None,
    )


def _index_weights(b: Builder, at: str, indexer: Indexer, query_width: int) -> list[Weights]:
    return [
        b.matrix("index query", f"{at}.wq_b", indexer.heads * indexer.dim, query_width,
                 "replicated"),
        b.matrix("index key", f"{at}.wk", indexer.dim, b.hidden, "replicated"),
        b.matrix("index head weights", f"{at}.weights_proj", indexer.heads, b.hidden,
                 "replicated", role="plain"),
        b.vector("index key norm", 2 * indexer.dim),
    ]  # fmt: skip
