"""One load step that a benchmark tool measured, and how its figures are taken from JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from costmodel.measured.rows import Group
from topology.errors import InstanceError, Problem
from topology.names import brief, shown

#: share of requests that may fail in a run that is used
MOST_FAILED = 0.05


@dataclass(frozen=True)
class Deployed:
    """How the model was served: engine, group that decodes, group that prefills if it is another.

    ``precision``: what the engine turns weights into (empty: nothing else). ``unusable`` says why its runs cannot be compared.
    """

    engine: str
    decode: Group
    prefill: Group | None = None
    precision: str = ""
    unusable: str = ""


@dataclass(frozen=True)
class Bench:
    """What a tool measured at one load: means in seconds and tokens, percentiles by name.

    ``streams`` is the fixed number of requests in flight of a closed loop, ``None`` where requests come at
    a rate. ``fixed_lengths``: all requests were equally long. ``deployed``, ``engine``, ``system`` and
    ``precision`` are told by few tools. ``unusable`` says why the run cannot be compared.
    """

    place: str
    tool: str
    model: str | None
    input_tokens: float
    output_tokens: float
    tpot_s: float
    ttft_s: float | None
    requests: int
    requests_per_s: float | None = None
    e2e_s: float | None = None
    streams: float | None = None
    percentiles: Mapping[str, float] = field(default_factory=dict)
    fixed_lengths: bool = False
    unusable: str = ""
    deployed: Deployed | None = None
    engine: str | None = None
    system: str | None = None
    precision: str = ""

    @property
    def concurrency(self) -> float:
        """Requests in the system: those of the closed loop, else by Little's law.

        Without a measured end-to-end time it is TTFT + (output - 1) x TPOT. Raises ``InstanceError``.
        """
        if self.streams is not None:
            return min(self.streams, float(self.requests)) if self.requests else self.streams
        e2e = self.e2e_s
        if e2e is None and self.ttft_s is not None:
            e2e = self.ttft_s + (self.output_tokens - 1) * self.tpot_s
        if e2e is None or self.requests_per_s is None:
            message = "holds neither a concurrency nor a rate of requests"
            raise InstanceError(Problem(self.place, message))
        return self.requests_per_s * e2e


def number(data: Mapping[str, Any], key: str, place: str, *, least: float = 0.0) -> float:
    """A finite number above ``least``. Raises ``InstanceError`` with its place."""
    found = optional(data, key, place)
    if found is None:
        raise InstanceError(Problem(f"{place}: {key}", "is missing; the file seems cut off"))
    if not found > least:
        message = f"must be above {least:g}, got {brief(data[key])}"
        raise InstanceError(Problem(f"{place}: {key}", message))
    return found


def optional(data: Mapping[str, Any], key: str, place: str) -> float | None:
    """A number, or ``None`` where it is left out, null or none (NaN, Infinity). Raises ``InstanceError``."""
    value = data.get(key)
    if value is None or isinstance(value, bool):
        return None
    if not isinstance(value, int | float):
        raise InstanceError(Problem(f"{place}: {key}", f"expected a number, got {brief(value)}"))
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if abs(value) > 1e15:
        raise InstanceError(Problem(f"{place}: {key}", f"out of range: {brief(value)}"))
    return float(value)


def text(data: Mapping[str, Any], key: str) -> str | None:
    """A line of text, shortened to what a terminal may print; ``None`` where it is no text."""
    value = data.get(key)
    return shown(value, 300) if isinstance(value, str) and value else None


def means(entry: Mapping[str, Any], place: str, e2e_name: str) -> dict[str, Any]:
    """Mean lengths and times of a run, as tools write that descend from vLLM's ``benchmark_serving.py``."""
    completed = number(entry, "completed", place)
    ttft, e2e = (optional(entry, f"mean_{name}_ms", place) for name in ("ttft", e2e_name))
    return {
        "input_tokens": number(entry, "total_input_tokens", place) / completed,
        "output_tokens": number(entry, "total_output_tokens", place) / completed,
        "tpot_s": number(entry, "mean_tpot_ms", place) / 1e3,
        "ttft_s": None if not ttft else ttft / 1e3,
        "requests": int(completed),
        "requests_per_s": number(entry, "request_throughput", place),
        "e2e_s": None if e2e is None else e2e / 1e3,
    }


def percentiles(
    data: Mapping[str, Any], names: Mapping[str, str], factor: float, place: str
) -> dict[str, float]:
    """Values of the keys that are there, by the name each stands for, times ``factor``."""
    found = {name: optional(data, key, place) for key, name in names.items() if key in data}
    return {name: value * factor for name, value in found.items() if value is not None}


def failed(count: float | None, completed: float) -> str:
    """Why a run with failed requests is not used; empty if few failed."""
    if count is None or count <= MOST_FAILED * (count + completed):
        return ""
    return f"{count:g} of {count + completed:g} requests failed"
