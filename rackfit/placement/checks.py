"""What a request for a placement may not ask: every problem at once, by the option that says it."""

from __future__ import annotations

import math
from dataclasses import replace

from costmodel.experts.expert_load import ExpertLoads
from costmodel.experts.fanout import too_many_sets
from solver.clock import check_seed
from solver.experts.request import PlaceOptions, chooses_nodes
from topology.errors import InstanceError, Problem
from topology.names import shown

#: More than these are taken for a typing mistake.
MAX_GPUS, MAX_SLOTS, MAX_WORKERS = 8192, 65_536, 1024


def check_options(
    loads: ExpertLoads, options: PlaceOptions, *, moved: bool = False, together: bool = False
) -> None:
    """Raise ``InstanceError`` with every option that makes no sense, whether or not it is used.

    ``moved``: a running placement is given; ``together``: so is co-activation.
    """
    check_seed(options.seed)
    num_experts = loads.num_experts
    problems = []
    if options.groups < 1 or num_experts % max(options.groups, 1):
        problems.append(
            Problem("--groups", f"{options.groups} groups do not divide {num_experts} experts")
        )
    if not 1 <= options.top_groups <= max(options.groups, 1):
        problems.append(
            Problem("--top-groups", f"{options.top_groups} of {options.groups} groups per token")
        )
    elif reason := too_many_sets(options.groups, options.top_groups):
        problems.append(Problem("--top-groups", reason))
    if not (math.isfinite(options.copy_cost) and options.copy_cost >= 0):
        problems.append(Problem("--copy-cost", f"{options.copy_cost:g}: need a number, 0 or more"))
    if options.time_limit_s is not None and not options.time_limit_s > 0:
        problems.append(
            Problem("--time-limit", f"{options.time_limit_s:g} s: need seconds above 0")
        )
    if options.max_moves is not None and options.max_bytes is not None:
        problems.append(Problem("--max-bytes", "give this or --max-moves, not both"))
    if (options.max_bytes is None) != (options.expert_bytes is None):
        problems.append(Problem("--max-bytes", "needs --expert-bytes, and the other way round"))
    for name, value in (
        ("--max-bytes", options.max_bytes),
        ("--expert-bytes", options.expert_bytes),
    ):
        if value is not None and not (math.isfinite(value) and value > 0):
            problems.append(Problem(name, f"{value:g} B: need a size above 0"))
    if options.layer_slots != "same" and options.most_moves() is not None:
        message = "slots are shared among the layers of a new placement; leave out --max-moves and --max-bytes"
        problems.append(Problem("--layer-slots", message))
    nodes = options.gpus_per_node is not None and options.gpus > options.gpus_per_node
    if options.layer_slots == "any" and options.groups > 1 and nodes:
        message = "any: router groups at home on nodes need equally many slots per GPU; give rows"
        problems.append(Problem("--layer-slots", message))
    if not 0 <= options.workers <= MAX_WORKERS:
        message = f"{options.workers}: need 0 (one per core) to {MAX_WORKERS}"
        problems.append(Problem("--workers", message))
    if options.slots > MAX_SLOTS:
        problems.append(Problem("--slots", f"{options.slots}: at most {MAX_SLOTS:,} are placed"))
    if options.gpus > MAX_GPUS:
        problems.append(Problem("--gpus", f"{options.gpus}: at most {MAX_GPUS:,} share experts"))
    if options.gpus < 1:
        problems.append(Problem("--gpus", f"{options.gpus}: need 1 or more"))
    if options.slots < max(options.gpus, 1):
        problems.append(Problem("--slots", f"{options.slots}: need at least one per GPU"))
    if options.gpus_per_node is not None and (
        options.gpus_per_node < 1 or options.gpus % max(options.gpus_per_node, 1)
    ):
        problems.append(
            Problem(
                "--gpus-per-node", f"{options.gpus_per_node} does not divide {options.gpus} GPUs"
            )
        )
    top_k = options.experts_per_token(num_experts)
    if not 1 <= top_k <= num_experts:
        problems.append(Problem("--top-k", f"{top_k} of {num_experts} experts per token"))
    elif loads.top_k not in (None, top_k):
        message = f"{top_k} experts per token, {shown(loads.source, 200)} says {loads.top_k}; leave it out"
        problems.append(Problem("--top-k", message))
    limited = options.max_moves is not None or options.max_bytes is not None
    if options.layer_slots == "same" and moved != limited:
        message = "needs --current, and --current needs --max-moves or --max-bytes"
        problems.append(Problem("--max-moves", message))
    if options.layer_slots != "same":
        given = {"--current": moved, "--coactivation": together}
        for flag in [flag for flag, used in given.items() if used]:
            message = f"slots are shared among the layers of a new placement; leave out {flag}"
            problems.append(Problem("--layer-slots", message))
    if problems:
        raise InstanceError(problems)


def blind_to_nodes(loads: ExpertLoads, options: PlaceOptions, moved: bool) -> bool:
    """Whether router groups and nodes are given that a search for several windows does not look at."""
    alone = replace(options, objective="sum")
    return (
        not moved
        and chooses_nodes(loads, alone, moved)
        and not chooses_nodes(loads, options, moved)
    )


def check_together(loads: ExpertLoads, options: PlaceOptions, moved: bool) -> None:
    """Raise ``InstanceError`` with everything that keeps co-activation from being used."""
    problems = []
    place = "--coactivation"
    per_node = options.gpus_per_node or options.gpus
    if per_node >= options.gpus:
        problems.append(
            Problem(place, "needs --gpus-per-node below --gpus: one node sends no copies")
        )
    elif per_node >= 1 and options.gpus % per_node == 0:
        nodes = options.gpus // per_node
        if loads.num_experts % nodes:
            text = f"{loads.num_experts} experts do not divide over {nodes} nodes"
            problems.append(Problem(place, text))
    if options.gpus >= 1 and options.slots % options.gpus:
        text = f"{options.slots} slots do not divide over {options.gpus} GPUs"
        problems.append(Problem(place, text))
    if options.groups > 1:
        text = "says more than --groups does; give one of them"
        problems.append(Problem(place, text))
    if options.objective != "sum" and len(loads.windows) > 1:
        text = f"needs one workload, not {len(loads.windows)} windows, or --objective sum"
        problems.append(Problem(place, text))
    if moved or options.most_moves() is not None:
        problems.append(Problem(place, "not with --current: few moves are chosen by load alone"))
    if problems:
        raise InstanceError(problems)
