"""RWKV-4 and xLSTM: recurrences in every layer, no attention."""

from __future__ import annotations

from math import ceil

from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import decoder, layer
from costmodel.models.parts.ffn import dense_ffn
from costmodel.models.parts.states.recurrent import matrix_memory, rwkv_mixing
from costmodel.models.registry import Family
from costmodel.models.spec import DenseFFN, Layer, ModelSpec


def read(b: Builder) -> ModelSpec:
    """The kind of recurrence by ``model_type``."""
    kind = str(b.config.data.get("model_type") or b.config.data.get("architectures")).lower()
    return _xlstm(b) if "xlstm" in kind else _rwkv(b)


def _rwkv(b: Builder) -> ModelSpec:
    c = b.config
    width = c.size("attention_hidden_size", default=b.hidden, because="the hidden size")
    inner = c.size("intermediate_size", default=4 * b.hidden, because="four times the hidden size")
    c.ignore("rescale_every", "context_length")

    def at(index: int) -> Layer:
        name, h = f"rwkv.blocks.{index}", b.hidden
        mixing = (
            b.matrix("channel key", f"{name}.feed_forward.key", inner, h, "width"),
            b.matrix("channel receptance", f"{name}.feed_forward.receptance", h, h, "replicated"),
            b.matrix("channel value", f"{name}.feed_forward.value", h, inner, "width"),
            b.vector("channel mixing", 2 * h),
        )
        norms = 4 * h + (2 * h if index == 0 else 0)  # one norm more before the first layer
        attention = rwkv_mixing(b, f"{name}.attention", width)
        return layer(b, attention, DenseFFN(mixing, inner), norms=norms)

    return decoder(b, at, final_norm=2 * b.hidden)


def _xlstm(b: Builder) -> ModelSpec:
    c = b.config
    c.size("embedding_dim", default=b.hidden, because="the hidden size")
    count = c.size("num_hidden_layers", "num_blocks", high=2**11)
    heads = c.size("num_heads", default=8, because="class default", high=2**12)
    keys = int(b.hidden * c.number("qk_dim_factor", default=0.5))
    values = int(b.hidden * c.number("v_dim_factor", default=1.0))
    bias = c.flag("use_bias", default=False)
    multiple = c.size("ffn_round_up_to_multiple_of", default=64, because="class default")
    inner = b.hidden * c.number("ffn_proj_factor", default=2.667)
    width = ceil(inner / multiple) * multiple
    final = c.flag("add_out_norm", default=True)
    c.choice("weight_mode", allowed=("single", "fused"), default="single")
    for key in ("mode", "chunkwise_kernel", "sequence_kernel", "step_kernel", "return_last_states",
                "autocast_kernel_dtype", "inference_state_dtype", "max_inference_chunksize",
                "norm_reduction_force_float32", "gate_soft_cap", "output_logit_soft_cap", "eps"):  # fmt: skip
        c.ignore(key)
    if keys % heads or values % heads:
        c.problem("num_heads", f"{heads} heads do not divide {keys} key or {values} value channels")

    def at(index: int) -> Layer:
        name = f"backbone.blocks.{index}"
        memory = matrix_memory(
            b, f"{name}.mlstm_layer", heads=heads, keys=keys, values=values, bias=bias
        )
        norms = (4 if bias else 2) * b.hidden
        return layer(b, memory, dense_ffn(b, f"{name}.ffn", width, bias=bias), norms=norms)

    norm = b.hidden * ((2 if bias else 1) if final else 0)
    return decoder(b, at, num_layers=count, final_norm=norm)


FAMILY = Family(
    "recurrent", ("rwkv", "xlstm"), ("RwkvForCausalLM", "xLSTMForCausalLM"), read
)  # fmt: skip
