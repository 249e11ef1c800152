"""What may be asked over HTTP: pydantic models that become a command line and the files that it reads."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Discriminator, Field, StringConstraints, Tag

from costmodel.question.scenario import Scenario
from rackfit.cli.commands.export import TARGETS
from rackfit.serve.offered import (
    MOST_CHARACTERS,
    AskedScenario,
    Offered,
    Question,
    names_of,
    scenario_fields,
)

#: names of what a request writes for its command
SCENARIO, LAYOUT, SECOND, LAUNCH = (
    "asked-scenario.json", "asked-layout.json", "asked-second.json", "launch",
)  # fmt: skip
#: whose commands are read
Engine = Literal["sglang", "trtllm", "vllm"]
Seed = Annotated[int, Field(ge=0, le=2**31 - 1)]
Gap = Annotated[float, Field(ge=0, lt=1)]
Seconds = Annotated[float, Field(gt=0, lt=1e9)]
Rate = Annotated[float, Field(ge=1e-6, lt=1e9)]

Spare = Annotated[
    Annotated[Literal["node", "rack"], Tag("<name>")]
    | Annotated[int, Field(ge=0, le=100_000), Tag("<number>")],
    Discriminator(lambda value: "<name>" if isinstance(value, str) else "<number>"),
]


def _target(text: str) -> str:
    if text not in TARGETS:
        raise ValueError(f"must be one of {', '.join(TARGETS)}, got {text[:60]!r}")
    return text


Target = Annotated[str, AfterValidator(_target), Field(json_schema_extra={"enum": list(TARGETS)})]


class _OfScenario(Question):
    """A request with a scenario: the name of one, or one written in place."""

    scenario: AskedScenario

    def fields(self) -> dict[str, str]:
        """What messages of the command call its options and kinds of data."""
        return scenario_fields(self.scenario_place) | {"scenarios": "scenario"} | super().fields()

    def written(self) -> dict[str, str]:
        """Files that the command reads, by name."""
        if isinstance(self.scenario, str):
            return super().written()
        return super().written() | {SCENARIO: self.scenario.model_dump_json(exclude_unset=True)}

    def named(self) -> Iterator[tuple[str, str]]:
        """Places and texts of the request that may name a file."""
        yield from names_of(self.scenario)


class Solve(_OfScenario):
    """The cheapest layout and its certificate, as ``rackfit solve --json`` writes them."""

    command = called = "solve"

    gap: Gap = 0.01
    seed: Seed = 0
    time_limit_s: Seconds | None = None
    traffic: Offered | None = None
    ttft_p99_s: Seconds | None = None
    tpot_p99_s: Seconds | None = None
    goodput: Annotated[float, Field(gt=0, lt=1)] | None = None

    @property
    def plain(self) -> bool:
        """Whether it holds names of the catalogue and numbers alone."""
        return not self.files and self.traffic is None

    def words(self, limit_s: float) -> list[str]:
        """The command's arguments; a search ends after ``limit_s`` at most."""
        return [
            _scenario_word(self.scenario),
            *_options(
                gap=self.gap, seed=self.seed, time_limit=min(self.time_limit_s or limit_s, limit_s), traffic=self.traffic,
                ttft_p99=self.ttft_p99_s, tpot_p99=self.tpot_p99_s, goodput=self.goodput,
            ),
        ]  # fmt: skip

    def named(self) -> Iterator[tuple[str, str]]:
        """Places and texts of the request that may name a file."""
        yield from super().named()
        if self.traffic is not None:
            yield "traffic", self.traffic


class Size(_OfScenario):
    """How many whole units of each kind carry a rate, as ``rackfit size --json`` writes it.

    The scenario's own cluster is left out: each of ``buy`` is one unit to buy.
    """

    command = called = "size"

    buy: Annotated[list[Offered], Field(min_length=1, max_length=20)]
    rate: Rate
    peak: Annotated[float, Field(ge=1, le=1000)] = 1.0
    spare: Spare = 0
    replay: bool = False
    gap: Gap = 0.01
    seed: Seed = 0
    time_limit_s: Seconds | None = None

    def fields(self) -> dict[str, str]:
        """What messages of the command call its options and kinds of data."""
        return super().fields() | {"clusters": "buy"}

    def words(self, limit_s: float) -> list[str]:
        """The command's arguments; a search ends after ``limit_s`` at most."""
        return [
            _scenario_word(self.scenario),
            *(("--replay",) if self.replay else ()),
            *_options(
                buy=",".join(self.buy), rate=self.rate, peak=self.peak, spare=self.spare, gap=self.gap,
                seed=self.seed, time_limit=min(self.time_limit_s or limit_s, limit_s),
            ),
        ]  # fmt: skip

    def named(self) -> Iterator[tuple[str, str]]:
        """Places and texts of the request that may name a file."""
        yield from super().named()
        for place, name in enumerate(self.buy):
            yield f"buy[{place}]", name


class Evaluate(Question):
    """What a layout costs and which rules it breaks, as ``rackfit evaluate --json`` writes it."""

    command = called = "evaluate"

    #: a document of ``solve``: its ``instance`` and ``layout`` are read
    document: dict[str, Any]

    def fields(self) -> dict[str, str]:
        """What messages of the command call its options and kinds of data."""
        return scenario_fields(self.scenario_place) | super().fields()

    @property
    def scenario_place(self) -> str:
        """Where its scenario stands."""
        return "document: instance.scenario"

    def words(self, limit_s: float) -> list[str]:
        """The command's arguments; a search ends after ``limit_s`` at most."""
        return [LAYOUT, "--json"]

    def written(self) -> dict[str, str]:
        """Files that the command reads, by name."""
        return super().written() | {LAYOUT: json.dumps(self.document)}

    def named(self) -> Iterator[tuple[str, str]]:
        """Places and texts of the request that may name a file."""
        yield from _names_in(self.document)


class Replay(Evaluate):
    """What each of many requests meets in a layout, as ``rackfit replay --json`` writes it."""

    command = called = "replay"

    traffic: Offered | None = None
    rate: Rate | None = None
    cv: Annotated[float, Field(ge=0.01, le=100)] = 1.0
    concurrency: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    duration_s: Seconds | None = None
    routing: Literal["least-loaded", "round-robin", "prefix-aware"] = "least-loaded"
    prompt_order: Literal["first-come", "shortest"] | None = None
    seed: Seed = 0

    def words(self, limit_s: float) -> list[str]:
        """The command's arguments; a search ends after ``limit_s`` at most."""
        return [
            LAYOUT,
            *_options(
                traffic=self.traffic, rate=self.rate, cv=self.cv, concurrency=self.concurrency,
                duration=self.duration_s, routing=self.routing,
                prompt_order=self.prompt_order, seed=self.seed,
            ),
        ]  # fmt: skip

    def named(self) -> Iterator[tuple[str, str]]:
        """Places and texts of the request that may name a file."""
        yield from super().named()
        if self.traffic is not None:
            yield "traffic", self.traffic


class Compare(Evaluate):
    """What a second layout does differently, as ``rackfit diff --json`` writes it."""

    command, called = "diff", "compare"

    #: another document of ``solve``
    second: dict[str, Any]

    def words(self, limit_s: float) -> list[str]:
        """The command's arguments."""
        return [LAYOUT, SECOND, "--json"]

    def written(self) -> dict[str, str]:
        """Files that the command reads, by name."""
        return super().written() | {SECOND: json.dumps(self.second)}

    def named(self) -> Iterator[tuple[str, str]]:
        """Places and texts of the request that may name a file."""
        yield from super().named()
        yield from _names_in(self.second)


class Export(Evaluate):
    """The files that deploy a layout, as ``rackfit export --json`` writes them."""

    # older pydantic keeps names that begin with ``model_`` to itself
    model_config = ConfigDict(protected_namespaces=())

    command = called = "export"

    to: Target
    model_path: Annotated[str, StringConstraints(min_length=1, max_length=500)] | None = None
    gpus_per_host: Annotated[int, Field(ge=1, le=1024)] | None = None
    allow_approximate: bool = False

    def words(self, limit_s: float) -> list[str]:
        """The command's arguments."""
        nearest = ["--allow-approximate"] if self.allow_approximate else []
        given = _options(to=self.to, model_path=self.model_path, gpus_per_host=self.gpus_per_host)
        return [LAYOUT, *nearest, *given]


class Running(_OfScenario):
    """What runs today, and what to change, as ``rackfit evaluate --from --compare --json`` writes it."""

    command, called = "evaluate", "running"

    engine: Engine
    #: the commands that start the servers; files that they name are in ``files``
    launch: Annotated[str, StringConstraints(min_length=1, max_length=MOST_CHARACTERS)]
    balanced: bool = False
    time_limit_s: Seconds | None = None

    def fields(self) -> dict[str, str]:
        """What messages of the command call its options and kinds of data."""
        return super().fields() | {"from": "engine", "engine": "scenario.engine"}

    def words(self, limit_s: float) -> list[str]:
        """The command's arguments; a search ends after ``limit_s`` at most."""
        balanced = ["--balanced"] if self.balanced else []
        given = _options(
            scenario=_scenario_word(self.scenario), time_limit=min(self.time_limit_s or limit_s, limit_s)
        )  # fmt: skip
        return [LAUNCH, f"--from={self.engine}", "--compare", *balanced, *given]

    def written(self) -> dict[str, str]:
        """Files that the command reads, by name."""
        return super().written() | {LAUNCH: self.launch}


QUESTIONS: Mapping[str, type[Question]] = {
    question.called: question
    for question in (Solve, Evaluate, Replay, Size, Running, Compare, Export)
}


def _scenario_word(scenario: str | Scenario) -> str:
    return scenario if isinstance(scenario, str) else SCENARIO


def _names_in(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    asked = document.get("instance")
    scenario = asked.get("scenario") if isinstance(asked, dict) else None
    yield from names_of(scenario if isinstance(scenario, dict) else "")


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
