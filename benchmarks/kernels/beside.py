"""Measured kernels beside what the cost model prices for them with the constants that serving runs gave."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import median

import numpy as np

from costmodel.models.load import load_model
from costmodel.models.spec import MoE
from costmodel.passes.communication import GroupRates
from costmodel.passes.group import Achieved, ChipGroup, achieved_by
from costmodel.passes.operations import Operations, operations_of
from costmodel.passes.pass_sums import PassTime
from costmodel.passes.routed import add_experts
from costmodel.passes.tokens import ExpertShares, Tokens
from costmodel.question.profile import Efficiency, load_profile
from topology.catalogue import data_dir
from topology.chip import load_chip

FILE = "kernels_h100.csv"
CHIP, BYTES = "h100", {"bf16": 2.0, "fp8": 1.0}
#: models whose layers were measured, by hidden size
MODELS = {7168: "deepseek-v3", 2048: "qwen3-30b-a3b", 4096: "qwen3-235b-a22b"}
Line = Mapping[str, str]


def lines(kernel: str) -> list[Line]:
    """Measured lines of a kernel."""
    with (data_dir("measured") / FILE).open(encoding="utf-8", newline="") as text:
        return [line for line in csv.DictReader(text) if line["kernel"] == kernel]


def constants() -> Efficiency:
    """What serving runs gave for the chip that was measured."""
    return load_profile("calibrated").for_chip(CHIP)


def achieved(efficiency: Efficiency) -> Achieved:
    """The chip's rates at an efficiency."""
    return achieved_by(load_chip(CHIP), efficiency)


def product_s(line: Line) -> float:
    """Priced seconds of a dense product."""
    own, dtype = achieved(constants()), line["dtype"]
    rows, columns, depth = (float(line[name]) for name in ("rows", "columns", "depth"))
    compute = 2.0 * rows * columns * depth / own.weight_flops_per_s(dtype)
    return max(compute, columns * depth * BYTES[dtype] / own.weight_bandwidth(dtype))


def attention_s(line: Line) -> float:
    """Priced seconds of attention over a prompt, or over what came before a chunk."""
    queries, context = float(line["queries"]), float(line["context"])
    seen = queries * (context / 2.0 if queries == context else context)
    flops = 2.0 * float(line["heads"]) * seen * (float(line["qk_dim"]) + float(line["v_dim"]))
    return flops / achieved(constants()).flops_per_s("bf16")


@lru_cache
def routed_of(model: str) -> tuple[Operations, MoE]:
    """A model's operations, and its routed experts in BF16 as they were measured."""
    operations = operations_of(load_model(model))
    assert operations.moe is not None
    size = BYTES["bf16"] * operations.moe.expert_params
    return operations, replace(operations.moe, expert_dtype="bf16", expert_bytes=size)


def layer_s(line: Line, efficiency: Efficiency) -> float:
    """Priced seconds of the routed experts of one layer on the chip, with as many rows as it had; nothing is exchanged."""
    operations, moe = routed_of(MODELS[int(line["depth"])])
    tokens, ways, rows = (float(line[name]) for name in ("tokens", "ways", "rows"))
    cut = line["how"] == "cut"
    reached = float(line["experts"]) * -np.expm1(tokens * np.log1p(-moe.top_k / moe.num_experts))
    load = rows / (tokens * moe.top_k) / (ways if cut else 1.0)
    touched = reached / (ways if cut else 1.0)
    none = np.zeros(())
    group = ChipGroup(
        operations, np.asarray(ways), np.ones(()), achieved(efficiency),
        GroupRates(none, none, none, none, none, none),
    )  # fmt: skip
    shares = ExpertShares(np.array([[load]]), np.array([[touched]]), whole=0.0 if cut else 1.0)
    spent = PassTime()
    add_experts(spent, group, moe, np.ones(()), Tokens(prefill=tokens), shares)
    return float(spent.parts["routed_experts"])


def without_results() -> Efficiency:
    """The constants where caches hold what lies between kernels."""
    return constants().model_copy(update={"activations": None, "routing_noise": 0.0})


def with_results() -> Efficiency:
    """The constants, of tokens that fall as they fell."""
    return constants().model_copy(update={"routing_noise": 0.0})


@dataclass(frozen=True)
class Ratio:
    """Measured over priced seconds of the lines of one row of a table: the median, the least, the most, how many."""

    label: tuple[str, ...]
    values: tuple[float, ...]

    def cells(self) -> tuple[str, ...]:
        """The row's cells."""
        low, high = min(self.values), max(self.values)
        return (
            *self.label,
            f"{median(self.values):.2f}",
            f"{low:.2f} to {high:.2f}",
            f"{len(self.values)}",
        )


def ratios(
    measured: list[Line],
    priced_s: Callable[[Line], float],
    label: Callable[[Line], tuple[str, ...]],
) -> Iterator[Ratio]:
    """Measured over priced seconds by label, in order of appearance."""
    found: dict[tuple[str, ...], list[float]] = {}
    for line in measured:
        found.setdefault(label(line), []).append(float(line["seconds"]) / priced_s(line))
    for name, values in found.items():
        yield Ratio(name, tuple(values))
