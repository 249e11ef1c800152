"""Arithmetic of a shell on whole numbers: what ``$((..))`` and ``((..))`` compute, with what they set on the way."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass

COMPARED: dict[str, Callable[[int, int], bool]] = {
    "-eq": operator.eq, "-ne": operator.ne, "-gt": operator.gt, "-ge": operator.ge, "-lt": operator.lt,
    "-le": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt, ">=": operator.ge,
    "<": operator.lt, "<=": operator.le,
}  # fmt: skip
_TOKEN = re.compile(r"\s*(\*\*|\+\+|--|[-+*/%]=|<=|>=|==|!=|&&|\|\||[-+*/%<>!?:()=,]|\w+)")
_BINARY = (("||",), ("&&",), ("==", "!="), ("<", "<=", ">", ">="), ("+", "-"), ("*", "/", "%"))
#: a shell counts in 64 bits
_MOST = 2**62
_LONGEST, _DEEPEST = 1000, 50


class OpenSumError(Exception):
    """A sum that the script does not tell: a variable that is not known, or what is no arithmetic."""


@dataclass
class Sum:
    """Works a text out; ``look`` gives a variable's text (``None``: not known), ``put`` takes what the sum sets."""

    text: str
    look: Callable[[str], str | None]
    put: Callable[[str, int], None] | None = None

    def value(self) -> int:
        """The number. Raises ``OpenSumError``."""
        if len(self.text) > _LONGEST:
            raise OpenSumError
        self.words: list[str] = []
        self.at, self.depth, place = 0, 0, 0
        while self.text[place:].strip():
            found = _TOKEN.match(self.text, place)
            if found is None:
                raise OpenSumError
            self.words.append(found[1])
            place = found.end()
        result = self._list()
        if self.at < len(self.words):
            raise OpenSumError
        return result

    def _here(self) -> str:
        return self.words[self.at] if self.at < len(self.words) else ""

    def _take(self, *words: str) -> str:
        if self._here() in words and self._here():
            self.at += 1
            return self.words[self.at - 1]
        return ""

    def _list(self) -> int:
        result = self._choice()
        while self._take(","):
            result = self._choice()
        return result

    def _choice(self) -> int:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise OpenSumError
        name = self._here()
        if re.fullmatch(r"[A-Za-z_]\w*", name) and self.at + 1 < len(self.words):
            sign = self.words[self.at + 1]
            if sign in ("=", "+=", "-=", "*=", "/=", "%="):
                self.at += 2
                value = self._choice()
                self.depth -= 1
                return self._put(
                    name, value if sign == "=" else _apply(sign[0], self._look(name), value)
                )
        first = self._binary(0)
        if self._take("?"):
            yes = self._choice()
            if not self._take(":"):
                raise OpenSumError
            no = self._choice()
            first = yes if first else no
        self.depth -= 1
        return first

    def _binary(self, level: int) -> int:
        if level == len(_BINARY):
            return self._power()
        first = self._binary(level + 1)
        while sign := self._take(*_BINARY[level]):
            first = _apply(sign, first, self._binary(level + 1))
        return first

    def _power(self) -> int:
        base = self._unary()
        if not self._take("**"):
            return base
        exponent = self._power()
        if not 0 <= exponent <= 62:
            raise OpenSumError
        return _within(base**exponent)

    def _unary(self) -> int:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise OpenSumError
        try:
            if sign := self._take("++", "--"):
                name = self._here()
                self.at += 1
                return self._put(name, self._look(name) + (1 if sign == "++" else -1))
            if sign := self._take("!", "-", "+"):
                value = self._unary()
                return int(not value) if sign == "!" else -value if sign == "-" else value
            if self._take("("):
                value = self._list()
                if not self._take(")"):
                    raise OpenSumError
                return value
            word = self._here()
            self.at += 1
            if re.fullmatch(r"0|[1-9]\d{0,17}", word):
                return int(word)
            if not re.fullmatch(r"[A-Za-z_]\w*", word):
                raise OpenSumError
            value = self._look(word)
            if sign := self._take("++", "--"):
                self._put(word, value + (1 if sign == "++" else -1))
            return value
        finally:
            self.depth -= 1

    def _look(self, name: str) -> int:
        text = self.look(name)
        text = None if text is None else text.strip() or "0"
        if text is None or not re.fullmatch(r"-?(?:0|[1-9]\d{0,17})", text):
            raise OpenSumError
        return int(text)

    def _put(self, name: str, value: int) -> int:
        if self.put is None or not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise OpenSumError
        self.put(name, value)
        return value


def _apply(sign: str, first: int, second: int) -> int:
    if sign in COMPARED:
        return int(COMPARED[sign](first, second))
    if sign in ("&&", "||"):
        return int(bool(first and second)) if sign == "&&" else int(bool(first or second))
    if sign in "/%":
        if second == 0:
            raise OpenSumError
        whole = abs(first) // abs(second) * (1 if (first < 0) == (second < 0) else -1)
        return whole if sign == "/" else first - whole * second
    return _within({"+": operator.add, "-": operator.sub, "*": operator.mul}[sign](first, second))


def _within(value: int) -> int:
    if not -_MOST < value < _MOST:
        raise OpenSumError
    return value
