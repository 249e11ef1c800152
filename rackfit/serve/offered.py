"""What every request has: names of the catalogue, or of files whose content it brings. Nothing else is read."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from functools import cache
from posixpath import normpath
from typing import Annotated, Any, ClassVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)

from costmodel.question.scenario import Scenario
from costmodel.question.speculation import Speculative
from costmodel.question.workload import Slo, Workload
from rackfit.kinds import misfits
from topology.errors import Problem
from topology.names import brief
from topology.quantity import plain_types

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

    def fields(self) -> dict[str, str]:
        """What messages of the command call its options and kinds of data: the fields of this request."""
        return {option_of(name): name for name in type(self).model_fields}

    @property
    def scenario_place(self) -> str:
        """Where its scenario stands."""
        return "scenario"

    @property
    def plain(self) -> bool:
        """Whether it holds names of the catalogue and numbers alone: such may share a process."""
        return False

    @model_validator(mode="before")
    @classmethod
    def _offered_by_their_last_part(cls, data: object) -> object:
        return by_last_part(data)

    @field_validator("*", mode="before")
    @classmethod
    def _as_the_schema_has_it(cls, value: object, info: ValidationInfo) -> object:
        """Pydantic takes ``true`` for 1, 1 for ``true`` and text for what it says; the published schema does not."""
        kinds = plain_types(cls.model_fields[info.field_name or ""].annotation)
        if kinds & {int, float} and isinstance(value, (bool, *(() if str in kinds else (str,)))):
            raise ValueError(f"expected a number, got {brief(value)}")
        if bool in kinds and not isinstance(value, bool):
            raise ValueError(f"expected true or false, got {brief(value)}")
        return value

    @model_validator(mode="after")
    def _nothing_else_is_read(self) -> Question:
        for place, name in self.named():
            if not _is_offered(name, self.files):
                raise ValueError(
                    f"{place}: {name[:80]!r} is not offered: give a name of the catalogue, or a file's name "
                    "and its content in files"
                )
        return self


def option_of(field: str) -> str:
    """The option of the command line that a field stands for."""
    return field.removesuffix("_s").replace("_", "-")


#: fields of a scenario that hold names of the catalogue, by the kind of data
_KINDS = {
    "models": "model", "clusters": "cluster", "workloads": "workload", "profiles": "profile",
    "drafts": "speculative.draft", "loads": "workload.expert_load",
}  # fmt: skip


def scenario_fields(place: str) -> dict[str, str]:
    """What options and kinds of data are called where a scenario stands at ``place`` of a request."""
    parts: dict[str, type[BaseModel]] = {
        "": Scenario, "workload.": Workload, "slo.": Slo, "speculative.": Speculative,
    }  # fmt: skip
    found = {
        option_of(name): f"{place}.{part}{name}"
        for part, kind in reversed(parts.items())
        for name in kind.model_fields
        if name not in ("name", "description")
    }
    found |= {"draft-tokens": f"{place}.speculative.draft_tokens", "choose": f"{place}.choices"}
    return found | {kind: f"{place}.{field}" for kind, field in _KINDS.items()}


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
    drafts = data.get("speculative")
    if isinstance(drafts, dict) and isinstance(value := drafts.get("draft"), str):
        yield "scenario.speculative.draft", value


def by_last_part(data: object) -> object:
    """A request whose scenarios name files of ``files`` by other paths, named as there: by the last part alone.

    A layout holds the paths that its question was asked with, which mean nothing to a server. A ``config.json`` is
    named after its folder, as its model is. Paths stay, and are refused, where ``files`` has no such name.
    Raises ``ValueError`` where two paths end in one name.
    """
    if not isinstance(data, dict) or not isinstance(data.get("files"), dict):
        return data
    paths = _Paths(data["files"])
    found = dict(data)
    if "scenario" in data:
        found["scenario"] = paths.renamed(data["scenario"])
    for key in ("document", "second"):
        document = data.get(key)
        if isinstance(document, dict) and isinstance(asked := document.get("instance"), dict):
            own = {**asked, "scenario": paths.renamed(asked.get("scenario"))}
            found[key] = {**document, "instance": own}
    return {**found, "files": paths.files}


class _Paths:
    """Paths of a request, and what is offered of them; a ``config.json`` is offered by the name of its folder, too."""

    def __init__(self, files: dict[str, Any]):
        self.files, self.offered = dict(files), frozenset(files)
        self.meant: dict[str, str] = {}

    def renamed(self, scenario: Any) -> Any:
        """A scenario, or whatever else was given for one, with the names of offered files for their paths."""
        if not isinstance(scenario, dict):
            return scenario
        found = self._part(scenario, _PATHS)
        for key, inner in (("workload", "expert_load"), ("speculative", "draft")):
            if isinstance(part := scenario.get(key), dict):
                found[key] = self._part(part, (inner,))
        return found

    def _part(self, data: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
        texts = {key: data[key] for key in keys if isinstance(data.get(key), str)}
        return {**data, **{key: self._name(text) for key, text in texts.items()}}

    def _name(self, text: str) -> str:
        stem, at, count = text.rpartition("@")
        path, units = (stem, at + count) if at and count.isdecimal() else (text, "")
        *above, last = path.split("/")
        own = f"{above[-1]}.json" if above and last == "config.json" else ""
        if own in self.offered:
            source = named = own
        elif above and last in self.offered:
            source, named = last, own if re.fullmatch(_FILE, own) else last
        else:
            return text
        # two paths of one question are two files, of which one was offered
        before = self.meant.setdefault(source, normpath(path))
        if before != normpath(path):
            raise ValueError(
                f"{before[:80]!r} and {path[:80]!r} would both be {source} of files: give each a name of its own"
            )
        self.files[named] = self.files[source]
        return named + units


def unlike_the_schema(data: object) -> Iterator[Problem]:
    """Numbers, text and truth values of the scenarios in a request that are not what the published schema has there.

    What reads scenarios of files takes text for the number in it and 1 for true, as YAML is written by hand.
    """
    if not isinstance(data, dict):
        return
    found = {"request: scenario": data.get("scenario")}
    for key in ("document", "second"):
        document = data.get(key)
        asked = document.get("instance") if isinstance(document, dict) else None
        if isinstance(asked, dict):
            found[f"{key}: instance.scenario"] = asked.get("scenario")
    for place, scenario in found.items():
        if isinstance(scenario, dict):
            yield from misfits(_scenario_schema(), scenario, place)


@cache
def _scenario_schema() -> dict[str, Any]:
    return Scenario.model_json_schema()


def _is_offered(name: str, files: Mapping[str, str]) -> bool:
    """Whether a name is one of the catalogue, or of ``files`` (``rack.yaml@2`` keeps its count)."""
    stem, at, count = name.rpartition("@")
    path = stem if at and count.isdecimal() else name
    if "/" in name or "\\" in name or path.startswith("."):
        return False
    return path in files or not path.endswith(_SUFFIXES)
