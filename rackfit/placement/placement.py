"""Placement of recorded expert loads as people use it: options in, a judged placement out.

The placement is found by the solver and judged by the cost model's evaluator.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from costmodel.experts.coactivation import CoActivation
from costmodel.experts.coactivation_files import read_coactivation
from costmodel.experts.dispatch import Dispatch, chip_loads, imbalance, replica_counts
from costmodel.experts.expert_load import ExpertLoads, read_loads
from rackfit.exporters.placement_table import AnyTable, PlacementTable
from rackfit.placement.placement_files import loads_path
from rackfit.placement.placement_search import node_copies, search
from rackfit.placement.placement_sharing import Shared, place_sharing
from rackfit.placement.placement_together import Compared, check_together, compare
from solver.clock import check_seed
from solver.experts.place import Effort
from topology.errors import InstanceError, Problem

Floats = NDArray[np.float64]
SCHEMA_VERSION = 1
#: More than these are taken for a typing mistake.
MAX_GPUS, MAX_SLOTS, MAX_WORKERS = 8192, 65_536, 1024


@dataclass(frozen=True, slots=True)
class PlaceOptions:
    """What ``rackfit place`` is asked: chips, slots, nodes, router groups, dispatch and effort.

    ``objective`` says what several recorded windows are for: ``sum`` adds them up, ``mean`` and
    ``worst`` place for all of them at once. ``copy_cost`` is what one more remote copy per token
    costs, as a fraction of a layer's time with perfectly balanced experts. ``max_moves`` or ``max_bytes`` (with
    ``expert_bytes``, the weights of one expert of one layer) limit what a running placement may change.
    ``layer_slots``: ``slots`` in every layer, or on average, shared among the layers in whole ``rows`` (equally many
    on every GPU of a layer) or in ``any`` numbers.
    """

    gpus: int
    slots: int
    gpus_per_node: int | None = None
    groups: int = 1
    top_groups: int = 1
    top_k: int | None = None
    dispatch: Dispatch = "even"
    objective: Literal["sum", "mean", "worst"] = "mean"
    copy_cost: float = 0.2
    max_moves: int | None = None
    max_bytes: float | None = None
    expert_bytes: float | None = None
    effort: Effort = "good"
    time_limit_s: float | None = None
    workers: int = 1
    seed: int = 0
    layer_slots: Literal["same", "rows", "any"] = "same"

    def experts_per_token(self, num_experts: int) -> int:
        """``top_k``, by default 8 or all experts if there are fewer. Raises ``InstanceError``."""
        top_k = min(8, num_experts) if self.top_k is None else self.top_k
        if not 1 <= top_k <= num_experts:
            raise InstanceError(Problem("--top-k", f"{top_k} of {num_experts} experts per token"))
        return top_k

    def most_moves(self) -> int | None:
        """Experts that may be written into slots, by number or by bytes; ``None`` without a limit."""
        if self.max_bytes is None or self.expert_bytes is None:
            return self.max_moves
        return math.floor(self.max_bytes / self.expert_bytes * (1 + 1e-12))

    def check(self, num_experts: int) -> None:
        """Raise ``InstanceError`` with every option that makes no sense, whether or not it is used."""
        problems = []
        if self.groups < 1 or num_experts % max(self.groups, 1):
            problems.append(
                Problem("--groups", f"{self.groups} groups do not divide {num_experts} experts")
            )
        if not 1 <= self.top_groups <= max(self.groups, 1):
            problems.append(
                Problem("--top-groups", f"{self.top_groups} of {self.groups} groups per token")
            )
        if not (math.isfinite(self.copy_cost) and self.copy_cost >= 0):
            problems.append(Problem("--copy-cost", f"{self.copy_cost:g}: need a number, 0 or more"))
        if self.time_limit_s is not None and not self.time_limit_s > 0:
            problems.append(
                Problem("--time-limit", f"{self.time_limit_s:g} s: need seconds above 0")
            )
        if self.max_moves is not None and self.max_bytes is not None:
            problems.append(Problem("--max-bytes", "give this or --max-moves, not both"))
        if (self.max_bytes is None) != (self.expert_bytes is None):
            problems.append(Problem("--max-bytes", "needs --expert-bytes, and the other way round"))
        for name, value in (("--max-bytes", self.max_bytes), ("--expert-bytes", self.expert_bytes)):
            if value is not None and not (math.isfinite(value) and value > 0):
                problems.append(Problem(name, f"{value:g} B: need a size above 0"))
        if self.layer_slots != "same" and self.most_moves() is not None:
            message = "slots are shared among the layers of a new placement; leave out --max-moves and --max-bytes"
            problems.append(Problem("--layer-slots", message))
        nodes = self.gpus_per_node is not None and self.gpus > self.gpus_per_node
        if self.layer_slots == "any" and self.groups > 1 and nodes:
            message = (
                "any: router groups at home on nodes need equally many slots per GPU; give rows"
            )
            problems.append(Problem("--layer-slots", message))
        if not 0 <= self.workers <= MAX_WORKERS:
            message = f"{self.workers}: need 0 (one per core) to {MAX_WORKERS}"
            problems.append(Problem("--workers", message))
        if problems:
            raise InstanceError(problems)
        self.experts_per_token(num_experts)

    def slots_per_chip(self) -> tuple[int, ...]:
        """Slots of each chip: even, or the first chips one more. Raises ``InstanceError``."""
        problems = []
        if not 1 <= self.gpus <= MAX_GPUS:
            problems.append(Problem("--gpus", f"{self.gpus}: need 1 to {MAX_GPUS:,}"))
        if self.slots > MAX_SLOTS:
            problems.append(Problem("--slots", f"{self.slots}: at most {MAX_SLOTS:,} are placed"))
        if self.slots < max(self.gpus, 1):
            problems.append(Problem("--slots", f"{self.slots}: need at least one per GPU"))
        if self.gpus_per_node is not None and (
            self.gpus_per_node < 1 or self.gpus % max(self.gpus_per_node, 1)
        ):
            problems.append(
                Problem("--gpus-per-node", f"{self.gpus_per_node} does not divide {self.gpus} GPUs")
            )
        if problems:
            raise InstanceError(problems)
        least, more = divmod(self.slots, self.gpus)
        return (least + 1,) * more + (least,) * (self.gpus - more)


@dataclass(frozen=True, slots=True)
class Placed:
    """A placement and what the evaluator says of it."""

    table: AnyTable
    replicas: NDArray[np.int64]
    imbalance: Floats
    bound: Floats
    copies: Floats
    wall_s: float
    options: PlaceOptions
    moves: int | None
    trade_off: list[tuple[float, float]]
    by_window: Floats
    windows: tuple[str, ...]
    #: points chosen layer by layer at growing worths of a copy
    by_layer: list[tuple[float, float]] = field(default_factory=list)
    #: EPLB and random placements where experts used together are known
    compared: Compared | None = None
    #: what unlike numbers of slots gain, where they were asked for
    shared: Shared | None = None

    @property
    def gap(self) -> Floats:
        """``imbalance / bound - 1`` per layer."""
        return np.maximum(self.imbalance / self.bound - 1, 0.0)

    @property
    def moved_bytes(self) -> float | None:
        """Weights that the moves copy; ``None`` without moves or the size of an expert."""
        if self.moves is None or self.options.expert_bytes is None:
            return None
        return self.moves * self.options.expert_bytes

    def document(self) -> dict[str, Any]:
        """The JSON document of ``rackfit place --format json``.

        ``slots_per_gpu``: one list for all layers, or one for each where slots are shared among them.
        """
        shared = {} if self.shared is None else {"shared": self.shared.document()}
        return {
            "schema_version": SCHEMA_VERSION,
            "gpus": self.options.gpus,
            "slots": self.options.slots,
            "slots_per_gpu": self.table.slots_per_gpu(),
            "dispatch": self.options.dispatch,
            "layer_ids": list(self.table.layer_ids),
            "physical_to_logical": self.table.rows(),
            "replicas": self.replicas.tolist(),
            "imbalance": {
                "per_layer": self.imbalance.tolist(),
                "mean": float(self.imbalance.mean()),
            },
            "bound": self.bound.tolist(),
            "gap": self.gap.tolist(),
            "cross_node_copies_per_token": float(self.copies.mean()),
            "windows": dict(zip(self.windows, self.by_window.tolist(), strict=False)),
            "moves": self.moves,
            "moved_bytes": self.moved_bytes,
            "trade_off": [
                {"imbalance": balance, "cross_node_copies_per_token": copies}
                for balance, copies in self.trade_off
            ],
            "trade_off_by_layer": [
                {"imbalance": balance, "cross_node_copies_per_token": copies}
                for balance, copies in self.by_layer
            ],
            "co_activation": None if self.compared is None else self.compared.document(),
            **shared,
            "wall_s": self.wall_s,
            "seed": self.options.seed,
        }


def place(
    loads: ExpertLoads | str | Path,
    options: PlaceOptions,
    current: NDArray[np.int64] | None = None,
    coactivation: CoActivation | str | Path | None = None,
) -> Placed:
    """Place recorded loads, from scratch or with few moves from ``current [layers, slots]``.

    ``loads`` may be a file of recorded counts or a shipped name (``rackfit catalogue loads``).
    ``coactivation`` (or its file) says which experts tokens use together: copies to other nodes then
    follow from it, and a node holds experts that are used together.
    Raises ``InstanceError`` for impossible requests.

    >>> import rackfit
    >>> placed = rackfit.place("olmoe-1b-7b", rackfit.PlaceOptions(gpus=8, slots=72))
    >>> placed.table.physical_to_logical.shape
    (3, 72)
    >>> bool((placed.imbalance >= placed.bound).all())
    True
    """
    start = time.perf_counter()
    if not isinstance(loads, ExpertLoads):
        loads = read_loads(loads_path(str(loads)))
    check_seed(options.seed)
    options.check(loads.num_experts)
    together = coactivation
    if options.layer_slots != "same":
        excluded = {"--current": current, "--coactivation": coactivation}
        for flag in [flag for flag, given in excluded.items() if given is not None]:
            message = f"slots are shared among the layers of a new placement; leave out {flag}"
            raise InstanceError(Problem("--layer-slots", message))
        return place_sharing(loads, options)
    if together is not None:
        check_together(loads, options, current is not None)
        if not isinstance(together, CoActivation):
            together = read_coactivation(together, loads, top_k=options.top_k)
    found = search(loads, options, current, together)
    slots = options.slots_per_chip()
    table = PlacementTable(
        found.physical_to_logical, loads.num_experts, slots, loads.layer_ids, loads.num_layers
    )
    windows = loads.total[None] if options.objective == "sum" else loads.windows
    ratios = np.stack(
        [
            imbalance(
                chip_loads(
                    found.physical_to_logical,
                    window,
                    slots,
                    dispatch=options.dispatch,
                    chips_per_node=options.gpus_per_node,
                )
            )
            for window in windows
        ]
    )
    ratio = ratios.max(axis=0) if options.objective == "worst" else ratios.mean(axis=0)
    copies = node_copies(found.physical_to_logical, loads.total, options, together)
    compared = None
    if together is not None:
        compared = compare(found.physical_to_logical, loads.total, options, together)
    return Placed(
        table,
        replica_counts(found.physical_to_logical, loads.num_experts),
        ratio,
        np.minimum(found.bound * options.gpus, ratio),
        copies,
        time.perf_counter() - start,
        options,
        found.moves,
        found.trade_off,
        ratios.mean(axis=1),
        loads.names if len(windows) == len(loads.names) else ("sum",),
        found.by_layer,
        compared,
    )
