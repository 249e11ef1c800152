"""Two layouts side by side: what changes, and what it costs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from costmodel.change.loading import Loading, loading
from costmodel.change.weights import weights_by_chip
from costmodel.evaluate import Evaluation
from costmodel.layout.layout import Layout, Replica
from costmodel.question.instance import Instance
from rackfit.wording import amount, rate
from topology.errors import InstanceError, Problem
from topology.quantity import per_cent

#: Figures that are compared, with how they are written.
FIGURES = (
    ("usd_per_m_output_tokens", "$ per M output tokens", amount, 1.0),
    ("usd_per_m_tokens", "$ per M tokens", amount, 1.0),
    ("usd_per_hour", "$ per hour", "{:,.2f}".format, 1.0),
    ("output_tokens_per_s", "output tokens/s", rate, 1.0),
    ("requests_per_s", "requests/s", lambda value: rate(value, 2), 1.0),
    ("ttft_s", "TTFT, ms", "{:.0f}".format, 1e3),
    ("tpot_s", "TPOT, ms", "{:.2f}".format, 1e3),
    ("chips_used", "chips used", "{:.0f}".format, 1.0),
    ("chips_total", "chips", "{:.0f}".format, 1.0),
    ("joules_per_output_token", "J per output token", "{:,.3f}".format, 1.0),
)


@dataclass(frozen=True)
class Difference:
    """What a second layout does differently from a first.

    ``replicas``: how many more (or fewer) replicas of each kind; ``chips``: how many chips serve
    the same role in both, another one, only the first or only the second; ``loads``: expert copies
    (of one layer on one chip) that a chip must load which it does not hold yet; ``moved``: their bytes and
    those of all other new weights. ``asked``: fields in which the two answer different questions.
    """

    figures: dict[str, tuple[float | None, float | None]]
    replicas: dict[str, int]
    chips: dict[str, int]
    loads: int
    moved: Loading
    asked: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "figures": {
                name: {"first": first, "second": second, "change": _change(first, second)}
                for name, (first, second) in self.figures.items()
            },
            "replicas": self.replicas,
            "chips": self.chips,
            "expert_copies_to_load": self.loads,
            "bytes_to_load": self.moved.total_bytes,
            "load_s": self.moved.seconds,
            "asked_differently": list(self.asked),
            "words": self.lines(),
        }

    def lines(self) -> list[str]:
        """The same in words."""
        lines = []
        for name, title, written, scale in FIGURES:
            first, second = self.figures[name]
            shown = ["-" if value is None else written(value * scale) for value in (first, second)]
            change = _change(first, second)
            by = per_cent(change or 0.0, 2, signed=True)
            more = "" if change is None else f"  {by}" if change else "  same"
            lines.append(f"{title:<24}{shown[0]:>14} -> {shown[1]:>14}{more}")
        lines += [f"{count:+d} x {kind}" for kind, count in sorted(self.replicas.items())] or [
            "the same kinds of replicas"
        ]
        parts = [f"{count} {what}" for what, count in self.chips.items() if count]
        lines.append("chips: " + ", ".join(parts))
        if self.loads:
            lines.append(f"{self.loads:,} expert copies have to be loaded by their new chips")
        if self.moved.total_bytes:
            lines.append(self.moved.words())
        return lines


def compare(
    first: tuple[Instance, Layout, Evaluation], second: tuple[Instance, Layout, Evaluation]
) -> Difference:
    """Differences between two evaluated layouts, chips matched by id.

    Raises ``InstanceError`` with every broken rule where the second cannot be priced: what it holds on its chips
    is not known then.
    """
    if not second[2].priced.replicas:
        raise InstanceError(
            [Problem(f"the second layout: {v.place}", f"{v.rule}: {v.message}") for v in second[2].violations]
        )  # fmt: skip
    asked = asked_differently(first[0], second[0])
    moved = loading(first[1], *second, same_model=not any(f.startswith("model") for f in asked))
    before, after = _roles(first[1]), _roles(second[1])
    kinds = Counter(_kind(replica) for replica in second[1].replicas)
    kinds.subtract(Counter(_kind(replica) for replica in first[1].replicas))
    both = before.keys() & after.keys()
    same = sum(before[chip] == after[chip] for chip in both)
    old, new = (
        {chip: held.experts for chip, held in weights_by_chip(side[1]).items()}
        for side in (first, second)
    )
    return Difference(
        figures={name: (getattr(first[2], name), getattr(second[2], name)) for name, *_ in FIGURES},
        replicas={kind: count for kind, count in kinds.items() if count},
        chips={
            "keep their role": same,
            "change their role": len(both) - same,
            "are no longer used": len(before) - len(both),
            "are newly used": len(after) - len(both),
        },
        loads=sum(len(held - old.get(chip, frozenset())) for chip, held in new.items()),
        moved=moved,
        asked=asked,
    )


def _change(first: float | None, second: float | None) -> float | None:
    return second / first - 1 if first and second is not None else None


def _roles(layout: Layout) -> dict[str, str]:
    return {chip: replica.role for replica in layout.replicas for chip in replica.chips}


def built(layout: Layout) -> Counter[str]:
    """Replicas by role and widths; batches follow from the profile."""
    return Counter(
        f"{one.role} tp {one.shape.tp} {_experts(one)} pp {one.shape.pp} attention dp {one.shape.attention_dp}"
        for one in layout.replicas
    )


def built_words(layout: Layout) -> str:
    """How many replicas of which role and widths."""
    return ", ".join(f"{count} x {kind}" for kind, count in sorted(built(layout).items()))


def _kind(replica: Replica) -> str:
    shape = replica.shape
    return (
        f"{replica.role} tp {shape.tp}, {_experts(replica)}, pp {shape.pp}, "
        f"attention dp {shape.attention_dp}, batch {shape.batch}"
    )


def _experts(replica: Replica) -> str:
    """How experts lie: over so many chips whole, or each cut over those of a stage."""
    shape = replica.shape
    return f"experts cut over {shape.chips_per_stage}" if replica.cuts_experts else f"ep {shape.ep}"


def asked_differently(first: Instance, second: Instance) -> tuple[str, ...]:
    """Fields in which two questions differ, with both values; where none does but the data behind them, that."""
    one, other = (_fields(instance.describe()["scenario"]) for instance in (first, second))
    found = [
        f"{field}: {one.get(field, 'not given')} and {other.get(field, 'not given')}"
        for field in sorted(one.keys() | other.keys())
        if one.get(field) != other.get(field)
    ]
    if not found and first.digest != second.digest:
        found = [
            "the data of the cluster, the model, the profile or the expert loads that they name"
        ]
    return tuple(found)


def _fields(data: dict[str, Any], place: str = "") -> dict[str, Any]:
    """Every value of nested objects by its path."""
    found: dict[str, Any] = {}
    for key, value in data.items():
        path = f"{place}.{key}" if place else key
        found |= _fields(value, path) if isinstance(value, dict) else {path: value}
    return found
