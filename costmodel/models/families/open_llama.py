"""Open-Llama: Llama with a normed embedding that also is the head, under a key of its own.

Source: the model's class in transformers 4.57 (Apache-2.0).
"""

from __future__ import annotations

from dataclasses import replace

from costmodel.models.parts.attention import grouped_query
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import decoder, layer
from costmodel.models.parts.ffn import dense_ffn
from costmodel.models.registry import Family
from costmodel.models.spec import Layer, ModelSpec, Weights


def read(b: Builder) -> ModelSpec:
    """``shared_input_output_embedding`` decides, whatever ``tie_word_embeddings`` says."""
    c, heads, dim, width = b.config, b.heads, b.head_dim(), b.ffn_width
    shared = c.flag("shared_input_output_embedding", default=True)
    norms: tuple[Weights, ...] = ()
    if c.flag("use_stable_embedding", default=True):
        norms = (b.vector("embedding norm", 2 * b.hidden),)
    c.ignore("use_memory_efficient_attention")

    def at(index: int) -> Layer:
        name = f"model.layers.{index}"
        attention = grouped_query(b, f"{name}.self_attn", heads, heads, dim)
        return layer(b, attention, dense_ffn(b, f"{name}.mlp", width))

    spec = decoder(b, at, extra_embedding=norms, never_tied=not shared)
    return replace(spec, embedding=norms, tied_embeddings=True) if shared else spec


FAMILY = Family("open_llama", ("open-llama",), ("OpenLlamaForCausalLM",), read)
