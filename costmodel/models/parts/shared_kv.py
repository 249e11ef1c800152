"""Attention whose keys and values are one shared vector per entry (DeepSeek-V4): weights and cache.

Queries pass a low rank; the output is projected in groups, then back. Source: DeepSeek-V4 report,
section 2, and its inference code.
"""

from __future__ import annotations

from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import MAX_POSITIONS
from costmodel.models.parts.mla import Indexer
from costmodel.models.spec import Attention, Weights


class SharedKV:
    """Widths of such an attention, and its parts by layer."""

    def __init__(self, b: Builder):
        c = b.config
        self.b = b
        self.heads, self.dim = b.heads, c.size("head_dim", high=2**14)
        if b.kv_heads() != 1:
            c.problem("num_key_value_heads", "must be 1: keys and values are one shared vector")
        self.q_rank = c.size("q_lora_rank", high=2**17)
        self.groups = c.size("o_groups", high=2**12)
        self.o_rank = c.size("o_lora_rank", high=2**17)
        c.size("qk_rope_head_dim", high=2**14)
        self.window = c.size("sliding_window", high=MAX_POSITIONS)
        self.indexer = Indexer.read(b)
        if self.heads * self.dim % self.groups:
            c.problem("o_groups", f"does not divide {self.heads} heads of {self.dim}")

    def projections(self, at: str) -> list[Weights]:
        """Query, shared key/value and grouped output of one layer, norms and sinks."""
        b, heads, dim = self.b, self.heads, self.dim
        grouped = self.groups * self.o_rank
        return [
            b.matrix("query down", f"{at}.wq_a", self.q_rank, b.hidden, "replicated"),
            b.matrix("query up", f"{at}.wq_b", heads * dim, self.q_rank, "heads"),
            b.matrix("shared key/value", f"{at}.wkv", dim, b.hidden, "replicated"),
            b.matrix("output down", f"{at}.wo_a", grouped, heads * dim // self.groups, "heads"),
            b.matrix("output up", f"{at}.wo_b", b.hidden, grouped, "heads"),
            b.vector("attention norms and sinks", self.q_rank + dim + heads),
        ]

    def index_query(self, at: str) -> list[Weights]:
        """The index's queries and the weights of its heads."""
        index = self.indexer
        return [
            self.b.matrix("index query", f"{at}.wq_b", index.heads * index.dim, self.q_rank,
                          "replicated"),
            self.b.matrix("index head weights", f"{at}.weights_proj", index.heads, self.b.hidden,
                          "replicated", role="plain"),
        ]  # fmt: skip

    def attention(
        self,
        kind: str,
        weights: list[Weights],
        ratio: int,
        *,
        owns: bool = True,
        chooses: bool = False,
        selects: bool = False,
    ) -> Attention:
        """One layer. ``ratio`` 0 sees its window alone; else the window and compressed entries.

        ``owns``: the entries are this layer's; ``chooses``: it runs the index; ``selects``: it reads
        the chosen entries only.
        """
        dim, index = self.dim, self.indexer
        return Attention(
            kind=kind,
            weights=tuple(weights),
            query_heads=self.heads,
            kv_heads=1,
            kv_elements=dim,
            decode_qk_dim=dim,
            decode_v_dim=dim,
            prefill_qk_dim=dim,
            prefill_v_dim=dim,
            window=None if ratio else self.window,
            index_elements=index.dim // ratio if chooses and owns else 0,
            index_heads=index.heads if chooses else 0,
            index_dim=index.dim if chooses else 0,
            read_top_k=index.top_k if selects else None,
            compress=ratio or 1,
            local_window=self.window if ratio else 0,
            owns_cache=owns,
        )
