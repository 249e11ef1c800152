"""Grok-1 and Grok-2: GQA, four norms per layer, eight wide experts; Grok-2 adds a dense branch.

Grok-2's released file says model_type ``git``, which is an image captioner: its architecture decides.
"""

from __future__ import annotations

from costmodel.models.parts.attention import grouped_query
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import decoder, layer
from costmodel.models.parts.ffn import Experts, ffn_weights, mixture
from costmodel.models.registry import Family
from costmodel.models.spec import Layer, ModelSpec


def read(b: Builder) -> ModelSpec:
    """``residual_moe`` puts a dense FFN of ``intermediate_size`` beside the experts."""
    c = b.config
    heads, kv_heads, dim = b.heads, b.kv_heads(), b.head_dim()
    dense = c.flag("residual_moe", default=False)
    keys = ("moe_intermediate_size",) if dense else ("moe_intermediate_size", "intermediate_size")
    experts = Experts.read(b, width_keys=keys)
    width = b.ffn_width if dense else 0
    if c.data.get("sliding_window_size") not in (None, -1):
        c.problem("sliding_window_size", "a window is not known in this family (expected -1)")
    c.ignore("sliding_window_size")

    def at(index: int) -> Layer:
        name = f"model.layers.{index}"
        attention = grouped_query(b, f"{name}.self_attn", heads, kv_heads, dim)
        shared = ffn_weights(b, f"{name}.mlp", width, prefix="dense branch's ") if dense else ()
        moe = mixture(b, f"{name}.block_sparse_moe", experts, shared=shared, num_shared=int(dense))
        return layer(b, attention, moe, norms=4 * b.hidden)

    return decoder(b, at, tied_default=not dense)


FAMILY = Family("grok", ("grok-1", "grok-2"), ("Grok1ForCausalLM", "Grok1ModelForCausalLM"), read)
