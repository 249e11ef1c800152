"""Qwen3-Next and Qwen3.5: three gated-delta layers to one gated full-attention layer."""

from __future__ import annotations

from costmodel.models.config import MAX_LAYERS
from costmodel.models.parts.attention import grouped_query
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import decoder, layer
from costmodel.models.parts.ffn import Experts, dense_ffn, ffn_weights, mixture
from costmodel.models.parts.mtp import num_modules
from costmodel.models.parts.states.linear import DeltaHeads, gated_delta, state_element_bytes
from costmodel.models.registry import Family
from costmodel.models.spec import MTP, DenseFFN, Layer, ModelSpec, MoE


def read(b: Builder) -> ModelSpec:
    """Full attention projects an output gate as wide as the queries; one shared gated expert."""
    c, count = b.config, b.num_layers
    kind = str(c.data.get("model_type") or c.data.get("architectures")).lower()
    heads, kv_heads, dim = b.heads, b.kv_heads(), b.head_dim(256)
    gated = c.flag("attn_output_gate", default=True, because="always in this family")
    bias = c.flag("attention_bias", default=False)
    delta = DeltaHeads(
        c.size("linear_num_key_heads", high=2**12),
        c.size("linear_num_value_heads", high=2**12),
        c.size("linear_key_head_dim", high=2**14),
        c.size("linear_value_head_dim", high=2**14),
        c.size("linear_conv_kernel_dim", high=64),
    )
    element, full = state_element_bytes(c), _full_layers(b, count)
    c.ignore("mtp_use_dedicated_embeddings", "use_sliding_window", "sliding_window")
    feed = _Sparse(b, count) if "moe" in kind or "next" in kind else _Dense(b)
    if "next" in kind:
        modules = num_modules(b, "num_nextn_predict_layers", default=1)
    else:
        modules = num_modules(b, "mtp_num_hidden_layers")

    def at(index: int) -> Layer:
        name = f"model.layers.{index}"
        if index < count and not full[index]:
            return layer(b, gated_delta(b, f"{name}.linear_attn", delta, element), feed(index))
        attention = grouped_query(
            b, f"{name}.self_attn", heads, kv_heads, dim, qkv_bias=bias, o_bias=bias,
            vectors=2 * dim, gate_rows=heads * dim if gated else 0,
            gate_in="q_proj",
        )  # fmt: skip
        return layer(b, attention, feed(index))

    def mtp() -> MTP | None:
        if not modules:
            return None
        extra = (
            b.matrix(
                "MTP projection", "mtp.fc", b.hidden, 2 * b.hidden, "replicated", role="plain"
            ),
            b.vector("MTP norms", 3 * b.hidden),
        )
        return MTP(modules, tuple(at(count + index) for index in range(modules)), extra)

    return decoder(b, at, mtp=mtp)


def _full_layers(b: Builder, count: int) -> list[bool]:
    """``layer_types`` or every ``full_attention_interval``-th; where both are given they agree."""
    c = b.config
    types = c.strings("layer_types", ("linear_attention", "full_attention"), count)
    if types is None or c.has("full_attention_interval"):
        step = c.size(
            "full_attention_interval", default=4, because="class default", high=MAX_LAYERS
        )
        by_step = [(index + 1) % step == 0 for index in range(count)]
        if types is None:
            c.log.note("assumed: layer_types not given, full_attention_interval decides")
            return by_step
        if by_step != [kind == "full_attention" for kind in types]:
            raise c.fail("layer_types", "contradicts full_attention_interval")
    return [kind == "full_attention" for kind in types]


class _Dense:
    def __init__(self, b: Builder):
        self.b, self.width = b, b.ffn_width
        b.config.ignore("mlp_only_layers")

    def __call__(self, index: int) -> DenseFFN:
        return dense_ffn(self.b, f"model.layers.{index}.mlp", self.width)


class _Sparse:
    def __init__(self, b: Builder, count: int):
        c = b.config
        self.b, self.experts, self.count = b, Experts.read(b), count
        self.shared = c.size("shared_expert_intermediate_size")
        step = c.size("decoder_sparse_step", default=1, because="every layer", high=MAX_LAYERS)
        self.dense = {i for i in range(count) if (i + 1) % step}
        self.dense.update(c.indices("mlp_only_layers", count) or ())
        self.width = b.ffn_width if self.dense else 0
        c.ignore("intermediate_size")

    def __call__(self, index: int) -> DenseFFN | MoE:
        b, at = self.b, f"model.layers.{index}.mlp"
        if index in self.dense:
            return dense_ffn(b, at, self.width)
        shared = (
            *ffn_weights(b, f"{at}.shared_expert", self.shared, prefix="shared expert's "),
            b.matrix("shared expert gate", f"{at}.shared_expert_gate", 1, b.hidden, "replicated",
                     role="plain"),
        )  # fmt: skip
        return mixture(b, at, self.experts, shared=shared, num_shared=1)


FAMILY = Family(
    "qwen3_next",
    (
        "qwen3_next", "qwen3_5_text", "qwen3_5", "qwen3_5_moe_text", "qwen3_5_moe",
    ),
    (
        "Qwen3NextForCausalLM", "Qwen3_5ForConditionalGeneration", "Qwen3_5ForCausalLM",
        "Qwen3_5MoeForConditionalGeneration", "Qwen3_5MoeForCausalLM",
    ),
    read,
)  # fmt: skip
