"""Single commands of a script: what they set, write and start, and what the shell's own ones do."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

from rackfit.importers.scripts.expand import fields, filled, summed, text_of
from rackfit.importers.scripts.holds import holds
from rackfit.importers.scripts.lexer import STARTS, Token
from rackfit.importers.scripts.nodes import Body, Function, Simple
from rackfit.importers.scripts.sums import OpenSumError
from rackfit.importers.scripts.variables import OPEN, Variables, closed

#: calls and scripts in each other
_DEEPEST = 12
_ASSIGNED = re.compile(r"([A-Za-z_]\w{0,200})(?:\[([^\]]{1,200})\])?(\+?)=", re.ASCII)
_DECLARE = frozenset({"export", "local", "readonly", "declare", "typeset"})
_READ = frozenset({"read", "mapfile", "readarray", "getopts"})
#: objects of Kubernetes, in a here-document
_OBJECT = re.compile(r"(?m)^apiVersion:[ \t]{1,9}\S")
_LEAVING = frozenset({"exit", "return", "break", "continue"})
#: what the shell does itself; files that it reads in its own place are not read
_OWN = (
    _LEAVING | _READ | {":", "true", "false", "shift", "set", "unset", "let", "trap", "shopt", "cd"}
)


@dataclass(frozen=True)
class Command:
    """One command: its line, its words, what was exported, files written before it, and the remark above it.

    ``doubtful``: variables in it that a condition sets; ``open``: why it may not run, or not once. ``manifest``: a
    here-document with objects of Kubernetes, in the place of words.
    """

    line: int
    words: tuple[str, ...]
    environment: Mapping[str, str]
    doubtful: tuple[str, ...]
    written: Mapping[str, str]
    remark: str
    open: str
    manifest: str = ""


class LeaveError(Exception):
    """``break``, ``continue``, ``return`` or ``exit``, and how many loops it leaves."""

    def __init__(self, word: str, levels: int = 1):
        super().__init__(word)
        self.word, self.levels = word, levels


@dataclass
class Commands(ABC):
    """Takes one command of a script after the other; ``found`` are those that it starts, ``ended`` the line of its ``exit``.

    ``open``: why what is at hand may not run; ``left_open``: a ``break`` that may come was passed in this round.
    """

    name: str
    variables: Variables
    found: list[Command] = field(default_factory=list)
    written: dict[str, str] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)
    called: set[str] = field(default_factory=set)
    frames: list[dict[str, tuple[str | None, list[str] | None]]] = field(default_factory=list)
    remark: str = ""
    ended: int = 0
    count: int = 0
    open: str = ""
    left_open: bool = False
    depth: int = 0

    @abstractmethod
    def body(self, nodes: Body) -> bool | None:
        """Whether the last of several commands succeeds."""

    @abstractmethod
    def inside(self, text: str, variables: Variables) -> None:
        """Follow a script inside this one."""

    def simple(self, node: Simple) -> bool | None:
        """One command; whether it succeeds, ``None`` where that is not known."""
        variables = self.variables
        variables.used = set()
        tokens = list(node.words)
        leading = []
        while tokens and (tokens[0].kind == "array" or _ASSIGNED.match(tokens[0].text)):
            leading.append(tokens.pop(0))
        if not tokens:
            values = [self._assign(one) for one in leading]
            self._document(node)
            return None if any(f"{OPEN}(" in value for value in values) else True
        program = text_of(tokens[0].text, variables) if tokens[0].kind == "word" else ""
        if program in _DECLARE:
            return self._declare(program, tokens[1:])
        if program == "[":
            ending = tokens[-1].text == "]"
            return holds(
                [one.text for one in tokens[1 : len(tokens) - ending]], variables, double=False
            )
        if program == "test":
            return holds([one.text for one in tokens[1:]], variables, double=False)
        words = [
            word
            for one in tokens
            for word in (fields(one.text, variables) if one.kind == "word" else [one.text])
        ]
        self._document(node)
        if not words:
            return None
        if words[0] in _OWN:
            return self._builtin(node, words)
        if words[0] == "eval" and not any(OPEN in word for word in words):
            self.inside("\n" * (node.line - 1) + " ".join(words[1:]), variables)
            return None
        if words[0] in self.functions and not leading:
            return self._call(self.functions[words[0]], words[1:])
        assigned = [one.text[: found.end()] + text_of(one.text[found.end() :], variables)
                    for one in leading if one.kind == "word" and (found := _ASSIGNED.match(one.text))]  # fmt: skip
        self._found(node.line, [*assigned, *words])
        if words[0] == "exec" and len(words) > 1 and not self.open:
            raise self._leave("exit", node.line)
        return None

    def _found(self, line: int, words: list[str], manifest: str = "") -> None:
        variables = self.variables
        exported = {name: variables.texts[name] for name in sorted(variables.exported)
                    if OPEN not in variables.texts.get(name, OPEN)}  # fmt: skip
        self.found.append(
            Command(line, tuple(map(closed, words)), exported, tuple(sorted(variables.used)), dict(self.written),
                    self.remark, self.open, manifest)
        )  # fmt: skip
        self.remark = ""

    def _document(self, node: Simple) -> None:
        """A here-document: the file that it writes; one that starts servers is followed like a script of its own."""
        if node.text is None:
            return
        text = filled(node.text, self.variables) if node.filled else node.text
        into = None if node.into is None else (text_of(node.into[0], self.variables), node.into[1])
        names = [one.text for one in node.words if one.kind == "word"]
        if into is None and "tee" in names[:1] and len(names) > 1:
            into = (text_of(names[-1], self.variables), "-a" in names)
        if into is not None:
            name, more = closed(into[0]), into[1]
            whole = f"{self.written[name]}\n{text}" if more and name in self.written else text
            self.written[name] = closed(whole)
        if _OBJECT.search(node.text):
            self._found(node.line, ["kubectl"], closed(text))
        elif STARTS.search(node.text):
            self.inside("\n" * node.line + closed(text), self.variables.apart())

    def _assign(self, token: Token) -> str:
        """Take one assignment; what the variable is set to."""
        variables, below = self.variables, bool(self.open)
        if token.kind == "array":
            name, more = token.text.rstrip("+="), token.text.endswith("+=")
            pairs = [
                re.fullmatch(r"\[([^\]]{1,200})\]=(.*)", item, re.DOTALL) for item in token.items
            ]
            if pairs and all(pairs):
                for pair in pairs:
                    if pair is not None:
                        key = f"{name}[{text_of(pair[1], variables)}]"
                        variables.set(key, text_of(pair[2], variables), below=below)
                return ""
            words = [word for item in token.items for word in fields(item, variables)]
            variables.put(name, words, more=more, below=below)
            return ""
        found = _ASSIGNED.match(token.text)
        assert found is not None
        value = text_of(token.text[found.end() :], variables)
        name = found[1] if found[2] is None else f"{found[1]}[{text_of(found[2], variables)}]"
        if found[3]:
            variables.append(name, value, below=below)
        else:
            variables.set(name, value, below=below)
        return value

    def _declare(self, program: str, tokens: list[Token]) -> bool:
        exports = program == "export" or any(
            one.kind == "word" and re.fullmatch(r"-\w*x\w*", one.text) for one in tokens
        )
        for one in tokens:
            name = (
                one.text.rstrip("+=")
                if one.kind == "array"
                else re.split(r"[+=\[]", one.text, maxsplit=1)[0]
            )
            if not re.fullmatch(r"[A-Za-z_]\w*", name):
                continue
            if self.frames and program in ("local", "declare", "typeset"):
                before = (self.variables.texts.get(name), self.variables.arrays.get(name))
                self.frames[-1].setdefault(name, before)
            if one.kind == "array" or _ASSIGNED.match(one.text):
                self.variables.used = set()
                self._assign(one)
            if exports:
                self.variables.exported.add(name)
        return True

    def _builtin(self, node: Simple, words: list[str]) -> bool | None:
        """What a command of the shell itself does."""
        program, given, variables = words[0], words[1:], self.variables
        if program in _LEAVING:
            levels = int(given[0]) if given and re.fullmatch(r"[1-9]", given[0]) else 1
            if not self.open:
                raise self._leave(program, node.line, levels)
            self.left_open |= program == "break"
            return None
        if program in _READ:
            for name in given:
                if re.fullmatch(r"[A-Za-z_]\w*", name):
                    variables.set(name, OPEN + name, below=False)
            return None
        if program == "let":
            return [self.sum(one) for one in given][-1] if given else None
        if program == "unset":
            for name in given:
                variables.arrays.pop(name, None)
                variables.texts[name] = f"{OPEN}{name}" if self.open else ""
        elif program == "shift" and variables.given is not None and not self.open:
            variables.given = variables.given[1:]
        elif program == "set" and "--" in given and not self.open:
            variables.given = given[given.index("--") + 1 :]
        return program != "false"

    def _leave(self, word: str, line: int, levels: int = 1) -> LeaveError:
        if word == "exit":
            self.ended = self.ended or line
        return LeaveError(word, levels)

    def _call(self, function: Function, words: list[str]) -> bool | None:
        if len(self.frames) >= _DEEPEST:
            return None
        self.called.add(function.name)
        variables, given = self.variables, self.variables.given
        variables.given = words
        self.frames.append({})
        try:
            return self.body(function.body)
        except LeaveError as leave:
            if leave.word != "return":
                raise
            return None
        finally:
            variables.given = given
            for name, (text, array) in self.frames.pop().items():
                variables.texts.pop(name, None)
                variables.arrays.pop(name, None)
                if text is not None:
                    variables.texts[name] = text
                if array is not None:
                    variables.arrays[name] = array

    def sum(self, text: str) -> bool | None:
        """What ``((..))`` sets, and whether it is other than 0; what it sets is not known where its numbers are not."""
        if self.open:
            for found in re.finditer(r"([A-Za-z_]\w*)\s*(?:[-+*/%]?=(?!=)|\+\+|--)", text):
                self.variables.set(found[1], OPEN + found[1], below=True)
            return None
        try:
            return summed(text, self.variables) != 0
        except OpenSumError:
            for found in re.finditer(r"([A-Za-z_]\w*)\s*(?:[-+*/%]?=(?!=)|\+\+|--)", text):
                self.variables.set(found[1], OPEN + found[1], below=False)
            return None
