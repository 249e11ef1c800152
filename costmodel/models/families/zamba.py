"""Zamba and Zamba2: Mamba layers, some of them after one attention block that all of these share.

The shared block reads the hidden state beside the embedding, so its matrices are twice as wide; its
weights are stored once and read in every layer that uses it.
"""

from __future__ import annotations

from dataclasses import replace

from costmodel.models.parts.attention import grouped_query
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import borrowed, decoder, layer
from costmodel.models.parts.ffn import dense_ffn
from costmodel.models.parts.states.linear import state_element_bytes
from costmodel.models.parts.states.mamba import mamba1, mamba2
from costmodel.models.registry import Family
from costmodel.models.spec import Attention, DenseFFN, Layer, LinearState, ModelSpec, Weights


def read(b: Builder) -> ModelSpec:
    """``layers_block_type`` says where the shared block stands; Zamba2 may have several in turns."""
    c, count = b.config, b.num_layers
    kind = str(c.data.get("model_type") or c.data.get("architectures")).lower()
    hybrids = _hybrids(b, count)
    shared = _Shared(b, "zamba2" in kind)
    mamba = _Mamba2(b) if "zamba2" in kind else _Mamba1(b)
    c.ignore("use_mamba_kernels", "use_associative_scan", "hidden_mamba_act", "use_mem_eff_path",
             "chunk_size", "use_mem_rope", "use_long_context", "num_query_groups", "kv_channels",
             "attn_layer_period", "attn_layer_offset", "hybrid_layer_ids",
             "mamba_headdim", "mamba_chunk_size", "vocab_file")  # fmt: skip
    if shared.blocks < len(hybrids):
        c.log.note(
            "the shared attention block is stored once; in a replica of several stages every stage "
            "that uses it needs a copy more"
        )

    def at(index: int) -> Layer:
        name = f"model.layers.{index}"
        block = mamba(f"{name}.mamba")
        if index not in hybrids:
            return layer(b, block)
        turn = hybrids.index(index)
        attention, feed, norms = shared(name, turn)
        joint = b.matrix(
            "after the shared block", f"{name}.linear", b.hidden, b.hidden, "replicated"
        )
        plain = layer(b, attention, feed, block, norms=norms + b.hidden)
        return Layer(plain.sublayers, (*plain.extra, joint))

    return decoder(b, at, tied_default=True)


def _hybrids(b: Builder, count: int) -> list[int]:
    c = b.config
    names = ("mamba", "linear_attention", "hybrid")
    kinds = c.strings("layers_block_type", names, count)
    if kinds is not None:
        return [index for index, kind in enumerate(kinds) if kind == "hybrid"]
    listed = c.indices("hybrid_layer_ids", count)
    if listed is not None:
        return sorted(listed)
    if c.has("attn_layer_period") or "attn_layer_period" in c.class_defaults:
        period = c.size("attn_layer_period", default=6, because="class default", high=2**11)
        offset = c.size("attn_layer_offset", default=4, because="class default", low=0, high=2**11)
        c.log.note("assumed: layers_block_type not given: period and offset decide")
        # the class puts one into the third layer and counts the period from the fourth
        return [index for index in range(2, count) if index == 2 or (index - 3) % period == offset]
    raise c.fail("layers_block_type", "is missing: where the shared block stands is not known")


class _Shared:
    def __init__(self, b: Builder, second: bool):
        c = b.config
        self.b, self.second, self.width = b, second, b.ffn_width
        wide = c.size("attention_hidden_size", default=2 * b.hidden, because="hidden and embedding")
        if wide != 2 * b.hidden:
            c.problem("attention_hidden_size", f"is {wide}, not twice the hidden size {b.hidden}")
        self.heads, self.kv_heads = b.heads, b.kv_heads()
        self.dim = c.size("attention_head_dim", default=2 * b.hidden // self.heads, high=2**14,
                          because="twice the hidden size / heads")  # fmt: skip
        self.blocks, self.rank, self.attention_rank = 1, 0, 0
        self.bias = c.flag("add_bias_linear", default=False) if second else False
        if second:
            self.blocks = c.size("num_mem_blocks", default=1, because="class default", high=64)
            self.rank = c.size("adapter_rank", default=128, because="class default", high=2**14)
            adapted = c.flag("use_shared_attention_adapter", default=False)
            self.attention_rank = self.rank if adapted else 0

    def __call__(self, name: str, turn: int) -> tuple[Attention, DenseFFN, int]:
        b, wide = self.b, 2 * self.b.hidden
        at = f"{name}.shared_transformer"
        attention = grouped_query(
            b, f"{at}.self_attn", self.heads, self.kv_heads, self.dim, input_dim=wide
        )
        feed = dense_ffn(b, f"{at}.feed_forward", self.width, bias=self.bias)
        norms = wide + b.hidden
        if turn >= self.blocks:
            attention = replace(attention, weights=borrowed(attention.weights))
            feed = replace(feed, weights=borrowed(feed.weights))
            norms = 0
        if self.rank:
            feed = replace(feed, weights=(
                *feed.weights, *_adapter(b, f"{at}.adapter", b.hidden, self.rank, 2 * self.width)
            ))  # fmt: skip
        if self.attention_rank:
            rows = self.heads * self.dim
            adapters = [
                part for which in ("q", "k", "v")
                for part in _adapter(b, f"{at}.linear_{which}", wide, self.attention_rank, rows)
            ]  # fmt: skip
            attention = replace(attention, weights=(*attention.weights, *adapters))
        return attention, feed, norms


def _adapter(b: Builder, at: str, cols: int, rank: int, rows: int) -> tuple[Weights, ...]:
    """A low-rank addition of a layer's own to the shared block."""
    return (
        b.matrix("adapter down", f"{at}.0", rank, cols, "replicated"),
        b.matrix("adapter up", f"{at}.1", rows, rank, "replicated"),
    )


class _Mamba1:
    def __init__(self, b: Builder):
        c = b.config
        self.b = b
        self.inner = c.size("mamba_expand", default=2, because="class default", high=64) * b.hidden
        c.size("n_mamba_heads", default=2, because="class default", high=2**12)
        self.state = c.size("mamba_d_state", default=16, because="class default", high=2**14)
        self.conv = c.size("mamba_d_conv", default=4, because="class default", high=64)
        auto = -(-b.hidden // 16)
        if c.data.get("mamba_dt_rank") == "auto":
            c.ignore("mamba_dt_rank")
            self.rank = auto
        else:
            self.rank = c.size(
                "mamba_dt_rank", default=auto, because="hidden size / 16, rounded up"
            )
        self.conv_bias = c.flag("mamba_conv_bias", default=True)
        self.bias, self.element = c.flag("mamba_proj_bias", default=False), state_element_bytes(c)

    def __call__(self, at: str) -> LinearState:
        return mamba1(
            self.b, at, inner=self.inner, state=self.state, dt_rank=self.rank, conv=self.conv,
            conv_bias=self.conv_bias, proj_bias=self.bias, inner_norms=False,
            element_bytes=self.element,
        )  # fmt: skip


class _Mamba2:
    def __init__(self, b: Builder):
        c = b.config
        self.b = b
        inner = c.size("mamba_expand", default=2, because="class default", high=64) * b.hidden
        self.heads = c.size("n_mamba_heads", default=8, because="class default", high=2**14)
        self.dim = inner // self.heads
        if inner % self.heads:
            c.problem("n_mamba_heads", f"{self.heads} heads do not divide {inner} channels")
        self.groups = c.size("mamba_ngroups", default=1, because="class default", high=2**12)
        self.state = c.size("mamba_d_state", default=64, because="class default", high=2**14)
        self.conv = c.size("mamba_d_conv", default=4, because="class default", high=64)
        self.conv_bias = c.flag("use_conv_bias", default=True)
        self.bias, self.element = c.flag("add_bias_linear", default=False), state_element_bytes(c)

    def __call__(self, at: str) -> LinearState:
        return mamba2(
            self.b, at, heads=self.heads, head_dim=self.dim, groups=self.groups, state=self.state,
            conv=self.conv, conv_bias=self.conv_bias, proj_bias=self.bias, element_bytes=self.element,
        )  # fmt: skip


FAMILY = Family(
    "zamba", ("zamba", "zamba2"), ("ZambaForCausalLM", "Zamba2ForCausalLM"), read
)  # fmt: skip
