"""Mixtures of experts told in a few words: which layers have them, what is shared, what has a bias."""

from __future__ import annotations

from dataclasses import dataclass

from costmodel.models.config import MAX_EXPERTS
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.ffn import Experts, ffn_weights, mixture
from costmodel.models.parts.schedule import listed_sparse_layers
from costmodel.models.spec import MoE


@dataclass(frozen=True)
class Mixed:
    """What an architecture fixes of its mixtures."""

    width_keys: tuple[str, ...] = ("moe_intermediate_size",)
    groups: bool = False  #: the router may pick groups of experts first
    router_bias: bool = False  #: a selection bias per expert
    gated: bool = True
    expert_bias: bool = False
    shared_keys: tuple[str, ...] = ()  #: keys of the number of shared experts
    shared_default: int = 0
    shared_width_keys: tuple[str, ...] = ()  #: keys of a shared expert's width; else the experts'
    shared_gate: bool = False  #: a row that scales the shared expert's output
    router_vectors: int = 0  #: numbers of the router besides
    dense_keys: tuple[str, ...] = ("first_k_dense_replace",)  #: of the leading dense layers
    dense_default: int = 0  #: their number where the file is silent


class Mixtures:
    """The mixtures of one model: ``sparse`` says which layers have one."""

    def __init__(self, b: Builder, recipe: Mixed, count: int):
        c = b.config
        self.b, self.recipe = b, recipe
        self.experts = Experts.read(b, width_keys=recipe.width_keys, groups=recipe.groups)
        self.sparse = listed_sparse_layers(b, count, recipe.dense_keys, recipe.dense_default)
        self.num_shared = 0
        if recipe.shared_keys:
            self.num_shared = c.size(
                *recipe.shared_keys, default=recipe.shared_default, because="family default", low=0,
                high=MAX_EXPERTS,
            )  # fmt: skip
        elif recipe.shared_width_keys:
            self.num_shared = 1
        self.shared_width = self.experts.width
        if recipe.shared_width_keys:
            self.shared_width = c.size(
                *recipe.shared_width_keys, default=self.experts.width, because="the expert width",
                low=0,
            )  # fmt: skip
        if not self.shared_width:
            self.num_shared = 0

    def __call__(self, at: str) -> MoE:
        """The mixture of one layer."""
        b, recipe = self.b, self.recipe
        shared = ffn_weights(
            b, f"{at}.shared_experts", self.num_shared * self.shared_width, gated=recipe.gated,
            prefix="shared experts' ",
        )  # fmt: skip
        if recipe.shared_gate:
            shared += (b.matrix("shared expert's gate", f"{at}.shared_expert_gate", 1, b.hidden,
                                "replicated", role="plain"),)  # fmt: skip
        if recipe.router_vectors:
            shared += (b.vector("router's vectors", recipe.router_vectors),)
        has_shared = self.num_shared or recipe.router_vectors
        return mixture(
            b, at, self.experts, gated=recipe.gated, router_bias=recipe.router_bias,
            expert_bias=recipe.expert_bias, num_shared=self.num_shared,
            shared=shared if has_shared else (),
        )  # fmt: skip
