"""Dense decoders that differ in little: biases, norms, gate, windows. One recipe each.

A recipe says what the model's code fixes; what the config may switch is read under the keys the
recipe names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from costmodel.models.parts.attention import grouped_query
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import decoder, layer
from costmodel.models.parts.ffn import dense_ffn
from costmodel.models.parts.windows import patterned_windows, uniform_window
from costmodel.models.registry import Family
from costmodel.models.spec import Layer, ModelSpec


@dataclass(frozen=True)
class Recipe:
    """What one architecture fixes."""

    architecture: str
    bias: bool | str = False  #: q, k, v bias, or the key that switches it
    bias_default: bool = False
    o_bias: bool | str | None = None  #: output bias; None: as q, k, v
    mlp_bias: bool | str = False
    gated: bool = True
    qk_norm: Literal["none", "head", "full"] = "none"
    norms: int = 2  #: norms per layer
    norm_bias: bool = False  #: layer norms with a bias instead of RMS norms
    tied: bool = False
    window: Literal["none", "all", "pattern"] = "none"
    pattern: int = 4  #: one layer in so many is full, where layer_types is absent
    head_dim: int | None = None
    no_effect: tuple[str, ...] = ()


RECIPES = {
    "apertus": Recipe("ApertusForCausalLM", bias="attention_bias", gated=False, qk_norm="head",
                      mlp_bias="mlp_bias", no_effect=("qk_norm", "post_norm")),
    "arcee": Recipe("ArceeForCausalLM", bias="attention_bias", mlp_bias="mlp_bias", gated=False),
    "baichuan": Recipe("BaichuanForCausalLM"),
    "exaone": Recipe("ExaoneForCausalLM"),
    "exaone4": Recipe("Exaone4ForCausalLM", qk_norm="head", window="pattern",
                      no_effect=("sliding_window_pattern",)),
    "gemma": Recipe("GemmaForCausalLM", bias="attention_bias", tied=True, head_dim=256),
    "glm": Recipe("GlmForCausalLM", bias="attention_bias", o_bias=False, head_dim=128),
    "glm4": Recipe("Glm4ForCausalLM", bias="attention_bias", o_bias=False, norms=4, head_dim=128),
    "gpt_neox": Recipe("GPTNeoXForCausalLM", bias="attention_bias", bias_default=True,
                       mlp_bias=True, gated=False, norm_bias=True,
                       no_effect=("use_parallel_residual",)),
    "granite": Recipe("GraniteForCausalLM", bias="attention_bias", mlp_bias="mlp_bias"),
    "internlm2": Recipe("InternLM2ForCausalLM", bias="bias", bias_default=True,
                        no_effect=("attn_implementation",)),
    "internlm3": Recipe("InternLM3ForCausalLM", bias="qkv_bias", o_bias="bias", mlp_bias="bias"),
    "minicpm": Recipe("MiniCPMForCausalLM", bias="attention_bias"),
    "nemotron": Recipe("NemotronForCausalLM", bias="attention_bias", mlp_bias="mlp_bias",
                       gated=False, norm_bias=True),
    "olmo2": Recipe("Olmo2ForCausalLM", bias="attention_bias", qk_norm="full"),
    "olmo3": Recipe("Olmo3ForCausalLM", bias="attention_bias", qk_norm="full", window="pattern"),
    "phi3": Recipe("Phi3ForCausalLM", window="all",
                   no_effect=("attention_bias", "mlp_bias", "lm_head_bias")),
    "seed_oss": Recipe("SeedOssForCausalLM", bias="attention_bias", bias_default=True,
                       o_bias="attention_out_bias", mlp_bias="mlp_bias", head_dim=128),
    "smollm3": Recipe("SmolLM3ForCausalLM", bias="attention_bias", mlp_bias="mlp_bias", tied=True,
                      no_effect=("no_rope_layers", "no_rope_layer_interval", "use_sliding_window",
                                 "layer_types", "sliding_window", "max_window_layers")),
    "stablelm": Recipe("StableLmForCausalLM", bias="use_qkv_bias", o_bias=False, norm_bias=True,
                       no_effect=("use_parallel_residual", "qk_layernorm")),
    "starcoder2": Recipe("Starcoder2ForCausalLM", bias="use_bias", bias_default=True,
                         mlp_bias="use_bias", gated=False, norm_bias=True, tied=True,
                         window="all", no_effect=("norm_type", "mlp_type")),
}  # fmt: skip


def read(b: Builder) -> ModelSpec:
    """The decoder that the recipe of ``model_type`` (or of the architecture) describes."""
    c, count = b.config, b.num_layers
    recipe = _recipe(b)
    c.ignore(*recipe.no_effect)
    heads, kv_heads, width = b.heads, b.kv_heads("num_kv_heads"), b.ffn_width
    dim = b.head_dim(recipe.head_dim)
    bias = _switch(b, recipe.bias, recipe.bias_default)
    o_bias = bias if recipe.o_bias is None else _switch(b, recipe.o_bias, False)
    mlp_bias = _switch(b, recipe.mlp_bias, recipe.bias_default)
    vectors = {"none": 0, "head": 2 * dim, "full": (heads + kv_heads) * dim}[recipe.qk_norm]
    windows: list[int | None] = [None] * count
    if recipe.window == "all":
        windows = [uniform_window(b)] * count
    elif recipe.window == "pattern":
        windows = patterned_windows(b, count, recipe.pattern)
    norm = b.hidden * (2 if recipe.norm_bias else 1)

    def at(index: int) -> Layer:
        name = f"model.layers.{index}"
        attention = grouped_query(
            b, f"{name}.self_attn", heads, kv_heads, dim, qkv_bias=bias, o_bias=o_bias,
            vectors=vectors, window=windows[index],
        )  # fmt: skip
        ffn = dense_ffn(b, f"{name}.mlp", width, gated=recipe.gated, bias=mlp_bias)
        return layer(b, attention, ffn, norms=recipe.norms * norm)

    return decoder(b, at, tied_default=recipe.tied, final_norm=norm)


def _recipe(b: Builder) -> Recipe:
    kind = b.config.data.get("model_type")
    if isinstance(kind, str) and kind in RECIPES:
        return RECIPES[kind]
    names = [
        name
        for where in (b.config, b.outer)
        if isinstance(listed := where.data.get("architectures"), list)
        for name in listed
    ]
    return next(recipe for recipe in RECIPES.values() if recipe.architecture in names)


def _switch(b: Builder, what: bool | str, default: bool) -> bool:
    return b.config.flag(what, default=default) if isinstance(what, str) else what


FAMILY = Family(
    "plain", tuple(RECIPES), tuple(recipe.architecture for recipe in RECIPES.values()), read
)
