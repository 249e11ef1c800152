"""A.X K2: sparse MLA whose queries and output gate come from one wide projection, gated norms."""

from __future__ import annotations

from dataclasses import replace

from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import decoder, layer
from costmodel.models.parts.ffn import dense_ffn
from costmodel.models.parts.mixture_recipe import Mixed, Mixtures
from costmodel.models.parts.mla import Indexer, Latent, latent_attention
from costmodel.models.registry import Family
from costmodel.models.spec import Attention, Layer, ModelSpec


def read(b: Builder) -> ModelSpec:
    """Norms before attention and before a mixture have a gate of ``gated_norm_rank``."""
    c, count = b.config, b.num_layers
    latent, indexer = Latent.read(b), Indexer.read(b)
    rank = c.size("gated_norm_rank", default=16, because="class default")
    mixtures = Mixtures(b, Mixed(
        groups=True, router_bias=True, shared_keys=("n_shared_experts",), dense_default=1
    ), count)  # fmt: skip
    width = b.ffn_width if not all(mixtures.sparse) else 0
    c.ignore("intermediate_size", "layer_types", "head_dim", "qk_head_dim", "attention_bias")
    if latent.q_rank is None:
        raise c.fail("q_lora_rank", "is missing: queries of this family have a rank")
    rows, cols = latent.heads * (latent.nope + latent.rope + latent.v), 2 * latent.q_rank

    def attend(at: str) -> Attention:
        found = latent_attention(b, at, latent, indexer=indexer)
        joint = b.matrix("query and gate up", f"{at}.q_gate_proj", rows, cols, "heads")
        kept = tuple(part for part in found.weights if part.name != "query up")
        return replace(found, weights=(*kept, joint))

    def at(index: int) -> Layer:
        name = f"model.layers.{index}"
        sparse = mixtures.sparse[index]
        feed = mixtures(f"{name}.mlp") if sparse else dense_ffn(b, f"{name}.mlp", width)
        plain = layer(b, attend(f"{name}.self_attn"), feed)
        gates = b.matrix("gates of norms", f"{name}.input_layernorm.mlp", rank, b.hidden,
                         "replicated", role="plain", copies=4 if sparse else 2)  # fmt: skip
        return Layer(plain.sublayers, (*plain.extra, gates))

    return decoder(b, at)


FAMILY = Family("axk2", ("axk2",), ("AXK2ForCausalLM",), read)
