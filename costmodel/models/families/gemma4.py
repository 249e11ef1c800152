"""Gemma 4: wide full layers without a value projection, shared caches, a mixture beside the MLP."""

from __future__ import annotations

from costmodel.models.parts.attention import grouped_query
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import MAX_POSITIONS, decoder, layer
from costmodel.models.parts.ffn import Experts, dense_ffn, ffn_weights, mixture
from costmodel.models.parts.overrides import per_layer_overrides
from costmodel.models.parts.per_layer import per_layer_input, per_layer_tables
from costmodel.models.parts.schedule import windowed_layers
from costmodel.models.registry import Family
from costmodel.models.spec import Attention, DenseFFN, Layer, ModelSpec, MoE, Weights


def read(b: Builder) -> ModelSpec:
    """Full layers have their own head width; the last layers may read earlier layers' caches."""
    c, count = b.config, b.num_layers
    attend = _Attend(b, count)
    mixed = c.flag("enable_moe_block", default=False)
    experts = Experts.read(b) if mixed else Experts(1, 1, 1)
    if not mixed:
        c.ignore(
            "num_experts", "top_k_experts", "moe_intermediate_size", "expert_intermediate_size"
        )
    width = b.ffn_width
    double = c.flag("use_double_wide_mlp", default=False)
    per_layer = 0
    if c.has("hidden_size_per_layer_input"):
        per_layer = c.size("hidden_size_per_layer_input", low=0)
    else:  # the class's default is that of the small models; files of the larger ones leave it out
        c.log.note("assumed: hidden_size_per_layer_input not given: no inputs per layer")
    rows = c.size("vocab_size_per_layer_input", low=0) if per_layer else 0
    c.ignore("vocab_size_per_layer_input", "use_bidirectional_attention")

    def at(index: int) -> Layer:
        name = f"model.layers.{index}"
        wide = 2 * width if double and index >= attend.first_shared else width
        feed: DenseFFN | MoE
        norms = 4 * b.hidden + 1
        if mixed:
            shared = ffn_weights(b, f"{name}.mlp", wide, prefix="dense branch's ")
            scales = b.vector("router scales", b.hidden + experts.num)
            feed = mixture(
                b, name, experts, shared=(*shared, scales), num_shared=1, router="router.proj"
            )
            norms += 3 * b.hidden
        else:
            feed = dense_ffn(b, f"{name}.mlp", wide)
        extra: tuple[Weights, ...] = ()
        if per_layer:
            extra = per_layer_input(b, name, per_layer)
            norms += b.hidden
        plain = layer(b, attend(index), feed, norms=norms)
        return Layer(plain.sublayers, (*plain.extra, *extra))

    tables = per_layer_tables(b, rows, per_layer, count) if per_layer else ()
    return decoder(b, at, tied_default=True, extra_embedding=tables)


class _Attend:
    def __init__(self, b: Builder, count: int):
        c = b.config
        self.b = b
        self.heads, self.kv_heads, self.dim = b.heads, b.kv_heads(), b.head_dim(256)
        overrides = per_layer_overrides(c, count, ("head_dim",))
        dims = {found["head_dim"] for found in overrides.values()}
        self.full_dim = dims.pop() if len(dims) == 1 else c.size(
            "global_head_dim", default=512, because="class default", high=2**14
        )  # fmt: skip
        self.same = c.flag("attention_k_eq_v", default=False)
        self.full_kv = self.kv_heads
        if self.same:
            self.full_kv = c.size("num_global_key_value_heads", default=self.kv_heads,
                                  because="as in sliding layers", high=2**12)  # fmt: skip
        c.ignore("num_global_key_value_heads")
        self.bias = c.flag("attention_bias", default=False)
        self.window = c.size("sliding_window", default=512, high=MAX_POSITIONS)
        self.slides = windowed_layers(b, count, pattern=6, because="class default")
        if overrides and {i for i in range(count) if not self.slides[i]} != set(overrides):
            c.problem("per_layer_config", "must give head_dim of every full layer, and of no other")
        shared = c.size("num_kv_shared_layers", default=0, because="none", low=0, high=count)
        self.first_shared = count - shared

    def __call__(self, index: int) -> Attention:
        slides = self.slides[index]
        dim = self.dim if slides else self.full_dim
        owns = index < self.first_shared
        return grouped_query(
            self.b, f"model.layers.{index}.self_attn", self.heads,
            self.kv_heads if slides else self.full_kv, dim, qkv_bias=self.bias, o_bias=self.bias,
            vectors=2 * dim if owns else dim, window=self.window if slides else None,
            has_kv=owns, has_v=slides or not self.same,
        )  # fmt: skip


FAMILY = Family(
    "gemma4",
    ("gemma4_text", "gemma4", "gemma4_unified_text", "gemma4_unified"),
    (
        "Gemma4ForCausalLM",
        "Gemma4ForConditionalGeneration",
        "Gemma4UnifiedForCausalLM",
        "Gemma4UnifiedForConditionalGeneration",
    ),
    read,
)
