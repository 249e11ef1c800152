"""Feed-forward branches: dense, and mixtures of experts with shared and zero-compute experts."""

from __future__ import annotations

from dataclasses import dataclass

from costmodel.models.config import MAX_EXPERTS
from costmodel.models.parts.builder import Builder
from costmodel.models.spec import DenseFFN, MoE, Weights


def ffn_weights(
    b: Builder,
    at: str,
    width: int,
    *,
    gated: bool = True,
    bias: bool = False,
    input_dim: int | None = None,
    prefix: str = "",
) -> tuple[Weights, ...]:
    """Up (and gate) and down projection of ``width``."""
    h = input_dim or b.hidden
    up = b.matrix(
        f"{prefix}{'gate and up' if gated else 'up'}",
        f"{at}.up_proj",
        width,
        h,
        "width",
        bias=bias,
        copies=2 if gated else 1,
        divided="rows",
    )
    down = b.matrix(
        f"{prefix}down", f"{at}.down_proj", h, width, "width", bias=bias, divided="cols"
    )
    return (up, down)


def dense_ffn(
    b: Builder, at: str, width: int, *, gated: bool = True, bias: bool = False
) -> DenseFFN:
    """A dense feed-forward branch."""
    return DenseFFN(ffn_weights(b, at, width, gated=gated, bias=bias), width)


@dataclass(frozen=True)
class Experts:
    """Routed experts of one layer as the config gives them."""

    num: int
    top_k: int
    width: int
    num_groups: int = 1
    top_groups: int = 1

    @classmethod
    def read(cls, b: Builder, *, width_keys: tuple[str, ...] = ("moe_intermediate_size",),
             groups: bool = False, group_names: tuple[str, ...] = ("n_group",)) -> Experts:  # fmt: skip
        """The usual aliases. ``groups``: the family's router may pick expert groups first."""
        c = b.config
        sound = c.log.so_far()
        num = c.size(*EXPERT_COUNT_KEYS, high=MAX_EXPERTS)
        top_k = c.size(*TOP_K_KEYS, high=MAX_EXPERTS)
        most = num if sound() else MAX_EXPERTS
        width = c.size(*width_keys)
        if top_k > most:
            c.problem(TOP_K_KEYS[0], f"{top_k} experts per token, but only {num} experts")
        if not groups:
            return cls(num, top_k, width)
        num_groups = c.size(*group_names, default=1, because="no expert groups", high=most)
        top_groups = c.size("topk_group", default=1, because="no expert groups", high=most)
        if not sound():
            return cls(num, top_k, width)
        if num % num_groups:
            c.problem(group_names[0], f"{num_groups} groups do not divide {num} experts")
        elif top_groups > num_groups:
            c.problem("topk_group", f"is {top_groups}, but there are {num_groups} groups")
        elif top_groups * (num // num_groups) < top_k:
            c.problem("topk_group", f"{top_groups} groups hold fewer than {top_k} experts")
        return cls(num, top_k, width, num_groups, top_groups)


#: Names of the number of routed experts.
EXPERT_COUNT_KEYS = ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts")
#: Names of the number of routed experts a token visits.
TOP_K_KEYS = (
    "num_experts_per_tok",
    "num_experts_per_token",
    "experts_per_token",
    "moe_topk",
    "moe_top_k",
    "moe_k",
    "top_k_experts",
)


def shared_mixture(
    b: Builder,
    at: str,
    experts: Experts,
    num_shared: int,
    *,
    router_bias: bool = True,
    bias: bool = False,
) -> MoE:
    """Routed experts, and ``num_shared`` ones of the same width that every token visits."""
    shared = ffn_weights(
        b, f"{at}.shared_experts", num_shared * experts.width, bias=bias, prefix="shared experts' "
    )
    return mixture(
        b, at, experts, router_bias=router_bias, expert_bias=bias, num_shared=num_shared,
        shared=shared if num_shared else (),
    )  # fmt: skip


def mixture(
    b: Builder,
    at: str,
    experts: Experts,
    *,
    gated: bool = True,
    router_bias: bool = False,
    expert_bias: bool = False,
    shared: tuple[Weights, ...] = (),
    num_shared: int = 0,
    input_dim: int | None = None,
    zero_experts: int = 0,
    router: str = "gate",
    expert_path: str = "experts.0",
    routers: tuple[Weights, ...] = (),
) -> MoE:
    """Router, routed experts of ``input_dim`` (the hidden size unless latent) and what is shared.

    With zero-compute experts ``experts.top_k`` slots fall on ``experts.num + zero_experts`` router
    rows; the expected number that carries weights is stored (LongCat-Flash report, section 2).
    ``routers`` replaces the one matrix that routes.
    """
    rows = experts.num + zero_experts
    inner = input_dim or b.hidden
    expert = [
        b.matrix("up", f"{at}.{expert_path}.up_proj", experts.width, inner, "width", role="expert",
                 bias=expert_bias, copies=2 if gated else 1),
        b.matrix("down", f"{at}.{expert_path}.down_proj", inner, experts.width, "width",
                 role="expert", bias=expert_bias),
    ]  # fmt: skip
    return MoE(
        num_experts=experts.num,
        top_k=experts.top_k * experts.num / rows,
        expert_params=sum(part.params for part in expert),
        expert_bytes=sum(part.num_bytes for part in expert),
        expert_dtype=expert[0].dtype,
        expert_input_dim=inner,
        expert_width=experts.width,
        router=routers or (
            b.matrix("router", f"{at}.{router}", rows, b.hidden, "replicated", role="plain",
                     bias=router_bias),
        ),
        shared=shared,
        zero_experts=zero_experts,
        num_groups=experts.num_groups,
        top_groups=experts.top_groups,
        num_shared=num_shared,
        expert_block=b.expert_block(f"{at}.{expert_path}", gated=gated),
    )  # fmt: skip
