"""Points of a study: a scenario for every combination of axis values."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from costmodel.question.scenario import Scenario, load_workload
from costmodel.question.what_if import percent
from rackfit.studies.axes import unknown_axes
from rackfit.studies.base import Axes, Own, Row, asked_column
from topology.catalogue import checked
from topology.errors import InstanceError, Problem, noted
from topology.reading import parse_yaml

#: More points than this is taken for a typing mistake.
MAX_POINTS = 100_000
_FAMILY = re.compile(r"nvl-(\d{1,6})(?:@(\d{1,5}))?")


@dataclass(frozen=True)
class Point:
    """One question: its axis values, the scenario they make, and the study's own parameters.

    ``study`` names the study that makes the row; empty where the solver does.
    """

    axes: dict[str, Any]
    scenario: Scenario
    study: str = ""
    own: dict[str, Any] = field(default_factory=dict)

    @property
    def numbers(self) -> Row:
        """Columns with the numbers that the scenario has for axis values that are text (``+20%``, ``30 ms``)."""
        texts = [key for key, value in self.axes.items() if isinstance(value, str)]
        said = self.scenario.model_dump() if texts else {}
        numbers = {asked_column(key): _number_at(said, key) for key in texts}
        return {column: number for column, number in numbers.items() if number is not None}


def parse_over(texts: Sequence[str]) -> Axes:
    """Axes from ``key=value,value`` texts; values are read as YAML (``none`` removes the key).

    ``key=`` alone leaves out the set of axes that has the key.

    Raises ``InstanceError`` for every text that is not one.
    """
    axes: Axes = {}
    problems = []
    for text in texts:
        key, equals, values = text.partition("=")
        parts = [part.strip() for part in values.split(",")] if values.strip() else []
        if not equals or not key or "" in parts:
            problems.append(Problem(f"--over {text[:80]}", "expected KEY=VALUE,VALUE,..."))
        elif key in axes:
            problems.append(Problem(f"--over {text[:80]}", f"{key} is given twice"))
        else:
            axes[key] = [_value(part) for part in parts]
    if problems:
        raise InstanceError(problems)
    return axes


def _value(text: str) -> Any:
    if text == "none":
        return None
    try:
        read = parse_yaml(text, "--over")
    except InstanceError:
        return text
    return read if isinstance(read, int | float | bool) else text


def make_points(
    base: Mapping[str, Any], axes: Axes, parameters: Own | None = None, study: str = ""
) -> list[Point]:
    """Every combination of axis values, the last axis fastest.

    ``cluster.domain_size`` cuts a cluster into domains of that size, same total; ``+20%`` changes a number of the
    scenario, a figure of the chips or an option of the network by so much;
    axes among ``parameters`` are not put into the scenario. Raises ``InstanceError`` for all keys and values that no scenario
    accepts, a value with the first point that has it.
    """
    count = math.prod(len(values) for values in axes.values())
    if not 0 < count <= MAX_POINTS:
        raise InstanceError(Problem("study", f"{count} points; 1 to {MAX_POINTS} are run"))
    unknown = unknown_axes(key for key in axes if key not in (parameters or {}))
    axes = {key: values for key, values in axes.items() if key not in unknown}
    points = []
    # by what is wrong: a value is in many points
    problems = {(one.place, one.message): one for one in unknown.values()}
    for values in itertools.product(*axes.values()):
        chosen = dict(zip(axes, values, strict=True))
        data = dict(deepcopy(dict(base)))
        own = dict(parameters or {})
        wrong: list[Problem] = []
        for key, value in chosen.items():
            if key in own:
                own[key] = value
                continue
            with noted(wrong):
                _put(data, key, value)
        said = ", ".join(f"{key}={value}" for key, value in chosen.items())
        with noted(wrong), checked(said or "study"):
            points.append(Point(chosen, Scenario.model_validate(data), study, own))
        for one in wrong:
            problems.setdefault((one.place.removeprefix(said), one.message), one)
    if problems:
        raise InstanceError(problems.values())
    return points


def _put(data: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted key; a workload named in the scenario is written out before a part is changed."""
    if key == "cluster.domain_size":
        cluster = str(data.get("cluster"))
        if _FAMILY.fullmatch(cluster):
            data["cluster"] = resized(cluster, value)
        elif value is not None:
            data["domain_size"] = value
        return
    *folders, last = key.split(".")
    if folders[:1] == ["workload"] and isinstance(data.get("workload"), str):
        data["workload"] = load_workload(data["workload"]).model_dump(mode="json")
    inside = data
    for folder in folders:
        inside = inside.setdefault(folder, {})
        if not isinstance(inside, dict):
            raise InstanceError(Problem(key, f"{folder} has no parts to vary"))
    if value is None:
        inside.pop(last, None)
    elif folders[:1] in (["chip"], ["scale_out"]):
        inside[last] = value
    else:
        inside[last] = _by_percent(data, key, value)


def _by_percent(data: dict[str, Any], key: str, value: Any) -> Any:
    """``value``, or by ``+20%`` the number that the scenario has there. Raises ``InstanceError``."""
    try:
        factor = percent(value)
    except ValueError as error:
        raise InstanceError(Problem(f"--over {key}", str(error))) from None
    if factor is None:
        return value
    with checked(key):
        old: Any = Scenario.model_validate(data).model_dump()
    old = _number_at(old, key)
    if old is None:
        raise InstanceError(
            Problem(f"--over {key}", f"{value} of what? the scenario has no number there")
        )
    return round(old * factor) if isinstance(old, int) else old * factor


def _number_at(data: Any, key: str) -> int | float | None:
    """The number at a dotted key; ``None``: there is none."""
    for part in key.split("."):
        data = data.get(part) if isinstance(data, dict) else None
    return data if isinstance(data, int | float) and not isinstance(data, bool) else None


def resized(cluster: str, size: Any) -> str:
    """``nvl-N@M`` in domains of ``size`` chips, with as many chips in all."""
    family = _FAMILY.fullmatch(cluster)
    if family is None:
        message = f"needs a cluster nvl-N or nvl-N@M, not {cluster[:80]!r}"
        raise InstanceError(Problem("cluster.domain_size", message))
    total = int(family[1]) * int(family[2] or 1)
    if not isinstance(size, int) or size < 1 or total % size:
        message = f"{size!r} does not divide the {total} chips of {cluster}"
        raise InstanceError(Problem("cluster.domain_size", message))
    return f"nvl-{size}@{total // size}"
