"""The cluster file as written: domains, scale-out, failures, chips that are taken.

Checked here for form only; ``topology.load`` builds the cluster.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from topology.catalogue import beside, checked, data_dir, read_data, resolve
from topology.chip import Basis
from topology.errors import InstanceError, Problem
from topology.names import Line, Name, Prose
from topology.quantity import BytesPerSecond, UsdPerHour

#: More chips than this in one cluster is taken for a typing mistake.
MAX_CHIPS = 200_000


class ChipCount(BaseModel):
    """Several chips of one type in a row, for domains that mix types.

    ``nic_bytes_per_s`` and ``usd_per_hour`` override the catalogue's figures.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    chip: Line
    count: int = Field(ge=1, le=100_000)
    nic_bytes_per_s: BytesPerSecond | None = None
    usd_per_hour: UsdPerHour | None = None


#: how a domain is sold: so many chips in a row at a time, or boxes of a torus of which each divides the next
Sold = (
    Annotated[int, Field(ge=2, le=100_000)]
    | tuple[tuple[Annotated[int, Field(ge=1, le=256)], ...], ...]
)


class DomainSpec(BaseModel):
    """``count`` equal domains: the fabric's options and the chips on it, by position.

    ``granularity`` names the ways in which chips of it are sold (see :mod:`topology.routing.granularity`): ``tray: 4``,
    or ``slice: [[2, 2, 1], [2, 2, 2]]`` on a torus.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    fabric: dict[str, Any]
    chips: tuple[ChipCount, ...] = Field(min_length=1)
    count: int = Field(default=1, ge=1, le=10_000)
    rack: Name | None = None
    granularity: dict[Name, Sold] = Field(default_factory=dict)


class ClusterSpec(BaseModel):
    """One cluster file.

    ``failed`` and ``taken`` list names as in :mod:`topology.failures`: chips (``r0g3``), whole
    domains (``r0``), switches (``r0sw1``), NICs (``r0g3.nic``), ``leaf0``, ``spine0``, links
    (``r0g3--r0sw1``), with wildcards. ``parameter`` marks a family: ``nvl-36`` reads ``nvl.yaml`` with 36
    chips, ``tpu-v5p-4x4x8`` reads ``tpu-v5p.yaml`` with that shape. ``sold_as`` is the granularity of its domains that
    holds where a question names none; without it replicas take any chips.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name
    title: Line = ""
    parameter: Literal["chips", "shape"] | None = None
    domains: tuple[DomainSpec, ...] = Field(min_length=1)
    scale_out: dict[str, Any] | None = None
    failed: tuple[Line, ...] = ()
    taken: tuple[Line, ...] = ()
    sold_as: Name | None = None
    provenance: dict[str, Basis] = Field(default_factory=dict)
    sources: tuple[Prose, ...] = ()
    notes: tuple[Prose, ...] = ()


@lru_cache(maxsize=64)
def _read_shipped(path: Path) -> ClusterSpec:
    with checked(path.name):
        return ClusterSpec.model_validate(read_data(path))


def read_cluster_spec(text: str) -> tuple[ClusterSpec, str]:
    """The specification of a name, of a family's member or of a file, and the place that errors name."""
    family = re.fullmatch(r"([A-Za-z0-9_.-]+)-(\d{1,6}(?:x\d{1,4}){0,2})", text)
    if family and "/" not in text and not (data_dir("clusters") / f"{text}.yaml").is_file():
        path = data_dir("clusters") / f"{family[1]}.yaml"
        if path.is_file():
            spec = _read_shipped(path)
            if spec.parameter is not None:
                return _sized(spec, family[2], text), path.name
    path = resolve(text, "clusters", (".yaml",))
    if path.parent == data_dir("clusters"):
        return _read_shipped(path), path.name
    with checked(str(path)):
        return _beside(ClusterSpec.model_validate(read_data(path)), path), str(path)


def _beside(spec: ClusterSpec, path: Path) -> ClusterSpec:
    """The specification with its chips' paths taken from its own folder."""
    domains = [
        domain.model_copy(
            update={
                "chips": tuple(
                    row.model_copy(update={"chip": beside(path, row.chip)}) for row in domain.chips
                )
            }
        )
        for domain in spec.domains
    ]
    return spec.model_copy(update={"domains": tuple(domains)})


def _sized(spec: ClusterSpec, size: str, name: str) -> ClusterSpec:
    sides = tuple(int(side) for side in size.split("x"))
    number = 1
    for side in sides:
        number *= side
    if not 0 < number <= MAX_CHIPS:
        raise InstanceError(Problem(name, f"{number} chips; 1 to {MAX_CHIPS} are possible"))
    domain = spec.domains[0]
    fabric: dict[str, Any] = dict(domain.fabric)
    if spec.parameter == "shape":
        fabric["shape"] = list(sides)
    elif len(sides) > 1:
        raise InstanceError(Problem(name, f"{spec.name} takes one number of chips, not {size}"))
    chips = (domain.chips[0].model_copy(update={"count": number}),)
    sized = domain.model_copy(update={"fabric": fabric, "chips": chips})
    return spec.model_copy(update={"name": name, "domains": (sized,), "parameter": None})
