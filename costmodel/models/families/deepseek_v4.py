"""DeepSeek-V4: shared-KV attention over compressed entries, hyper-connections, hash-routed layers.

Three kinds of layer by ``compress_ratios``: 0 sees a window only (``swa``), 4 adds an index over
entries compressed 4:1 (``csa``), larger ratios add all entries, heavily compressed (``hca``).
Source: DeepSeek-V4 report, section 2, and its inference code.
"""

from __future__ import annotations

from costmodel.models.config import MAX_LAYERS
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import decoder, layer
from costmodel.models.parts.ffn import Experts, shared_mixture
from costmodel.models.parts.hyper import hyper_connections, hyper_head
from costmodel.models.parts.mtp import num_modules
from costmodel.models.parts.quantisation.expert_format import with_expert_format
from costmodel.models.parts.shared_kv import SharedKV
from costmodel.models.registry import Family
from costmodel.models.spec import MTP, Attention, Layer, ModelSpec, Weights

#: Ratio at which compressed entries are chosen by an index.
INDEXED_RATIO = 4
#: Ratios of the released models.
KNOWN_RATIOS = (0, INDEXED_RATIO, 128)


def read(b: Builder) -> ModelSpec:
    """Every layer is MoE; the first ``num_hash_layers`` route by a table of token numbers."""
    c, count = b.config, b.num_layers
    b = with_expert_format(b)
    modules = num_modules(b)
    ratios = _ratios(b, count)
    for ratio in sorted(set(ratios) - set(KNOWN_RATIOS)):
        c.log.note(f"warning: compress_ratios has {ratio}; only {KNOWN_RATIOS} are known")
    tail = (c.data.get("compress_ratios") or [])[count:]
    if any(ratio != 0 for ratio in tail):
        c.log.note(
            "warning: compress_ratios of the MTP modules are not 0; they are read as windows"
        )
    experts = Experts.read(b, groups=True)
    num_shared = c.size("n_shared_experts", low=0, high=2**10)
    kinds = c.strings("mlp_layer_types", ("hash_moe", "moe"), count)
    hashed = [kind == "hash_moe" for kind in kinds or ()]
    if kinds is None:
        first = c.size("num_hash_layers", default=3 if c.class_defaults else None,
                       because="class default", low=0, high=MAX_LAYERS)  # fmt: skip
        hashed = [index < first for index in range(count)]
    c.ignore("topk_method", "attention_bias", "hc_sinkhorn_iters", "compress_rope_theta")
    streams = c.size("hc_mult", high=64)
    parts = SharedKV(b)

    def at(index: int) -> Layer:
        name = f"layers.{index}" if index < count else f"mtp.{index - count}"
        attention = _attention(parts, f"{name}.attn", ratios[index] if index < count else 0)
        moe = shared_mixture(
            b, f"{name}.ffn", experts, num_shared, router_bias=index >= count or not hashed[index]
        )
        plain = layer(b, attention, moe)
        return Layer(plain.sublayers, (*plain.extra, *hyper_connections(b, streams, 2)))

    def mtp() -> MTP | None:
        if modules == 0:
            return None
        ends = [
            b.matrix("MTP projections", "mtp.0.e_proj", b.hidden, b.hidden,
                     "replicated", copies=2),
            b.vector("MTP norms", 3 * b.hidden),
            *hyper_head(b, streams),
        ]  # fmt: skip
        return MTP(modules, tuple(at(count + index) for index in range(modules)),
                   tuple(ends) * modules)  # fmt: skip

    return decoder(b, at, mtp=mtp, extra_head=tuple(hyper_head(b, streams)))


#: Ratio of each kind of layer in ``layer_types``.
_RATIO_OF = {
    "sliding_attention": 0,
    "compressed_sparse_attention": INDEXED_RATIO,
    "heavily_compressed_attention": 128,
}


def _ratios(b: Builder, count: int) -> list[int]:
    """Compression by layer: ``compress_ratios``, or ``layer_types`` as transformers writes them."""
    c = b.config
    kinds = c.strings("layer_types", _RATIO_OF, count)
    ratios = c.sizes("compress_ratios", count, high=2**16)
    if ratios is None and kinds is None and c.class_defaults:
        c.log.note("assumed: layer_types not given: the rule of the model's class")
        return [INDEXED_RATIO if i > 2 and i % 2 else 128 for i in range(count)]
    if ratios is None and kinds is None:
        raise c.fail("compress_ratios", "is missing: which layers compress is not known")
    if kinds is not None:
        rates = c.section("compress_rates")
        own = dict(_RATIO_OF)
        for kind in _RATIO_OF if rates is not None else ():
            if rates is not None and rates.has(kind):
                own[kind] = rates.size(kind, high=2**16)
        listed = [own[kind] for kind in kinds]
        if ratios is not None and ratios != listed:
            raise c.fail("layer_types", "contradicts compress_ratios")
        return listed
    return ratios or []


def _attention(parts: SharedKV, at: str, ratio: int) -> Attention:
    weights, index = parts.projections(at), parts.indexer
    indexed = ratio == INDEXED_RATIO
    if ratio:
        weights += _compressor(parts.b, "compressor", f"{at}.compressor", parts.dim, ratio)
    if indexed:
        weights += parts.index_query(f"{at}.indexer")
        weights += _compressor(
            parts.b, "index compressor", f"{at}.indexer.compressor", index.dim, ratio
        )
    kind = "csa" if indexed else "hca" if ratio else "swa"
    return parts.attention(kind, weights, ratio, chooses=indexed, selects=indexed)


def _compressor(b: Builder, name: str, at: str, dim: int, ratio: int) -> list[Weights]:
    """Values and gates of a pooled entry; entries of ratio 4 overlap, which doubles the width."""
    width = dim * (2 if ratio == INDEXED_RATIO else 1)
    return [
        b.matrix(name, at, width, b.hidden, "replicated", role="plain", copies=2),
        b.vector(f"{name} positions and norm", ratio * width + dim),
    ]


FAMILY = Family("deepseek_v4", ("deepseek_v4",), ("DeepseekV4ForCausalLM",), read)
