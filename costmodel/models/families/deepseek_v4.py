"""DeepSeek-V4: shared-KV attention over compressed entries, hyper-connections, hash-routed layers.

Three kinds of layer by ``compress_ratios``: 0 sees a window only (``swa``), 4 adds an index over
entries compressed 4:1 (``csa``), larger ratios add all entries, heavily compressed (``hca``).
Source: DeepSeek-V4 report, section 2, and its inference code.
"""

from __future__ import annotations

from dataclasses import replace

from costmodel.models.config import MAX_LAYERS
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import MAX_POSITIONS, decoder, layer
from costmodel.models.parts.ffn import Experts, ffn_weights, mixture
from costmodel.models.parts.formats import FP8_BLOCK, MXFP4
from costmodel.models.parts.mla import Indexer
from costmodel.models.parts.mtp import num_modules
from costmodel.models.registry import Family
from costmodel.models.spec import MTP, Attention, Layer, ModelSpec, Weights

#: Ratio at which compressed entries are chosen by an index.
INDEXED_RATIO = 4
#: Ratios of the released models.
KNOWN_RATIOS = (0, INDEXED_RATIO, 128)


def read(b: Builder) -> ModelSpec:
    """Every layer is MoE; the first ``num_hash_layers`` route by a table of token numbers."""
    c, count = b.config, b.num_layers
    b = _with_expert_format(b)
    modules = num_modules(b)
    ratios = c.sizes("compress_ratios", count, high=2**16)
    if ratios is None:
        raise c.fail("compress_ratios", "is missing: which layers compress is not known")
    for ratio in sorted(set(ratios) - set(KNOWN_RATIOS)):
        c.log.note(f"warning: compress_ratios has {ratio}; only {KNOWN_RATIOS} are known")
    tail = c.data["compress_ratios"][count:]
    if any(ratio != 0 for ratio in tail):
        c.log.note(
            "warning: compress_ratios of the MTP modules are not 0; they are read as windows"
        )
    experts = Experts.read(b, groups=True)
    num_shared = c.size("n_shared_experts", low=0, high=2**10)
    num_hash = c.size("num_hash_layers", low=0, high=MAX_LAYERS)
    c.ignore("topk_method", "attention_bias", "hc_sinkhorn_iters", "compress_rope_theta")
    streams = c.size("hc_mult", high=64)
    attend = _Attention(b)

    def at(index: int) -> Layer:
        name = f"layers.{index}" if index < count else f"mtp.{index - count}"
        attention = attend(f"{name}.attn", ratios[index] if index < count else 0)
        shared = ffn_weights(
            b, f"{name}.ffn.shared_experts", num_shared * experts.width, prefix="shared experts' "
        )
        moe = mixture(
            b, f"{name}.ffn", experts, router_bias=index >= num_hash, num_shared=num_shared,
            shared=shared if num_shared else (),
        )  # fmt: skip
        plain = layer(b, attention, moe)
        return Layer(plain.sublayers, (*plain.extra, *_hyper(b, streams, 2)))

    def mtp() -> MTP | None:
        if modules == 0:
            return None
        ends = [
            b.matrix("MTP projections", "mtp.0.e_proj", b.hidden, b.hidden,
                     "replicated", copies=2),
            b.vector("MTP norms", 3 * b.hidden),
            *_hyper_head(b, streams),
        ]  # fmt: skip
        return MTP(modules, tuple(at(count + index) for index in range(modules)),
                   tuple(ends) * modules)  # fmt: skip

    return decoder(b, at, mtp=mtp, extra_head=tuple(_hyper_head(b, streams)))


def _with_expert_format(b: Builder) -> Builder:
    """``expert_dtype`` fp4 stores experts as 4 bits with a power-of-two scale per 32."""
    kind = b.config.choice(
        "expert_dtype", allowed=("fp4", "fp8", "bf16"), default="fp8",
        because="as the other quantised matrices",
    )  # fmt: skip
    general = any(patterns is None for patterns, _ in b.precision.rules)
    if not b.precision.native or not general:
        return b  # the user, or a list of modules, says how experts are stored
    expert = {"fp4": MXFP4, "fp8": FP8_BLOCK, "bf16": b.precision.base}[kind]
    label = f"{b.precision.label}; experts {expert.label}"
    return replace(b, precision=replace(b.precision, expert=expert, label=label))


def _hyper(b: Builder, streams: int, times: int) -> list[Weights]:
    """Hyper-connection maps: (2 + n) n rows over n residual streams, with base and scales."""
    rows = (2 + streams) * streams
    size = times * (rows * streams * b.hidden + rows + 3)
    return [Weights("hyper-connections", size, 4.0 * size, "fp32", "replicated", size)]


def _hyper_head(b: Builder, streams: int) -> list[Weights]:
    size = streams * streams * b.hidden + streams + 1
    return [Weights("hyper-connection head", size, 4.0 * size, "fp32", "replicated", size)]


class _Attention:
    """Attention of one layer by its compression ratio."""

    def __init__(self, b: Builder):
        c = b.config
        self.b = b
        self.heads, self.dim = b.heads, c.size("head_dim", high=2**14)
        if b.kv_heads() != 1:
            c.problem("num_key_value_heads", "must be 1: keys and values are one shared vector")
        self.q_rank = c.size("q_lora_rank", high=2**17)
        self.groups = c.size("o_groups", high=2**12)
        self.o_rank = c.size("o_lora_rank", high=2**17)
        c.size("qk_rope_head_dim", high=2**14)
        self.window = c.size("sliding_window", high=MAX_POSITIONS)
        self.indexer = Indexer.read(b)
        if self.heads * self.dim % self.groups:
            c.problem("o_groups", f"does not divide {self.heads} heads of {self.dim}")

    def __call__(self, at: str, ratio: int) -> Attention:
        b, heads, dim = self.b, self.heads, self.dim
        grouped = self.groups * self.o_rank
        weights = [
            b.matrix("query down", f"{at}.wq_a", self.q_rank, b.hidden, "replicated"),
            b.matrix("query up", f"{at}.wq_b", heads * dim, self.q_rank, "heads"),
            b.matrix("shared key/value", f"{at}.wkv", dim, b.hidden, "replicated"),
            b.matrix("output down", f"{at}.wo_a", grouped, heads * dim // self.groups, "heads"),
            b.matrix("output up", f"{at}.wo_b", b.hidden, grouped, "heads"),
            b.vector("attention norms and sinks", self.q_rank + dim + heads),
        ]
        indexed = ratio == INDEXED_RATIO
        if ratio:
            weights += self._compressor("compressor", f"{at}.compressor", dim, ratio)
        if indexed:
            index = self.indexer
            weights += [
                b.matrix("index query", f"{at}.indexer.wq_b", index.heads * index.dim, self.q_rank,
                         "replicated"),
                b.matrix("index head weights", f"{at}.indexer.weights_proj", index.heads, b.hidden,
                         "replicated", role="plain"),
                *self._compressor("index compressor", f"{at}.indexer.compressor", index.dim, ratio),
            ]  # fmt: skip
        return Attention(
            kind="csa" if indexed else "hca" if ratio else "swa",
            weights=tuple(weights),
            query_heads=heads,
            kv_heads=1,
            kv_elements=dim,
            decode_qk_dim=dim,
            decode_v_dim=dim,
            prefill_qk_dim=dim,
            prefill_v_dim=dim,
            window=None if ratio else self.window,
            index_elements=self.indexer.dim // ratio if indexed else 0,
            index_heads=self.indexer.heads if indexed else 0,
            index_dim=self.indexer.dim if indexed else 0,
            read_top_k=self.indexer.top_k if indexed else None,
            compress=ratio or 1,
            local_window=self.window if ratio else 0,
        )

    def _compressor(self, name: str, at: str, dim: int, ratio: int) -> list[Weights]:
        """Values and gates of a pooled entry; entries of ratio 4 overlap, which doubles the width."""
        width = dim * (2 if ratio == INDEXED_RATIO else 1)
        return [
            self.b.matrix(name, at, width, self.b.hidden, "replicated", role="plain", copies=2),
            self.b.vector(f"{name} positions and norm", ratio * width + dim),
        ]


FAMILY = Family("deepseek_v4", ("deepseek_v4",), ("DeepseekV4ForCausalLM",), read)
