"""MiMo-V2: windows with their own head counts and sinks, values narrower than keys, MoE."""

from __future__ import annotations

from costmodel.models.config import Config
from costmodel.models.parts.attention import grouped_query
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import MAX_POSITIONS, decoder, layer
from costmodel.models.parts.ffn import Experts, dense_ffn, shared_mixture
from costmodel.models.parts.mtp import next_token_modules, num_modules
from costmodel.models.parts.schedule import sparse_layers
from costmodel.models.registry import Family
from costmodel.models.spec import Attention, Layer, ModelSpec


def read(b: Builder) -> ModelSpec:
    """``hybrid_layer_pattern``: 1 slides, 0 is full. ``swa_`` keys give the sliding heads."""
    c, count = b.config, b.num_layers
    pattern = c.sizes("hybrid_layer_pattern", count, high=1)
    kinds = c.strings("layer_types", ("full_attention", "sliding_attention"), count)
    if pattern is None and kinds is not None:
        pattern = [int(kind == "sliding_attention") for kind in kinds]
    if pattern is None and c.class_defaults:
        c.log.note("assumed: layer_types not given: the first and every sixth layer are full")
        pattern = [int(index > 0 and (index + 1) % 6 != 0) for index in range(count)]
    if pattern is None:
        raise c.fail("hybrid_layer_pattern", "is missing: which layers slide is not known")
    window = c.size("sliding_window", "sliding_window_size", high=MAX_POSITIONS)
    bias = c.flag("attention_bias", default=False)
    own, other = _Heads(b, c, ""), _Heads(b, c, "swa_")
    experts, num_shared = Experts.read(b, groups=True), 0
    if c.has("n_shared_experts"):
        num_shared = c.size("n_shared_experts", low=0, high=2**10)
    sparse, width = (
        sparse_layers(b, count, first_default=0 if c.has("hybrid_layer_pattern") else 1),
        b.ffn_width,
    )
    c.ignore("topk_method", "attention_value_scale", "hybrid_block_size", "swa_rope_theta")
    c.ignore("attention_chunk_size", "attention_projection_layout")
    modules = num_modules(b)

    def at(index: int) -> Layer:
        name = f"model.layers.{index}"
        heads = other if pattern[index] else own
        attention = heads.attention(
            b, f"{name}.self_attn", bias, window if pattern[index] else None
        )
        if not sparse[index]:
            return layer(b, attention, dense_ffn(b, f"{name}.mlp", width))
        return layer(b, attention, shared_mixture(b, f"{name}.mlp", experts, num_shared))

    def draft(index: int) -> Layer:
        name = f"model.mtp.layers.{index}"
        attention = other.attention(b, f"{name}.self_attn", bias, window)
        return layer(b, attention, dense_ffn(b, f"{name}.mlp", width))

    return decoder(b, at, mtp=lambda: next_token_modules(b, modules, draft, count))


class _Heads:
    """Heads of one kind of layer; a ``swa_`` key that is absent equals the plain one."""

    def __init__(self, b: Builder, c: Config, prefix: str):
        because = "as in full layers"
        plain = (b.heads, b.kv_heads(), b.head_dim())
        v_dim = c.size("v_head_dim", default=plain[2], because="the key width", high=2**14)
        self.query, self.kv, self.dim, self.v_dim = *plain, v_dim
        named = c.has("hybrid_layer_pattern") or not c.class_defaults
        if prefix:
            self.query = c.size(
                "swa_num_attention_heads", default=plain[0], because=because, high=2**12
            )
            self.kv = c.size(
                "swa_num_key_value_heads",
                default=plain[1] * (1 if named else 2),
                because=because if named else "twice as many, as in the class",
                high=2**12,
            )
            self.dim = c.size("swa_head_dim", default=plain[2], because=because, high=2**14)
            self.v_dim = c.size("swa_v_head_dim", default=v_dim, because=because, high=2**14)
        key = "add_swa_attention_sink_bias" if prefix else "add_full_attention_sink_bias"
        self.sinks = self.query if c.flag(key, default=bool(prefix) and not named) else 0

    def attention(self, b: Builder, at: str, bias: bool, window: int | None) -> Attention:
        """One layer's attention with these heads."""
        return grouped_query(
            b, at, self.query, self.kv, self.dim, v_dim=self.v_dim, qkv_bias=bias,
            vectors=self.sinks, window=window,
        )  # fmt: skip


FAMILY = Family(
    "mimo_v2",
    ("mimo_v2_flash", "mimo_v2"),
    ("MiMoV2FlashForCausalLM", "MiMoV2ForCausalLM"),
    read,
)
