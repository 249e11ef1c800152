"""DeepSeek-V4.1: few layers own a compressed cache that the layers after them read; n-gram tables.

``compress_ratios`` names the cache a layer reads: 0 is a window alone, otherwise one entry stands for
so many tokens. ``kv_source_layer_ids`` own entries and index keys, ``index_source_layer_ids`` choose
entries, other layers reuse the last choice. Two layers look up n-grams in tables (Engram).
Source: shapes of the released checkpoint and its inference code.
"""

from __future__ import annotations

from costmodel.models.config import MAX_EXPERTS, MAX_LAYERS
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import decoder, layer
from costmodel.models.parts.ffn import Experts, shared_mixture
from costmodel.models.parts.hyper import hyper_connections, hyper_head
from costmodel.models.parts.mtp import num_modules
from costmodel.models.parts.quantisation.expert_format import with_expert_format
from costmodel.models.parts.quantisation.formats import MXFP8
from costmodel.models.parts.shared_kv import SharedKV
from costmodel.models.registry import Family
from costmodel.models.spec import MTP, Attention, Layer, ModelSpec, MoE, Weights

#: Largest table of n-grams that is believed, in rows.
_MAX_ROWS = 2**32


def read(b: Builder) -> ModelSpec:
    """Every layer is MoE; the draft block (DSpark) has layers with fewer experts of its own."""
    c, count = b.config, b.num_layers
    settings = c.section("quantization_config") or b.outer.section("quantization_config")
    b = with_expert_format(b, settings) if settings else b
    experts, modules = Experts.read(b, groups=True), num_modules(b)
    num_shared = c.size("n_shared_experts", low=0, high=2**10)
    streams = c.size("hc_mult", high=64)
    attend, engram = _Attend(b, count), _Engram(b, count)
    draft = _Draft(b, modules)
    c.ignore("topk_method", "attention_bias", "hc_sinkhorn_iters", "compress_rope_theta")

    def moe(name: str, of: Experts) -> MoE:
        return shared_mixture(b, f"{name}.ffn", of, num_shared)

    def at(index: int) -> Layer:
        name = f"layers.{index}"
        plain = layer(b, attend(f"{name}.attn", index), moe(name, experts))
        hyper = hyper_connections(b, streams, 2)
        return Layer(plain.sublayers, (*plain.extra, *hyper, *engram.projection(index, streams)))

    def mtp() -> MTP | None:
        if not modules:
            return None
        layers = []
        for index in range(modules):
            name = f"mtp.{index}"
            plain = layer(b, attend(f"{name}.attn", count + index), moe(name, draft.experts))
            extra = (*plain.extra, *hyper_connections(b, streams, 2))
            layers.append(Layer(plain.sublayers, extra))
        return MTP(modules, tuple(layers), draft.weights())

    return decoder(
        b, at, mtp=mtp, extra_head=tuple(hyper_head(b, streams)), extra_embedding=engram.tables()
    )


class _Attend:
    def __init__(self, b: Builder, count: int):
        c = b.config
        self.parts = SharedKV(b)
        ratios = c.sizes("compress_ratios", count, high=2**16)
        owners = c.indices("kv_source_layer_ids", count)
        choosers = c.indices("index_source_layer_ids", count)
        if ratios is None or owners is None or choosers is None:
            missing = "compress_ratios" if ratios is None else (
                "kv_source_layer_ids" if owners is None else "index_source_layer_ids")  # fmt: skip
            raise c.fail(missing, "is missing: which layers own a cache is not known")
        for index in {*owners, *choosers}:
            if not ratios[index]:
                c.problem("kv_source_layer_ids", f"layer {index} compresses nothing, but is listed")
        if set(owners) - set(choosers):
            c.problem("index_source_layer_ids", "must name every layer of kv_source_layer_ids")
        self.ratios, self.owners, self.choosers = ratios, set(owners), set(choosers)
        first = c.optional_size("candidate_source_layer_id", because="no candidates", low=0)
        c.ignore("candidate_topk_blocks", "candidate_block_size")
        if first is not None:
            c.log.note(
                f"from layer {first} on the index scores candidate blocks only; its FLOPs are "
                "counted over all entries"
            )

    def __call__(self, at: str, index: int) -> Attention:
        parts, b = self.parts, self.parts.b
        weights, dim = parts.projections(at), parts.dim
        ratio = self.ratios[index] if index < len(self.ratios) else 0
        if not ratio:
            return parts.attention("swa", weights, 0)
        owns, chooses = index in self.owners, index in self.choosers
        if owns:
            gated = 2 if ratio > 1 else 1  # at ratio 1 an entry is one token: nothing to pool
            weights += [
                b.matrix("compressor", f"{at}.compressor", dim, b.hidden, "replicated",
                         role="plain", copies=gated),
                b.vector("compressor positions and norm", (ratio if ratio > 1 else 0) * dim + dim),
                b.matrix("index key", f"{at}.indexer.wk", parts.indexer.dim, b.hidden, "replicated"),
                b.vector("index key norm", 2 * parts.indexer.dim),
            ]  # fmt: skip
        if chooses:
            weights += parts.index_query(f"{at}.indexer")
        kind = "csa" if owns else "csa-shared"
        return parts.attention(kind, weights, ratio, owns=owns, chooses=chooses, selects=True)


class _Engram:
    """Tables of hashed n-grams, and the projection of what a token finds in them."""

    def __init__(self, b: Builder, count: int):
        c = b.config
        self.b = b
        self.layers = c.indices("engram_layer_ids", count) or []
        self.rows = c.sizes("engram_num_embeddings", len(self.layers), high=_MAX_ROWS) or []
        self.heads = self.dim = 0
        if self.layers:
            if len(self.rows) != len(self.layers):
                raise c.fail("engram_num_embeddings", "needs one entry per layer with a table")
            grams = c.size("engram_max_ngram_size", high=64) - 1
            self.heads = grams * c.size("engram_n_heads", high=2**10)
            self.dim = c.size("engram_head_dim", high=2**14)
        c.ignore("engram_pad_token_id", "engram_vocab_size", "engram_compressed_vocab_size")

    def tables(self) -> tuple[Weights, ...]:
        """Rows in FP8 with a power-of-two scale per 32, read a few rows per token."""
        found = []
        for layer_id, rows in zip(self.layers, self.rows, strict=True):
            stored = MXFP8 if self.b.precision.rules else self.b.precision.base
            size = stored.num_bytes(rows, self.dim)
            name = f"n-gram table of layer {layer_id}"
            found.append(Weights(name, rows * self.dim, size, stored.dtype, "vocab", 0))
        if found:
            self.b.config.log.note(
                "n-gram tables are counted in HBM; an engine may keep them in host memory"
            )
        return tuple(found)

    def projection(self, index: int, streams: int) -> tuple[Weights, ...]:
        """From the rows a token finds to a key per stream and a value."""
        if index not in self.layers:
            return ()
        b = self.b
        return (
            b.matrix("n-gram key and value", f"layers.{index}.engram.wkv",
                     b.hidden * (streams + 1), self.heads * self.dim, "width"),
            b.vector("n-gram norms", 2 * streams * b.hidden),
        )  # fmt: skip


class _Draft:
    """DSpark: a projection of several layers' outputs, a Markov head and experts of its own."""

    def __init__(self, b: Builder, modules: int):
        c = b.config
        self.b = b
        self.experts = Experts(1, 1, 8)
        if modules:
            num = c.size("dspark_n_routed_experts", high=MAX_EXPERTS)
            top_k = c.size("dspark_num_experts_per_tok", high=MAX_EXPERTS)
            if top_k > num:
                c.problem("dspark_num_experts_per_tok", f"{top_k} of only {num} experts")
            self.experts = Experts(num, top_k, c.size("moe_intermediate_size"))
            self.rank = c.size("dspark_markov_rank", high=2**17)
            targets = c.indices("dspark_target_layer_ids", MAX_LAYERS)
            if targets is None:
                raise c.fail("dspark_target_layer_ids", "is missing: what the draft reads")
            self.targets = len(targets)
        c.ignore("dspark_block_size", "dspark_noise_token_id")

    def weights(self) -> tuple[Weights, ...]:
        """What the draft's layers share."""
        b, vocab = self.b, self.b.config.size("vocab_size")
        return (
            b.matrix("draft projection", "mtp.0.main_proj", b.hidden, self.targets * b.hidden,
                     "replicated"),
            b.matrix("draft Markov head", "mtp.0.markov_head", vocab, self.rank, "vocab",
                     role="plain", copies=2),
            b.vector("draft norms", 3 * b.hidden),
        )  # fmt: skip


FAMILY = Family(
    "deepseek_v41",
    ("deepseek_v41", "deepseek_v41_text"),
    ("DeepseekV41ForCausalLM",),
    read,
)
