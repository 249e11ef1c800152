"""Qwen4-Exp: gated delta rule and attention behind an index, gated residual streams, n-gram tables.

Source: the model's class in transformers (Apache-2.0).
"""

from __future__ import annotations

from costmodel.models.config import MAX_LAYERS
from costmodel.models.parts.attention import grouped_query
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import decoder, layer
from costmodel.models.parts.ffn import Experts, ffn_weights, mixture
from costmodel.models.parts.states.linear import DeltaHeads, gated_delta, state_element_bytes
from costmodel.models.registry import Family
from costmodel.models.spec import Layer, LinearState, ModelSpec, Weights

#: Most rows of one n-gram head's table that are believed.
_MAX_ROWS = 2**32


def read(b: Builder) -> ModelSpec:
    """Every layer has experts and a shared one; every fourth has softmax attention by default."""
    c, count = b.config, b.num_layers
    heads, kv_heads, dim = b.heads, b.kv_heads(), b.head_dim(256)
    bias = c.flag("attention_bias", default=False)
    delta = DeltaHeads(
        c.size("linear_num_key_heads", high=2**12), c.size("linear_num_value_heads", high=2**12),
        c.size("linear_key_head_dim", high=2**14), c.size("linear_value_head_dim", high=2**14),
        c.size("linear_conv_kernel_dim", high=64),
    )  # fmt: skip
    element, experts = state_element_bytes(c), Experts.read(b)
    shared_width = c.size("shared_expert_intermediate_size")
    streams = _Streams(b)
    full, index = _attention_layers(b, count), _index(b)
    tables = _Tables(b, count, streams.count)
    c.ignore("norm_topk_prob", "output_gate_type", "num_nextn_predict_layers")
    if c.data.get("num_nextn_predict_layers"):
        c.log.note("warning: the MTP layers that num_nextn_predict_layers declares are not counted")

    def at(number: int) -> Layer:
        name = f"model.layers.{number}"
        at_ffn = f"{name}.mlp"
        shared = (
            *ffn_weights(b, f"{at_ffn}.shared_expert", shared_width, prefix="shared expert's "),
            b.matrix("shared expert gate", f"{at_ffn}.shared_expert_gate", 1, b.hidden,
                     "replicated", role="plain"),
        )  # fmt: skip
        feed = mixture(b, at_ffn, experts, shared=shared, num_shared=1)
        attention = (
            grouped_query(
                b, f"{name}.self_attn", heads, kv_heads, dim, qkv_bias=bias, o_bias=bias,
                vectors=2 * dim + (2 * index[2] if index else 0), gate_rows=heads * dim,
                gate_in="q_proj", index=index, extra=_index_weights(b, name, index),
            )
            if full[number]
            else gated_delta(b, f"{name}.linear_attn", delta, element)
        )  # fmt: skip
        plain = layer(b, attention, feed, norms=0)
        mixed = (*streams.weights(f"{name}.attn_hyper_connection"),
                 *streams.weights(f"{name}.mlp_hyper_connection"))  # fmt: skip
        return Layer((*plain.sublayers, *tables.states(number)), (*mixed, *tables.weights(number)))

    return decoder(
        b, at, final_norm=0, extra_embedding=tables.tables(),
        extra_head=streams.weights("model.hyper_connection_mixer", inject=False),
    )  # fmt: skip


def _attention_layers(b: Builder, count: int) -> list[bool]:
    types = b.config.strings(
        "layer_types", ("linear_attention", "indexed_attention", "full_attention"), count
    )
    step = b.config.size("full_attention_interval", default=4, because="class default",
                         high=MAX_LAYERS)  # fmt: skip
    if types is None:
        b.config.log.note("assumed: layer_types not given, full_attention_interval decides")
        return [(number + 1) % step == 0 for number in range(count)]
    return [kind != "linear_attention" for kind in types]


def _index(b: Builder) -> tuple[int, int, int] | None:
    """Tokens read, heads and width of the index; absent where its keys are."""
    c = b.config
    if not c.has("indexer_n_heads"):
        c.ignore("indexer_n_heads", "indexer_kv_heads", "indexer_head_dim", "indexer_budget",
                 "indexer_compress_ratio")  # fmt: skip
        c.log.note("assumed: indexer_n_heads not given: attention reads every token")
        return None
    if c.size("indexer_kv_heads", default=1, because="always one", high=2**12) != 1:
        c.problem("indexer_kv_heads", "only 1 is understood")
    ratio = c.size("indexer_compress_ratio", high=2**16)
    c.log.note(
        f"the index scores one mean key per {ratio} tokens; its keys and FLOPs are counted for each "
        "token"
    )
    return (
        c.size("indexer_budget", high=2**22),
        c.size("indexer_n_heads", high=2**12),
        c.size("indexer_head_dim", high=2**14),
    )


def _index_weights(b: Builder, at: str, index: tuple[int, int, int] | None) -> tuple[Weights, ...]:
    if index is None:
        return ()
    rows = (index[1] + 1) * index[2]
    name = f"{at}.self_attn.indexer.index_qk_proj"
    return (b.matrix("index query and key", name, rows, b.hidden, "replicated"),)


class _Streams:
    """Residual streams: each branch reads a gated mix of all and adds its output to all."""

    def __init__(self, b: Builder):
        self.b = b
        self.count = b.config.size("hc_count", default=4, because="class default", high=64)
        self.rank = b.config.size("hc_lowrank", default=320, because="class default")

    def weights(self, at: str, *, inject: bool = True) -> tuple[Weights, ...]:
        """Norm, mixing in two steps and, before a branch, the weights of its output."""
        b, width = self.b, self.count * self.b.hidden
        found = [
            b.vector("stream norm", width),
            b.matrix("stream mix down", f"{at}.input_mix_weight_down", self.rank, width,
                     "replicated", role="plain"),
            b.matrix("stream mix up", f"{at}.input_mix_weight_up", width, self.rank, "replicated",
                     role="plain"),
        ]  # fmt: skip
        if inject:
            found.append(b.matrix("stream weights", f"{at}.block_inject_weight", self.count, width,
                                  "replicated", role="plain"))  # fmt: skip
        return tuple(found)


class _Tables:
    """Hashed n-grams of some layers: tables, projections and a convolution over the last tokens."""

    def __init__(self, b: Builder, count: int, streams: int):
        c = b.config
        self.b, self.streams = b, streams
        self.layers = c.indices("ple_layer_ids", count, first=1) or []
        self.width = c.size("ple_embed_dim", default=b.hidden, because="the hidden size")
        self.taps = c.size("ple_conv_kernel_size", default=4, because="class default", high=64)
        self.grams = c.size("ngram_size", default=3, because="class default", low=2, high=64)
        heads = c.size("heads_per_ngram", default=8, because="class default", high=2**10)
        self.heads = (self.grams - 1) * heads
        self.rows = c.size("ngram_vocab_size_base", default=20_000_000, because="class default",
                           high=_MAX_ROWS)  # fmt: skip
        c.ignore("make_ngram_vocab_size_divisible_by", "seed", "split_ngram_parts")
        if self.layers:
            c.log.note(
                "each n-gram head has the next prime of rows from ngram_vocab_size_base on: counted as "
                "that number; tables are counted in HBM"
            )

    def tables(self) -> tuple[Weights, ...]:
        """A row per head is read for each token."""
        b, found = self.b, []
        for number in self.layers:
            rows, width = self.heads * self.rows, self.width // self.heads
            size = rows * width * b.base_bytes
            found.append(Weights(f"n-gram table of layer {number}", rows * width, size,
                                 b.precision.base.dtype, "vocab", 0))  # fmt: skip
        return tuple(found)

    def weights(self, number: int) -> tuple[Weights, ...]:
        """Keys and values of what a token finds, norms and the convolution."""
        if number not in self.layers:
            return ()
        b, width = self.b, self.streams * self.b.hidden
        return (
            b.matrix("n-gram key and value", f"model.layers.{number}.ple.key_proj",
                     width + b.hidden, self.width, "replicated", role="plain"),
            b.vector("n-gram norms and convolution", width * (3 + self.taps)),
        )  # fmt: skip

    def states(self, number: int) -> tuple[LinearState, ...]:
        """The convolution's last inputs."""
        if number not in self.layers:
            return ()
        width = self.streams * self.b.hidden
        kept = width * (self.taps - 1) * self.grams * self.b.base_bytes
        return (LinearState("short-conv", (), width, kept, 2.0 * width * self.taps),)


FAMILY = Family(
    "qwen4_exp",
    ("qwen4_exp_text", "qwen4_exp"),
    ("Qwen4ExpForCausalLM", "Qwen4ExpForConditionalGeneration"),
    read,
)
