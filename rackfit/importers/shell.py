"""Shell scripts as far as commands that start servers need it: lines, here-documents, variables, arrays.

Nothing is run. A variable counts with the value that the script gives it; one that a condition may change, or that
a command computes, stays unknown, and so do the words that hold it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod

from topology.errors import InstanceError, Problem

#: what starts a server; a line without it that cannot be read is no loss
STARTS = re.compile(r"vllm[ \t]+serve|vllm\.entrypoints|sglang|trtllm-serve|dynamo\.")
_HEREDOC = re.compile(r"(?<!<)<<-?\s*(['\"]?)(\w{1,80})\1")
_ASSIGNED = re.compile(r"(?:(?:export|local|readonly|declare(?: -\w+)?)\s+)?([A-Za-z_]\w{0,200})=")
_ARRAY = re.compile(r"(?:(?:local|readonly|declare(?: -\w+)?)\s+)?([A-Za-z_]\w{0,200})(\+?)=\(")
_NAMED = re.compile(r"\$\((\w+)\)|\$\{(\w+)\}|\$(\w+)|\$\{(\w+):?[-=]([^${}]*)\}")
_WHOLE_ARRAY = re.compile(r"\$\{(\w+)\[[@*]\]\}")
#: lines that one command may take
_MOST_LINES = 2000


@dataclass(frozen=True)
class Line:
    """One command as its words, its first line's number, and whether it stands below a condition or in a function."""

    number: int
    words: list[str]
    text: str
    below: bool


@dataclass
class Variables:
    """What a script sets: ``texts`` and ``arrays`` by name; ``doubtful`` those that a condition sets."""

    texts: dict[str, str] = field(default_factory=dict)
    arrays: dict[str, list[str]] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)
    doubtful: set[str] = field(default_factory=set)

    def set(self, name: str, text: str, *, below: bool) -> None:
        """Take an assignment; of two below conditions that differ neither counts."""
        value = fill(text, self.texts)
        if name in self.unknown and below:
            return
        known = self.texts.get(name)
        if "$" in value or "`" in value or (below and known is not None and known != value):
            self.texts.pop(name, None)
            self.unknown.add(name)
            return
        self.unknown.discard(name)
        if below and known is None:
            self.doubtful.add(name)
        self.texts[name] = value

    def extend(self, name: str, words: list[str], *, more: bool, below: bool) -> None:
        """Take an array's words, or more of them; what a condition adds is named and does not count."""
        if below and (more or name in self.arrays):
            self.arrays.setdefault(name, []).append(f"${name}")
            return
        before = self.arrays.get(name, []) if more else []
        self.arrays[name] = [*before, *self.words(words)]

    def words(self, words: list[str]) -> list[str]:
        """Words with known variables put in; options in an unquoted variable become words of their own."""
        found: list[str] = []
        for word in words:
            whole = _WHOLE_ARRAY.fullmatch(word)
            if whole and whole[1] in self.arrays:
                found += [fill(each, self.texts) for each in self.arrays[whole[1]]]
                continue
            text = fill(word, self.texts)
            options = word != text and word.startswith("$") and text.startswith("-")
            found += _split(text) if options else [text]
        return found


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return [text]


def fill(word: str, environment: Mapping[str, str]) -> str:
    """A word with the variables that are known put in, and defaults where a word gives one."""

    def one(found: re.Match[str]) -> str:
        if found[4] is not None:
            return environment.get(found[4]) or found[5]
        return environment.get(next(filter(None, found.groups())), found[0])

    return _NAMED.sub(one, word)


def computed(text: str, environment: Mapping[str, str]) -> str:
    """A text with the products of known numbers worked out: ``$((LWS_GROUP_SIZE * DP_SIZE_LOCAL))``."""

    def product(found: re.Match[str]) -> str:
        words = [word.strip().removeprefix("$") for word in found[1].split("*")]
        factors = [environment.get(word, word) for word in words]
        if all(re.fullmatch(r"\d{1,6}", factor) for factor in factors):
            return str(prod(int(factor) for factor in factors))
        return found[0]

    return re.sub(r"\$\(\(([^()]{1,200})\)\)", product, text)


def lines(text: str, name: str) -> Iterator[Line]:
    """Commands of a script in order, with ``# rackfit:`` remarks as lines of their own.

    Here-documents are left out, but for one that starts servers, whose lines count. Raises ``InstanceError`` for a
    line that starts a server and is no shell command.
    """
    raws = text.splitlines()
    at = 0
    while at < len(raws):
        first, raw = at, raws[at].strip()
        at += 1
        below = raws[first][:1].isspace()
        if raw.startswith("# rackfit:"):
            yield Line(first + 1, [], raw, below)
        if not raw or raw.startswith("#"):
            continue
        words, at, whole = _whole(raws, first, name)
        if words is None:
            continue
        yield Line(first + 1, words, whole, below)
        for mark in _HEREDOC.finditer(whole):
            end = next((i for i in range(at, len(raws)) if raws[i].strip() == mark[2]), len(raws))
            inside = "\n".join(raws[at:end])
            if STARTS.search(inside):
                yield from (
                    Line(each.number + at, each.words, each.text, below)
                    for each in lines(inside, name)
                )
            at = end + 1


def _whole(raws: list[str], first: int, name: str) -> tuple[list[str] | None, int, str]:
    """Words of the command that begins at a line, the line after it, and its text; no words if it is unreadable."""
    text, at = "", first
    array = _ARRAY.match(raws[first].strip()) is not None
    problem = ""
    while at < min(len(raws), first + _MOST_LINES):
        raw = raws[at].strip() if not problem else raws[at]
        at += 1
        if raw.endswith("\\"):
            text += raw[:-1] + " "
            continue
        text += raw
        if array and not re.search(r"\)\s*(#.*)?$", raw):
            text += "\n"
            continue
        try:
            return shlex.split(text, comments=True), at, text
        except ValueError as error:
            problem = str(error)
            text += "\n"
    if STARTS.search(raws[first]) or not problem:
        try:
            return shlex.split(text, comments=True), at, text
        except ValueError as error:
            place = Problem(f"{name}:{first + 1}", f"not a shell command: {error}")
            raise InstanceError(place) from None
    return None, first + 1, ""


def assigned(line: Line, variables: Variables) -> bool:
    """Take what a line assigns; whether it does nothing else."""
    array = _ARRAY.match(line.text)
    if array is not None:
        inside = line.text[array.end() : line.text.rfind(")")]
        try:
            words = shlex.split(inside, comments=True)
        except ValueError:
            return True
        variables.extend(array[1], words, more=bool(array[2]), below=line.below)
        return True
    words = (
        line.words[1:] if line.words[:1] in (["export"], ["local"], ["readonly"]) else line.words
    )
    if not words or not all(_ASSIGNED.match(f"{word}") for word in words):
        return False
    for word in words:
        key, _, value = word.partition("=")
        variables.set(key, value, below=line.below)
    return True
