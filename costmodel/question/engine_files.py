"""Files of engines: one folder per engine, one file per version."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator

from costmodel.models.spec import ModelSpec
from costmodel.question.engine import ANY, EngineFacts
from topology.catalogue import checked, data_dir, read_data
from topology.chip import Chip
from topology.errors import InstanceError, Problem


def engine_names() -> list[str]:
    """Engines that are kept, by name."""
    return sorted(path.name for path in data_dir("engines").iterdir() if path.is_dir())


def engine_versions(name: str) -> list[str]:
    """Versions kept of an engine, newest first."""
    found = [path.stem for path in (data_dir("engines") / name).glob("*.yaml")]
    return sorted(found, key=_numbers, reverse=True)


def engine_file(name: str) -> Path:
    """The data of ``NAME`` (its newest version) or ``NAME@VERSION``. Raises ``InstanceError``."""
    base, _, version = str(name).partition("@")
    known = engine_names()
    if base not in known:
        message = f"unknown engine {base[:40]!r}; known: {', '.join(known)}"
        raise InstanceError(Problem("engine", message))
    versions = engine_versions(base)
    if version and version not in versions:
        message = f"no version {version[:40]!r} of {base}; kept: {', '.join(versions)}"
        raise InstanceError(Problem("engine", message))
    return data_dir("engines") / base / f"{version or versions[0]}.yaml"


@lru_cache(maxsize=16)
def engine_data(name: str) -> dict[str, Any]:
    """All that is kept of an engine's version, arguments included."""
    data: dict[str, Any] = read_data(engine_file(name))
    return data


@lru_cache(maxsize=16)
def load_engine(name: str) -> EngineFacts:
    """What ``NAME`` or ``NAME@VERSION`` runs. Raises ``InstanceError``."""
    place = engine_file(name)
    data = engine_data(name)
    facts = {key: value for key, value in data.items() if key in EngineFacts.model_fields}
    with checked(f"{place.parent.name}/{place.name}"):
        return EngineFacts.model_validate(facts)


def _known(name: str) -> str:
    if name != ANY:
        try:
            engine_file(name)
        except InstanceError as error:
            raise ValueError(error.problems[0].message) from None
    return name


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdecimal() else 0 for part in version.split("."))


def engine_problems(
    name: str, layer_slots: str, model: ModelSpec, chips: Iterable[Chip]
) -> list[Problem]:
    """What the engine of a question refuses whatever the layout; ``chips``: the types that there are."""
    found = []
    engine = None if name == ANY else load_engine(name)
    if layer_slots != "same":
        title = "an engine" if engine is None else engine.title
        message = (
            f"{layer_slots}: {title} gives every layer equally many slots; leave out this or engine"
        )
        found.append(Problem("layer_slots", message))
    if engine is None:
        return found
    refused = [engine.chip_refusal(chip) for chip in chips]
    if all(refused):
        found += [Problem("engine", why) for why in refused if why is not None]
    unserved = engine.model_refusal(model)
    if unserved is not None:
        found.append(Problem("engine", unserved))
    return found


#: ``any``, or an engine and perhaps its version: ``vllm``, ``vllm@0.33``
EngineName = Annotated[str, AfterValidator(_known)]
