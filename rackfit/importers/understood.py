"""Options of a found command: those that count, and remarks that name what is not understood."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from rackfit.exporters.options import option_table
from rackfit.importers.command_lines import Process, started
from rackfit.importers.servers import FoundServer
from topology.errors import InstanceError, Problem
from topology.names import shown


def read_options(
    engine: str, process: Process, words: Sequence[str], sizes: Collection[str]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Values by option, and remarks on words that are left out.

    Options that the engine does not have, values that only the shell knows and words that stand for others are left
    out and named. ``sizes`` are the options that a layout needs. Raises ``InstanceError`` where the shell alone knows
    one of those or may hide all of them, and for values of a wrong type.
    """
    table = option_table(engine)
    kept: list[str] = []
    hidden, unknown, problems = [], [], []
    queue = list(words)
    for at, word in enumerate(queue):
        before = queue[at - 1] if at else ""
        known = table.canonical(before) if before.startswith("-") else None
        takes = known is not None and table.options[known]["type"] != "flag"
        name = before if takes else word.partition("=")[0]
        if not _variable(word):
            kept.append(word)
            continue
        if not takes and not word.startswith("-"):
            if at or engine != "vllm":  # vLLM's first word is the model
                unknown.append(word)
            continue
        if takes:
            kept.pop()
        if (table.canonical(name) or name) in sizes:
            value = shown(word if takes else word.partition("=")[2], 60)
            message = f"is {value}, which the file does not say; assign the variable above or write the value"
            problems.append(Problem(f"{process.place}: {name}", message))
        hidden.append(name)
    if problems:
        raise InstanceError(problems)
    values, rest = table.read(kept, process.place)
    if unknown and not any(name in values for name in sizes):
        message = (
            f"gives no size, and the file does not say what {shown(unknown[0], 60)} stands for"
        )
        raise InstanceError(Problem(process.place, message))
    strange = [word.partition("=")[0] for word in rest if word.startswith("-") and word != "-"]
    remarks = [
        _remark(process, "not understood", strange),
        _remark(process, "left out, as only the shell knows their values", hidden),
        _remark(process, "left out, as only the shell knows what they stand for", unknown),
        _remark(process, "set under a condition and taken as set", process.doubtful),
    ]
    if engine == "vllm" and isinstance(values.get("--config"), str):
        remarks.append(f"{process.place}: options in the file of --config are not read")
    return values, tuple(filter(None, remarks))


def with_others(
    found: list[FoundServer], processes: Sequence[Process], program: str, modules: Sequence[str]
) -> list[FoundServer]:
    """Servers, of which the first names the containers of their file that start none."""
    serving = {process.container for process, _ in started(processes, program, modules)}
    others = dict.fromkeys(each.container for each in processes if each.container not in serving)
    named = tuple(f"{place}: starts no server of {program}" for place in others if place)
    return [replace(found[0], notes=found[0].notes + named), *found[1:]] if found else found


def _variable(word: str) -> bool:
    return "$" in word or "`" in word


def _remark(process: Process, what: str, words: Collection[str]) -> str:
    named = ", ".join(shown(word, 60) for word in dict.fromkeys(words))
    return f"{process.place}: {what}: {named}" if named else ""
