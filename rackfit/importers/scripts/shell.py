"""Shell scripts as far as commands that start servers need it: lines, here-documents, variables, arrays.

Nothing is run. A variable counts with the value that the script gives it; one that a condition may change, or that
a command computes, stays unknown, and so do the words that hold it.
"""

from __future__ import annotations

import operator
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from topology.errors import InstanceError, Problem

#: what starts a server; a line without it that cannot be read is no loss
STARTS = re.compile(r"vllm[ \t]+serve|vllm\.entrypoints|sglang|trtllm-serve|dynamo\.")
_HEREDOC = re.compile(r"(?<!<)<<-?\s*(['\"]?)(\w{1,80})\1")
_INTO = re.compile(r"(?:(?<![<>\d])>{1,2}\s*|\btee\s+)([\"']?)([^\s\"'<>|&;]{1,500})\1")
_ASSIGNED = re.compile(r"(?:(?:export|local|readonly|declare(?: -\w+)?)\s+)?([A-Za-z_]\w{0,200})=")
_ARRAY = re.compile(r"(?:(?:local|readonly|declare(?: -\w+)?)\s+)?([A-Za-z_]\w{0,200})(\+?)=\(")
_NAMED = re.compile(r"\$\((\w+)\)|\$\{(\w+)\}|\$(\w+)|\$\{(\w+):?[-=]([^${}]*)\}")
_WHOLE_ARRAY = re.compile(r"\$\{(\w+)\[[@*]\]\}")
COMPARED: dict[str, Callable[[int, int], bool]] = {
    "-eq": operator.eq, "-ne": operator.ne, "-gt": operator.gt, "-ge": operator.ge, "-lt": operator.lt,
    "-le": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt, ">=": operator.ge,
    "<": operator.lt, "<=": operator.le,
}  # fmt: skip
#: lines that one command may take
_MOST_LINES = 2000


@dataclass(frozen=True)
class Line:
    """One command as its words, its first line's number, and whether it stands below a condition or in a function.

    ``file``: name and text of the file that it writes from a here-document, and whether variables in it are put in.
    """

    number: int
    words: list[str]
    text: str
    below: bool
    file: tuple[str, str, bool] | None = None


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
    """A text with arithmetic on known numbers worked out: ``$((LWS_GROUP_SIZE * DP_SIZE_LOCAL))``."""

    def one(found: re.Match[str]) -> str:
        value = arithmetic(found[1], environment)
        return found[0] if value is None else str(value)

    return re.sub(r"\$\(\(([^()]{1,200})\)\)", one, text)


def arithmetic(text: str, environment: Mapping[str, str]) -> int | None:
    """What a shell computes of whole numbers, variables, ``+ - * / %`` and one ``a < b ? c : d``; ``None`` for anything else."""
    asked = re.fullmatch(r"([^?:]+)\?([^?:]+):([^?:]+)", text)
    if asked is not None:
        holds = compared(asked[1], environment)
        return None if holds is None else arithmetic(asked[2 if holds else 3], environment)
    words = re.findall(r"\$?\{?(\w+)\}?|([-+*/%])", text)
    if re.sub(r"\$?\{?\w+\}?|[-+*/%\s]", "", text) or not words:
        return None
    # a number, and then operators with a number each
    numbers = [environment.get(word, word) for word, _ in words[::2]]
    signs = [sign for _, sign in words[1::2]]
    if len(numbers) != len(signs) + 1 or not all(signs):
        return None
    if not all(re.fullmatch(r"\d{1,9}", number) for number in numbers):
        return None
    terms, sign = [], "+"
    for number, before in zip(map(int, numbers), ["+", *signs], strict=True):
        if before in "+-":
            sign = before
            terms.append(number if sign == "+" else -number)
        elif before == "*":
            terms[-1] *= number
        elif number == 0:
            return None
        elif before == "/":
            terms[-1] = int(terms[-1] / number)
        else:
            terms[-1] = terms[-1] - int(terms[-1] / number) * number
    return sum(terms)


def compared(text: str, environment: Mapping[str, str]) -> bool | None:
    """Whether one comparison of what :func:`arithmetic` computes holds; ``None`` where the script does not say."""
    parts = re.fullmatch(r"([^<>=!]+)([<>]=?|[!=]=|-[a-z]{2})([^<>=!]+)", text)
    if parts is None or parts[2] not in COMPARED:
        return None
    first, second = (arithmetic(parts[side], environment) for side in (1, 3))
    return None if first is None or second is None else COMPARED[parts[2]](first, second)


def lines(text: str, name: str) -> Iterator[Line]:
    """Commands of a script in order, with ``# rackfit:`` remarks as lines of their own.

    Here-documents are files that a command writes; the lines of one that starts servers count. Raises ``InstanceError``
    for a line that starts a server and is no shell command.
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
        line, started = Line(first + 1, words, whole, below), []
        for mark in _HEREDOC.finditer(whole):
            end = next((i for i in range(at, len(raws)) if raws[i].strip() == mark[2]), len(raws))
            inside = "\n".join(raws[at:end])
            into = _INTO.search(whole)
            if into is not None:
                line = replace(line, file=(into[2], inside, not mark[1]))
            started.append((at, inside))
            at = end + 1
        yield line
        for at_first, inside in started:
            if STARTS.search(inside):
                yield from (
                    replace(each, number=each.number + at_first, below=below)
                    for each in lines(inside, name)
                )


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
        text = computed(line.text, variables.texts)
        inside = text[array.end() : text.rfind(")")]
        try:
            words = shlex.split(inside, comments=True)
        except ValueError:
            return True
        variables.extend(array[1], words, more=bool(array[2]), below=line.below)
        return True
    single = _ASSIGNED.match(line.text)
    if single is not None and re.fullmatch(r"\$\(.*\)", line.text[single.end() :].rstrip("; ")):
        variables.set(
            single[1], computed(line.text[single.end() :], variables.texts), below=line.below
        )
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
