"""Commands of a shell script as a tree: what stands in a branch, a loop or a function stands below it.

Parts that are not closed end with the script; words that close nothing are passed over.
"""

from __future__ import annotations

from dataclasses import dataclass

from rackfit.importers.scripts.lexer import Token, tokens
from rackfit.importers.scripts.nodes import (
    Apart,
    Body,
    Branch,
    Case,
    For,
    Function,
    Group,
    Joined,
    Node,
    Not,
    Remark,
    Simple,
    Sum,
    Test,
    While,
)
from topology.errors import InstanceError, Problem

#: operators that end a command; others redirect its files
_ENDING = frozenset({"&&", "||", ";", "&", "|", "|&", "(", ")", ";;", ";&", ";;&"})
#: how deep parts may stand in each other
_DEEPEST = 60


_CLOSING = frozenset("then else elif fi do done esac in } )".split())  # noqa: SIM905


@dataclass
class _Parser:
    found: list[Token]
    name: str
    at: int = 0
    depth: int = 0

    @property
    def here(self) -> Token:
        return self.found[min(self.at, len(self.found) - 1)]

    def ended(self) -> bool:
        return self.at >= len(self.found)

    def is_word(self, *texts: str) -> bool:
        return not self.ended() and self.here.kind == "word" and self.here.text in texts

    def is_op(self, *texts: str) -> bool:
        return not self.ended() and self.here.kind == "op" and self.here.text in texts

    def skip_lines(self) -> None:
        while not self.ended() and (self.here.kind == "line" or self.is_op(";")):
            self.at += 1

    def body(self, *until: str) -> Body:
        """Commands up to a word or an operator of ``until`` that is not read."""
        nodes: list[Node] = []
        self.depth += 1
        if self.depth > _DEEPEST:
            message = f"more than {_DEEPEST} branches, loops and brackets in each other"
            raise InstanceError(Problem(f"{self.name}:{self.here.line}", message))
        while not self.ended():
            self.skip_lines()
            if self.ended() or self.is_word(*until) or self.is_op(*until):
                break
            before = self.at
            node = self.command()
            if node is not None:
                nodes.append(node)
            if self.is_op("&"):
                self.at += 1
                nodes[-1:] = [Apart(one.line, (one,)) for one in nodes[-1:] if node is not None]
            if self.at == before:
                self.at += 1  # closes nothing
        self.depth -= 1
        return tuple(nodes)

    def closing(self, word: str) -> None:
        if self.is_word(word) or self.is_op(word):
            self.at += 1

    def command(self) -> Node | None:
        """Pipes joined by ``&&`` and ``||``."""
        first = self.pipe()
        if first is None or not self.is_op("&&", "||"):
            return first
        parts, operators = [first], []
        while self.is_op("&&", "||"):
            operator = self.here.text
            self.at += 1
            self.skip_lines()
            part = self.pipe()
            if part is None:
                break
            parts.append(part)
            operators.append(operator)
        return Joined(first.line, tuple(parts), tuple(operators))

    def pipe(self) -> Node | None:
        line = self.here.line
        turned = False
        while self.is_word("!", "time"):
            turned ^= self.here.text == "!"
            self.at += 1
        parts = []
        while (part := self.single()) is not None:
            parts.append(part)
            if not self.is_op("|", "|&"):
                break
            self.at += 1
            self.skip_lines()
        if not parts:
            return None
        node: Node = parts[0] if len(parts) == 1 else Apart(line, tuple(parts))
        return Not(line, node) if turned else node

    def single(self) -> Node | None:
        token, line = self.here, self.here.line
        if self.ended() or token.kind == "line":
            return None
        if token.kind == "remark":
            self.at += 1
            return Remark(line, token.text)
        if token.kind == "sum":
            self.at += 1
            self._redirected()
            return Sum(line, token.text)
        if self.is_op("("):
            return self._brackets(line)
        if token.kind == "op" and token.text in _ENDING:
            return None
        if token.kind == "word":
            compound = {"if": self._branch, "case": self._case, "for": self._for, "select": self._for, "while": self._while,
                        "until": self._while, "function": self._function, "[[": self._test}.get(token.text)  # fmt: skip
            if compound is not None:
                node = compound(line)
                self._redirected()
                return node
            if token.text == "{":
                self.at += 1
                inside = self.body("}")
                self.closing("}")
                self._redirected()
                return Group(line, inside)
            if token.text in _CLOSING:
                return None
            following = self.found[self.at + 1 : self.at + 3]
            if [one.text for one in following] == ["(", ")"] and all(
                one.kind == "op" for one in following
            ):
                return self._function(line)
        return self._simple(line)

    def _brackets(self, line: int) -> Node:
        self.at += 1
        inside = self.body(")")
        self.closing(")")
        self._redirected()
        return Apart(line, (Group(line, inside),))

    def _branch(self, line: int) -> Node:
        tests: list[tuple[Body, Body]] = []
        other: Body = ()
        self.at += 1
        while True:
            test = self.body("then", "else", "elif", "fi")
            self.closing("then")
            tests.append((test, self.body("else", "elif", "fi")))
            if not self.is_word("elif"):
                break
            self.at += 1
        if self.is_word("else"):
            self.at += 1
            other = self.body("fi")
        self.closing("fi")
        return Branch(line, tuple(tests), other)

    def _case(self, line: int) -> Node:
        self.at += 1
        word = self.here.text if self.here.kind == "word" else ""
        self.at += 1
        self.skip_lines()
        self.closing("in")
        items = []
        while not self.ended():
            self.skip_lines()
            if self.ended() or self.is_word("esac"):
                break
            self.closing("(")
            patterns = []
            while not self.ended() and not self.is_op(")") and self.here.kind != "line":
                if self.here.kind == "word":
                    patterns.append(self.here.text)
                self.at += 1
            self.closing(")")
            items.append((tuple(patterns), self.body(";;", ";&", ";;&", "esac")))
            if self.is_op(";;", ";&", ";;&"):
                self.at += 1
        self.closing("esac")
        return Case(line, word, tuple(items))

    def _for(self, line: int) -> Node:
        self.at += 1
        name, words, sums = "", None, ""
        if self.here.kind == "sum":
            sums = self.here.text
            self.at += 1
        elif self.here.kind == "word":
            name = self.here.text
            self.at += 1
            self.skip_lines()
            if self.is_word("in"):
                self.at += 1
                given = []
                while not self.ended() and self.here.kind == "word":
                    given.append(self.here.text)
                    self.at += 1
                words = tuple(given)
        self.skip_lines()
        opens = "{" if self.is_word("{") else "do"
        self.closing(opens)
        closes = "}" if opens == "{" else "done"
        inside = self.body(closes)
        self.closing(closes)
        return For(line, name, words, inside, sums)

    def _while(self, line: int) -> Node:
        until = self.here.text == "until"
        self.at += 1
        test = self.body("do", "done")
        self.closing("do")
        inside = self.body("done")
        self.closing("done")
        return While(line, test, inside, until)

    def _function(self, line: int) -> Node:
        if self.is_word("function"):
            self.at += 1
        name = self.here.text
        self.at += 1
        while self.is_op("(", ")"):
            self.at += 1
        self.skip_lines()
        inside = self.single()
        return Function(line, name, () if inside is None else (inside,))

    def _test(self, line: int) -> Node:
        self.at += 1
        words = []
        while not self.ended() and not self.is_word("]]"):
            if self.here.kind != "line":
                words.append(self.here.text)
            self.at += 1
        self.at += 1
        return Test(line, tuple(words))

    def _redirected(self) -> Simple | None:
        """Redirections behind what is no single command, which write and read files only."""
        return self._simple(self.here.line, bare=True)

    def _simple(self, line: int, *, bare: bool = False) -> Simple | None:
        words: list[Token] = []
        text: str | None = None
        filled, into = True, None
        while not self.ended():
            token = self.here
            if token.kind in ("word", "array") and not bare:
                words.append(token)
                self.at += 1
                continue
            if token.kind != "op" or token.text in _ENDING:
                break
            self.at += 1
            target = self.here
            if self.ended() or target.kind != "word":
                continue
            self.at += 1
            if token.body is not None:
                text, filled = token.body, not target.text.startswith("'")
            elif token.text in (">", ">>", ">|", "&>", "&>>"):
                into = (target.text, token.text in (">>", "&>>"))
        if bare or not (words or into or text is not None):
            return None
        return Simple(line, tuple(words), text, filled, into)


def parsed(text: str, name: str) -> Body:
    """The commands of a script. Raises ``InstanceError``."""
    return _Parser(list(tokens(text, name)), name).body()
