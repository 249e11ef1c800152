"""GLM-5.3-Flash: three Kimi-delta layers to one sparse MLA layer without positions, residual streams.

Index keys are pooled: one entry stands for ``index_kpool`` tokens.
"""

from __future__ import annotations

from dataclasses import replace

from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import decoder, layer
from costmodel.models.parts.ffn import Experts, dense_ffn, shared_mixture
from costmodel.models.parts.hyper import hyper_connections
from costmodel.models.parts.mla import Indexer, Latent, latent_attention
from costmodel.models.parts.mtp import next_token_modules, num_modules
from costmodel.models.parts.states.linear import DeltaHeads, kimi_delta, state_element_bytes
from costmodel.models.registry import Family
from costmodel.models.spec import Attention, Layer, LinearState, ModelSpec


def read(b: Builder) -> ModelSpec:
    """``layer_types`` and ``mlp_layer_types`` say what a layer is; the class's rule where absent."""
    c, count = b.config, b.num_layers
    attend = _Attend(b, count)
    experts = Experts.read(b, groups=True)
    num_shared = c.size("n_shared_experts", low=0, high=2**10)
    width, modules = b.ffn_width, num_modules(b)
    streams = c.size("hc_mult", high=64)
    kinds = c.strings("mlp_layer_types", ("dense", "sparse"), count)
    if kinds is None:
        c.log.note("assumed: mlp_layer_types not given: three dense layers, then mixtures")
        kinds = ["dense"] * min(3, count) + ["sparse"] * (count - 3)
    c.ignore("first_k_dense_replace", "topk_method", "hc_sinkhorn_iters", "mhc", "mla_use_nope")
    c.ignore("index_kpool_always_select_tail", "index_share_for_mtp_iteration", "head_dim")
    c.ignore("attention_bias", "qk_head_dim")

    def at(index: int) -> Layer:
        name = f"model.layers.{index}"
        if index < count and kinds[index] == "dense":
            plain = layer(b, attend(index), dense_ffn(b, f"{name}.mlp", width))
        else:
            moe = shared_mixture(b, f"{name}.mlp", experts, num_shared)
            plain = layer(b, attend(index), moe)
        return Layer(plain.sublayers, (*plain.extra, *hyper_connections(b, streams, 2)))

    return decoder(b, at, mtp=lambda: next_token_modules(b, modules, at, count))


class _Attend:
    def __init__(self, b: Builder, count: int):
        c = b.config
        self.b, self.count = b, count
        self.latent, self.indexer = Latent.read(b, low_rope=0), Indexer.read(b)
        self.pool = c.size("index_kpool", default=16, because="class default", high=2**12)
        c.flag("index_kpool_compress", default=True)
        kinds = c.strings(
            "layer_types",
            (
                "linear_attention",
                "indexed_attention",
                "deepseek_sparse_attention",
                "full_attention",
            ),
            count,
        )
        if kinds is None:
            c.log.note("assumed: layer_types not given: every fourth layer is sparse MLA")
            self.linear = [index % 4 != 3 for index in range(count)]
        else:
            self.linear = [kind == "linear_attention" for kind in kinds]
        owners = c.strings("indexer_types", ("full", "shared"), count)
        if owners is None:
            c.log.note("assumed: indexer_types not given: every sparse layer has an index")
        self.owns = [kind == "full" for kind in owners or ["full"] * count]
        inner = c.section("linear_attn_config") or c
        nested = inner is not c
        heads = inner.size("num_heads" if nested else "linear_num_heads", high=2**12)
        dim = inner.size("head_dim" if nested else "linear_head_dim", high=2**14)
        conv = inner.size("short_conv_kernel_size" if nested else "linear_conv_kernel_dim", high=64)
        for key in ("kda_layers", "full_attn_layers", "gate_lower_bound", "linear_lower_bound"):
            inner.ignore(key)
        self.delta, self.element = DeltaHeads(heads, heads, dim, dim, conv), state_element_bytes(c)

    def __call__(self, index: int) -> Attention | LinearState:
        b, at = self.b, f"model.layers.{index}.self_attn"
        if index < self.count and self.linear[index]:
            rank = self.delta.key_dim
            return kimi_delta(b, at, self.delta, self.element, decay_rank=rank, gate_rank=rank)
        owns = index >= self.count or self.owns[index]
        found = latent_attention(b, at, self.latent, indexer=self.indexer, owns_index=owns)
        if not owns:
            return found
        dim = self.indexer.dim
        pooled = (
            b.matrix("index pool gate", f"{at}.indexer.index_kpool_compress_gate", dim, b.hidden,
                     "replicated", role="plain"),
            b.vector("index pool positions", self.pool * dim),
        )  # fmt: skip
        return replace(
            found, weights=(*found.weights, *pooled), index_elements=max(dim // self.pool, 1),
            index_dim=max(dim // self.pool, 1),
        )  # fmt: skip


FAMILY = Family(
    "glm5_next",
    ("glm5_next", "glm5_next_text"),
    ("Glm5NextForConditionalGeneration", "Glm5NextForCausalLM"),
    read,
)
