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
#: requests of a closed loop over its streams, from which on the streams are full for most of the run
WAVES = 5


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

    ``streams`` is the most requests in flight of a closed loop, ``None`` where requests come at a rate; ``in_flight`` their
    mean number over the run, where the tool counts it. ``fixed_lengths``: all requests were equally long. ``deployed``, ``engine``, ``system`` and
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
    in_flight: float | None = None
    percentiles: Mapping[str, float] = field(default_factory=dict)
    fixed_lengths: bool = False
    unusable: str = ""
    deployed: Deployed | None = None
    engine: str | None = None
    system: str | None = None
    precision: str = ""

    @property
    def concurrency(self) -> float:
        """Requests in the system: the streams of a closed loop, else as counted or by Little's law.

        A closed loop of few waves is not full at its begin and end: its mean counts where the tool measured it, or the
        time from end to end. Where requests come at a rate and that time is not known, it is TTFT + (output - 1) x TPOT.
        Raises ``InstanceError``.
        """
        mean = self._mean_in_flight()
        if self.streams is not None:
            most = min(self.streams, float(self.requests)) if self.requests else self.streams
            few = 0 < self.requests < WAVES * self.streams
            return min(most, mean) if few and mean is not None else most
        if mean is not None:
            return mean
        if self.ttft_s is None or self.requests_per_s is None:
            message = "holds neither a concurrency nor a rate of requests"
            raise InstanceError(Problem(self.place, message))
        return self.requests_per_s * (self.ttft_s + (self.output_tokens - 1) * self.tpot_s)

    def _mean_in_flight(self) -> float | None:
        """Mean number of requests in flight, where it was measured."""
        if self.in_flight is not None or self.e2e_s is None or self.requests_per_s is None:
            return self.in_flight
        return self.requests_per_s * self.e2e_s


def left_out(place: str, tool: str, reason: str) -> Bench:
    """A run without figures that can be compared, and why."""
    return Bench(place, tool, None, 0.0, 0.0, 0.0, None, 0, streams=0.0, unusable=reason)


def number(data: Mapping[str, Any], key: str, place: str, *, least: float = 0.0) -> float:
    """A finite number above ``least``. Raises ``InstanceError`` with its place."""
    found = optional(data, key, place)
    if found is None and data.get(key) is None:
        raise InstanceError(Problem(f"{place}: {key}", "is missing; the file seems cut off"))
    if found is None or not found > least:
        message = f"must be above {least:g}, got {brief(data[key])}"
        raise InstanceError(Problem(f"{place}: {key}", message))
    return found


def count(data: Mapping[str, Any], key: str, place: str) -> int:
    """A whole number from 0. Raises ``InstanceError`` with its place."""
    found = number(data, key, place, least=-math.inf)
    if found < 0 or found != int(found):
        message = f"expected a whole number from 0, got {brief(data[key])}"
        raise InstanceError(Problem(f"{place}: {key}", message))
    return int(found)


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


def means(entry: Mapping[str, Any], place: str, e2e_name: str, completed: int) -> dict[str, Any]:
    """Mean lengths and times of a run, as tools write that descend from vLLM's ``benchmark_serving.py``.

    ``completed``: its requests that succeeded, at least one. Raises ``InstanceError``.
    """
    ttft, e2e = (optional(entry, f"mean_{name}_ms", place) for name in ("ttft", e2e_name))
    return {
        "input_tokens": number(entry, "total_input_tokens", place) / completed,
        "output_tokens": number(entry, "total_output_tokens", place) / completed,
        "tpot_s": number(entry, "mean_tpot_ms", place) / 1e3,
        "ttft_s": None if not ttft else ttft / 1e3,
        "requests": completed,
        "requests_per_s": number(entry, "request_throughput", place),
        "e2e_s": None if not e2e else e2e / 1e3,
    }


def no_figures(entry: Mapping[str, Any], place: str, completed: int) -> str:
    """Why such a run has no figures to compare: requests failed, no further tokens; empty: it has. Raises ``InstanceError``."""
    if reason := failed(lost(entry, place), completed):
        return reason
    outputs = optional(entry, "total_output_tokens", place)
    return no_tpot(entry, "mean_tpot_ms", None if outputs is None else outputs / completed)


def percentiles(
    data: Mapping[str, Any], names: Mapping[str, str], factor: float, place: str
) -> dict[str, float]:
    """Values of the keys that are there, by the name each stands for, times ``factor``."""
    found = {name: optional(data, key, place) for key, name in names.items() if key in data}
    return {name: value * factor for name, value in found.items() if value is not None}


def lost(entry: Mapping[str, Any], place: str) -> float | None:
    """Requests that failed, of tools that say so or list an error or nothing per request."""
    told, errors = optional(entry, "failed", place), entry.get("errors")
    if told is None and isinstance(errors, list):
        return float(sum(bool(error) for error in errors))
    return told


def failed(count: float | None, completed: float) -> str:
    """Why a run with failed requests, or with none that succeeded, is not used; empty if few failed."""
    if count is None or count <= MOST_FAILED * (count + completed):
        return "" if completed else "no request was completed"
    return f"{count:g} of {count + completed:g} requests failed"


def no_tpot(data: Mapping[str, Any], key: str, outputs: float | None) -> str:
    """Why a run has no time per further token: its mean is 0 or NaN; empty where it has one, or none is written.

    ``outputs``: tokens of a mean answer.
    """
    value = data.get(key)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return ""
    if value != 0 and not (isinstance(value, float) and math.isnan(value)):
        return ""
    short = outputs is not None and outputs <= 1
    why = "answers of one token" if short else "answers of one token, or not streamed"
    return f"without a time per further token (its mean is {value:g}): {why}"


def shared_prompts(load: str) -> str:
    """Why a run is not used whose prompts share prefixes; ``load`` is what the tool calls them."""
    return f"its prompts share prefixes ({load}): what a cache knew of them is not in the figures"
