"""dots3: sparse MLA and MLA with a window and sizes of its own in turns; mixtures after a dense layer."""

from __future__ import annotations

from dataclasses import replace

from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import MAX_POSITIONS, decoder, layer
from costmodel.models.parts.ffn import dense_ffn
from costmodel.models.parts.mixture_recipe import Mixed, Mixtures
from costmodel.models.parts.mla import Indexer, Latent, latent_attention
from costmodel.models.parts.overrides import per_layer_overrides
from costmodel.models.registry import Family
from costmodel.models.spec import Attention, Layer, ModelSpec

_OVERRIDDEN = ("num_attention_heads", "num_key_value_heads", "kv_lora_rank", "qk_nope_head_dim")


def read(b: Builder) -> ModelSpec:
    """``per_layer_config`` gives the sizes of layers with a window; each head's output has a gate."""
    c, count = b.config, b.num_layers
    latent, indexer = Latent.read(b), Indexer.read(b)
    kinds = c.strings(
        "layer_types", ("indexed_attention", "sliding_attention", "full_attention"), count
    )
    overrides = per_layer_overrides(c, count, _OVERRIDDEN)
    if kinds is None:
        c.log.note("assumed: layer_types not given: the rule of the model's class")
        kinds = [
            "indexed_attention" if index < 2 or index % 4 == 1 else "sliding_attention"
            for index in range(count)
        ]
    if {index for index in range(count) if kinds[index] == "sliding_attention"} != set(overrides):
        c.problem("per_layer_config", "must give the sizes of every layer with a window")
    window = c.size("sliding_window", default=512, because="class default", high=MAX_POSITIONS)
    mixtures = Mixtures(b, Mixed(
        groups=True, router_bias=True, shared_keys=("n_shared_experts",), dense_default=1,
        shared_width_keys=("shared_experts_intermediate_size", "moe_shared_expert_intermediate_size"),
    ), count)  # fmt: skip
    width = b.ffn_width if not all(mixtures.sparse) else 0
    c.ignore("intermediate_size", "head_dim", "attention_bias", "mlp_bias", "qk_head_dim")

    def attend(index: int) -> Attention:
        own = latent
        if index in overrides:
            given = overrides[index]
            own = replace(
                latent, heads=given["num_attention_heads"], kv_rank=given["kv_lora_rank"],
                nope=given["qk_nope_head_dim"],
            )  # fmt: skip
        slides = kinds[index] == "sliding_attention"
        found = latent_attention(
            b, f"model.layers.{index}.self_attn", own, gate_rows=own.heads, vectors=own.rope,
            indexer=indexer if kinds[index] == "indexed_attention" else None,
        )  # fmt: skip
        return replace(found, kind="mla-swa", window=window) if slides else found

    def at(index: int) -> Layer:
        name = f"model.layers.{index}.mlp"
        feed = mixtures(name) if mixtures.sparse[index] else dense_ffn(b, name, width)
        return layer(b, attend(index), feed)

    return decoder(b, at)


FAMILY = Family(
    "dots3_note", ("dots3_note_text", "dots3_note"),
    ("Dots3NoteForCausalLM", "Dots3NoteForConditionalGeneration"), read,
)  # fmt: skip
