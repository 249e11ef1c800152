"""Worlds: sets of parameters that the measurements behind the calibrated profile allow as well.

A world has every constant of every chip and engine (:class:`costmodel.question.profile.Efficiency`), found by a fit of
resampled measurements and then slowed or sped by a factor for what no parameters explain
(:mod:`costmodel.measured.fitting.resampling`). Worlds are equally likely. They ship as ``instances/measured/worlds.csv.gz``
and belong to the calibrated profile as it is shipped: another profile has none.
"""

from __future__ import annotations

import csv
import gzip
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from math import ceil
from typing import Any

from costmodel.question.instance import Instance
from costmodel.question.profile import Efficiency, EngineConstants, Profile, load_profile
from topology.catalogue import data_dir

FILE = "worlds.csv.gz"
#: the profile whose uncertainty the worlds are
PROFILE = "calibrated"
#: dtypes of matrix products with a fraction of their own
DTYPES = ("bf16", "fp8", "fp4", "int8")
#: fractions of a peak rate: the higher the faster
FRACTIONS = (
    "hbm", "kv", "experts", "activations", "unpacking", "widened", "grouped", "all_reduce", "all_to_all",
)  # fmt: skip
#: times that are paid: the lower the faster
OVERHEADS = (
    "layer_overhead_s", "kernel_overhead_s", "moe_overhead_s", "widened_moe_overhead_s",
    "unfused_moe_overhead_s", "sequence_overhead_s", "quantise_overhead_s", "exchange_overhead_s", "reduce_ramp_s",
)  # fmt: skip
COLUMNS = ("world", "engine", "chip", *DTYPES, *FRACTIONS, *OVERHEADS)

#: engine and chip, "" for those without rows
Cell = tuple[str, str]


def values_of(one: Efficiency) -> tuple[float, ...]:
    """The constants of an efficiency in the order of the columns."""
    found = {name: getattr(one, name) for name in (*FRACTIONS, *OVERHEADS)}
    found |= {name: one.stream(name) for name in ("kv", "experts", "activations")}
    return (*(one.arithmetic(dtype) for dtype in DTYPES), *map(float, found.values()))


def with_values(one: Efficiency, values: Sequence[float]) -> Efficiency:
    """An efficiency with other constants."""
    compute = dict(zip(DTYPES, values, strict=False))
    others = dict(zip((*FRACTIONS, *OVERHEADS), values[len(DTYPES) :], strict=True))
    return one.model_copy(update={"compute": compute, **others})


@lru_cache(maxsize=1)
def shipped_worlds() -> tuple[dict[Cell, tuple[float, ...]], ...]:
    """The constants of every world by engine and chip."""
    found: dict[str, dict[Cell, tuple[float, ...]]] = defaultdict(dict)
    with gzip.open(data_dir("measured") / FILE, "rt", encoding="utf-8", newline="") as text:
        for raw in csv.DictReader(text):
            values = tuple(float(raw[name]) for name in COLUMNS[3:])
            found[raw["world"]][raw["engine"], raw["chip"]] = values
    return tuple(found.values())


def has_worlds(profile: Profile, expert_load: str = "skewed") -> bool:
    """Whether a profile (of one engine, or of all) is the one whose uncertainty is known, as it was shipped."""
    name, _, engine = profile.name.partition(":")
    if name != PROFILE or not (data_dir("measured") / FILE).is_file():
        return False
    whole = load_profile(PROFILE)
    own = whole.of_engine(engine) if engine else whole
    same = own.routed_as(expert_load)
    return (same.default, same.chips) == (profile.default, profile.chips)


def worlds_of(instance: Instance) -> tuple[Instance, ...]:
    """The same question in every world; empty where the uncertainty of its profile is not known."""
    if not has_worlds(instance.profile, str(instance.workload.expert_load)):
        return ()
    engine = instance.profile.name.partition(":")[2]
    return tuple(
        replace(instance, profile=_profile_in(instance.profile, engine, world))
        for world in shipped_worlds()
    )


def _profile_in(profile: Profile, engine: str, world: dict[Cell, tuple[float, ...]]) -> Profile:
    def moved(one: Efficiency, engine: str, chip: str) -> Efficiency:
        return with_values(one, world[engine, chip])

    def chips_of(own: dict[str, Efficiency], engine: str) -> dict[str, Efficiency]:
        return {chip: moved(one, engine, chip) for chip, one in own.items()}

    return profile.model_copy(
        update={
            "default": moved(profile.default, engine, ""),
            "chips": chips_of(profile.chips, engine),
            "engines": {
                name: EngineConstants(
                    default=moved(own.default, name, ""), chips=chips_of(own.chips, name)
                )
                for name, own in profile.engines.items()
            },
        }
    )


def quickest(worlds: Sequence[Instance]) -> Instance:
    """The question with the best of each constant over some worlds: no pass takes longer than in any of them."""
    return _blended(worlds, best=True)


def slowest(worlds: Sequence[Instance]) -> Instance:
    """The question with the worst of each constant over some worlds: no pass is quicker than in any of them."""
    return _blended(worlds, best=False)


def _blended(worlds: Sequence[Instance], *, best: bool) -> Instance:
    rates: Callable[..., float] = max if best else min
    times: Callable[..., float] = min if best else max
    fractions = len(DTYPES) + len(FRACTIONS)

    def of(several: Sequence[Efficiency]) -> Efficiency:
        columns: Any = list(zip(*(values_of(one) for one in several), strict=True))
        kept = [rates(column) for column in columns[:fractions]]
        return with_values(several[0], (*kept, *(times(column) for column in columns[fractions:])))

    profiles = [one.profile for one in worlds]
    first = profiles[0]
    blended = first.model_copy(
        update={
            "default": of([one.default for one in profiles]),
            "chips": {chip: of([one.chips[chip] for one in profiles]) for chip in first.chips},
            "engines": {},
        }
    )
    return replace(worlds[0], profile=blended)


def place_of(confidence: float, number: int) -> int:
    """The place, from 0, of the least cost that at least this share of so many worlds does not exceed."""
    return min(number - 1, max(0, ceil(confidence * number - 1e-9) - 1))
