"""What a scenario changes of its model and cluster: what drafts, chips' figures, the scale-out, domain size, chips in use.

A value is absolute, as in a chip or cluster file, or a change such as ``+20%`` of the figure there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from costmodel.models import ModelSpec, load_model
from costmodel.models.drafts import load_drafter
from costmodel.question.scenario import Scenario
from topology import Cluster, load_cluster
from topology.builders.base import read_spec
from topology.catalogue import checked
from topology.chip import Chip
from topology.errors import InstanceError, Problem
from topology.names import brief
from topology.scaleout.base import read_network
from topology.spec import ClusterSpec, DomainSpec

#: figures of a chip that a scenario may change; ``name`` puts another chip in its place
CHIP_FIGURES = (
    "flops_per_s", "exponentials_per_s", "hbm_bytes", "hbm_bytes_per_s", "scale_up_bytes_per_s", "nic_bytes_per_s", "power_w",
    "usd_per_hour", "host_memory_bytes", "host_bytes_per_s",
)  # fmt: skip
_PERCENT = re.compile(r"([+-]\d{1,6}(?:\.\d{1,6})?)\s?%")


def percent(value: object) -> float | None:
    """The factor of ``+20%`` or ``-5 %``; ``None`` for anything else. Raises ``ValueError`` for -100 % and less."""
    found = _PERCENT.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        return None
    factor = 1.0 + float(found[1]) / 100.0
    if factor <= 0:
        raise ValueError(f"{value}: nothing would be left")
    return factor


def model_of(scenario: Scenario) -> ModelSpec:
    """The model of a question, with what drafts for it where that is named. Raises ``InstanceError``."""
    model = load_model(
        scenario.model, weight_dtype=scenario.weight_dtype, kv_dtype=scenario.kv_dtype
    )
    drafts = scenario.speculative
    if drafts is None or drafts.draft is None:
        return model
    return replace(model, drafter=load_drafter(drafts.draft, model))


def cluster_of(scenario: Scenario, adjust: Callable[[Chip], Chip] | None = None) -> Cluster:
    """The cluster of a scenario with its changes; ``adjust`` changes every chip further. ``InstanceError``."""

    def chips(chip: Chip) -> Chip:
        changed = changed_chip(chip, scenario.chip)
        return changed if adjust is None else adjust(changed)

    def spec(found: ClusterSpec) -> ClusterSpec:
        return _changed_spec(found, scenario)

    plain = not (scenario.chip or scenario.scale_out or scenario.domain_size)
    return load_cluster(
        scenario.cluster,
        failed=scenario.failed,
        taken=scenario.taken,
        adjust=adjust if plain else chips,
        change=None if plain else spec,
        granularity=scenario.granularity,
    )


def changed_chip(chip: Chip, changes: Mapping[str, Any]) -> Chip:
    """The chip with other figures, which are assumed from then on. Raises ``InstanceError``."""
    data = chip.model_dump()
    for key, value in changes.items():
        if key == "name":
            continue
        if key not in CHIP_FIGURES:
            known = ", ".join(("name", *CHIP_FIGURES))
            raise InstanceError(Problem(f"chip.{key}", f"is no figure of a chip; known: {known}"))
        data[key] = _changed(data[key], value, f"chip.{key}")
        data["provenance"] = {**data["provenance"], key: "assumed"}
    with checked("chip"):
        return Chip.model_validate(data)


def _changed(old: Any, value: Any, place: str) -> Any:
    """A figure as it is to be; of FLOP/s all formats, or those that are named."""
    if isinstance(old, dict):
        parts = value if isinstance(value, Mapping) else dict.fromkeys(old, value)
        return old | {
            key: _changed(old.get(key), part, f"{place}.{key}") for key, part in parts.items()
        }
    try:
        factor = percent(value)
    except ValueError as error:
        raise InstanceError(Problem(place, str(error))) from None
    if factor is None:
        return value
    if not isinstance(old, int | float) or isinstance(old, bool):
        raise InstanceError(Problem(place, f"{value} of what? the figure is {brief(old)}"))
    return old * factor


def _changed_spec(spec: ClusterSpec, scenario: Scenario) -> ClusterSpec:
    """The cluster file with other chips, another scale-out, domains of another size."""
    update: dict[str, Any] = {}
    if scenario.scale_out:
        if spec.scale_out is None:
            raise InstanceError(Problem("scale_out", f"{spec.name} has none to change"))
        options = read_network(spec.scale_out, "scale_out").model_dump()
        changed = {
            key: _changed(options.get(key), value, f"scale_out.{key}")
            for key, value in scenario.scale_out.items()
        }
        update["scale_out"] = {**spec.scale_out, **changed}
    domains = spec.domains
    if name := scenario.chip.get("name"):
        domains = tuple(
            domain.model_copy(
                update={
                    "chips": tuple(
                        row.model_copy(update={"chip": str(name)}) for row in domain.chips
                    )
                }
            )
            for domain in domains
        )
    if scenario.domain_size is not None:
        if spec.failed or scenario.failed or spec.taken or scenario.taken:
            message = "names of failed and taken chips mean others in domains of another size; leave one out"
            raise InstanceError(Problem("domain_size", message))
        domains = tuple(_resized(domain, scenario.domain_size) for domain in domains)
    return spec.model_copy(update={**update, "domains": domains})


def _resized(domain: DomainSpec, size: int) -> DomainSpec:
    """Equal domains of as many chips in all, in domains of ``size``. Raises ``InstanceError``."""
    kind = read_spec(domain.fabric, "domain_size").kind
    rows = domain.chips
    total = rows[0].count * domain.count
    if kind != "nvswitch" or len(rows) != 1:
        message = f"needs domains of one chip on an nvswitch fabric, not {kind} of {len(rows)} kinds of chips"
        raise InstanceError(Problem("domain_size", message))
    if total % size:
        raise InstanceError(Problem("domain_size", f"{size} does not divide {total} chips"))
    row = rows[0].model_copy(update={"count": size})
    return domain.model_copy(update={"chips": (row,), "count": total // size})
