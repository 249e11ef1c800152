"""Traffic by name or file: a trace, or a YAML file that names one, describes requests or tells them by the hour."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from costmodel.question.traffic.day import Day, Hours, draw_day
from costmodel.question.traffic.description import (
    LEAST_RATE,
    Arrivals,
    BothLengths,
    Description,
    steady,
)
from costmodel.question.traffic.requests import Requests, drawn_count
from costmodel.question.traffic.trace import LINES, TABLES, read_trace
from costmodel.question.workload import Workload
from topology.catalogue import beside, checked, data_dir, is_file, read_data
from topology.errors import InstanceError, Problem, kind_of_data, on_command_line, option
from topology.quantity import PositiveSeconds

#: requests that are drawn where neither a number nor a duration is asked for
_COUNT = 10_000


class Traffic(BaseModel):
    """A traffic file: ``trace`` (with how its blocks are sized), ``arrivals`` and ``lengths``, or ``day`` and ``lengths``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str = ""
    source: str = ""
    licence: str = ""
    trace: str | None = None
    block_tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    components: str | None = None
    #: requests with one time are spread evenly over so many seconds (traces that were logged in batches)
    spread_s: PositiveSeconds | None = None
    arrivals: Arrivals | None = None
    day: Day | None = None
    lengths: BothLengths | None = None

    @model_validator(mode="after")
    def _one_way(self) -> Traffic:
        ways = [one is not None for one in (self.trace, self.arrivals, self.day)]
        if sum(ways) != 1 or (self.trace is None) != (self.lengths is not None):
            raise ValueError("give either trace, or arrivals and lengths, or day and lengths")
        return self


def traffic_names() -> list[str]:
    """Names of the shipped traffic."""
    return sorted(path.stem for path in data_dir("traffic").glob("*.yaml"))


def over_time(requests: Requests, place: str) -> Requests:
    """The same requests. Raises ``InstanceError`` where all come at once."""
    if len(requests) == 1:
        raise InstanceError(Problem(place, "only one request comes: it has no rate"))
    if not requests.duration_s:
        raise InstanceError(Problem(place, "all requests come at once: they have no rate"))
    return requests


def load_traffic(
    name_or_path: str,
    *,
    rate: float | None = None,
    duration_s: float | None = None,
    seed: int = 0,
    block_tokens: int | None = None,
) -> Requests:
    """Requests of a catalogue name, a trace or a YAML file.

    ``rate`` stretches all gaps alike to that mean rate; ``duration_s`` cuts what comes later (described
    traffic is drawn for so long). Raises ``InstanceError`` with every problem.
    """
    if name_or_path.endswith((*TABLES, *LINES)):
        found = read_trace(Path(name_or_path), block_tokens=block_tokens)
    else:
        path = _described(name_or_path)
        with checked(path.name):
            traffic = Traffic.model_validate(read_data(path))
        found = _of(traffic, path, rate, duration_s, seed, block_tokens)
    if rate is not None:
        found = over_time(found, option("rate")).at_rate(rate)
    if duration_s is not None:
        found = found.until(duration_s)
    if not len(found):
        raise InstanceError(
            Problem(option("duration"), f"no request comes within {duration_s:g} s")
        )
    return found


def at_random(workload: Workload, rate: float, seed: int) -> Requests:
    """Requests of a workload's own lengths that come by chance (Poisson), so many per second on average.

    Raises ``InstanceError`` for fewer than a replay can tell apart.
    """
    if rate < LEAST_RATE:
        message = f"requests that come by chance are replayed from {LEAST_RATE:f} per second on, got {rate:g}"
        raise InstanceError(Problem(option("rate"), message))
    requests = steady(workload, Arrivals(process="poisson", rate=rate), _COUNT, seed)
    return requests.at_rate(rate)


def read_traffic(name_or_path: str) -> Traffic:
    """The file of a catalogue name or path, without its requests."""
    path = _described(name_or_path)
    with checked(path.name):
        return Traffic.model_validate(read_data(path))


def _described(name: str) -> Path:
    path = Path(name)
    if "/" in name or name.endswith((".yaml", ".json")):
        if is_file(path):
            return path
        raise InstanceError(Problem(name[:200], "no such file"))
    path = data_dir("traffic") / f"{name}.yaml"
    if name in traffic_names():
        return path
    file = on_command_line(
        "a CSV, JSONL or YAML file", "the name of a CSV or YAML file and its content in files"
    )
    message = f"unknown name {name[:80]!r}; known: {', '.join(traffic_names())}; or give {file}"
    raise InstanceError(Problem(kind_of_data("traffic"), message))


def _of(
    traffic: Traffic,
    path: Path,
    rate: float | None,
    duration_s: float | None,
    seed: int,
    block_tokens: int | None,
) -> Requests:
    if traffic.trace is not None:
        components = None
        if traffic.components is not None:
            components = Path(beside(path, traffic.components))
        found = read_trace(
            Path(_trace_beside(path, traffic.trace)),
            block_tokens=block_tokens or traffic.block_tokens,
            components=components,
        )
        return found if traffic.spread_s is None else found.spread(traffic.spread_s)
    assert traffic.lengths is not None
    if traffic.day is not None:
        hours = Hours.read(Path(beside(path, traffic.day.hours)))
        return draw_day(traffic.day, hours, traffic.lengths, seed)
    assert traffic.arrivals is not None
    arrivals = traffic.arrivals
    if rate is not None:
        arrivals = arrivals.model_copy(update={"rate": rate})
    count = _COUNT
    if duration_s is not None:
        count = drawn_count(arrivals.rate * duration_s, option("duration"))
    return Description(arrivals=arrivals, lengths=traffic.lengths).draw(count, seed)


def _trace_beside(path: Path, name: str) -> str:
    found = path.parent / name
    return str(found) if is_file(found) else name
