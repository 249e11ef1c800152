"""Follows a script without running it: which commands it starts, with which words, and what it leaves open.

A branch whose test the script decides is taken or passed over; below one that stays open everything counts as set under
a condition. Loops over known words go round by round, functions run where they are called. Those that nothing calls are
read as if something did.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatchcase

from rackfit.importers.scripts.commands import Commands, LeaveError
from rackfit.importers.scripts.expand import fields, summed, text_of
from rackfit.importers.scripts.holds import holds, turned
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
    Simple,
    Sum,
    Test,
    While,
)  # fmt: skip
from rackfit.importers.scripts.sums import OpenSumError
from rackfit.importers.scripts.tree import parsed
from rackfit.importers.scripts.variables import OPEN, TooLongError, Variables
from topology.errors import InstanceError, Problem

#: commands of a script, rounds of a loop that no list bounds, scripts in each other
_MOST_COMMANDS, _MOST_ROUNDS, _DEEPEST = 50_000, 64, 12
_OPEN_TEST = "under a condition that the file does not decide"
_OPEN_LOOP = "in a loop whose rounds the file does not tell"


class Follower(Commands):
    """Goes through one script."""

    def script(self, text: str) -> None:
        """Follow a whole script. Raises ``InstanceError`` for one that goes on for too long."""
        with suppress(LeaveError):
            self.body(parsed(text, self.name))
        for name, function in list(self.functions.items()):
            if name in self.called:
                continue
            self.called.add(name)
            try:
                self.below(
                    "in a function that the file does not call",
                    function.body,
                    self.variables.apart(),
                )
            except LeaveError:
                continue

    def body(self, nodes: Body) -> bool | None:
        """Whether the last of several commands succeeds."""
        status: bool | None = True
        for node in nodes:
            status = self.node(node)
        return status

    def below(self, why: str, nodes: Body, variables: Variables | None = None) -> None:
        """Commands that may run; ``variables``: a copy where the rest does not see what they set."""
        before, kept, self.open = self.open, self.variables, self.open or why
        self.variables = variables or kept
        try:
            self.body(nodes)
        finally:
            self.open, self.variables = before, kept

    def node(self, node: Node) -> bool | None:
        """One part of the script; whether it succeeds, ``None`` where that is not known."""
        self.count += 1
        if self.count > _MOST_COMMANDS:
            message = f"more than {_MOST_COMMANDS:,} commands in its loops and functions"
            raise InstanceError(Problem(f"{self.name}:{node.line}", message))
        try:
            return self._one(node)
        except TooLongError:
            message = "its words grow without end, or stand too deep in each other"
            raise InstanceError(Problem(f"{self.name}:{node.line}", message)) from None

    def _one(self, node: Node) -> bool | None:
        if isinstance(node, Simple):
            return self.simple(node)
        if isinstance(node, Test):
            return holds(node.words, self.variables, double=True)
        if isinstance(node, Sum):
            return self.sum(node.text)
        if isinstance(node, Group):
            return self.body(node.body)
        if isinstance(node, Not):
            return turned(self.node(node.body))
        if isinstance(node, Joined):
            return self._joined(node)
        if isinstance(node, Apart):
            return self._apart(node)
        if isinstance(node, Branch):
            return self._branch(node)
        if isinstance(node, Case):
            return self._case(node)
        if isinstance(node, For):
            return self._for(node)
        if isinstance(node, While):
            return self._while(node)
        if isinstance(node, Function):
            self.functions[node.name] = node
            return True
        self.remark = node.text
        return True

    def _joined(self, node: Joined) -> bool | None:
        status = self.node(node.parts[0])
        for operator, part in zip(node.operators, node.parts[1:], strict=True):
            if status is None:
                self.below(_OPEN_TEST, (part,))
            elif status == (operator == "&&"):
                status = self.node(part)
        return status

    def _apart(self, node: Apart) -> bool | None:
        status: bool | None = None
        for part in node.parts:
            kept, self.variables = self.variables, self.variables.apart()
            try:
                status = self.node(part)
            except LeaveError:
                status = None
            finally:
                self.variables = kept
        return status

    def _branch(self, node: Branch) -> bool | None:
        undecided = False
        for test, inside in node.tests:
            decided = self.body(test)
            if decided is False:
                continue
            if decided and not undecided:
                return self.body(inside)
            undecided = True
            self.below(_OPEN_TEST, inside)
            if decided:
                return None
        if undecided:
            self.below(_OPEN_TEST, node.other)
            return None
        return self.body(node.other)

    def _case(self, node: Case) -> bool | None:
        word = text_of(node.word, self.variables)
        undecided = OPEN in word
        for patterns, inside in node.items:
            texts = [text_of(pattern, self.variables) for pattern in patterns]
            if undecided or any(OPEN in text or "(" in text for text in texts):
                undecided = True
                self.below(_OPEN_TEST, inside)
            elif any(fnmatchcase(word, text.replace("[^", "[!")) for text in texts):
                return self.body(inside)
        return None if undecided else True

    def _for(self, node: For) -> bool | None:
        if node.sums:
            return self._counted(node)
        raw = ('"$@"',) if node.words is None else node.words
        words = [word for one in raw for word in _ranged(one, self.variables)]
        if self.open or any(OPEN in word for word in words):
            self.variables.set(node.name, OPEN + node.name, below=False)
            self._once(node.body)
            return None
        for word in words:
            self.variables.set(node.name, word, below=False)
            if not self._round(node.body):
                break
        return True

    def _counted(self, node: For) -> bool | None:
        first, test, step = (*node.sums.split(";"), "", "")[:3]
        try:
            if self.open or not test.strip():
                raise OpenSumError
            summed(first or "0", self.variables)
            for _ in range(_MOST_COMMANDS):
                if not summed(test or "1", self.variables):
                    break
                if not self._round(node.body):
                    break
                summed(step or "0", self.variables)
        except OpenSumError:
            self.sum(first)
            self._once(node.body)
            return None
        return True

    def _while(self, node: While) -> bool | None:
        before = first = len(self.found)
        for number in range(_MOST_ROUNDS):
            decided = self.body(node.test)
            decided = turned(decided) if node.until else decided
            if decided is False:
                return True
            if decided is None or self.open:
                self._once(node.body)
                return None
            if not self._round(node.body):
                return True
            first = len(self.found) if not number else first
        # nothing that is known ends it: what it starts is started again when it stops
        self.found[before:] = [
            replace(one, open=one.open or _OPEN_LOOP) for one in self.found[before:first]
        ]
        return None

    def _round(self, nodes: Body) -> bool:
        """One round of a loop; whether another follows. A ``break`` that may come is taken."""
        before, self.left_open = self.left_open, False
        try:
            self.body(nodes)
        except LeaveError as leave:
            if leave.word not in ("break", "continue"):
                raise
            if leave.levels > 1:
                raise LeaveError(leave.word, leave.levels - 1) from None
            return leave.word == "continue"
        finally:
            maybe, self.left_open = self.left_open, before
        return not maybe

    def _once(self, nodes: Body) -> None:
        try:
            self.below(_OPEN_LOOP, nodes)
        except LeaveError as leave:
            if leave.word not in ("break", "continue"):
                raise

    def inside(self, text: str, variables: Variables) -> None:
        """Follow a script inside this one, whose lines are counted in it."""
        if self.depth >= _DEEPEST:
            return
        inner = Follower(self.name, variables, depth=self.depth + 1, open=self.open, count=self.count,
                         written=self.written, remark=self.remark)  # fmt: skip
        inner.script(text)
        self.count = inner.count
        self.found += inner.found
        self.remark = inner.remark


def _ranged(raw: str, variables: Variables) -> list[str]:
    """Words of a loop, with a range such as ``{0..7}`` in one."""
    found = re.fullmatch(r"\{(\d{1,4})\.\.(\d{1,4})\}", raw)
    if found is None:
        return fields(raw, variables)
    first, last = int(found[1]), int(found[2])
    return [
        str(number)
        for number in (range(first, last + 1) if last >= first else range(first, last - 1, -1))
    ]


def followed(
    text: str, name: str, environment: Mapping[str, str], given: Sequence[str] | None = None
) -> Follower:
    """A script that was followed to its end; ``given``: the words behind its name. Raises ``InstanceError``."""
    words = None if given is None else list(given)
    follower = Follower(name, Variables(dict(environment), given=words, exported=set(environment)))
    try:
        follower.script(text)
    except RecursionError:
        message = "branches, loops and functions too deep in each other"
        raise InstanceError(Problem(name, message)) from None
    return follower
