"""The parameters that are fitted: one per chip and engine, and twenty for all.

On a logit scale between physical limits, what a kernel costs is a value for all, plus what the chip and what the
engine add; additions are held near zero (ridge), so that a cell with few rows inherits the rest, and a
chip or engine without rows gets the common value. Of the others, none predicts left-out models or systems better
where chips or engines have values of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costmodel.measured.fitting.terms import Constants
from costmodel.question.profile import Efficiency

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Parameter:
    """Name, start and limits (all above zero).

    ``stiffness`` multiplies the ridge: low where engines truly differ from chip to chip.
    """

    name: str
    start: float
    low: float
    high: float
    stiffness: float = 1.0

    def value(self, x: Array) -> Array:
        """From the unbounded scale to the limits."""
        return np.asarray(
            self.low * (self.high / self.low) ** (1.0 / (1.0 + np.exp(-np.clip(x, -60.0, 60.0))))
        )

    def origin(self) -> float:
        """The start on the unbounded scale."""
        return self.scale(self.start)

    def scale(self, value: float) -> float:
        """A value between the limits on the unbounded scale; one on a limit, or below, is taken just inside it."""
        share = np.log(max(value, self.low) / self.low) / np.log(self.high / self.low)
        share = min(max(float(share), _INSIDE), 1.0 - _INSIDE)
        return float(np.log(share / (1.0 - share)))


#: how near a limit a value is taken to be, as a share of the way between the limits on the scale of logarithms
_INSIDE = 1e-4

#: fitted for each chip and engine
BY_CELL = (Parameter("kernel_overhead_s", 8e-6, 2e-6, 3e-5),)
#: fitted once for all; the all-to-all fraction starts at what DeepEP and NVLink kernels achieve
#: (0.45 to 0.8 of the links' rate) and is held there, as few rows of serving runs see it; so is what an
#: exchange waits: on a B200 node kernels take 74 us for 128 tokens of 7168, of which the links need 22. FP8 and FP4 over BF16
#: start at the medians of large products in public kernel tables. Arithmetic on
#: weights that are widened starts at what kernels lose that widen FP4 to BF16 where FP8 is priced
COMMON = (
    Parameter("layer_overhead_s", 3e-6, 1e-6, 1e-4),
    Parameter("moe_overhead_s", 10e-6, 1e-6, 1.2e-4, 0.1),
    Parameter("widened_moe_overhead_s", 5e-6, 1e-8, 3e-4, 0.1),
    Parameter("unfused_moe_overhead_s", 5e-6, 1e-8, 3e-4, 0.1),
    Parameter("sequence_overhead_s", 1e-5, 1e-6, 1e-4, 0.1),
    Parameter("hbm", 0.75, 0.5, 0.95, 0.1),
    Parameter("kv", 0.65, 0.3, 0.95, 0.1),
    Parameter("experts", 0.7, 0.2, 0.95, 0.1),
    Parameter("activations", 0.8, 0.2, 0.999, 0.1),
    Parameter("compute", 0.6, 0.2, 0.95, 0.1),
    Parameter("fp8_compute", 0.75, 0.2, 0.99, 0.3),
    Parameter("fp4_compute", 0.6, 0.2, 0.95),
    Parameter("all_reduce", 0.3, 0.03, 0.95, 0.1),
    Parameter("all_to_all", 0.65, 0.2, 0.95, 4.0),
    Parameter("unpacking", 0.7, 0.2, 0.99),
    Parameter("widened", 0.5, 0.05, 0.99),
    Parameter("grouped", 0.6, 0.1, 0.99, 0.1),
    Parameter("quantise_overhead_s", 2e-6, 1e-7, 1e-5, 0.1),
    Parameter("exchange_overhead_s", 5e-5, 1e-6, 2e-4, 20.0),
    Parameter("reduce_ramp_s", 2e-5, 1e-6, 1e-4, 0.1),
)
#: every parameter of a chip with an engine, in the order of :meth:`Structure.scales`
ALL = (*COMMON, *BY_CELL)
#: stiffness of what chips and engines add, times that of the parameter: what a kernel costs is the host's and the engine's
CHIPS_ALIKE, ENGINES_DIFFER = 4.0, 0.2
#: tokens of a pass choose their experts independently: not fitted
ROUTING_NOISE = 1.0
#: exponentials run at the rate that their units have: not fitted. Kernels of three engines on five chips agree (docs/kernels.md)
SOFTMAX = 1.0


@dataclass(frozen=True)
class Structure:
    """Chips and engines that have rows, and where they sit in the vector of unknowns.

    The unknowns are the common parameters, the common level of each parameter by cell, and the
    additions of every chip and engine, parameter by parameter.
    """

    chips: tuple[str, ...]
    engines: tuple[str, ...]

    @property
    def size(self) -> int:
        """Number of unknowns."""
        levels = 1 + len(self.chips) + len(self.engines)
        return len(COMMON) + len(BY_CELL) * levels

    def start(self) -> Array:
        """Unknowns at the start: common values at theirs, additions zero."""
        x = np.zeros(self.size)
        first = len(COMMON)
        x[:first] = [p.origin() for p in COMMON]
        x[first : first + len(BY_CELL)] = [p.origin() for p in BY_CELL]
        return x

    def moved_to(self, other: Structure, x: Array) -> Array:
        """These unknowns in another structure; what this one has no level of is left at nothing added."""
        first = len(COMMON)
        names = ["", *self.chips, *self.engines]
        wanted = ["", *other.chips, *other.engines]
        own = dict(zip(names, x[first:].reshape(len(names), -1), strict=True))
        nothing = np.zeros(len(BY_CELL))
        return np.concatenate([x[:first], *(own.get(name, nothing) for name in wanted)])

    def held(self, x: Array) -> Array:
        """The unknowns that are held: common ones at their start, additions at zero."""
        first = len(COMMON)
        near = x[:first] - np.array([p.origin() for p in COMMON])
        return np.concatenate([near, x[first + len(BY_CELL) :]]) * self.stiffness()

    def stiffness(self) -> Array:
        """Stiffness of each held unknown."""
        own = np.array([p.stiffness for p in BY_CELL])
        chips = np.tile(CHIPS_ALIKE * own, len(self.chips))
        engines = np.tile(ENGINES_DIFFER * own, len(self.engines))
        return np.concatenate([[p.stiffness for p in COMMON], chips, engines])

    def held_places(self) -> NDArray[np.intp]:
        """Where the held unknowns are in the vector."""
        first = len(COMMON)
        return np.concatenate([np.arange(first), np.arange(first + len(BY_CELL), self.size)])

    def levels(self, chips: Sequence[str], engines: Sequence[str]) -> Array:
        """``[n, levels]`` of 0 and 1: which levels add up to the value of a chip with an engine."""
        levels = np.zeros((len(chips), 1 + len(self.chips) + len(self.engines)))
        levels[:, 0] = 1.0
        for row, (chip, engine) in enumerate(zip(chips, engines, strict=True)):
            if chip in self.chips:
                levels[row, 1 + self.chips.index(chip)] = 1.0
            if engine in self.engines:
                levels[row, 1 + len(self.chips) + self.engines.index(engine)] = 1.0
        return levels

    def scales(self, x: Array, levels: Array) -> Array:
        """``[parameters, n]`` on the unbounded scale: common ones first, then those by cell."""
        first = len(COMMON)
        common = np.repeat(x[:first, None], len(levels), axis=1)
        by_cell = (levels @ x[first:].reshape(levels.shape[1], -1)).T
        return np.vstack([common, by_cell])

    def chain(self, slopes: Array, levels: Array) -> Array:
        """Jacobian ``[n, unknowns]`` from slopes ``[parameters, n]`` on the unbounded scale."""
        first = len(COMMON)
        by_cell = levels[:, :, None] * slopes[first:].T[:, None, :]
        return np.hstack([slopes[:first].T, by_cell.reshape(len(levels), -1)])

    def cells(self, x: Array, chips: Sequence[str], engines: Sequence[str]) -> dict[str, Array]:
        """Values ``[n]`` of every parameter for chips and engines named side by side."""
        return values_at(self.scales(x, self.levels(chips, engines)))


def values_at(scales: Array) -> dict[str, Array]:
    """Parameter values from the unbounded scale ``[parameters, n]``, and those that are not fitted."""
    found = {p.name: p.value(scales[i]) for i, p in enumerate(ALL)}
    return found | {"softmax": np.full_like(scales[0], SOFTMAX)}


def scales_of(efficiency: Efficiency) -> Array:
    """Parameters ``[parameters]`` of a fitted efficiency on the unbounded scale: :func:`efficiency_at` the other way."""
    bf16 = efficiency.arithmetic("bf16")
    derived = {
        "compute": bf16,
        "fp8_compute": efficiency.arithmetic("fp8") / bf16,
        "fp4_compute": efficiency.arithmetic("fp4") / bf16,
        "kv": efficiency.stream("kv"),
        "experts": efficiency.stream("experts"),
        "activations": efficiency.stream("activations"),
    }
    return np.array(
        [
            p.scale(derived[p.name] if p.name in derived else getattr(efficiency, p.name))
            for p in ALL
        ]
    )


def constants_at(values: dict[str, Array], owner: NDArray[np.intp]) -> Constants:
    """Constants of passes from parameter values of cells and the cell of each pass."""
    at = {name: value[owner] for name, value in values.items()}
    bf16 = at["compute"]
    fp8 = at["fp8_compute"] * bf16
    fp4 = at["fp4_compute"] * bf16
    return Constants(
        compute=np.array([bf16, fp8, fp4, fp8, bf16]),
        streams=np.array([at[name] for name in ("hbm", "kv", "experts", "activations")]),
        all_reduce=at["all_reduce"],
        all_to_all=at["all_to_all"],
        layer_overhead_s=at["layer_overhead_s"],
        kernel_overhead_s=at["kernel_overhead_s"],
        sync_overhead_s=np.zeros_like(bf16),
        moe_overhead_s=at["moe_overhead_s"],
        widened_moe_overhead_s=at["widened_moe_overhead_s"],
        unfused_moe_overhead_s=at["unfused_moe_overhead_s"],
        step_overhead_s=np.zeros_like(bf16),
        sequence_overhead_s=at["sequence_overhead_s"],
        unpacking=at["unpacking"],
        widened=at["widened"],
        grouped=at["grouped"],
        quantise_overhead_s=at["quantise_overhead_s"],
        exchange_overhead_s=at["exchange_overhead_s"],
        reduce_ramp_s=at["reduce_ramp_s"],
        routing_noise=np.full_like(bf16, ROUTING_NOISE),
        softmax=at["softmax"],
    )


def rounded(value: float) -> float:
    """Four significant digits: what is shipped does not depend on the last bits of a solver."""
    return float(f"{value:.4g}")


def efficiency_at(
    values: dict[str, Array], index: int, runtime_bytes: float, *, measured: bool
) -> Efficiency:
    """The efficiency of one cell, rounded for shipping."""
    one = {name: float(value[index]) for name, value in values.items()}
    bf16 = one["compute"]
    return Efficiency(
        compute={
            "bf16": rounded(bf16),
            "fp8": rounded(one["fp8_compute"] * bf16),
            "fp4": rounded(one["fp4_compute"] * bf16),
            "int8": rounded(one["fp8_compute"] * bf16),
        },
        hbm=rounded(one["hbm"]),
        kv=rounded(one["kv"]),
        experts=rounded(one["experts"]),
        activations=rounded(one["activations"]),
        softmax=rounded(one["softmax"]),
        all_reduce=rounded(one["all_reduce"]),
        all_to_all=rounded(one["all_to_all"]),
        layer_overhead_s=rounded(one["layer_overhead_s"]),
        kernel_overhead_s=rounded(one["kernel_overhead_s"]),
        moe_overhead_s=rounded(one["moe_overhead_s"]),
        widened_moe_overhead_s=rounded(one["widened_moe_overhead_s"]),
        unfused_moe_overhead_s=rounded(one["unfused_moe_overhead_s"]),
        sequence_overhead_s=rounded(one["sequence_overhead_s"]),
        unpacking=rounded(one["unpacking"]),
        widened=rounded(one["widened"]),
        grouped=rounded(one["grouped"]),
        quantise_overhead_s=rounded(one["quantise_overhead_s"]),
        exchange_overhead_s=rounded(one["exchange_overhead_s"]),
        reduce_ramp_s=rounded(one["reduce_ramp_s"]),
        routing_noise=ROUTING_NOISE,
        runtime_bytes=runtime_bytes,
        provenance="measured" if measured else "assumed",
    )
