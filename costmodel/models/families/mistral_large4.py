"""Mistral Large 4: sparse latent attention whose cache some layers share, and a mixture of experts.

Source: the model's class in transformers (Apache-2.0).
"""

from __future__ import annotations

from dataclasses import replace

from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import decoder, layer
from costmodel.models.parts.ffn import dense_ffn
from costmodel.models.parts.mixture_recipe import Mixed, Mixtures
from costmodel.models.parts.mla import Indexer, Latent, latent_attention
from costmodel.models.parts.schedule import index_owners
from costmodel.models.registry import Family
from costmodel.models.spec import Attention, Layer, ModelSpec

_EXPERTS = Mixed(groups=True, shared_keys=("n_shared_experts",), shared_default=1)


def read(b: Builder) -> ModelSpec:
    """``kv_source_layers`` names, for each layer, the layer whose latent cache it reads."""
    c, count = b.config, b.num_layers
    latent, indexer, owners = Latent.read(b), Indexer.read(b), index_owners(b, count)
    bias = c.flag("attention_bias", default=False)
    sources = c.sizes("kv_source_layers", count, high=count - 1) or list(range(count))
    for index, source in enumerate(sources):
        if source > index or sources[source] != source:
            c.problem(f"kv_source_layers[{index}]", f"layer {source} owns no cache before it")
    mixtures = Mixtures(b, _EXPERTS, count)
    width = b.ffn_width if not all(mixtures.sparse) else 0
    c.ignore("intermediate_size", "head_dim", "qk_head_dim", "layer_types", "no_rope_layers")

    def attend(name: str, index: int) -> Attention:
        # an index has a norm of what it reads, and scales for its heads and those of attention
        vectors = latent.heads
        if owners[index]:
            vectors += 2 * b.hidden + 2 * indexer.heads
        full = latent_attention(
            b, name, latent, indexer=indexer, owns_index=owners[index], bias=bias, vectors=vectors
        )
        if sources[index] == index:
            return full
        own = tuple(part for part in full.weights if part.name != "key/value down")
        return replace(full, weights=own, owns_cache=False)

    def at(index: int) -> Layer:
        name = f"model.layers.{index}"
        feed = (
            mixtures(f"{name}.mlp")
            if mixtures.sparse[index]
            else dense_ffn(b, f"{name}.mlp", width)
        )
        return layer(b, attend(f"{name}.self_attn", index), feed)

    return decoder(b, at)


FAMILY = Family(
    "mistral_large4",
    ("mistral_large4_text", "mistral_large4"),
    ("MistralLarge4ForCausalLM", "MistralLarge4ForConditionalGeneration"),
    read,
)
