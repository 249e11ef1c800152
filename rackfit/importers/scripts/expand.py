"""Words of a script with what is known put in, as bash would: quotes, variables, arrays, sums and a few plain commands.

What only the shell knows stays in a word as it was written, behind :data:`OPEN`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

from rackfit.importers.scripts.lexer import OpenQuoteError, part_end, tokens
from rackfit.importers.scripts.plain import printed_by
from rackfit.importers.scripts.sums import OpenSumError, Sum
from rackfit.importers.scripts.variables import OPEN, OPEN_SPACE, TooLongError, Variables
from topology.errors import InstanceError

_NAME = re.compile(r"(\w+|[@*])(?:\[([^\]]{1,200})\])?")
_OPERATOR = re.compile(r":?[-=+?]|##?|%%?|//?|\^\^?|,,?|:")
#: what is more than itself, and what is so in quotes
_SPECIAL, _INSIDE = re.compile(r"[\\$`'\"]"), re.compile(r"[\\$`]")
_ESCAPED = {"n": "\n", "t": "\t"}
#: words in words; how many characters of a value are copied in the time that one is read
_DEEPEST, _CHEAP = 40, 8


def fields(raw: str, variables: Variables) -> list[str]:
    """The words that one becomes: none, one or several."""
    found: list[str] = []
    word: str | None = None
    variables.spend(len(raw))
    for kind, value in _pieces(raw, variables, quoted=False):
        variables.spend((sum(map(len, value)) + len(word or "")) // _CHEAP)
        if kind == "many":
            parts = value
        elif kind == "split":
            (text,) = value
            parts = text.split()
            if text[:1].isspace() and word is not None:
                found.append(word)
                word = None
            if not parts:
                continue
        else:
            word = (word or "") + value[0]
            continue
        for number, part in enumerate(parts):
            if number and word is not None:
                found.append(word)
                word = None
            word = (word or "") + part
        if kind == "split" and value[0][-1:].isspace() and word is not None:
            found.append(word)
            word = None
    return found if word is None else [*found, word]


def text_of(raw: str, variables: Variables) -> str:
    """The one text that a word becomes where it is not split: in assignments, tests and quotes."""
    return _whole(raw, variables, quoted=False)


def filled(text: str, variables: Variables) -> str:
    """A here-document with what is known put in."""
    return _whole(text, variables, quoted=True)


def _whole(raw: str, variables: Variables, *, quoted: bool) -> str:
    parts = []
    variables.spend(len(raw))
    for _, value in _pieces(raw, variables, quoted=quoted):
        parts.append(" ".join(value))
        variables.spend(len(parts[-1]) // _CHEAP)
    return "".join(parts)


def summed(text: str, variables: Variables) -> int:
    """What a sum computes, with what it sets. Raises ``OpenSumError``."""
    inside = filled(text, variables)
    if OPEN in inside:
        raise OpenSumError
    return Sum(
        inside, variables.look, lambda name, value: variables.set(name, str(value), below=False)
    ).value()


def _pieces(raw: str, variables: Variables, *, quoted: bool) -> Iterator[tuple[str, list[str]]]:
    """Parts of a word: ``text`` as it is, ``split`` at spaces, ``many`` words."""
    at = 0
    while at < len(raw):
        char = raw[at]
        if char == "\\" and at + 1 < len(raw):
            keep = quoted and raw[at + 1] not in '$`"\\\n'
            yield "text", [raw[at : at + 2] if keep else raw[at + 1].replace("\n", "")]
            at += 2
        elif char in "$`" or (char in "'\"" and not quoted):
            try:
                end = part_end(raw, at, len(raw) + 1)
            except OpenQuoteError:
                yield "text", [raw[at:]]
                return
            yield from _part(raw[at:end], variables, quoted=quoted)
            at = end
        else:
            special = (_INSIDE if quoted else _SPECIAL).search(raw, at + 1)
            end = len(raw) if special is None else special.start()
            yield "text", [raw[at:end]]
            at = end


def _part(part: str, variables: Variables, *, quoted: bool) -> Iterator[tuple[str, list[str]]]:
    if part[0] == "'":
        yield "text", [part[1:-1]]
    elif part.startswith("$'"):
        yield "text", [re.sub(r"\\(.)", lambda found: _ESCAPED.get(found[1], found[1]), part[2:-1])]
    elif part[0] == '"':
        inside = list(_pieces(part[1:-1], variables, quoted=True))
        if not inside or inside != [("many", [])]:
            yield "text", [""]
        yield from inside
    elif len(part) < 2:
        yield "text", [part]
    else:
        value = _expanded(part, variables)
        if isinstance(value, list):
            yield "many", value
        else:
            yield "text" if quoted else "split", [value]


def _expanded(part: str, variables: Variables) -> str | list[str]:
    """What an expansion gives; itself behind :data:`OPEN` where the script does not say."""
    variables.depth += 1
    try:
        if variables.depth > _DEEPEST:
            raise TooLongError
        return _given(part, variables)
    finally:
        variables.depth -= 1


def _given(part: str, variables: Variables) -> str | list[str]:
    still = OPEN + re.sub(r"\s", OPEN_SPACE, part[1:] if part[0] == "$" else f"({part[1:-1]})")
    if part.startswith("$(("):
        try:
            return str(summed(part[3:-2], variables))
        except OpenSumError:
            return still
    if part[0] == "`" or part.startswith("$("):
        told = _told(part[2:-1] if part[0] == "$" else part[1:-1], variables)
        return still if told is None else told
    inside = part[2:-1] if part.startswith("${") else part[1:]
    if inside in ("@", "*"):
        words = variables.words(inside)
        return still if words is None else list(words)
    if inside == "#":
        return still if variables.given is None else str(len(variables.given))
    found = _parameter(inside, variables)
    if found is None and (asked := re.match(r"(\w+):?\?", inside)):
        return OPEN + asked[1]  # behind it stands what is said where there is none
    return still if found is None else found


def _parameter(inside: str, variables: Variables) -> str | list[str] | None:
    """What stands between braces: a name, an index, and what is done with the value."""
    counted = inside.startswith("#")
    pointed = inside.startswith("!")
    named = _NAME.match(inside, 1 if counted or pointed else 0)
    if named is None:
        return None
    name, index = named[1], named[2]
    rest = inside[named.end() :]
    if pointed:
        other = variables.look(name)
        if other is None or not re.fullmatch(r"\w{1,200}", other) or index:
            return None
        name = other
    if index in ("@", "*") or name in ("@", "*"):
        return _all(variables.words(name), counted, rest, variables)
    value = variables.look(name) if index is None else _indexed(name, index, variables)
    if counted:
        return None if value is None or OPEN in value else str(len(value))
    operator = _OPERATOR.match(rest)
    if not rest:
        return value
    if operator is None:
        return None
    return _changed(value, operator[0], rest[operator.end() :], variables)


def _all(
    words: list[str] | None, counted: bool, rest: str, variables: Variables
) -> str | list[str] | None:
    """All words of an array, how many there are, those from one on, or others in their place."""
    if counted:
        return None if words is None else str(len(words))
    other = re.fullmatch(r":?([-+])(.*)", rest, re.DOTALL)
    if other is not None and (words is not None or other[1] == "-"):
        return fields(other[2], variables) if bool(words) == (other[1] == "+") else words or []
    start = re.fullmatch(r":\s*(\d{1,4})", rest)
    if words is None or (rest and start is None):
        return None
    # those that are given are counted from one
    return list(words) if start is None else words[max(0, int(start[1]) - 1) :]


def _indexed(name: str, index: str, variables: Variables) -> str | None:
    key = text_of(index, variables)
    if name in variables.arrays and OPEN not in key:
        try:
            place = Sum(key, variables.look).value()
        except OpenSumError:
            return None
        words = variables.arrays[name]
        return words[place] if -len(words) <= place < len(words) else ""
    return variables.look(f"{name}[{key}]")


def _changed(value: str | None, operator: str, rest: str, variables: Variables) -> str | None:
    """A value with a default in its place, cut or replaced; ``None`` where that is not known."""
    if operator.lstrip(":") in ("-", "=", "?", "+"):
        missing = value is None or (value == "" and operator[0] == ":")
        if operator.endswith("+"):
            return "" if missing else text_of(rest, variables)
        if operator.endswith("?"):
            return value
        return text_of(rest, variables) if missing else value
    if value is None or OPEN in value or len(value) > 10_000:
        return None
    if operator == ":":
        cut = re.fullmatch(r"\s*(\d{1,4})(?::(\d{1,4}))?", rest)
        if cut is None:
            return None
        return value[int(cut[1]) : None if cut[2] is None else int(cut[1]) + int(cut[2])]
    if operator in ("^^", ",,", "^", ","):
        if rest:
            return None
        turned = value.upper() if operator[0] == "^" else value.lower()
        return turned if len(operator) == 2 else turned[:1] + value[1:]
    pattern = text_of(rest.partition("/")[0] if operator[0] == "/" else rest, variables)
    if OPEN in pattern or len(pattern) > 200:
        return None
    if operator[0] == "/":
        if re.search(r"[*?\[]", pattern) or not pattern:
            return None
        return value.replace(
            pattern, text_of(rest.partition("/")[2], variables), -1 if len(operator) == 2 else 1
        )
    lengths = range(len(value) + 1)
    for size in reversed(lengths) if len(operator) == 2 else lengths:
        piece, left = (
            (value[:size], value[size:])
            if operator[0] == "#"
            else (value[len(value) - size :], value[: len(value) - size])
        )
        if fnmatchcase(piece, pattern):
            return left
    return value


def _told(command: str, variables: Variables) -> str | None:
    """What a plain command prints; ``None`` for those that only a shell can run."""
    try:
        words = [
            field
            for one in tokens(command, "")
            if one.kind == "word"
            for field in fields(one.text, variables)
        ]
        kinds = {one.kind for one in tokens(command, "")}
    except InstanceError:
        return None
    if kinds - {"word", "line"} or not words:
        return None
    return printed_by(words)
