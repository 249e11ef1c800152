"""Every pass of many rows as one flat table of rooflines, so that a profile prices them all at once.

The terms are those that :func:`costmodel.passes.pass_time.pass_time` records at full efficiency; a profile
divides and adds them up the same way. Used to fit and to score; single layouts go through
:func:`costmodel.evaluate.evaluate`, and a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from costmodel.experts.moe_load import expert_shares
from costmodel.measured.rows import Group
from costmodel.models.spec import MoE
from costmodel.passes.communication import GroupRates
from costmodel.passes.group import ChipGroup
from costmodel.passes.operations import LayerKind
from costmodel.passes.pass_sums import Term
from costmodel.passes.pass_time import (
    filled,
    launched_of,
    pass_time,
    quantised_of,
    ramp_share,
    reductions_of,
    told_share,
)
from costmodel.passes.routed import full_tiles
from costmodel.passes.tokens import ExpertShares, Tokens, even_shares
from costmodel.question.instance import Instance
from costmodel.question.profile import Efficiency, Stream

Array = NDArray[np.float64]

DTYPES = ("bf16", "fp8", "fp4", "int8", "int4")
STREAMS: tuple[Stream, ...] = ("weights", "kv", "experts", "activations")
_TRAFFIC = ("all_reduce", "dispatch", "combine")
_PHYSICS = Efficiency(activations=1.0, softmax=1.0)
_NOISY = _PHYSICS.model_copy(update={"routing_noise": 1.0})


@dataclass(frozen=True)
class Constants:
    """Efficiencies of each pass (arrays ``[passes]``), named as in :class:`Efficiency`.

    ``compute [dtypes, passes]`` in the order of ``DTYPES``, ``streams [4, passes]`` of ``STREAMS``. ``launch_s``: seconds of
    the host for each kernel of a pass, where it launches them one by one; a pass takes no less.
    """

    compute: Array
    streams: Array
    all_reduce: Array
    all_to_all: Array
    layer_overhead_s: Array
    kernel_overhead_s: Array
    sync_overhead_s: Array
    moe_overhead_s: Array
    widened_moe_overhead_s: Array
    unfused_moe_overhead_s: Array
    step_overhead_s: Array
    sequence_overhead_s: Array
    unpacking: Array
    widened: Array
    grouped: Array
    quantise_overhead_s: Array
    exchange_overhead_s: Array
    reduce_ramp_s: Array
    routing_noise: Array
    softmax: Array
    launch_s: Array | float = 0.0


_OTHERS = {"compute", "streams", "softmax", "launch_s"}
_COLUMNS = [field.name for field in fields(Constants) if field.name not in _OTHERS]


def constants_of(efficiencies: Sequence[Efficiency]) -> Constants:
    """The constants of passes that run at these efficiencies."""

    def column(name: str) -> Array:
        return np.array([getattr(e, name) for e in efficiencies], dtype=float)

    return Constants(
        compute=np.array([[e.arithmetic(d) for e in efficiencies] for d in DTYPES]),
        streams=np.array([[e.stream(s) for e in efficiencies] for s in STREAMS]),
        softmax=np.array([np.inf if e.softmax is None else e.softmax for e in efficiencies]),
        **{name: column(name) for name in _COLUMNS},
    )


@dataclass(frozen=True)
class TermTable:
    """Rooflines (``r_``) and collectives (``t_``) of passes, each with its pass, and counts per pass.

    ``r_unpacked``: weights are widened before they are multiplied; ``_noise_s``: what finitely many tokens add, to memory's seconds of what lies between kernels, to compute's else. ``counts [10, passes]``: layers, kernels,
    tensor-parallel layers, MoE layers, those whose weights are widened, those that recipes say are unfused, what is told of
    sampled sequences of a rank, quantised activations, waits of exchanges, ramps of all-reduces. ``expert_rows [passes]``: tokens per expert on average.
    """

    num_passes: int
    r_pass: NDArray[np.intp]
    r_dtype: NDArray[np.intp]
    r_stream: NDArray[np.intp]
    r_unpacked: NDArray[np.bool_]
    r_compute_s: Array
    r_memory_s: Array
    r_noise_s: Array
    r_softmax_s: Array
    t_pass: NDArray[np.intp]
    t_reduce: NDArray[np.bool_]
    t_latency_s: Array
    t_bytes_s: Array
    t_noise_s: Array
    counts: Array
    expert_rows: Array

    def seconds(self, constants: Constants) -> Array:
        """Time of every pass, ``per_op`` combination."""
        arithmetic = constants.compute[self.r_dtype, self.r_pass]
        arithmetic = np.where(
            self.r_unpacked, arithmetic * constants.widened[self.r_pass], arithmetic
        )
        noise = constants.routing_noise
        beyond = noise[self.r_pass] * self.r_noise_s
        moved_beyond = np.where(self.r_stream == STREAMS.index("activations"), beyond, 0.0)
        compute = (self.r_compute_s + beyond - moved_beyond) / np.where(
            self.r_stream == STREAMS.index("experts"),
            arithmetic * full_tiles(self.expert_rows, constants.grouped)[self.r_pass],
            arithmetic,
        )
        compute += self.r_softmax_s / constants.softmax[self.r_pass]
        stream = constants.streams[self.r_stream, self.r_pass]
        memory = (self.r_memory_s + moved_beyond) / np.where(
            self.r_unpacked, stream * constants.unpacking[self.r_pass], stream
        )
        moved = (self.t_bytes_s + noise[self.t_pass] * self.t_noise_s) / np.where(
            self.t_reduce, constants.all_reduce[self.t_pass], constants.all_to_all[self.t_pass]
        )
        total = np.bincount(self.r_pass, np.maximum(compute, memory), self.num_passes)
        total += np.bincount(self.t_pass, self.t_latency_s + moved, self.num_passes)
        layers, kernels, sharded, moe, widened, unfused, told, quantised, exchanges, ramps = (
            self.counts
        )
        fixed = (
            layers * constants.layer_overhead_s
            + kernels * constants.kernel_overhead_s
            + sharded * constants.sync_overhead_s
            + moe * constants.moe_overhead_s
            + widened * constants.widened_moe_overhead_s
            + unfused * constants.unfused_moe_overhead_s
            + told * constants.sequence_overhead_s
            + quantised * constants.quantise_overhead_s
            + exchanges * constants.exchange_overhead_s
            + ramps * constants.reduce_ramp_s
            + constants.step_overhead_s
        )
        return np.asarray(np.maximum(total + fixed, kernels * constants.launch_s))


@dataclass(frozen=True)
class PassTerms:
    """What one pass adds to the table.

    ``rooflines [n, 7]``: places of dtype and stream, whether weights are widened, seconds of compute, of
    memory, of compute on tokens beyond the expected, and of exponentials; ``traffic [m, 4]``: whether an all-reduce, seconds of latency, of
    bytes, and of bytes beyond the expected.
    """

    rooflines: Array
    traffic: Array
    counts: tuple[float, ...]
    expert_rows: float


def terms_of_pass(instance: Instance, group: Group, rates: GroupRates, tokens: Tokens) -> PassTerms:
    """One pass of a worker."""
    operations = instance.operations
    kinds = [(kind, float(len(kind.layers))) for kind in operations.kinds]
    rows = float(tokens.rows)
    width = group.tp * group.attention_dp
    whole = float(group.expert_ways > 1)
    routed = rows * group.attention_dp

    def shares_of(kind: LayerKind) -> ExpertShares | None:
        if kind.moe is None:
            return None
        if not whole:
            return even_shares(kind.moe, np.asarray(float(width)), np.asarray(routed), whole)
        return plain_shares(kind.moe, instance.expert_loads[list(kind.moe_rows)], width, routed)

    shares = [shares_of(kind) for kind in operations.kinds]
    chip = instance.cluster.usable[0].chip

    def terms_at(efficiency: Efficiency) -> list[Term]:
        return (
            pass_time(
                ChipGroup.of(operations, group.tp, group.attention_dp, chip, efficiency, rates, whole),
                kinds, tokens, shares, record=True,
            ).terms
            or []
        )  # fmt: skip

    terms = terms_at(_PHYSICS)
    # loads that were asked to be even stay so
    even = instance.workload.expert_load == "uniform" or operations.moe is None
    noisy = terms if even else terms_at(_NOISY)
    rooflines: list[tuple[float, ...]] = []
    traffic: list[tuple[float, ...]] = []
    dtypes = {term.dtype for term in terms if term.part not in _TRAFFIC}
    known = {d: (DTYPES.index(chip.computes_in(d)), chip.unpacks(d)) for d in dtypes}
    for term, with_noise in zip(terms, noisy, strict=True):
        compute, memory = float(term.compute_s), float(term.memory_s)
        if term.part in _TRAFFIC:
            beyond = float(with_noise.memory_s) - memory
            traffic.append((term.part == "all_reduce", compute, memory, beyond))
        else:
            dtype, unpacks = known[term.dtype]
            # context is read as it is; its dtype is that of the arithmetic
            widened = term.stream != "kv" and unpacks
            beyond = float(with_noise.compute_s) - compute
            if term.stream == "activations":
                beyond = float(with_noise.memory_s) - memory
            place = (dtype, STREAMS.index(term.stream), widened)
            rooflines.append((*place, compute, memory, beyond, float(term.softmax_s)))
    layers = float(operations.num_layers)
    kernels = float(sum(len(kind.layers) * launched_of(kind, chip) for kind in operations.kinds))
    sampled = float(np.asarray(tokens.decode) + np.asarray(tokens.prompts))
    moe_layers = float(len(operations.moe_layers))
    quantised = float(sum(len(kind.layers) * quantised_of(kind, chip) for kind in operations.kinds))
    tp, ranks = np.asarray(float(group.tp)), np.asarray(float(group.attention_dp))
    moe = operations.moe
    message = np.asarray(rows * operations.hidden_size * operations.activation_bytes)
    share = float(ramp_share(chip, tp, message))
    ramps = share * sum(count * float(reductions_of(kind, tp, ranks)) for kind, count in kinds)
    counts = (
        layers,
        kernels,
        layers if group.tp > 1 else 0.0,
        moe_layers,
        moe_layers if moe is not None and chip.unpacks(moe.expert_dtype) else 0.0,
        moe_layers if group.settings.unfused_experts else 0.0,
        sampled * float(told_share(tp, ranks)),
        quantised,
        moe_layers * float(filled(message)) if group.attention_dp > 1 else 0.0,
        ramps,
    )
    met = rows * group.attention_dp * float(np.asarray(tokens.fill))
    return PassTerms(
        rooflines=np.array(rooflines, dtype=float).reshape(-1, 7),
        traffic=np.array(traffic, dtype=float).reshape(-1, 4),
        counts=counts,
        expert_rows=met * moe.top_k / moe.num_experts if moe is not None else 0.0,
    )


def term_table(passes: Sequence[PassTerms]) -> TermTable:
    """The table of passes, numbered as they come."""
    numbers = np.arange(len(passes))
    r = np.concatenate([np.zeros((0, 7)), *(one.rooflines for one in passes)]).T
    t = np.concatenate([np.zeros((0, 4)), *(one.traffic for one in passes)]).T
    return TermTable(
        num_passes=len(passes),
        r_pass=np.repeat(numbers, [len(one.rooflines) for one in passes]),
        r_dtype=r[0].astype(np.intp),
        r_stream=r[1].astype(np.intp),
        r_unpacked=r[2].astype(bool),
        r_compute_s=r[3],
        r_memory_s=r[4],
        r_noise_s=r[5],
        r_softmax_s=r[6],
        t_pass=np.repeat(numbers, [len(one.traffic) for one in passes]),
        t_reduce=t[0].astype(bool),
        t_latency_s=t[1],
        t_bytes_s=t[2],
        t_noise_s=t[3],
        counts=np.array([one.counts for one in passes], dtype=float).reshape(-1, 10).T,
        expert_rows=np.array([one.expert_rows for one in passes], dtype=float),
    )


def plain_shares(moe: MoE, loads: Array, chips: int, tokens: float) -> ExpertShares:
    """Shares under a plain layout (experts in order, each chip as many slots) of ``loads [layers, experts]``.

    Layers that are loaded alike are computed once.
    """
    slots = -(-moe.num_experts // chips)
    alike = bool((loads == loads[0]).all())
    some = loads[:1] if alike else loads
    row = np.tile(np.arange(slots * chips) % moe.num_experts, (len(some), 1))
    found = expert_shares(some, row, (slots,) * chips, moe.top_k, tokens)
    times = len(loads) if alike else 1
    return replace(
        found,
        load=np.repeat(found.load, times, axis=0),
        touched=np.repeat(found.touched, times, axis=0),
    )
