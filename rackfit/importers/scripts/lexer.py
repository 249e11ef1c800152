"""Words and operators of a shell script, each with its line; nothing is put in and nothing is run.

Text that is no shell script, as guides have it, is passed over line by line unless it starts a server.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from topology.errors import InstanceError, Problem

#: what starts a server; a line without it that cannot be read is no loss
STARTS = re.compile(r"vllm[ \t]+serve|vllm\.entrypoints|sglang|trtllm-serve|dynamo\.")
#: what a guide leaves to its reader: a word, or several where nothing follows that a shell could write into
PLACEHOLDER = r"<(?:[A-Za-z0-9][\w./-]*>|[A-Za-z][^<>|&;\n'\"`$]{0,80}[\w.)\]]>(?=\s|\Z))"
_OPERATORS = (";;&", "&>>", "<<<", "<<-", "&&", "||", ";;", ";&", "|&", "<<", ">>", ">&", "<&", "&>", ">|", "<>",
              ";", "&", "|", "(", ")", "<", ">")  # fmt: skip
_ARRAY = re.compile(r"[A-Za-z_]\w{0,200}\+?=")
_DOLLAR_NAME = re.compile(r"\$(?:\w{1,200}|[@*#?$!-])")
#: quotes, brackets and arrays in each other
_DEEPEST = 40
#: lines and characters that one command may take, and how often a quote may be left open before each line is its own
_MOST_LINES, _MOST_CHARS, _MOST_OPEN = 2000, 2_000_000, 30


@dataclass(frozen=True)
class Token:
    """``kind``: ``word`` (as written), ``array`` (``items``: its words), ``sum`` (between two brackets), ``op``, ``line``
    (its end) or ``remark``.

    ``body`` is the text of a here-document behind its operator.
    """

    kind: str
    text: str
    line: int
    items: tuple[str, ...] = ()
    body: str | None = None


class OpenQuoteError(Exception):
    """A quote or a bracket that nothing closes."""


@dataclass
class _Heredoc:
    """One whose text is still to come: its token's place among all, the word that ends it, whether tabs go."""

    at: int
    end: str
    tabs: bool


@dataclass
class _Reader:
    text: str
    name: str
    at: int = 0
    line: int = 1
    most: int = _MOST_CHARS
    depth: int = 0
    found: list[Token] = field(default_factory=list)
    waiting: list[_Heredoc] = field(default_factory=list)

    def read(self) -> list[Token]:
        left_open = 0
        start, line, count = 0, 1, 0
        while self.at < len(self.text):
            try:
                self._one()
            except OpenQuoteError:
                end = self.text.find("\n", start)
                end = len(self.text) if end < 0 else end
                if STARTS.search(self.text, start, end):
                    message = "not a shell command: a quote or a bracket of it is not closed"
                    raise InstanceError(Problem(f"{self.name}:{line}", message)) from None
                del self.found[count:]
                self.waiting.clear()
                self.at, self.line = end, line
                left_open += 1
                if left_open > _MOST_OPEN:
                    self.most = 4000
                continue
            if self.found and self.found[-1].kind == "line":
                start, line, count = self.at, self.line, len(self.found)
        self.found.append(Token("line", "\n", self.line))
        return self.found

    def _one(self) -> None:
        """The next token, or what stands between two. Raises ``OpenQuoteError``."""
        text, at = self.text, self.at
        char = text[at]
        if char == "\n":
            self.found.append(Token("line", "\n", self.line))
            self.at, self.line = at + 1, self.line + 1
            self._bodies()
        elif text.startswith("\\\n", at):
            self.at, self.line = at + 2, self.line + 1
        elif char.isspace():
            self.at = at + 1
        elif char == "#":
            end = text.find("\n", at)
            self.at = len(text) if end < 0 else end
            comment = text[at : self.at].strip()
            if comment.startswith("# rackfit:"):
                self.found.append(Token("remark", comment, self.line))
        elif text.startswith("((", at) and (end := self._sum_end(at)):
            self.found.append(Token("sum", text[at + 2 : end - 1], self.line))
            self.line += text.count("\n", at, end)
            self.at = end + 1
        elif char == ">" and self._is_prompt(at):
            self.at = at + 1
        elif operator := self._operator(at):
            self.found.append(Token("op", operator, self.line))
            self.at = at + len(operator)
            if operator in ("<<", "<<-"):
                self._heredoc(operator)
        else:
            self._word()

    def _is_prompt(self, at: int) -> bool:
        """Whether a guide cites a command that starts a server behind ``>``."""
        first = not self.found or self.found[-1].kind == "line"
        end = self.text.find("\n", at)
        return first and bool(STARTS.search(self.text, at, len(self.text) if end < 0 else end))

    def _sum_end(self, at: int) -> int:
        """Where ``((..))`` ends; 0 for brackets in brackets."""
        try:
            end = matching(self.text, at, "(", ")", min(len(self.text), at + 4000))
        except OpenQuoteError:
            return 0
        return end if self.text[end - 1] == ")" else 0

    def _operator(self, at: int) -> str:
        if self.text[at] not in "&|;()<>" or re.compile(PLACEHOLDER).match(self.text, at):
            return ""
        if self.text.startswith(("<(", ">("), at):
            return ""
        return next(one for one in _OPERATORS if self.text.startswith(one, at))

    def _heredoc(self, operator: str) -> None:
        """Remember that a text follows this line, up to the word here."""
        place = len(self.found) - 1
        while self.at < len(self.text) and self.text[self.at] in " \t":
            self.at += 1
        if self.at >= len(self.text) or self.text[self.at] in "\n;&|()<>":
            return
        self._word()
        raw = self.found[-1].text
        end = re.sub(r"[\\'\"]", "", raw)
        if end != raw:  # nothing is put into its text
            self.found[-1] = Token("word", f"'{end}'", self.found[-1].line)
        self.waiting.append(_Heredoc(place, end, operator == "<<-"))

    def _bodies(self) -> None:
        """Texts of here-documents of the line that has ended."""
        for one in self.waiting:
            lines = []
            while self.at < len(self.text):
                end = self.text.find("\n", self.at)
                end = len(self.text) if end < 0 else end
                line = self.text[self.at : end]
                self.at, self.line = end + 1, self.line + 1
                if line.strip() == one.end:
                    break
                lines.append(line.lstrip("\t") if one.tabs else line)
            token = self.found[one.at]
            self.found[one.at] = Token("op", token.text, token.line, body="\n".join(lines))
        self.waiting.clear()

    def _word(self) -> None:
        start, line = self.at, self.line
        if self.depth > _DEEPEST:
            raise OpenQuoteError
        end = word_end(self.text, start, min(len(self.text), start + self.most))
        word = self.text[start:end]
        if word.endswith("=") and _ARRAY.fullmatch(word) and self.text.startswith("(", end):
            close = matching(self.text, end, "(", ")", min(len(self.text), start + self.most))
            inside = _Reader(
                self.text[end + 1 : close], self.name, line=line, depth=self.depth + 1
            ).read()
            items = tuple(one.text for one in inside if one.kind == "word")
            self.found.append(Token("array", word, line, items))
            end = close + 1
        elif word.isdecimal() and self.text[end : end + 1] in ("<", ">") and len(word) < 3:
            pass  # the number of a file that is redirected
        else:
            self.found.append(Token("word", word.replace("\\\n", ""), line))
        self.line += self.text.count("\n", start, end)
        if self.line - line > _MOST_LINES:
            raise OpenQuoteError
        self.at = end


def word_end(text: str, at: int, stop: int) -> int:
    """Where the word that begins here ends. Raises ``OpenQuoteError`` for quotes and brackets that are left open."""
    placeholder = re.compile(PLACEHOLDER)
    while at < len(text):
        if at >= stop:
            raise OpenQuoteError
        char = text[at]
        if char == "\\":
            at += 2
        elif char.isspace():
            return at
        elif char in "<>" and text[at + 1 : at + 2] == "(":
            at = matching(text, at + 1, "(", ")", stop) + 1
        elif char == "<" and (found := placeholder.match(text, at)):
            at = found.end()
        elif char in "&|;()<>":
            return at
        else:
            at = part_end(text, at, stop)
    return min(at, len(text))


def part_end(text: str, at: int, stop: int, depth: int = 0) -> int:
    """Where a quoted part, an expansion or a plain character ends. Raises ``OpenQuoteError``."""
    char = text[at]
    if depth > _DEEPEST:
        raise OpenQuoteError
    if char == "'" or text.startswith("$'", at):
        begin = at + (2 if char == "$" else 1)
        end = begin
        while end < stop and text[end : end + 1] not in ("'", ""):
            end += 2 if char == "$" and text[end] == "\\" else 1
        return _closed(text, end, "'", stop)
    if char == '"':
        end = at + 1
        while end < stop and text[end : end + 1] not in ('"', ""):
            if text[end] == "\\":
                end += 2
            elif text[end] in "$`":
                end = part_end(text, end, stop, depth + 1)
            else:
                end += 1
        return _closed(text, end, '"', stop)
    if char == "`":
        end = at + 1
        while end < stop and text[end : end + 1] not in ("`", ""):
            end += 2 if text[end] == "\\" else 1
        return _closed(text, end, "`", stop)
    if text.startswith("$(", at):
        return matching(text, at + 1, "(", ")", stop, depth + 1) + 1
    if text.startswith("${", at):
        return matching(text, at + 1, "{", "}", stop, depth + 1) + 1
    if char == "$" and (found := _DOLLAR_NAME.match(text, at)):
        return found.end()
    return at + 1


def matching(text: str, at: int, opens: str, closes: str, stop: int, inside: int = 0) -> int:
    """Where the bracket that opens here is closed. Raises ``OpenQuoteError``."""
    depth, start = 0, at
    while at < min(stop, len(text)):
        char = text[at]
        if char == "\\":
            at += 2
        elif char == opens:
            depth += 1
            at += 1
        elif char == closes:
            depth -= 1
            if not depth:
                return at
            at += 1
        elif char == "#" and opens == "(" and at > start and text[at - 1].isspace():
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
        elif char in "'\"`" or (char == "$" and text[at + 1 : at + 2] not in ("(", "{")):
            at = part_end(text, at, stop, inside + 1)
        else:
            at += 1
    raise OpenQuoteError


def _closed(text: str, at: int, quote: str, stop: int) -> int:
    if at >= min(stop, len(text)) or text[at] != quote:
        raise OpenQuoteError
    return at + 1


def tokens(text: str, name: str) -> Iterator[Token]:
    """Tokens of a script that errors call ``name``.

    Raises ``InstanceError`` for a line that starts a server and is no shell command.
    """
    text = re.sub(r"\\[ \t]+\n", "\\\n", text.replace("\r\n", "\n"))  # spaces that nobody sees
    return iter(_Reader(text, name).read())
