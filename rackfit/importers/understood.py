"""Options of a found command: those that count, and remarks that name what is not understood."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rackfit.exporters.launch.options import OptionTable, convert, option_table
from rackfit.importers.command_lines import Process, started
from rackfit.importers.scripts.lexer import PLACEHOLDER
from rackfit.importers.servers import FoundServer
from topology.errors import InstanceError, Problem
from topology.names import shown

#: what stands for options, not for a model
_OPTIONS = re.compile(r"\$[({]?[@*(]|arg|opt|flag|param", re.IGNORECASE)
#: keys of JSON values that say how a server is built
_DECIDING = frozenset({"method", "num_speculative_tokens", "kv_role", "num_redundant_experts"})
#: keys behind dots that are followed
_DEEPEST = 8


def read_options(
    engine: str,
    process: Process,
    words: Sequence[str],
    folder: Path,
    widths: Collection[str],
    sizes: Collection[str],
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Values by option, and remarks on words that are left out.

    Options that the engine does not have, values that only the shell knows or that another version takes, and words that
    stand for others are left out and named. ``widths`` and ``sizes`` are the options that a layout needs; a file of
    ``--config`` is read where it lies in ``folder``. Raises ``InstanceError`` where the shell alone knows one of them or
    may hide all widths, and for values of a wrong type.
    """
    table = option_table(engine)
    kept: list[str] = []
    hidden, unknown, problems, foreign = [], [], [], []
    needed = {*widths, *sizes}
    queue = _spelled(table, _with_config(table, process, words, folder))
    for at, word in enumerate(queue):
        before = queue[at - 1] if at else ""
        known = table.canonical(before) if before.startswith("-") else None
        takes = known is not None and table.options[known]["type"] != "flag"
        name = before if takes else word.partition("=")[0]
        if _variable(word) and (part := _partly(word if takes else _joined(word))) is not None:
            word = part[0] if takes else f"{name}={part[0]}"
            hidden.append(f"{name} ({', '.join(part[1])})")
        if not _variable(word):
            kept.append(word)
            option, value = (known, word) if takes else (table.canonical(name), _joined(word))
            if option and option not in needed and not _offered(table.options[option], value):
                del kept[-2 if takes else -1 :]
                foreign.append(f"{name} {value}")
            continue
        if not takes and not word.startswith("-"):
            if at or engine != "vllm" or _OPTIONS.search(word):  # vLLM's first word is the model
                unknown.append(word)
            continue
        if takes:
            kept.pop()
        if (table.canonical(name) or name) in needed:
            value = shown(word if takes else _joined(word), 60)
            message = f"is {value}, which the file does not say; assign it or what its conditions ask for above, or write the value"
            problems.append(Problem(f"{process.place}: {name}", message))
        hidden.append(name)
    if problems:
        raise InstanceError(problems)
    values, rest = table.read(kept, process.place)
    if unknown and not any(name in values for name in widths):
        message = (
            f"gives no size ({', '.join(widths)}), and the file does not say what {shown(unknown[0], 60)} stands for; assign "
            "what its conditions ask for above"
        )
        raise InstanceError(Problem(process.place, message))
    strange = [word.partition("=")[0] for word in rest if word.startswith("-") and word != "-"]
    remarks = [
        _remark(process, "not understood", [*strange, *foreign]),
        _remark(process, "left out, as only the shell knows their values", hidden),
        _remark(process, "left out, as only the shell knows what they stand for", unknown),
        _remark(process, "set under a condition and taken as set", process.doubtful),
        f"{process.place}: starts {process.open}" if process.open else "",
    ]
    if table.command_line.get("config") and "--config" in values:
        remarks.append(f"{process.place}: options in the file of --config are not read")
    return values, tuple(filter(None, remarks))


def _partly(value: str) -> tuple[str, list[str]] | None:
    """A JSON value without the keys that only the shell knows, and these; ``None`` where one of them decides on the layout."""
    try:
        data = json.loads(re.sub(r"\$\([^()]{0,500}\)|\$\{[^{}]{0,200}\}", "$_", value))
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict):
        return None
    hidden = [key for key, inside in data.items() if _variable(f"{key} {json.dumps(inside)}")]
    if _DECIDING & set(hidden) or len(hidden) == len(data):
        return None
    return json.dumps({key: inside for key, inside in data.items() if key not in hidden}), hidden


def _spelled(table: OptionTable, words: Sequence[str]) -> list[str]:
    """Words with options as the table has them, where the engine's parser takes them otherwise, too.

    ``command_line`` of the engine's file says how: underscores for dashes, the beginning of a name that no other has,
    and keys of a JSON value behind dots, which are put together here.
    """
    takes = table.command_line
    found: list[str] = []
    nested: dict[str, dict[str, Any]] = {}
    queue = deque(words)
    while queue:
        word = queue.popleft()
        name, equals, value = word.partition("=")
        first, dot, keys = name.partition(".")
        if not first.startswith("-"):
            found.append(word)
            continue
        if takes.get("underscores") and first.startswith("--"):
            first = first.replace("_", "-")
        known = table.canonical(first)
        if known is None and takes.get("beginnings"):
            known = _begun(table, first)
            first = known or first
        place = keys.split(".")
        json_value = known is not None and table.options[known]["type"] == "json"
        if known and dot and takes.get("dots") and json_value and len(place) <= _DEEPEST:
            value = value if equals or not queue else queue.popleft()
            _put(nested.setdefault(known, {}), place, value)
            continue
        found.append(f"{first}{dot}{keys}{equals}{value}")
    for known, tree in nested.items():
        found += [known, json.dumps(tree)]
    return found


def _begun(table: OptionTable, first: str) -> str | None:
    """The one option that a word is the beginning of, as argparse finds it."""
    if len(first) < 3 or not first.startswith("--"):
        return None
    begun = {
        known
        for known, spec in table.options.items()
        if any(name.startswith(first) for name in (known, *spec.get("aliases", ())))
    }
    return next(iter(begun)) if len(begun) == 1 else None


def _put(tree: dict[str, Any], place: list[str], text: str) -> None:
    """Put a value below its keys: JSON where it is some, words with commas below a key that ends in ``+``."""
    *above, last = place
    for key in above:
        below = tree.setdefault(key, {})
        if not isinstance(below, dict):
            below = tree[key] = {}
        tree = below
    if last.endswith("+"):
        before = tree.get(last[:-1])
        tree[last[:-1]] = [*(before if isinstance(before, list) else []), *text.split(",")]
        return
    try:
        tree[last] = json.loads(text)
    except (ValueError, RecursionError):
        tree[last] = text


def _with_config(
    table: OptionTable, process: Process, words: Sequence[str], folder: Path
) -> Sequence[str]:
    """Words with the options of the file of ``--config`` before them, where it is known."""
    at = next((i for i, word in enumerate(words) if word.partition("=")[0] == "--config"), None)
    if at is None or not table.command_line.get("config"):
        return words
    joined = "=" in words[at]
    name = _joined(words[at]) if joined else "".join(words[at + 1 : at + 2])
    data = process.config(name, folder) if name else None
    if data is None:
        return words
    if not isinstance(data, dict):
        message = f"--config {shown(name, 200)}: expected options, each with its value"
        raise InstanceError(Problem(process.place, message))
    first = [] if not words or words[0].startswith("-") else [words[0]]
    told = [word for key, value in data.items() for word in _option(f"--{key}", value)]
    return [*first, *told, *words[len(first) : at], *words[at + (1 if joined else 2) :]]


def _option(name: str, value: object) -> list[str]:
    """Words of an option in a file."""
    if isinstance(value, bool):
        return [name if value else f"--no-{name[2:]}"]
    if value is None:
        return []
    if isinstance(value, list):
        return [name, *map(str, value)]
    return [name, json.dumps(value) if isinstance(value, dict) else str(value)]


def _offered(spec: dict[str, Any], value: str) -> bool:
    """Whether an option has such a value; another version of the engine may have more names to choose from."""
    if "choices" not in spec or not value:
        return True
    try:
        convert(value, spec)
    except ValueError:
        return False
    return True


def with_others(
    found: list[FoundServer], processes: Sequence[Process], program: str, modules: Sequence[str]
) -> list[FoundServer]:
    """Servers, of which the first names the containers of their file that start none."""
    serving = {process.container for process, _ in started(processes, program, modules)}
    others = dict.fromkeys(each.container for each in processes if each.container not in serving)
    named = tuple(f"{place}: starts no server of {program}" for place in others if place)
    return [replace(found[0], notes=found[0].notes + named), *found[1:]] if found else found


def _joined(word: str) -> str:
    return word.partition("=")[2]


def _variable(word: str) -> bool:
    return "$" in word or "`" in word or re.search(PLACEHOLDER, word) is not None


def _remark(process: Process, what: str, words: Collection[str]) -> str:
    named = ", ".join(shown(word, 60) for word in dict.fromkeys(words))
    return f"{process.place}: {what}: {named}" if named else ""
