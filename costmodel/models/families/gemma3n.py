"""Gemma 3n: four alternating streams, inputs per layer, last layers that read earlier caches."""

from __future__ import annotations

from costmodel.models.parts.attention import grouped_query
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import MAX_POSITIONS, decoder, layer
from costmodel.models.parts.ffn import dense_ffn
from costmodel.models.parts.per_layer import per_layer_input, per_layer_tables
from costmodel.models.parts.schedule import windowed_layers
from costmodel.models.registry import Family
from costmodel.models.spec import Attention, Layer, ModelSpec, Weights


def read(b: Builder) -> ModelSpec:
    """FFN widths may differ by layer; AltUp predicts and corrects streams, LAuReL adds a low rank."""
    c, count = b.config, b.num_layers
    heads, kv_heads, dim = b.heads, b.kv_heads(), b.head_dim(256)
    bias = c.flag("attention_bias", default=False)
    window = c.size("sliding_window", default=512, high=MAX_POSITIONS)
    slides = windowed_layers(b, count, pattern=5, because="class default")
    if isinstance(c.data.get("intermediate_size"), list):
        widths = c.sizes("intermediate_size", count, low=1) or []
    else:
        widths = [b.ffn_width] * count
    streams = c.size("altup_num_inputs", default=4, because="class default", high=64)
    rank = c.size("laurel_rank", default=64, because="class default", high=2**14)
    shared = c.size("num_kv_shared_layers", default=15, because="class default", low=0, high=count)
    own = c.size("hidden_size_per_layer_input", default=256, because="class default")
    rows = c.size("vocab_size_per_layer_input", default=262144, because="class default")
    c.ignore("altup_active_idx", "altup_coef_clip", "altup_correct_scale", "altup_lr_multiplier",
             "activation_sparsity_pattern", "final_logit_softcapping")  # fmt: skip

    def attention(index: int) -> Attention:
        owns = index < count - shared
        return grouped_query(
            b, f"model.layers.{index}.self_attn", heads, kv_heads, dim, qkv_bias=bias, o_bias=bias,
            vectors=2 * dim if owns else dim, window=window if slides[index] else None, has_kv=owns,
        )  # fmt: skip

    def at(index: int) -> Layer:
        name = f"model.layers.{index}"
        feed = dense_ffn(b, f"{name}.mlp", widths[index])
        plain = layer(b, attention(index), feed, norms=4 * b.hidden)
        extra = (*_altup(b, name, streams), *_laurel(b, name, rank), *per_layer_input(b, name, own))
        return Layer(plain.sublayers, (*plain.extra, *extra, b.vector("per-layer norm", b.hidden)))

    tables = per_layer_tables(b, rows, own, count)
    joins = b.matrix("stream projections", "model.altup_projections", b.hidden, b.hidden,
                     "replicated", role="plain", copies=2 * (streams - 1))  # fmt: skip
    return decoder(b, at, tied_default=True, extra_embedding=tables, extra_head=(joins,))


def _altup(b: Builder, name: str, n: int) -> tuple[Weights, ...]:
    """Router and coefficients of the streams."""
    return (
        b.matrix("stream router", f"{name}.altup.modality_router", n, b.hidden, "replicated",
                 role="plain"),
        b.vector("stream coefficients and norm", n * n + n * n * n + 2 * b.hidden),
    )  # fmt: skip


def _laurel(b: Builder, name: str, rank: int) -> tuple[Weights, ...]:
    """A low-rank branch beside attention."""
    return (
        b.matrix("low-rank branch", f"{name}.laurel", rank, b.hidden, "replicated", copies=2),
        b.vector("low-rank branch's norm", b.hidden),
    )


FAMILY = Family(
    "gemma3n",
    ("gemma3n_text", "gemma3n"),
    ("Gemma3nForCausalLM", "Gemma3nForConditionalGeneration"),
    read,
)
