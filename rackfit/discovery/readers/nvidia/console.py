"""What stands beside a matrix of links in a saved console: products, memory, processes and MIG, by the GPU's number.

Read are ``nvidia-smi -L``, the table of ``nvidia-smi``, and the reports of PyTorch's, vLLM's and SGLang's environment.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

#: names of GPUs; those of old drivers have no maker in front
_NAME = (
    r"(?:NVIDIA|Tesla|GeForce|Quadro|TITAN|GRID|[A-Z]{1,3}\d{2,4}[A-Z]{0,2}(?![\w:]))[^()|:]{0,80}?"
)
_LISTED = re.compile(
    rf"(?:GPU models and configuration: )?GPU (\d{{1,3}}(?:,\d{{1,3}}){{0,63}}): ({_NAME})\s*(?:\(UUID.*)?"
)
_ROW = re.compile(rf"\|\s+(\d{{1,3}})\s+({_NAME})\s+(?:On|Off|N/A|TCC|WDDM|MCDM)\s*\|.*")
_MEMORY = re.compile(r"\|\s*\d{1,9}MiB\s*/\s*(\d{1,9})MiB\s*\|")
_PROCESS = re.compile(
    r"\|\s+(\d{1,3})\s+(?:(?:N/A|\d{1,3})\s+(?:N/A|\d{1,3})\s+)?\d{1,10}\s+(?:M\+)?C(?:\+G)?\s.*\|"
)
_PART = re.compile(r"MIG \S{1,40}\s+Device\s+\d{1,3}:.*")


@dataclass
class Console:
    """Names of each GPU, bytes of its memory, and the GPUs that serve a process or are split by MIG."""

    names: dict[int, set[str]] = field(default_factory=dict)
    memory: dict[int, float] = field(default_factory=dict)
    used: set[int] = field(default_factory=set)
    split: set[int] = field(default_factory=set)

    def name(self, number: int) -> str:
        """The GPU's name, the whole one where the table cuts it off; several, if they contradict each other."""
        names = self.names.get(number, set())
        whole = {name for name in names if not name.endswith("...")}
        cut = {name for name in names - whole if not any(w.startswith(name[:-3]) for w in whole)}
        return ", ".join(sorted(whole | cut))


def read_console(lines: Iterable[str]) -> Console:
    """What lines without colours and margins tell."""
    told = Console()
    listed: int | None = None
    row: int | None = None
    for line in lines:
        if found := _LISTED.fullmatch(line):
            numbers = [int(number) for number in found[1].split(",")]
            listed = numbers[-1]
            for number in numbers:
                told.names.setdefault(number, set()).add(found[2])
        elif found := _ROW.fullmatch(line):
            row = int(found[1])
            told.names.setdefault(row, set()).add(found[2])
        elif found := _PROCESS.fullmatch(line):
            told.used.add(int(found[1]))
        elif listed is not None and _PART.fullmatch(line):
            told.split.add(listed)
        elif line.startswith("+"):
            row = None
        elif row is not None:
            if found := _MEMORY.search(line):
                told.memory.setdefault(row, float(found[1]) * 2**20)
            if line.rstrip("| ").endswith((" Enabled", " Enabled*")):
                told.split.add(row)
    return told
