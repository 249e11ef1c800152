"""Step-3.5: sliding layers have their own head counts, a gate per head, MoE layers listed."""

from __future__ import annotations

from dataclasses import dataclass

from costmodel.models.config import Config
from costmodel.models.parts.attention import grouped_query
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import MAX_POSITIONS, decoder, layer
from costmodel.models.parts.ffn import Experts, dense_ffn, ffn_weights, mixture
from costmodel.models.parts.mtp import next_token_modules, num_modules
from costmodel.models.parts.schedule import sparse_layers, windowed_layers
from costmodel.models.registry import Family
from costmodel.models.spec import Layer, ModelSpec


@dataclass(frozen=True)
class _Heads:
    query: int
    kv: int
    dim: int


def read(b: Builder) -> ModelSpec:
    """``attention_other_setting`` holds the heads of the layers of the other type."""
    c, count = b.config, b.num_layers
    own = _Heads(
        b.heads, c.size("num_attention_groups", "num_key_value_heads", high=2**12), b.head_dim()
    )
    other = _other_heads(b, own)
    slides = windowed_layers(b, count, pattern=None, because="")
    window = c.size("sliding_window", high=MAX_POSITIONS) if any(slides) else 0
    c.ignore("sliding_window", "query_pre_attn_scalar", "per_layer_config", "mlp_bias")
    # a key of the class that has no switch for the gate
    always = c.has("num_sliding_attention_heads")
    gate = c.flag("use_head_wise_attn_gate", default=always)
    experts = Experts.read(b)
    shared_width = c.size("share_expert_dim", "share_expert_dims", low=0)
    router_bias = c.flag("use_moe_router_bias", "moe_router_bias", default=True)
    sparse = c.indices("moe_layers_enum", count)
    if sparse is None:
        flags = sparse_layers(b, count)
        sparse = [index for index in range(count) if flags[index]]
    width, chosen = b.ffn_width, set(sparse)
    c.ignore("n_shared_experts")
    c.ignore("use_moe", "use_qk_norm", "moe_every_n_layer")
    modules = num_modules(b)
    if modules:  # a list of layer types goes on with those of the modules
        slides += _tail_slides(b, count, modules)
        window = window or c.size("sliding_window", high=MAX_POSITIONS)

    def at(index: int) -> Layer:
        name = f"model.layers.{index}"
        heads = other if slides[index] else own
        attention = grouped_query(
            b, f"{name}.self_attn", heads.query, heads.kv, heads.dim, vectors=2 * heads.dim,
            gate_rows=heads.query if gate else 0, window=window if slides[index] else None,
        )  # fmt: skip
        if index not in chosen:
            return layer(b, attention, dense_ffn(b, f"{name}.mlp", width))
        shared = ffn_weights(b, f"{name}.share_expert", shared_width, prefix="shared expert's ")
        moe = mixture(
            b, f"{name}.moe", experts, router_bias=router_bias, num_shared=int(shared_width > 0),
            shared=shared if shared_width else (),
        )  # fmt: skip
        return layer(b, attention, moe)

    return decoder(b, at, mtp=lambda: next_token_modules(b, modules, at, count))


def _tail_slides(b: Builder, count: int, modules: int) -> list[bool]:
    """Whether the layer of each draft module slides; those of released models do."""
    listed = b.config.data.get("layer_types")
    tail = listed[count : count + modules] if isinstance(listed, list) else []
    if len(tail) < modules:
        b.config.log.note("assumed: layers of MTP modules slide (layer_types does not name them)")
        return [True] * modules
    return [kind == "sliding_attention" for kind in tail]


def _other_heads(b: Builder, own: _Heads) -> _Heads:
    other: Config | None = b.config.section("attention_other_setting")
    if other is None and b.config.has("num_sliding_attention_heads"):
        heads = b.config.size("num_sliding_attention_heads", high=2**12)
        return _Heads(heads, own.kv, own.dim)
    if other is None:
        b.config.log.note(
            "warning: attention_other_setting not given: sliding layers are read with the heads of "
            "full ones; released checkpoints of this family have 96 query heads there"
        )
        return own
    other.choice("attention_type", allowed=("sliding_attention",), default="sliding_attention")
    other.ignore("true_head_dim")
    return _Heads(
        other.size("num_attention_heads", high=2**12),
        other.size("num_attention_groups", high=2**12),
        other.size("head_dim", default=own.dim, because="as in full layers", high=2**14),
    )


FAMILY = Family(
    "step3p5",
    ("step3p5", "step3p7"),
    ("Step3p5ForCausalLM", "Step3p7FlashForCausalLM", "Step3p7ForConditionalGeneration"),
    read,
)
