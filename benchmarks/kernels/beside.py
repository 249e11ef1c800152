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

#: chips that were measured, each in ``kernels_CHIP.csv``
CHIPS = ("h100", "h200")
#: rows of an expert up to which its weights are all that takes time
_FEW_ROWS = 16
BYTES = {"bf16": 2.0, "fp8": 1.0}
#: models whose layers were measured, by hidden size
MODELS = {7168: "deepseek-v3", 2048: "qwen3-30b-a3b", 4096: "qwen3-235b-a22b"}
Line = Mapping[str, str]


def lines(kernel: str, *chips: str) -> list[Line]:
    """Measured lines of a kernel on some chips (on all by default), each with its ``chip``."""
    found: list[Line] = []
    for chip in chips or CHIPS:
        path = data_dir("measured") / f"kernels_{chip}.csv"
        with path.open(encoding="utf-8", newline="") as text:
            found += [
                one | {"chip": chip} for one in csv.DictReader(text) if one["kernel"] == kernel
            ]
    return found


def constants(chip: str) -> Efficiency:
    """What serving runs gave for a chip."""
    return load_profile("calibrated").for_chip(chip)


def achieved(chip: str, efficiency: Efficiency) -> Achieved:
    """A chip's rates at an efficiency."""
    return achieved_by(load_chip(chip), efficiency)


def product_s(line: Line) -> float:
    """Priced seconds of a dense product."""
    own, dtype = achieved(line["chip"], constants(line["chip"])), line["dtype"]
    rows, columns, depth = (float(line[name]) for name in ("rows", "columns", "depth"))
    compute = 2.0 * rows * columns * depth / own.weight_flops_per_s(dtype)
    return max(compute, columns * depth * BYTES[dtype] / own.weight_bandwidth(dtype))


def attention_s(line: Line) -> float:
    """Priced seconds of attention over a prompt, or over what came before a chunk."""
    queries, context = float(line["queries"]), float(line["context"])
    seen = queries * (context / 2.0 if queries == context else context)
    return float(line["heads"]) * seen * score_s(line)


def score_s(line: Line) -> float:
    """Priced seconds of one head's score of one token for another; ``kv``, where a line has it, is the format of the cache."""
    own = achieved(line["chip"], constants(line["chip"]))
    dtype = own.chip.attends_in(line.get("kv", "bf16"), "bf16")
    flops = 2.0 * (float(line["qk_dim"]) + float(line["v_dim"]))
    return flops / own.flops_per_s(dtype) + 1.0 / own.exponentials_per_s


def engine_lines() -> list[Line]:
    """Seconds per score of engines' attention over prompts, from public tables: by chip, engine, cache format and width."""
    with (data_dir("measured") / "attention.csv").open(encoding="utf-8", newline="") as text:
        return list(csv.DictReader(text))


@lru_cache
def routed_of(model: str) -> tuple[Operations, MoE]:
    """A model's operations, and its routed experts in BF16 as they were measured."""
    operations = operations_of(load_model(model))
    assert operations.moe is not None
    size = BYTES["bf16"] * operations.moe.expert_params
    return operations, replace(operations.moe, expert_dtype="bf16", expert_bytes=size)


def layer_s(line: Line, *, between: bool = True) -> float:
    """Priced seconds of the routed experts of one layer on the chip, with the rows that reached it; nothing is exchanged.

    ``between``: with what lies between kernels; else caches hold it.
    """
    held: dict[str, float | None] = {} if between else {"activations": None}
    efficiency = constants(line["chip"]).model_copy(update={"routing_noise": 0.0, **held})
    operations, moe = routed_of(MODELS[int(line["depth"])])
    tokens, ways, rows = (float(line[name]) for name in ("tokens", "ways", "rows"))
    cut = line["how"] == "cut"
    reached = float(line["experts"]) * -np.expm1(tokens * np.log1p(-moe.top_k / moe.num_experts))
    load = rows / (tokens * moe.top_k) / (ways if cut else 1.0)
    touched = reached / (ways if cut else 1.0)
    none = np.zeros(())
    group = ChipGroup(
        operations, np.asarray(ways), np.ones(()), achieved(line["chip"], efficiency),
        GroupRates(none, none, none, none, none, none), 0.0 if cut else 1.0,
    )  # fmt: skip
    shares = ExpertShares(np.array([[load]]), np.array([[touched]]))
    spent = PassTime()
    add_experts(spent, group, moe, np.ones(()), Tokens(prefill=tokens), shares)
    return float(spent.parts["routed_experts"])


def slices(chip: str) -> Iterator[tuple[tuple[str, ...], int, float]]:
    """Of grouped products under few rows: format, hidden size and rows, columns inside, and weights read per second."""
    for one, other in zip(lines("grouped_up", chip), lines("grouped_down", chip), strict=True):
        if float(one["rows"]) <= _FEW_ROWS:
            width = int(other["depth"])
            size = 3.0 * float(one["experts"]) * width * float(one["depth"]) * BYTES[one["dtype"]]
            spent = float(one["seconds"]) + float(other["seconds"])
            yield (one["dtype"], one["depth"], one["rows"]), width, size / spent


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
