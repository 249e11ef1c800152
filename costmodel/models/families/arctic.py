"""Snowflake Arctic: a dense residual FFN as wide as the model beside 128 experts."""

from __future__ import annotations

from costmodel.models.config import MAX_LAYERS
from costmodel.models.parts.attention import grouped_query
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import decoder, layer
from costmodel.models.parts.ffn import Experts, dense_ffn, ffn_weights, mixture
from costmodel.models.parts.windows import uniform_window
from costmodel.models.registry import Family
from costmodel.models.spec import Layer, ModelSpec, Weights


def read(b: Builder) -> ModelSpec:
    """``parallel_attn_mlp_res`` layers have a third norm before the residual FFN."""
    c = b.config
    heads, kv_heads, dim = b.heads, b.kv_heads(), b.head_dim()
    experts = Experts.read(b, width_keys=("intermediate_size",))
    step = c.size("moe_layer_frequency", default=2, because="class default", high=MAX_LAYERS)
    residual = c.flag("parallel_attn_mlp_res", default=False)
    c.ignore("use_residual", "enable_expert_tensor_parallelism", "moe_eval_capacity_factor")
    c.ignore("moe_min_capacity", "moe_token_dropping", "moe_train_capacity_factor", "quantization")
    window = uniform_window(b)

    def at(index: int) -> Layer:
        name = f"model.layers.{index}"
        attention = grouped_query(b, f"{name}.self_attn", heads, kv_heads, dim, window=window)
        if (index + 1) % step:
            return layer(b, attention, dense_ffn(b, f"{name}.mlp", experts.width))
        shared: tuple[Weights, ...] = ()
        if residual:
            shared = ffn_weights(b, f"{name}.residual_mlp", b.hidden, prefix="dense residual's ")
        moe = mixture(
            b, f"{name}.block_sparse_moe", experts, shared=shared, num_shared=int(residual)
        )
        return layer(b, attention, moe, norms=(3 if residual else 2) * b.hidden)

    return decoder(b, at)


FAMILY = Family("arctic", ("arctic",), ("ArcticForCausalLM",), read)
