"""Inkling and Inkling 2: windows and full attention with learned relative logits, short convolutions.

Keys, values and both branches' outputs pass a convolution over the last tokens.
"""

from __future__ import annotations

from costmodel.models.parts.attention import grouped_query
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import MAX_POSITIONS, decoder, layer
from costmodel.models.parts.ffn import Experts, dense_ffn, ffn_weights, mixture
from costmodel.models.parts.states.recurrent import token_convolutions
from costmodel.models.registry import Family
from costmodel.models.spec import Attention, DenseFFN, Layer, ModelSpec, MoE, Weights


def read(b: Builder) -> ModelSpec:
    """``hybrid_sliding`` layers have a window and may have heads of their own number and width."""
    c, count = b.config, b.num_layers
    second = "inkling2" in str(c.data.get("model_type") or c.data.get("architectures")).lower()
    slides = _slides(b, count)
    attend = _Attend(b, second=second)
    sparse = _sparse(b, count)
    experts = Experts.read(b)
    width = 0 if all(sparse) else b.ffn_width
    num_shared = 0
    if not second:
        c.ignore("intermediate_size", "shared_expert_sink")
        num_shared = c.size(
            "n_shared_experts", default=2, because="class default", low=0, high=2**10
        )
    block = second and c.size("n_layers_per_attn_res_block", default=6, because="class default")
    for key in ("unpadded_vocab_size", "number_of_conv_states", "chain_hidden_post_norm",
                "mtp_hidden_states_first", "log_scaling_n_floor", "local_layer_ids"):  # fmt: skip
        c.ignore(key)

    def at(index: int) -> Layer:
        name = f"model.layers.{index}"
        attention = attend(f"{name}.self_attn", slides[index])
        feed: DenseFFN | MoE
        if not sparse[index]:
            feed = dense_ffn(b, f"{name}.mlp", width)
        else:
            shared: tuple[Weights, ...] = ()
            if num_shared:
                shared = ffn_weights(b, f"{name}.mlp.shared_experts", num_shared * experts.width,
                                     prefix="shared experts' ")  # fmt: skip
                # the router has rows for the shared experts too
                shared += (b.matrix("shared experts' router rows", f"{name}.mlp.gate", num_shared,
                                    b.hidden, "replicated", role="plain"),)  # fmt: skip
            feed = mixture(b, f"{name}.mlp", experts, router_bias=True, shared=shared,
                           num_shared=num_shared)  # fmt: skip
        channels = 2 * b.hidden + (attention.kv_elements if slides[index] or not second else 0)
        norms = 2
        if block:
            norms = (4 if not slides[index] else 2) + 1  # and a query for the residual blocks
            norms += 0 if index == 0 else 1 if slides[index] else 3
        convolution = token_convolutions(b, channels, attend.taps)
        return layer(b, attention, convolution, feed, norms=norms * b.hidden)

    extra = (b.vector("residual query", b.hidden),) if block else ()
    norm = (b.vector("embedding norm", b.hidden),)
    return decoder(b, at, extra_embedding=norm, extra_head=extra)


def _slides(b: Builder, count: int) -> list[bool]:
    c = b.config
    kinds = c.strings("layer_types", ("hybrid", "hybrid_sliding"), count)
    if kinds is None:
        c.log.note("assumed: layer_types not given: every sixth layer has full attention")
        return [(index + 1) % 6 != 0 for index in range(count)]
    return [kind == "hybrid_sliding" for kind in kinds]


def _sparse(b: Builder, count: int) -> list[bool]:
    kinds = b.config.strings("mlp_layer_types", ("dense", "sparse"), count)
    if kinds is None:
        b.config.log.note("assumed: mlp_layer_types not given: a mixture in every layer")
    return [kind == "sparse" for kind in kinds or ["sparse"] * count]


class _Attend:
    def __init__(self, b: Builder, *, second: bool):
        c = b.config
        self.b, self.second = b, second
        self.full = (b.heads, b.kv_heads(), b.head_dim())
        self.local = (
            c.size("swa_num_attention_heads", default=b.heads, because="as in full layers",
                   high=2**12),
            c.size("swa_num_key_value_heads", default=self.full[1], because="as in full layers",
                   high=2**12),
            c.size("swa_head_dim", default=self.full[2], because="as in full layers", high=2**14),
        )  # fmt: skip
        self.window = c.size("sliding_window_size", "sliding_window", high=MAX_POSITIONS)
        self.relative = c.size("d_rel", default=16, because="class default", high=2**14)
        self.extent = c.size(
            "rel_extent", default=1024, because="class default", high=MAX_POSITIONS
        )
        self.taps = c.size("conv_kernel_size", default=4, because="class default", high=64)

    def __call__(self, at: str, slides: bool) -> Attention:
        b = self.b
        heads, kv_heads, dim = self.local if slides else self.full
        reach = min(self.window, self.extent) if slides else self.extent
        extra = [
            b.matrix(
                "relative positions", f"{at}.r_proj", heads * self.relative, b.hidden, "heads"
            ),
            b.vector("relative logits", self.relative * reach),
        ]
        vectors = 2 * dim
        if self.second:
            extra.append(b.matrix("sinks", f"{at}.sink_proj", heads, b.hidden, "heads"))
            vectors = heads * (dim + self.relative)  # scales of clipped lengths
            if not slides:
                rows = self.taps * kv_heads
                extra.append(b.matrix("convolution weights", f"{at}.k_sconv.w_proj", rows, b.hidden,
                                      "kv_heads", copies=2))  # fmt: skip
                vectors += 2 * kv_heads * dim * self.taps
        return grouped_query(
            b, at, heads, kv_heads, dim, window=self.window if slides else None, vectors=vectors,
            gate_rows=heads * dim if self.second else 0, extra=tuple(extra),
        )  # fmt: skip


FAMILY = Family(
    "inkling",
    ("inkling_text", "inkling2_text", "inkling", "inkling2"),
    ("InklingForCausalLM", "Inkling2ForCausalLM", "InklingForConditionalGeneration",
     "Inkling2ForConditionalGeneration"),
    read,
)  # fmt: skip
