"""Jamba: Mamba in seven of eight layers, a mixture in every second."""

from __future__ import annotations

from math import ceil

from costmodel.models.config import MAX_EXPERTS, MAX_LAYERS
from costmodel.models.parts.attention import grouped_query
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import decoder, layer
from costmodel.models.parts.ffn import Experts, dense_ffn, mixture
from costmodel.models.parts.states.linear import state_element_bytes
from costmodel.models.parts.states.mamba import mamba1
from costmodel.models.parts.windows import uniform_window
from costmodel.models.registry import Family
from costmodel.models.spec import Attention, DenseFFN, Layer, LinearState, ModelSpec, MoE


def read(b: Builder) -> ModelSpec:
    """Period and offset place attention and mixtures; norms on the Mamba step, B and C."""
    c = b.config
    heads, kv_heads, dim, width = b.heads, b.kv_heads(), b.head_dim(), b.ffn_width
    sound = c.log.so_far()
    num = c.size("num_experts", default=16, because="class default", high=MAX_EXPERTS)
    top_k = c.size("num_experts_per_tok", default=2, because="class default", high=MAX_EXPERTS)
    if sound() and top_k > num > 1:
        c.problem("num_experts_per_tok", f"{top_k} experts per token, but only {num} experts")
    experts = Experts(num, top_k, width)
    attends = _Every(b, "attn_layer", 8, 4)
    mixes = _Every(b, "expert_layer", 2, 1)
    inner = c.size("mamba_expand", default=2, because="class default", high=64) * b.hidden
    state = c.size("mamba_d_state", default=16, because="class default", high=2**14)
    conv = c.size("mamba_d_conv", default=4, because="class default", high=64)
    auto = ceil(b.hidden / 16)
    if c.data.get("mamba_dt_rank") == "auto":
        c.ignore("mamba_dt_rank")
        dt_rank = auto
    else:
        dt_rank = c.size("mamba_dt_rank", default=auto, because="hidden size / 16, rounded up")
    conv_bias = c.flag("mamba_conv_bias", default=True)
    proj_bias = c.flag("mamba_proj_bias", default=False)
    c.ignore("use_mamba_kernels", "mamba_inner_layernorms")
    element, window = state_element_bytes(c), uniform_window(b)

    def at(index: int) -> Layer:
        name = f"model.layers.{index}"
        mixer: Attention | LinearState
        if attends(index):
            mixer = grouped_query(b, f"{name}.self_attn", heads, kv_heads, dim, window=window)
        else:
            mixer = mamba1(
                b, f"{name}.mamba", inner=inner, state=state, dt_rank=dt_rank, conv=conv,
                conv_bias=conv_bias, proj_bias=proj_bias, inner_norms=True, element_bytes=element,
            )  # fmt: skip
        ffn: DenseFFN | MoE
        if num > 1 and mixes(index):
            ffn = mixture(b, f"{name}.feed_forward", experts, router="router")
        else:
            ffn = dense_ffn(b, f"{name}.feed_forward", width)
        return layer(b, mixer, ffn)

    return decoder(b, at)


class _Every:
    def __init__(self, b: Builder, what: str, period: int, offset: int):
        c = b.config
        self.period = c.size(f"{what}_period", default=period, because="class default",
                             high=MAX_LAYERS)  # fmt: skip
        self.offset = c.size(f"{what}_offset", default=offset, because="class default", low=0,
                             high=MAX_LAYERS)  # fmt: skip
        if self.offset >= self.period:
            c.problem(f"{what}_offset", f"must be below the period {self.period}")

    def __call__(self, index: int) -> bool:
        return index % self.period == self.offset


FAMILY = Family("jamba", ("jamba",), ("JambaForCausalLM",), read)
