"""gpt-oss: alternating windows, attention sinks, biases everywhere, mxfp4 experts."""

from __future__ import annotations

from dataclasses import replace

from costmodel.models.parts.attention import grouped_query
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import decoder, layer
from costmodel.models.parts.ffn import Experts, mixture
from costmodel.models.parts.schedule import windowed_layers
from costmodel.models.registry import Family
from costmodel.models.spec import Layer, ModelSpec

#: columns that share a scale in MXFP4; the loaders of vLLM and SGLang give each rank as many whole blocks as the first one
#: needs, the last ranks fewer (``_load_weights_mxfp4`` of vllm/model_executor/models/gpt_oss.py,
#: ``_load_mxfp4_experts_weights`` of sglang/srt/models/gpt_oss.py; both Apache-2.0)
MXFP4_COLUMNS = 32
#: and every rank's buffers, which kernels multiply whole, have a multiple of two blocks at least (128 or 256 columns under some
#: kernels, whole experts too): ``mxfp4_round_up_hidden_size_and_intermediate_size`` of vLLM,
#: ``create_weights`` of sglang/srt/layers/quantization/mxfp4.py
SLICE_STEP = 2 * MXFP4_COLUMNS


def read(b: Builder) -> ModelSpec:
    """Even layers slide over ``sliding_window`` tokens; one sink per query head."""
    c = b.config
    heads, kv_heads, dim, count = b.heads, b.kv_heads(), b.head_dim(64), b.num_layers
    experts = Experts.read(b, width_keys=("intermediate_size",))
    bias = c.flag("attention_bias", default=True)
    window = c.size("sliding_window", default=128)
    slides = windowed_layers(b, count, pattern=2, because="class default")
    c.ignore("initial_context_length")

    def at(index: int) -> Layer:
        name = f"model.layers.{index}"
        attention = grouped_query(
            b, f"{name}.self_attn", heads, kv_heads, dim, qkv_bias=bias, o_bias=bias,
            vectors=heads, window=window if slides[index] else None,
        )  # fmt: skip
        moe = mixture(
            b, f"{name}.mlp", experts, router_bias=True, expert_bias=True, router="router"
        )
        if moe.expert_block == MXFP4_COLUMNS:
            moe = replace(moe, slice_step=SLICE_STEP)
        return layer(b, attention, moe)

    return decoder(b, at)


FAMILY = Family("gpt_oss", ("gpt_oss",), ("GptOssForCausalLM",), read)
