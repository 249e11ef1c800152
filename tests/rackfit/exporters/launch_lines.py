"""Reads ``commands.sh`` as a shell would: environment and words of each process."""

from __future__ import annotations

import shlex
from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    """One process and what the comment above it says."""

    said: dict[str, str]
    environment: dict[str, str]
    words: list[str]

    def value(self, name: str) -> str:
        """Value of an option."""
        return self.words[self.words.index(name) + 1]

    def number(self, name: str, default: int = 1) -> int:
        """Whole-number value of an option."""
        return int(self.value(name)) if name in self.words else default


def read_lines(text: str) -> list[Line]:
    """Every process of a command file."""
    lines: list[Line] = []
    said: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith("# rackfit:"):
            said = dict(part.split("=", 1) for part in line.split()[2:])
        elif line and not line.startswith("#"):
            words = shlex.split(line)
            environment = {}
            while "=" in words[0] and not words[0].startswith("-"):
                name, value = words.pop(0).split("=", 1)
                environment[name] = value
            lines.append(Line(said, environment, words))
    return lines


def servers(lines: list[Line]) -> dict[str, list[Line]]:
    """Processes by server, in rank order."""
    found: dict[str, list[Line]] = {}
    for line in lines:
        found.setdefault(line.said["server"], []).append(line)
    for group in found.values():
        group.sort(key=lambda line: int(line.said["rank"].split("/")[0]))
    return found
