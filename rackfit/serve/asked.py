"""What may be asked over HTTP: pydantic models that become a command line and the files that it reads.

A name is one of the catalogue, or that of a file whose content is in the request. Nothing else is read.
"""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    model_validator,
)

from costmodel.question.scenario import Scenario

#: files of one request, and characters of each
MOST_FILES, MOST_CHARACTERS = 20, 8_000_000
_PLAIN = r"^[A-Za-z0-9][A-Za-z0-9._+@:-]*$"
_FILE = r"^[A-Za-z0-9][A-Za-z0-9._-]*\.(json|yaml|csv)$"


def _plain(text: str) -> str:
    if not re.fullmatch(_PLAIN, text):
        raise ValueError(f"must be a name of letters, digits and . _ + @ : -, got {text[:80]!r}")
    return text


def _file(text: str) -> str:
    if not re.fullmatch(_FILE, text):
        raise ValueError(f"must be called NAME.json, NAME.yaml or NAME.csv, got {text[:80]!r}")
    return text


#: of the catalogue, or of a file in ``files``
Offered = Annotated[
    str,
    StringConstraints(max_length=200),
    AfterValidator(_plain),
    Field(json_schema_extra={"pattern": _PLAIN}),
]
FileName = Annotated[str, StringConstraints(max_length=100), AfterValidator(_file)]
Content = Annotated[str, StringConstraints(max_length=MOST_CHARACTERS)]
#: what of a scenario may be a path
_PATHS = ("model", "cluster", "workload", "profile", "expert_load")
_SUFFIXES = (".json", ".yaml", ".csv", ".npy", ".npz", ".pt", ".gz")
SCENARIO, LAYOUT = "asked-scenario.json", "asked-layout.json"


def _named_or_in_place(value: object) -> str:
    return "<in place>" if isinstance(value, dict | Scenario) else "<name>"


AskedScenario = Annotated[
    Annotated[Offered, Tag("<name>")] | Annotated[Scenario, Tag("<in place>")],
    Discriminator(_named_or_in_place),
]
Seed = Annotated[int, Field(ge=0, le=2**31 - 1)]
Gap = Annotated[float, Field(ge=0, lt=1)]
Seconds = Annotated[float, Field(gt=0, lt=1e9)]
Rate = Annotated[float, Field(ge=1e-6, lt=1e9)]


class Question(BaseModel):
    """A request: ``files`` are what its names mean beside the catalogue, contents by name."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    command: ClassVar[str]

    files: dict[FileName, Content] = Field(default_factory=dict, max_length=MOST_FILES)

    @abstractmethod
    def words(self, limit_s: float) -> list[str]:
        """The command's arguments; a search ends after ``limit_s`` at most."""

    def written(self) -> dict[str, str]:
        """Files that the command reads, by name."""
        return dict(self.files)

    def named(self) -> Iterator[tuple[str, str]]:
        """Places and texts of the request that may name a file."""
        yield from ()

    @model_validator(mode="after")
    def _nothing_else_is_read(self) -> Question:
        for place, name in self.named():
            if not _is_offered(name, self.files):
                raise ValueError(
                    f"{place}: {name[:80]!r} is not offered: give a name of the catalogue, or a file's name "
                    "and its content in files"
                )
        return self


class Solve(Question):
    """The cheapest layout and its certificate, as ``rackfit solve --json`` writes them."""

    command = "solve"

    scenario: AskedScenario
    gap: Gap = 0.01
    seed: Seed = 0
    time_limit_s: Seconds | None = None
    traffic: Offered | None = None
    ttft_p99_s: Seconds | None = None
    tpot_p99_s: Seconds | None = None
    goodput: Annotated[float, Field(gt=0, lt=1)] | None = None

    def words(self, limit_s: float) -> list[str]:
        """The command's arguments; a search ends after ``limit_s`` at most."""
        return [
            _scenario_word(self.scenario),
            *_options(
                gap=self.gap, seed=self.seed, time_limit=min(self.time_limit_s or limit_s, limit_s), traffic=self.traffic,
                ttft_p99=self.ttft_p99_s, tpot_p99=self.tpot_p99_s, goodput=self.goodput,
            ),
        ]  # fmt: skip

    def written(self) -> dict[str, str]:
        """Files that the command reads, by name."""
        return super().written() | _scenario_file(self.scenario)

    def named(self) -> Iterator[tuple[str, str]]:
        """Places and texts of the request that may name a file."""
        yield from _names_of(self.scenario)
        if self.traffic is not None:
            yield "traffic", self.traffic


class Size(Question):
    """How many whole units of each kind carry a rate, as ``rackfit size --json`` writes it.

    The scenario's own cluster is left out: each of ``buy`` is one unit to buy.
    """

    command = "size"

    scenario: AskedScenario
    buy: Annotated[list[Offered], Field(min_length=1, max_length=20)]
    rate: Rate
    peak: Annotated[float, Field(ge=1, le=1000)] = 1.0
    spare: Literal["node", "rack"] | Annotated[int, Field(ge=0, le=100_000)] = 0
    gap: Gap = 0.01
    seed: Seed = 0
    time_limit_s: Seconds | None = None

    def words(self, limit_s: float) -> list[str]:
        """The command's arguments; a search ends after ``limit_s`` at most."""
        return [
            _scenario_word(self.scenario),
            *_options(
                buy=",".join(self.buy), rate=self.rate, peak=self.peak, spare=self.spare, gap=self.gap,
                seed=self.seed, time_limit=min(self.time_limit_s or limit_s, limit_s),
            ),
        ]  # fmt: skip

    def written(self) -> dict[str, str]:
        """Files that the command reads, by name."""
        return super().written() | _scenario_file(self.scenario)

    def named(self) -> Iterator[tuple[str, str]]:
        """Places and texts of the request that may name a file."""
        yield from _names_of(self.scenario)
        for place, name in enumerate(self.buy):
            yield f"buy[{place}]", name


class Evaluate(Question):
    """What a layout costs and which rules it breaks, as ``rackfit evaluate --json`` writes it."""

    command = "evaluate"

    #: a document of ``solve``: its ``instance`` and ``layout`` are read
    document: dict[str, Any]

    def words(self, limit_s: float) -> list[str]:
        """The command's arguments; a search ends after ``limit_s`` at most."""
        return [LAYOUT, "--json"]

    def written(self) -> dict[str, str]:
        """Files that the command reads, by name."""
        return super().written() | {LAYOUT: json.dumps(self.document)}

    def named(self) -> Iterator[tuple[str, str]]:
        """Places and texts of the request that may name a file."""
        asked = self.document.get("instance")
        scenario = asked.get("scenario") if isinstance(asked, dict) else None
        yield from _names_of(scenario if isinstance(scenario, dict) else "")


class Replay(Evaluate):
    """What each of many requests meets in a layout, as ``rackfit replay --json`` writes it."""

    command = "replay"

    traffic: Offered | None = None
    rate: Rate | None = None
    cv: Annotated[float, Field(ge=0.01, le=100)] = 1.0
    concurrency: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    duration_s: Seconds | None = None
    routing: Literal["least-loaded", "round-robin", "prefix-aware"] = "least-loaded"
    seed: Seed = 0

    def words(self, limit_s: float) -> list[str]:
        """The command's arguments; a search ends after ``limit_s`` at most."""
        return [
            LAYOUT,
            *_options(
                traffic=self.traffic, rate=self.rate, cv=self.cv, concurrency=self.concurrency,
                duration=self.duration_s, routing=self.routing, seed=self.seed,
            ),
        ]  # fmt: skip

    def named(self) -> Iterator[tuple[str, str]]:
        """Places and texts of the request that may name a file."""
        yield from super().named()
        if self.traffic is not None:
            yield "traffic", self.traffic


QUESTIONS: Mapping[str, type[Question]] = {
    question.command: question for question in (Solve, Evaluate, Replay, Size)
}


def _scenario_word(scenario: str | Scenario) -> str:
    return scenario if isinstance(scenario, str) else SCENARIO


def _scenario_file(scenario: str | Scenario) -> dict[str, str]:
    if isinstance(scenario, str):
        return {}
    return {SCENARIO: scenario.model_dump_json(exclude_unset=True)}


def _names_of(scenario: str | Scenario | Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Texts of a scenario that may be paths."""
    if isinstance(scenario, str):
        if scenario:
            yield "scenario", scenario
        return
    data = scenario.model_dump() if isinstance(scenario, Scenario) else dict(scenario)
    inside = data.get("workload")
    if isinstance(inside, dict):
        data = {**data, "expert_load": inside.get("expert_load")}
    for key in _PATHS:
        if isinstance(value := data.get(key), str):
            yield f"scenario.{key}", value


def _is_offered(name: str, files: Mapping[str, str]) -> bool:
    """Whether a name is one of the catalogue, or of ``files`` (``rack.yaml@2`` keeps its count)."""
    stem, at, count = name.rpartition("@")
    path = stem if at and count.isdecimal() else name
    if "/" in name or "\\" in name or path.startswith("."):
        return False
    return path in files or not path.endswith(_SUFFIXES)


def _options(**given: object) -> list[str]:
    """``--name=value`` of what is given, and ``--json``."""
    said = [
        f"--{name.replace('_', '-')}={value!r}"
        if isinstance(value, float)
        else f"--{name.replace('_', '-')}={value}"
        for name, value in given.items()
        if value is not None
    ]
    return [*said, "--json"]
