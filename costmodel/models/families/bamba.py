"""Bamba and Falcon-H1: Mamba-2 and attention, in turns by layer or side by side in each."""

from __future__ import annotations

from costmodel.models.parts.attention import grouped_query
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import decoder, layer
from costmodel.models.parts.ffn import dense_ffn
from costmodel.models.parts.states.linear import state_element_bytes
from costmodel.models.parts.states.mamba import mamba2
from costmodel.models.registry import Family
from costmodel.models.spec import Layer, ModelSpec, Sublayer


def read(b: Builder) -> ModelSpec:
    """Bamba names its attention layers; every layer of Falcon-H1 has both, and one norm for both."""
    c, count = b.config, b.num_layers
    kind = str(c.data.get("model_type") or c.data.get("architectures")).lower()
    both = "falcon" in kind
    heads, kv_heads, dim, width = b.heads, b.kv_heads(), b.head_dim(), b.ffn_width
    bias, mlp_bias = c.flag("attention_bias", default=False), c.flag("mlp_bias", default=False)
    expand = c.size("mamba_expand", default=2, because="class default", high=64)
    inner = expand * b.hidden
    norm = True
    if both:
        inner = c.size("mamba_d_ssm", default=inner, because="expand x hidden size")
        norm = c.flag("mamba_rms_norm", default=False)
        mlp_bias = c.flag("projectors_bias", default=False) or mlp_bias
        full = [True] * count
        c.ignore("mamba_norm_before_gate", "mamba_use_mlp", "key_multiplier", "ssm_multipliers",
                 "mlp_multipliers")  # fmt: skip
    else:
        full = _full_layers(b, count)
    mamba_heads = c.size("mamba_n_heads", high=2**14)
    auto = inner // mamba_heads
    if c.data.get("mamba_d_head") == "auto":
        c.ignore("mamba_d_head")
    else:
        auto = c.size("mamba_d_head", default=auto, because="channels / heads", high=2**14)
    if auto * mamba_heads != inner:
        c.problem("mamba_n_heads", f"{mamba_heads} heads of {auto} are not {inner} channels")
    groups = c.size("mamba_n_groups", default=1, because="class default", high=2**12)
    state = c.size("mamba_d_state", default=256, because="class default", high=2**14)
    conv = c.size("mamba_d_conv", default=4, because="class default", high=64)
    conv_bias = c.flag("mamba_conv_bias", default=True)
    proj_bias, element = c.flag("mamba_proj_bias", default=False), state_element_bytes(c)
    c.ignore("mamba_chunk_size", "attn_rotary_emb", "attn_layer_indices")

    def at(index: int) -> Layer:
        name = f"model.layers.{index}"
        mixers: list[Sublayer] = []
        if both or not full[index]:
            mixers.append(mamba2(
                b, f"{name}.mamba", heads=mamba_heads, head_dim=auto, groups=groups, state=state,
                conv=conv, conv_bias=conv_bias, proj_bias=proj_bias, element_bytes=element,
                norm=norm,
            ))  # fmt: skip
        if full[index]:
            mixers.append(grouped_query(
                b, f"{name}.self_attn", heads, kv_heads, dim, qkv_bias=bias, o_bias=bias
            ))  # fmt: skip
        feed = dense_ffn(b, f"{name}.feed_forward", width, bias=mlp_bias)
        return layer(b, *mixers, feed, norms=2 * b.hidden)

    return decoder(b, at)


def _full_layers(b: Builder, count: int) -> list[bool]:
    c = b.config
    kinds = c.strings("layers_block_type", ("mamba", "linear_attention", "attention",
                                            "full_attention"), count)  # fmt: skip
    if kinds is not None:
        return [kind.endswith("attention") and kind != "linear_attention" for kind in kinds]
    listed = c.indices("attn_layer_indices", count)
    if listed is None:
        c.log.note("assumed: attn_layer_indices not given: no layer has attention (class default)")
    return [index in (listed or []) for index in range(count)]


FAMILY = Family("bamba", ("bamba", "falcon_h1"), ("BambaForCausalLM", "FalconH1ForCausalLM"), read)
