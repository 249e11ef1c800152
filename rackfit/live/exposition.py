"""Prometheus' text format: samples by metric and labels.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/ (text format 0.0.4).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite

_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?\s*$")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class Sample:
    """One line of ``/metrics``."""

    labels: dict[str, str]
    value: float


def samples(text: str) -> dict[str, list[Sample]]:
    """Samples by metric; lines that are none are left out."""
    found: dict[str, list[Sample]] = {}
    for line in text.splitlines():
        match = _SAMPLE.match(line)
        if match is None:
            continue
        name, labels, number = match.groups()
        try:
            value = float(number)
        except ValueError:
            continue
        pairs = {key: re.sub(r"\\(.)", r"\1", word) for key, word in _LABEL.findall(labels or "")}
        found.setdefault(name, []).append(Sample(pairs, value))
    return found


def mean(found: Mapping[str, list[Sample]], histogram: str) -> tuple[float, int] | None:
    """Mean and count of a histogram over all labels; ``None`` where it has counted nothing."""
    count = sum(one.value for one in found.get(f"{histogram}_count", ()))
    total = sum(one.value for one in found.get(f"{histogram}_sum", ()))
    return (total / count, int(count)) if count >= 1 and isfinite(total / count) else None
