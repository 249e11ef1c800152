r"""How long one forward pass takes on one stage: a roofline per operation, plus collectives.

Each operation takes ``max(FLOPs / (peak * efficiency), bytes / (bandwidth * efficiency))`` on the
busiest chip. Three ways to combine operations are selectable:

- ``per_op``  : the sum of each operation's maximum (kernels run one after the other; the default)
- ``lecture`` : ``max(sum of compute, sum of memory)`` over the stage
- ``book``    : KV time ``+ max(sum of compute, sum of weight reads)``

All functions broadcast: scalars price one layout, arrays price many shapes at once. Never imports
the solver.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from costmodel.attended import head_ways, kv_ways, mean_attended
from costmodel.communication import GroupRates
from costmodel.models.spec import Attention, MoE
from costmodel.operations import ELEMENT_BYTES, LayerKind, Operations
from costmodel.profile import Combination, Efficiency, Stream
from topology import Chip

Array = NDArray[np.float64]

#: where the time of a pass goes; every key of :attr:`PassTime.parts`
PARTS = (
    "attention_projections",
    "attention_context",
    "dense_ffn",
    "router",
    "shared_experts",
    "routed_experts",
    "head",
    "norms",
    "all_reduce",
    "dispatch",
    "combine",
    "overhead",
)


@dataclass(frozen=True)
class Tokens:
    """One attention rank's work in one pass.

    ``decode`` sequences produce one token each at ``context`` tokens of context; ``prefill`` prompt
    tokens start after ``prefill_start`` earlier ones and end at ``prefill_end``; ``prompts`` of them
    reach the LM head.
    """

    decode: ArrayLike = 0.0
    context: float = 0.0
    prefill: ArrayLike = 0.0
    prefill_start: float = 0.0
    prefill_end: float = 0.0
    prompts: ArrayLike = 0.0
    #: tokens of the average rank over those of the busiest, which the other figures describe
    fill: float = 1.0


@dataclass(frozen=True)
class ExpertShares:
    """How the routed experts' work falls on chips, per MoE layer.

    ``load [..., layers, chips]``: share of the layer's routed tokens on each chip (even split over
    replicas); ``touched [..., layers, chips]``: expected number of resident experts that at least
    one token reaches. A last axis of length 1 is the busiest chip alone (used for bounds).
    ``stage_layers [stages]``: how many of the layers belong to each of the stages that are priced
    at once, in order; ``None`` for one stage.
    """

    load: Array
    touched: Array
    stage_layers: NDArray[np.int64] | None = None

    @property
    def num_layers(self) -> ArrayLike:
        """Layers of each stage."""
        return self.load.shape[-2] if self.stage_layers is None else self.stage_layers

    def over_layers(self, values: Array) -> Array:
        """Sum of ``values [..., layers]`` over the layers of each stage."""
        if self.stage_layers is None:
            return np.asarray(values.sum(axis=-1))
        sums = np.zeros(len(self.stage_layers))
        filled = self.stage_layers > 0
        starts = (np.cumsum(self.stage_layers) - self.stage_layers)[filled]
        sums[filled] = np.add.reduceat(values, starts)
        return sums


@dataclass(frozen=True)
class Term:
    """One roofline of a pass: ``max(compute_s, memory_s)`` at the efficiencies it was priced with.

    ``dtype`` says at what the compute runs, ``stream`` what the bytes are; a part that is traffic has
    its latency in ``compute_s`` and its bytes' time in ``memory_s``, which add up.
    """

    part: str
    dtype: str
    stream: Stream
    compute_s: Array
    memory_s: Array


@dataclass
class PassTime:
    """Seconds of one pass on one stage by part, and the sums that the combinations need.

    ``terms``, where given, collects what the parts are made of.
    """

    parts: dict[str, Array] = field(default_factory=dict)
    compute_s: Array = field(default_factory=lambda: np.zeros(()))
    weights_s: Array = field(default_factory=lambda: np.zeros(()))
    kv_s: Array = field(default_factory=lambda: np.zeros(()))
    terms: list[Term] | None = None

    def add(self, part: str, seconds: Array) -> None:
        """Add seconds to a part."""
        self.parts[part] = self.parts.get(part, np.zeros(())) + seconds

    def roofline(
        self,
        part: str,
        compute_s: Array,
        memory_s: Array,
        *,
        dtype: str = "bf16",
        stream: Stream = "weights",
    ) -> None:
        """Add one operation: its maximum to ``part``, its terms to the sums."""
        self.add(part, np.maximum(compute_s, memory_s))
        self.compute_s = self.compute_s + compute_s
        if stream == "kv":
            self.kv_s = self.kv_s + memory_s
        else:
            self.weights_s = self.weights_s + memory_s
        if self.terms is not None:
            self.terms.append(Term(part, dtype, stream, compute_s, memory_s))

    def traffic(self, part: str, latency_s: Array, bytes_s: Array) -> None:
        """Add one collective: latency and bytes follow each other."""
        self.add(part, latency_s + bytes_s)
        if self.terms is not None:
            self.terms.append(Term(part, "", "weights", latency_s, bytes_s))

    def total_s(self, combination: Combination) -> Array:
        """Seconds of the pass under one combination; traffic and overhead always add."""
        waiting = ("all_reduce", "dispatch", "combine", "overhead")
        extra = sum((self.parts[p] for p in waiting if p in self.parts), start=np.zeros(()))
        if combination == "per_op":
            return np.asarray(sum(self.parts.values(), start=np.zeros(())))
        if combination == "lecture":
            return np.asarray(np.maximum(self.compute_s, self.weights_s + self.kv_s) + extra)
        return np.asarray(self.kv_s + np.maximum(self.compute_s, self.weights_s) + extra)


def pass_time(
    operations: Operations,
    layers: Sequence[tuple[LayerKind, ArrayLike]],
    tp: ArrayLike,
    attention_dp: ArrayLike,
    tokens: Tokens,
    chip: Chip,
    efficiency: Efficiency,
    rates: GroupRates,
    experts: Sequence[ExpertShares | None],
    *,
    with_head: ArrayLike = True,
    record: bool = False,
) -> PassTime:
    """Time of one pass over ``layers`` (kinds and how many of each) on one group of chips.

    ``experts[i]`` belongs to ``layers[i]``; ``with_head`` adds the LM head and the cost per sampled
    sequence (last stage); ``record`` keeps the terms. Shapes: every array argument, counts of layers
    included, broadcasts to one common shape ``[...]``.
    """
    tp = np.asarray(tp, dtype=float)
    ranks = np.asarray(attention_dp, dtype=float)
    decode = np.asarray(tokens.decode, dtype=float)
    prefill = np.asarray(tokens.prefill, dtype=float)
    rows = decode + prefill
    result = PassTime(terms=[] if record else None)
    for (kind, layer_count), shares in zip(layers, experts, strict=True):
        count = np.asarray(layer_count, dtype=float)
        _matmuls(result, kind, count, tp, rows, chip, efficiency)
        for attention in kind.attentions:
            _context(
                result, operations, attention, count, tp, decode, prefill, tokens, chip, efficiency
            )
        _states(result, kind, count, tp, rows, decode, chip, efficiency)
        # a residual branch reads and writes the hidden vector twice (norm and residual sum)
        norm_bytes = 4.0 * kind.num_sublayers * operations.hidden_size * operations.activation_bytes
        result.roofline(
            "norms", np.zeros(()), count * rows * norm_bytes / _bandwidth(chip, efficiency)
        )
        reduced = rows * operations.hidden_size * operations.activation_bytes
        sharded = tp > 1
        # one rank holds every token on every chip: its experts' outputs are summed, none is sent
        summed = kind.num_reductions + np.where(ranks > 1, 0.0, float(kind.moe is not None))
        reductions = np.where(sharded, count * summed, 0.0)
        result.traffic(
            "all_reduce",
            reductions * rates.reduce_latency_s,
            reductions * rates.reduce_s_per_byte * reduced,
        )
        overhead = efficiency.layer_overhead_s + np.where(sharded, efficiency.sync_overhead_s, 0.0)
        overhead = overhead + kind.num_kernels * efficiency.kernel_overhead_s
        if kind.moe is not None:
            overhead = overhead + efficiency.moe_overhead_s
        result.add("overhead", count * overhead)
        if kind.moe is not None and shares is not None:
            _experts(
                result, operations, kind.moe, count / np.maximum(shares.num_layers, 1), tp, ranks, rows,
                tokens.fill, chip, efficiency, rates, shares,
            )  # fmt: skip
    last = np.asarray(with_head, dtype=float)
    if last.any():
        sampled = decode + np.asarray(tokens.prompts, dtype=float)
        for matmul in operations.head:
            compute = sampled * matmul.flops_per_token / matmul.ways(tp)
            result.roofline(
                "head",
                last * compute / _peak(chip, efficiency, matmul.dtype),
                last * matmul.weight_bytes / matmul.ways(tp) / _bandwidth(chip, efficiency)
                + np.zeros_like(sampled),
                dtype=matmul.dtype,
            )
        result.add("overhead", last * sampled * efficiency.sequence_overhead_s)
    return result


def _peak(chip: Chip, efficiency: Efficiency, dtype: str) -> float:
    return chip.peak_flops_per_s(dtype) * efficiency.arithmetic(dtype)


def _bandwidth(chip: Chip, efficiency: Efficiency, stream: Stream = "weights") -> float:
    return chip.hbm_bytes_per_s * efficiency.stream(stream)


def _matmuls(
    result: PassTime,
    kind: LayerKind,
    count: Array,
    tp: Array,
    rows: Array,
    chip: Chip,
    efficiency: Efficiency,
) -> None:
    for matmul in kind.matmuls:
        ways = matmul.ways(tp)
        result.roofline(
            matmul.part,
            count * rows * matmul.flops_per_token / ways / _peak(chip, efficiency, matmul.dtype),
            count * matmul.weight_bytes / ways / _bandwidth(chip, efficiency) + np.zeros_like(rows),
            dtype=matmul.dtype,
        )


def _context(
    result: PassTime,
    operations: Operations,
    attention: Attention,
    count: Array,
    tp: Array,
    decode: Array,
    prefill: Array,
    tokens: Tokens,
    chip: Chip,
    efficiency: Efficiency,
) -> None:
    """Attention over the context. Decode reads the cache once per sequence, prefill once per pass."""
    peak = _peak(chip, efficiency, operations.spec.activation_dtype)
    bandwidth = _bandwidth(chip, efficiency, "kv")
    heads = attention.query_heads / head_ways(attention.query_heads, tp)
    entry_bytes = attention.kv_elements * operations.kv_element_bytes / kv_ways(attention, tp)
    # index scores are taken against every cached entry, of which there is one per `compress` tokens
    index_flops = 2.0 * attention.index_heads * attention.index_dim / attention.compress
    index_bytes = attention.index_elements * operations.kv_element_bytes
    read = attention.read_tokens(tokens.context)
    decode_flops = (
        read * 2.0 * heads * (attention.decode_qk_dim + attention.decode_v_dim)
        + tokens.context * index_flops
    )
    decode_bytes = read * entry_bytes + tokens.context * index_bytes
    attended = mean_attended(attention, tokens.prefill_start, tokens.prefill_end)
    middle = (tokens.prefill_start + tokens.prefill_end) / 2
    prefill_flops = (
        attended * 2.0 * heads * (attention.prefill_qk_dim + attention.prefill_v_dim)
        + middle * index_flops
    )
    prompts = prefill / max(tokens.prefill_end - tokens.prefill_start, 1.0)
    prefill_bytes = prompts * (
        attention.stored_tokens(tokens.prefill_end) * entry_bytes + tokens.prefill_end * index_bytes
    )
    result.roofline(
        "attention_context",
        count * decode * decode_flops / peak,
        count * decode * decode_bytes / bandwidth,
        dtype=operations.spec.activation_dtype,
        stream="kv",
    )
    result.roofline(
        "attention_context",
        count * prefill * prefill_flops / peak,
        count * prefill_bytes / bandwidth,
        dtype=operations.spec.activation_dtype,
        stream="kv",
    )


def _states(
    result: PassTime,
    kind: LayerKind,
    count: Array,
    tp: Array,
    rows: Array,
    decode: Array,
    chip: Chip,
    efficiency: Efficiency,
) -> None:
    for state in kind.states:
        ways = head_ways(state.heads, tp)
        result.roofline(
            "attention_context",
            count * rows * state.state_flops_per_token / ways / _peak(chip, efficiency, "bf16"),
            count * decode * 2.0 * state.state_bytes / ways / _bandwidth(chip, efficiency, "kv"),
            stream="kv",
        )


def _experts(
    result: PassTime,
    operations: Operations,
    moe: MoE,
    fraction: Array,
    tp: Array,
    ranks: Array,
    rows: Array,
    fill: float,
    chip: Chip,
    efficiency: Efficiency,
    rates: GroupRates,
    shares: ExpertShares,
) -> None:
    """Routed experts: each layer lasts as long as its busiest chip; dispatch and combine beside it.

    With one attention rank nothing is dispatched: every chip holds every token, and the outputs are
    summed by an all-reduce.

    ``fraction``: layers priced over layers in ``shares`` (1 unless a balanced stage is assumed).
    """
    routed = (fill * rows * ranks * moe.top_k)[..., None, None]
    flops_s = (
        routed * shares.load * 2.0 * moe.expert_params / _peak(chip, efficiency, moe.expert_dtype)
    )
    bytes_s = shares.touched * moe.expert_bytes / _bandwidth(chip, efficiency, "experts")
    busiest = shares.over_layers(np.maximum(flops_s, bytes_s).max(axis=-1))
    result.add("routed_experts", fraction * busiest)
    compute_s = fraction * shares.over_layers(flops_s.max(axis=-1))
    memory_s = fraction * shares.over_layers(bytes_s.max(axis=-1))
    result.compute_s = result.compute_s + compute_s
    result.weights_s = result.weights_s + memory_s
    if result.terms is not None:
        result.terms.append(
            Term("routed_experts", moe.expert_dtype, "experts", compute_s, memory_s)
        )
    chips = tp * ranks
    layers = np.asarray(shares.num_layers)
    # the busiest sender sets the uniform exchange, the busiest receiver may stretch it
    busiest_share = fill * shares.load.max(axis=-1)
    skew = shares.over_layers(np.maximum(1.0, busiest_share * chips[..., None]))
    sourced = rows / tp * moe.expert_input_dim
    several = ranks > 1
    for part, element in (
        ("dispatch", dispatch_element_bytes(moe, operations)),
        ("combine", operations.activation_bytes),
    ):
        many = np.where(several, fraction, 0.0)
        result.traffic(
            part,
            many * layers * rates.dispatch_latency_s,
            many * skew * rates.dispatch_s_per_byte * sourced * element,
        )


def dispatch_element_bytes(moe: MoE, operations: Operations) -> float:
    """Bytes of one dispatched element: FP8 where the experts multiply in FP8 or below, else as is."""
    if moe.expert_dtype in ("fp8", "fp4", "int8"):
        return min(ELEMENT_BYTES["fp8"], operations.activation_bytes)
    return operations.activation_bytes
