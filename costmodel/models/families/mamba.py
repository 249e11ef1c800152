"""Pure Mamba and Mamba-2 decoders: one block and one norm per layer, no cache that grows."""

from __future__ import annotations

from math import ceil

from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import decoder, layer
from costmodel.models.parts.states.linear import state_element_bytes
from costmodel.models.parts.states.mamba import mamba1, mamba2
from costmodel.models.registry import Family
from costmodel.models.spec import Layer, LinearState, ModelSpec


def read(b: Builder) -> ModelSpec:
    """``expand`` times the hidden size channels; Mamba-2 has heads, Mamba a step of low rank."""
    c = b.config
    kind = str(c.data.get("model_type") or c.data.get("architectures")).lower()
    state = c.size("state_size", default=16, because="class default", high=2**14)
    conv = c.size("conv_kernel", "d_conv", default=4, because="class default", high=64)
    conv_bias = c.flag("use_conv_bias", default=True)
    bias, element = c.flag("use_bias", default=False), state_element_bytes(c)
    expand = c.size("expand", default=2, because="class default", high=64)
    c.ignore("chunk_size", "use_mambapy", "use_associative_scan", "time_step_init_scheme",
             "rms_norm", "mixer_rms_eps")  # fmt: skip
    second = "mamba2" in kind
    if second:
        c.ignore("time_step_rank", "intermediate_size")
        sound = c.log.so_far()
        dim = c.size("head_dim", default=64, because="class default", high=2**14)
        heads = c.size("num_heads", default=max(expand * b.hidden // dim, 1),
                       because="expand x hidden size / head_dim", high=2**14)  # fmt: skip
        groups = c.size("n_groups", default=8, because="class default", high=2**12)
        if sound() and heads * dim != expand * b.hidden:
            c.problem("num_heads", f"{heads} heads of {dim} are not {expand} times {b.hidden}")
    else:
        inner = c.size(
            "intermediate_size", default=expand * b.hidden, because="expand x hidden size"
        )
        auto = ceil(b.hidden / 16)
        if c.data.get("time_step_rank") == "auto":
            c.ignore("time_step_rank")
            rank = auto
        else:
            rank = c.size("time_step_rank", default=auto, because="hidden size / 16, rounded up")

    def at(index: int) -> Layer:
        name = f"backbone.layers.{index}.mixer"
        block: LinearState
        if second:
            block = mamba2(
                b, name, heads=heads, head_dim=dim, groups=groups, state=state, conv=conv,
                conv_bias=conv_bias, proj_bias=bias, element_bytes=element,
            )  # fmt: skip
        else:
            block = mamba1(
                b, name, inner=inner, state=state, dt_rank=rank, conv=conv, conv_bias=conv_bias,
                proj_bias=bias, inner_norms=False, element_bytes=element,
            )  # fmt: skip
        return layer(b, block)

    return decoder(b, at, tied_default=not second)


FAMILY = Family(
    "mamba",
    ("mamba", "mamba2", "falcon_mamba"),
    ("MambaForCausalLM", "Mamba2ForCausalLM", "FalconMambaForCausalLM"),
    read,
)
