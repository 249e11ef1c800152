"""HRM-Text: two stacks of layers run in cycles; a stack's matrices are stored once and used often.

A token passes the low stack ``L_cycles`` times and then the high stack once, ``H_cycles`` times over.
Every pass keeps keys and values of its own. Source: the model's class in transformers (Apache-2.0).
"""

from __future__ import annotations

from dataclasses import replace

from costmodel.models.config import MAX_LAYERS
from costmodel.models.parts.attention import grouped_query
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import borrowed, decoder, layer
from costmodel.models.parts.ffn import dense_ffn
from costmodel.models.registry import Family
from costmodel.models.spec import Layer, ModelSpec


def read(b: Builder) -> ModelSpec:
    """``num_hidden_layers`` counts every pass of a layer, ``num_layers_per_stack`` its layers."""
    c = b.config
    high = c.size("H_cycles", default=2, because="class default", high=64)
    low = c.size("L_cycles", default=3, because="class default", high=64)
    passes = high * (low + 1)
    listed = b.num_layers
    if c.has("num_layers_per_stack"):
        depth = c.size("num_layers_per_stack", high=MAX_LAYERS)
    else:
        depth = listed
        c.ignore("num_layers_per_stack")
        c.log.note("assumed: num_hidden_layers counts the layers of one stack (class default)")
    if depth * passes > MAX_LAYERS:
        c.problem("num_layers_per_stack", f"{depth * passes} passes of layers are not believed")
    c.ignore("L_bp_cycles", "embedding_scale", "prefix_lm")
    heads, dim, width = b.heads, b.head_dim(128), b.ffn_width
    bias, mlp_bias = c.flag("attention_bias", default=False), c.flag("mlp_bias", default=False)

    def at(index: int) -> Layer:
        turn, inner = divmod(index, depth)
        stack = "H_module" if turn % (low + 1) == low else "L_module"
        name = f"model.{stack}.layers.{inner}"
        attention = grouped_query(
            b, f"{name}.self_attn", heads, heads, dim, qkv_bias=bias, o_bias=bias,
            gate_rows=heads * dim, gate_in="gate_proj",
        )  # fmt: skip
        feed = dense_ffn(b, f"{name}.mlp", width, bias=mlp_bias)
        if turn not in (0, low):  # first passes of the two stacks
            attention = replace(attention, weights=borrowed(attention.weights))
            feed = replace(feed, weights=borrowed(feed.weights))
        return layer(b, attention, feed, norms=0)

    start = b.vector("first state of the low stack", b.hidden)
    return decoder(b, at, num_layers=depth * passes, final_norm=0, extra_embedding=(start,))


FAMILY = Family("hrm", ("hrm_text",), ("HrmTextForCausalLM",), read)
