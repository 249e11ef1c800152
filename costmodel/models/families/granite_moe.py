"""Granite MoE and Granite 4 hybrids: Mamba-2 or attention per layer, a shared MLP beside experts."""

from __future__ import annotations

from typing import Any

from costmodel.models.config import MAX_EXPERTS
from costmodel.models.parts.attention import grouped_query
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import decoder, layer
from costmodel.models.parts.ffn import Experts, dense_ffn, ffn_weights, mixture
from costmodel.models.parts.states.linear import state_element_bytes
from costmodel.models.parts.states.mamba import mamba2
from costmodel.models.registry import Family
from costmodel.models.spec import Attention, DenseFFN, Layer, LinearState, ModelSpec, MoE


def read(b: Builder) -> ModelSpec:
    """``intermediate_size`` is the expert width; no experts leave only the shared MLP."""
    c, count = b.config, b.num_layers
    heads, kv_heads, dim = b.heads, b.kv_heads(), b.head_dim()
    bias = c.flag("attention_bias", default=False)
    num = c.size("num_local_experts", low=0, high=MAX_EXPERTS)
    shared_width = c.size("shared_intermediate_size", default=0, because="no shared MLP", low=0)
    if num == 0:
        c.ignore("num_experts_per_tok", "intermediate_size")
    experts = Experts.read(b, width_keys=("intermediate_size",)) if num else Experts(1, 1, 1)
    c.ignore("position_embedding_type", "normalization_function", "init_method", "mamba_expand")
    names = ("mamba", "attention", "linear_attention", "full_attention")
    types = c.strings("layer_types", names, count)
    if types is None:
        hybrid = c.data.get("model_type") == "granitemoehybrid"
        kind = "mamba" if hybrid else "attention"
        c.log.note(f"assumed: layer_types not given: {kind} in every layer (class default)")
        types = [kind] * count
    kinds = ["mamba" if kind in ("mamba", "linear_attention") else "attention" for kind in types]
    state = _mamba(b) if "mamba" in kinds else {}
    c.ignore(*(key for key in c.data if key.startswith("mamba_")))

    def at(index: int) -> Layer:
        name = f"model.layers.{index}"
        mixer: Attention | LinearState
        if kinds[index] == "attention":
            mixer = grouped_query(
                b, f"{name}.self_attn", heads, kv_heads, dim, qkv_bias=bias, o_bias=bias
            )
        else:
            mixer = mamba2(b, f"{name}.mamba", **state)
        feed: DenseFFN | MoE
        if num:
            shared = ffn_weights(b, f"{name}.shared_mlp", shared_width, prefix="shared MLP's ")
            feed = mixture(
                b, f"{name}.block_sparse_moe", experts, num_shared=int(shared_width > 0),
                shared=shared if shared_width else (), router="router.layer",
            )  # fmt: skip
        else:
            feed = dense_ffn(b, f"{name}.shared_mlp", shared_width)
        return layer(b, mixer, feed)

    return decoder(b, at, tied_default=True)


def _mamba(b: Builder) -> dict[str, Any]:
    c = b.config
    return {
        "heads": c.size("mamba_n_heads", high=2**14),
        "head_dim": c.size("mamba_d_head", high=2**14),
        "groups": c.size("mamba_n_groups", default=1, because="class default", high=2**12),
        "state": c.size("mamba_d_state", high=2**14),
        "conv": c.size("mamba_d_conv", high=64),
        "conv_bias": c.flag("mamba_conv_bias", default=True),
        "proj_bias": c.flag("mamba_proj_bias", default=False),
        "element_bytes": state_element_bytes(c),
    }


FAMILY = Family(
    "granite_moe",
    ("granitemoe", "granitemoeshared", "granitemoehybrid"),
    (
        "GraniteMoeForCausalLM", "GraniteMoeSharedForCausalLM", "GraniteMoeHybridForCausalLM",
    ),
    read,
)  # fmt: skip
