"""An engine's options as data: which exist, of which type. Checks and reads command lines.

The tables are those of ``instances/engines/<name>/<version>.yaml``, taken from the engine's own parser.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from costmodel.models.spec import ModelSpec
from costmodel.question.engine_files import engine_data
from topology.errors import InstanceError, Problem


@dataclass(frozen=True)
class OptionTable:
    """Options of one engine. ``options[name]`` has ``type`` and perhaps limits and aliases."""

    engine: str
    label: str
    program: tuple[str, ...]
    options: dict[str, dict[str, Any]]
    environment: dict[str, dict[str, Any]]
    data: dict[str, Any]

    @property
    def version(self) -> str:
        """Title and version of the engine whose options these are."""
        return self.label

    @property
    def command_line(self) -> dict[str, Any]:
        """How the engine's parser takes options beside their names, as its file says."""
        told: dict[str, Any] = self.data.get("command_line", {})
        return told

    def canonical(self, name: str) -> str | None:
        """The table's own name of an option or one of its aliases; ``None`` if unknown."""
        if name in self.options:
            return name
        for known, spec in self.options.items():
            if name in spec.get("aliases", ()):
                return known
        spelling: str | None = self.data.get("spellings", {}).get(name)
        flag = f"--{name[5:]}" if name.startswith("--no-") else ""
        if spelling is None and self.options.get(flag, {}).get("type") == "flag":
            return flag  # versions differ in how a flag is switched off
        return spelling

    def read(self, words: Sequence[str], place: str = "") -> tuple[dict[str, Any], list[str]]:
        """Values by each name of an option, and words that are not options of the table.

        Raises ``InstanceError`` with every option whose value has the wrong type or range, at ``place``.
        """
        values: dict[str, Any] = {}
        rest: list[str] = []
        problems: list[Problem] = []
        before = f"{place}: " if place else ""
        queue = deque(words)
        while queue:
            word = queue.popleft()
            if not word.startswith("-"):
                rest.append(word)
                continue
            name, _, joined = word.partition("=")
            known = self.canonical(name)
            if known is None:
                rest.append(word)
                if not joined and queue and not queue[0].startswith("-"):
                    rest.append(queue.popleft())
                continue
            spec = self.options[known]
            names = (known, *spec.get("aliases", ()))
            if spec["type"] == "flag":
                values |= dict.fromkeys(
                    names, not word.startswith(("--no-", "--disable-")) or word == known
                )
                continue
            if not joined and not queue:
                problems.append(Problem(f"{before}{name}", "has no value"))
                continue
            text = joined or queue.popleft()
            try:
                values |= dict.fromkeys(names, convert(text, spec))
            except ValueError as error:
                problems.append(Problem(f"{before}{name}", str(error)))
        if problems:
            raise InstanceError(problems)
        return values, rest

    def problems(self, words: Sequence[str], environment: Mapping[str, str]) -> list[str]:
        """What the engine's own parser would refuse in a command line and its environment."""
        try:
            _, rest = self.read(words)
        except InstanceError as error:
            return [str(problem) for problem in error.problems]
        found = [f"{word} is not an option of {self.engine}" for word in rest if word[0] == "-"]
        for name, text in environment.items():
            spec = self.environment.get(name)
            if spec is None:
                found.append(f"{name} is not a variable of {self.engine}")
                continue
            try:
                convert(text, spec)
            except ValueError as error:
                found.append(f"{name}: {error}")
        return found


#: types by what a value of them looks like, where the name does not say it
_WORDS = {"amount": "a whole number such as 32000, 32k or 32K"}


def _amount(text: str) -> int:
    """A whole number as vLLM reads it: 32k is 32,000, 32K 32,768, 25.6k 25,600; auto is -1. Raises ``ValueError``.

    *Source:* ``human_readable_int`` and ``human_readable_int_or_auto`` of vLLM's argument parser.
    """
    if text == "auto":
        return -1
    parts = re.fullmatch(r"(\d{1,15}(?:\.\d{1,15})?)([kKmMgGtT])", text, re.ASCII)
    if parts is None:
        return int(text)
    number, unit = parts.groups()
    power = "kmgt".index(unit.lower()) + 1
    return int(float(number) * 1000**power) if unit.islower() else int(number) * 1024**power


def convert(text: str, spec: Mapping[str, Any]) -> Any:
    """A value of the type that ``spec`` names. Raises ``ValueError`` saying what is expected."""
    kind = spec["type"]
    value: Any = text
    try:
        if kind == "int":
            value = int(text)
        elif kind == "float":
            value = float(text)
        elif kind == "amount":
            value = _amount(text)
        elif kind == "json":
            value = json.loads(text)
        elif kind in ("layers", "ids"):
            value = [int(part) for part in text.split(",")]
    except (ValueError, RecursionError):
        raise ValueError(f"expected {_WORDS.get(kind, kind)}, got {text[:60]!r}") from None
    if kind == "layers" and min(value) < 1:
        raise ValueError(f"every stage needs a layer, got {text[:60]!r}")
    if "choices" in spec and value not in spec["choices"]:
        raise ValueError(f"expected one of {spec['choices']}, got {text[:60]!r}")
    if isinstance(value, (int, float)):
        low, high = spec.get("minimum"), spec.get("maximum")
        if (low is not None and value < low) or (high is not None and value > high):
            limits = " and ".join(
                word
                for word in (
                    f"at least {low}" * (low is not None),
                    f"at most {high}" * (high is not None),
                )
                if word
            )
            raise ValueError(f"expected {limits}, got {text[:60]}")
    return value


def kv_dtype(model: ModelSpec) -> str:
    """The format of the KV that servers keep: 16 bits are those of the activations, or their attention does not start."""
    wide = {model.kv_dtype, model.activation_dtype} <= {"bf16", "fp16"}
    return model.activation_dtype if wide else model.kv_dtype


def kv_dtype_name(model: ModelSpec, names: Mapping[str, str]) -> str:
    """The same as an engine calls it; ``auto``, which is that of the activations, where it has no name for it."""
    return names.get(kv_dtype(model), "auto")


def dtype_name(dtype: str) -> str:
    """A format of activations as engines call it."""
    return {"bf16": "bfloat16", "fp16": "float16"}.get(dtype, "auto")


@cache
def option_table(engine: str) -> OptionTable:
    """The shipped table of ``NAME`` (its newest version) or ``NAME@VERSION``."""
    data = engine_data(engine)
    limits = data.get("limits", {})
    options = {
        name: spec | limits.get(name, {}) for name, spec in data.get("arguments", {}).items()
    }
    return OptionTable(
        engine=data["engine"],
        label=f"{data['title']} {data['version']}",
        program=tuple(data.get("program", ())),
        options=options,
        environment=data.get("environment", {}),
        data=data,
    )
