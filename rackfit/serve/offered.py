"""What every request has: names of the catalogue, or of files whose content it brings. Nothing else is read."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar

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
_SUFFIXES = (".json", ".jsonl", ".yaml", ".csv", ".npy", ".npz", ".pt", ".gz")


def _named_or_in_place(value: object) -> str:
    return "<in place>" if isinstance(value, dict | Scenario) else "<name>"


AskedScenario = Annotated[
    Annotated[Offered, Tag("<name>")] | Annotated[Scenario, Tag("<in place>")],
    Discriminator(_named_or_in_place),
]


class Question(BaseModel):
    """A request: ``files`` are what its names mean beside the catalogue, contents by name."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    #: of the command line, and the last part of the address
    command: ClassVar[str]
    called: ClassVar[str]

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

    @property
    def plain(self) -> bool:
        """Whether it holds names of the catalogue and numbers alone: such may share a process."""
        return False

    @model_validator(mode="after")
    def _nothing_else_is_read(self) -> Question:
        for place, name in self.named():
            if not _is_offered(name, self.files):
                raise ValueError(
                    f"{place}: {name[:80]!r} is not offered: give a name of the catalogue, or a file's name "
                    "and its content in files"
                )
        return self


def names_of(scenario: str | Scenario | Mapping[str, Any]) -> Iterator[tuple[str, str]]:
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
