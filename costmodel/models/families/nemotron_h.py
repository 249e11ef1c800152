"""Nemotron-H and Nemotron 3: a list of single blocks, each Mamba-2, attention, MLP or mixture."""

from __future__ import annotations

from typing import Any

from costmodel.models.config import MAX_LAYERS
from costmodel.models.parts.attention import grouped_query
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import decoder, layer
from costmodel.models.parts.ffn import Experts, dense_ffn, ffn_weights, mixture
from costmodel.models.parts.mtp import num_modules
from costmodel.models.parts.states.linear import state_element_bytes
from costmodel.models.parts.states.mamba import mamba2
from costmodel.models.registry import Family
from costmodel.models.spec import MTP, Layer, ModelSpec, MoE, Sublayer, Weights

_LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
#: Names that newer files give the same blocks.
_NEWER = {
    "linear_attention": "mamba",
    "full_attention": "attention",
    "sparse": "moe",
    "dense": "mlp",
}


def read(b: Builder) -> ModelSpec:
    """Blocks come as pattern letters or as a list of names; FFNs have two matrices (relu squared)."""
    c = b.config
    blocks = _blocks(b)
    make = _Blocks(b, set(blocks))
    modules = num_modules(b)
    inner = _mtp_blocks(b) if modules else []
    c.ignore("mtp_hybrid_override_pattern", "mtp_layers_block_type")
    c.ignore("use_bias", "sliding_window", "expand", "time_step_rank", "moe_shared_expert_overlap")

    def at(index: int) -> Layer:
        return layer(b, make(blocks[index], index))

    def mtp() -> MTP | None:
        if not modules:
            return None
        layers = [layer(b, make(kind, len(blocks) + i)) for i, kind in enumerate(inner)]
        extra = (
            b.matrix("MTP projection", "mtp.eh_proj", b.hidden, 2 * b.hidden, "replicated",
                     role="plain"),
            b.vector("MTP norms", 3 * b.hidden),
        )  # fmt: skip
        return MTP(modules, tuple(layers) * modules, extra * modules)

    return decoder(b, at, num_layers=len(blocks), never_tied=True, mtp=mtp)


def _blocks(b: Builder) -> list[str]:
    c = b.config
    c.ignore("hybrid_override_pattern", "layers_block_type", "num_hidden_layers")
    pattern, names = c.data.get("hybrid_override_pattern"), c.data.get("layers_block_type")
    if (
        isinstance(pattern, str)
        and 0 < len(pattern) <= MAX_LAYERS
        and set(pattern) <= set(_LETTERS)
    ):
        blocks = [_LETTERS[letter] for letter in pattern]
    elif isinstance(names, list) and 0 < len(names) <= MAX_LAYERS and pattern is None:
        listed = c.strings("layers_block_type", (*_LETTERS.values(), *_NEWER), len(names)) or []
        blocks = [_NEWER.get(name, name) for name in listed]
    else:
        raise c.fail(
            "hybrid_override_pattern",
            f"expected up to {MAX_LAYERS} of the letters {' '.join(_LETTERS)}, or layers_block_type",
        )
    if c.has("num_hidden_layers") and b.num_layers != len(blocks):
        raise c.fail("num_hidden_layers", f"is {b.num_layers}, but {len(blocks)} blocks are listed")
    c.log.read("blocks", f"{len(blocks)} blocks", "config")
    return blocks


def _mtp_blocks(b: Builder) -> list[str]:
    c = b.config
    names = c.data.get("mtp_layers_block_type")
    if isinstance(names, list) and len(names) <= 16:
        return c.strings("mtp_layers_block_type", _LETTERS.values(), len(names)) or []
    pattern = c.data.get("mtp_hybrid_override_pattern")
    if isinstance(pattern, str) and len(pattern) <= 16 and set(pattern) <= set(_LETTERS):
        return [_LETTERS[letter] for letter in pattern]
    c.log.note("assumed: an MTP module is one attention and one moe block (mtp blocks not given)")
    return ["attention", "moe"]


class _Blocks:
    """Builds a block of each kind that the model has."""

    def __init__(self, b: Builder, kinds: set[str]):
        c = b.config
        self.b = b
        self.heads, self.kv_heads, self.dim = b.heads, b.kv_heads(), b.head_dim()
        self.bias = c.flag("attention_bias", default=False)
        self.mlp_bias = c.flag("mlp_bias", default=False)
        self.width = b.ffn_width
        self.inner: dict[str, Any] = self._mamba() if "mamba" in kinds else {}
        c.ignore("mamba_ssm_cache_dtype", "mamba_num_heads", "mamba_head_dim")
        self.latent: int | None = None
        if "moe" in kinds:
            self.experts = Experts.read(b, groups=True)
            self.num_shared = c.size("n_shared_experts", low=0, high=2**10)
            self.shared_width = c.size("moe_shared_expert_intermediate_size")
            self.latent = c.optional_size("moe_latent_size", because="experts at full width")

    def _mamba(self) -> dict[str, Any]:
        c = self.b.config
        self.conv_bias = c.flag("use_conv_bias", default=True)
        self.proj_bias = c.flag("mamba_proj_bias", default=False)
        self.element = state_element_bytes(c, "mamba_ssm_cache_dtype")
        return {
            "heads": c.size("mamba_num_heads", high=2**14),
            "head_dim": c.size("mamba_head_dim", high=2**14),
            "groups": c.size("n_groups", high=2**12),
            "state": c.size("ssm_state_size", high=2**14),
            "conv": c.size("conv_kernel", high=64),
        }

    def __call__(self, kind: str, index: int) -> Sublayer:
        b, at = self.b, f"model.layers.{index}.mixer"
        if kind == "mamba":
            return mamba2(
                b, at, **self.inner, conv_bias=self.conv_bias, proj_bias=self.proj_bias,
                element_bytes=self.element,
            )  # fmt: skip
        if kind == "attention":
            return grouped_query(
                b, at, self.heads, self.kv_heads, self.dim, qkv_bias=self.bias, o_bias=self.bias
            )
        if kind == "mlp":
            return dense_ffn(b, at, self.width, gated=False, bias=self.mlp_bias)
        return self._moe(at)

    def _moe(self, at: str) -> MoE:
        b = self.b
        shared: tuple[Weights, ...] = ()
        if self.num_shared:
            shared = ffn_weights(
                b, f"{at}.shared_experts", self.num_shared * self.shared_width, gated=False,
                prefix="shared experts' ",
            )  # fmt: skip
        if self.latent:
            shared += (
                b.matrix(
                    "latent down", f"{at}.fc1_latent_proj", self.latent, b.hidden, "replicated"
                ),
                b.matrix("latent up", f"{at}.fc2_latent_proj", b.hidden, self.latent, "replicated"),
            )
        return mixture(
            b, at, self.experts, gated=False, router_bias=True, shared=shared,
            num_shared=self.num_shared, input_dim=self.latent,
        )  # fmt: skip


FAMILY = Family("nemotron_h", ("nemotron_h",), ("NemotronHForCausalLM",), read)
