"""Instances with one thing changed: chips, the scale-out's share, the number of experts. Solves nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from costmodel.experts.expert_load import skewed_load
from costmodel.models.spec import Layer, MoE
from costmodel.question.instance import Instance
from costmodel.question.what_if import cluster_of
from topology import Chip
from topology.errors import InstanceError, Problem


def with_chips(instance: Instance, adjust: Callable[[Chip], Chip]) -> Instance:
    """The instance on the same cluster of adjusted chips."""
    return replace(instance, cluster=cluster_of(instance.scenario, adjust))


def with_ratio(instance: Instance, ratio: float) -> Instance:
    """The instance with a scale-up that is ``ratio`` times as fast as the scale-out, chip by chip."""
    if not 0 < ratio < 1e6:
        raise InstanceError(
            Problem("ratio", f"scale-up over scale-out must be positive, got {ratio}")
        )
    return with_chips(
        instance,
        lambda chip: chip.model_copy(update={"nic_bytes_per_s": chip.scale_up_bytes_per_s / ratio}),
    )


def with_experts(instance: Instance, num_experts: int, top_k: int) -> Instance:
    """The instance with other numbers of routed experts, each as large as before.

    The router grows with the experts; the load is the workload's generator again (a recorded one
    fits only the model it was recorded on). Raises ``InstanceError`` where that cannot be.
    """
    if instance.operations.moe is None:
        raise InstanceError(Problem("model", f"{instance.model.name} has no routed experts"))
    if not 1 <= top_k <= num_experts:
        raise InstanceError(Problem("top_k", f"{top_k} experts per token of {num_experts} experts"))
    if instance.workload.expert_load not in ("skewed", "uniform"):
        raise InstanceError(
            Problem("workload.expert_load", "a recorded load has the model's own experts only")
        )
    layers = tuple(
        Layer(
            tuple(
                _resized(part, num_experts, top_k) if isinstance(part, MoE) else part
                for part in layer.sublayers
            ),
            layer.extra,
        )
        for layer in instance.model.layers
    )
    count = len(instance.operations.moe_layers)
    loads = np.full((count, num_experts), 1.0 / num_experts)
    if instance.workload.expert_load == "skewed":
        loads = skewed_load(count, num_experts, seed=instance.workload.expert_load_seed)
    return replace(instance, model=replace(instance.model, layers=layers), expert_loads=loads)


def _resized(moe: MoE, num_experts: int, top_k: int) -> MoE:
    share = num_experts / moe.num_experts
    router = tuple(
        replace(
            part,
            params=round(part.params * share),
            num_bytes=part.num_bytes * share,
            active_params=round(part.active_params * share),
        )
        for part in moe.router
    )
    return replace(moe, num_experts=num_experts, top_k=float(top_k), router=router)
