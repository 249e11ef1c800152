"""Questions beside a question whose answers are known to stand in a relation to its own.

*Easier*: every layout of the question fits here too and costs no more, so nothing may become infeasible or
dearer. *Same*: the two hold the same layouts under other names of the domains.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from benchmarks.hunt.clusters import Data
from benchmarks.hunt.questions import Question
from costmodel.layout.layout import Layout
from topology.quantity import parse_quantity

#: bytes/s of a NIC that limits nothing
UNLIMITED = 1e15


@dataclass(frozen=True)
class Variant:
    """``places[d]`` is here what domain ``d`` is in the question; ``exact``: neither may cost less."""

    name: str
    question: Question
    exact: bool = False
    places: dict[int, int] = field(default_factory=dict)

    def here(self, layout: Layout) -> Layout:
        """A layout of the question on this variant's chips."""
        return _renamed(layout, self.places)

    def back(self, layout: Layout) -> Layout:
        """A layout of this variant on the question's chips (some may not exist there)."""
        return _renamed(layout, {here: there for there, here in self.places.items()})


def unlimited_nics(question: Question) -> Variant:
    """The same question where no NIC and no leaf limits anything."""
    changed = question.copied()
    _set_nics(changed, lambda _: UNLIMITED)
    assert changed.cluster.scale_out is not None
    changed.cluster.scale_out["oversubscription"] = 0.01
    return Variant("unlimited NICs", changed)


def draw_variants(question: Question, idle: Iterable[int], count: int) -> list[Variant]:
    """Some of the variants that a question has, drawn by its seed. ``idle``: domains without a replica."""
    draw = Random(question.seed * 7919 + 1)
    made = [variant for make in _MAKERS if (variant := make(question, draw)) is not None]
    spare = sorted(idle)
    if spare and _by_use(question):
        made.append(_cloned(question, draw.choice(spare)))
    draw.shuffle(made)
    return made[:count]


def _by_use(question: Question) -> bool:
    return question.scenario["pay"] == "used" or "rate" in question.scenario


def _set_nics(question: Question, change: Any) -> None:
    cluster = question.cluster
    for domain in cluster.domains:
        for row in domain["chips"]:
            now = row.get("nic_bytes_per_s") or cluster.own(row["chip"])["nic_bytes_per_s"]
            row["nic_bytes_per_s"] = change(parse_quantity(now, "B/s"))


def _more_nic(question: Question, draw: Random) -> Variant | None:
    if question.cluster.scale_out is None:
        return None
    changed, factor = question.copied(), draw.choice((1.5, 4.0, 20.0))
    _set_nics(changed, lambda rate: rate * factor)
    return Variant(f"NICs x {factor:g}", changed)


def _more_hbm(question: Question, draw: Random) -> Variant:
    changed, factor = question.copied(), draw.choice((1.1, 1.5, 3.0))
    for name in {row["chip"] for domain in changed.cluster.domains for row in domain["chips"]}:
        own = changed.cluster.own(name)
        own["hbm_bytes"] = parse_quantity(own["hbm_bytes"], "B") * factor
    return Variant(f"HBM x {factor:g}", changed)


def _looser(question: Question, draw: Random) -> Variant | None:
    if not question.scenario["slo"]:
        return None
    changed, factor = question.copied(), draw.choice((1.05, 1.5, 4.0))
    changed.scenario["slo"] = {
        name: seconds * factor for name, seconds in changed.scenario["slo"].items()
    }
    return Variant(f"targets x {factor:g}", changed)


def _fewer_limits(question: Question, draw: Random) -> Variant | None:
    limits: Data = {
        name: value * 2
        for name, value in question.scenario.get("limits", {}).items()
        if name != "prefill_chunk_tokens"
    }
    if not limits:
        return None
    changed = question.copied()
    changed.scenario["limits"].update(limits)
    return Variant("limits x 2", changed)


def _more_chips(question: Question, draw: Random) -> Variant | None:
    if question.cluster.scale_out is None or not _by_use(question):
        return None
    changed = _cloned(question, draw.randrange(len(question.cluster.domains)))
    return Variant("a domain more", changed.question)


def _cloned(question: Question, domain: int) -> Variant:
    changed = question.copied()
    changed.cluster.domains.append(copy.deepcopy(changed.cluster.domains[domain]))
    if changed.cluster.scale_out is None:
        changed.cluster.scale_out = {"kind": "leaf-spine"}
    return Variant("an idle domain twice", changed)


def _repaired(question: Question, draw: Random) -> Variant | None:
    if not question.cluster.failed + question.cluster.taken or not _by_use(question):
        return None
    changed = question.copied()
    changed.cluster.failed, changed.cluster.taken = [], []
    return Variant("everything repaired", changed)


def _permuted(question: Question, draw: Random) -> Variant | None:
    """Domains in another order; leaves are numbered by domain, so a named leaf or spine stays out."""
    cluster = question.cluster
    counts = [int(domain.get("count", 1)) for domain in cluster.domains]
    number = sum(counts)
    network = cluster.scale_out or {}
    per_unit = network.get("domains_per_unit", 32 if network.get("kind") == "rail-optimised" else 1)
    named = any(name.startswith(("leaf", "spine")) for name in cluster.failed)
    if len(counts) < 2 or named or 1 < per_unit < number:
        return None
    order = list(range(len(counts)))
    draw.shuffle(order)  # the domain at each place
    first = [sum(counts[:at]) for at in order]
    moved = [
        start + each for at, start in zip(order, first, strict=True) for each in range(counts[at])
    ]
    places = {domain: place for place, domain in enumerate(moved)}
    changed = question.copied()
    changed.cluster.domains = [copy.deepcopy(cluster.domains[domain]) for domain in order]
    changed.cluster.failed = [_moved(name, places) for name in cluster.failed]
    changed.cluster.taken = [_moved(name, places) for name in cluster.taken]
    return Variant("domains in another order", changed, exact=True, places=places)


def _moved(name: str, places: dict[int, int]) -> str:
    """A chip, NIC, domain, switch or link (``r0g0--r0sw0``) of a domain at its new place."""
    return re.sub(r"\br(\d+)", lambda found: f"r{places.get(int(found[1]), int(found[1]))}", name)


def _renamed(layout: Layout, places: dict[int, int]) -> Layout:
    if not places:
        return layout
    data = layout.model_dump(mode="json")
    for replica in data["replicas"]:
        for stage in replica["stages"]:
            stage["chips"] = [_moved(chip, places) for chip in stage["chips"]]
        for share in replica["kv"]:
            share["chip"] = _moved(share["chip"], places)
    return Layout.model_validate(data)


_MAKERS = (_more_nic, _more_hbm, _looser, _fewer_limits, _more_chips, _repaired, _permuted)
