"""A question of layers by machine: a model's layers, unlike machines with measured rates, links between them.

Every machine holds one range of consecutive layers. A request goes from machine to machine, each next
one starting at the layer after the last one of the one before, until all layers are done.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from topology import load_chip
from topology.catalogue import catalogue_names, checked, read_data, resolve
from topology.errors import InstanceError
from topology.names import Line, Name, Prose
from topology.quantity import BytesPerSecond, UsdPerHour

#: the largest question that is read
MAX_LAYERS, MAX_NODES = 1000, 200

Rate = Annotated[float, Field(ge=1e-6, le=1e9)]
PositiveBytes = Annotated[float, Field(gt=0, le=1e12)]
#: one speed for all nodes, or one for each
Speeds = BytesPerSecond | tuple[BytesPerSecond, ...]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class LayeredModel(_Part):
    """What of a model matters here: equal layers, and the bytes of a token between and before them."""

    name: Name
    layers: Annotated[int, Field(ge=1, le=MAX_LAYERS)]
    #: bytes of one token that one machine hands to the next
    activation_bytes: PositiveBytes
    #: bytes of one token id, to the first and from the last machine
    token_bytes: PositiveBytes = 2.0


class Machine(_Part):
    """A kind of machine: ``tokens_per_s[k - 1]`` is its rate while it holds ``k`` layers.

    The list ends with the most layers that its memory takes. ``chip`` and ``chips`` say what it is made of;
    its price is that of the chips unless ``usd_per_hour`` says another.
    """

    tokens_per_s: Annotated[tuple[Rate, ...], Field(min_length=1, max_length=MAX_LAYERS)]
    nic_bytes_per_s: BytesPerSecond | None = None
    chip: Name | None = None
    chips: Annotated[int, Field(ge=1, le=1024)] = 1
    usd_per_hour: UsdPerHour | None = None

    @cached_property
    def price_usd_per_hour(self) -> float | None:
        """Price of one machine; ``None`` where nothing says it. Raises ``InstanceError`` for an unknown chip."""
        if self.usd_per_hour is not None:
            return self.usd_per_hour
        return None if self.chip is None else self.chips * load_chip(self.chip).usd_per_hour


class Links(_Part):
    """Speeds in bytes/s, per direction.

    ``between``: one speed for every pair of nodes, or rows: row *i* has the speeds between node *i* and
    the nodes after it. ``source`` is where requests come from, ``sink`` where answers go.
    """

    between: BytesPerSecond | tuple[tuple[BytesPerSecond, ...], ...]
    source: Speeds
    sink: Speeds


class FlowQuestion(_Part):
    """Machines, links and a model. ``nodes`` names the kind of each node; nodes are numbered from 0."""

    name: Name
    title: Line = ""
    model: LayeredModel
    machines: dict[Name, Machine]
    nodes: Annotated[tuple[Name, ...], Field(min_length=1, max_length=MAX_NODES)]
    links: Links
    licence: Line = ""
    sources: tuple[Prose, ...] = ()
    notes: tuple[Prose, ...] = ()

    @model_validator(mode="after")
    def _check(self) -> FlowQuestion:
        number = len(self.nodes)
        for kind in self.nodes:
            if kind not in self.machines:
                raise ValueError(f"nodes: no machine {kind!r}; known: {', '.join(self.machines)}")
        between = self.links.between
        if isinstance(between, tuple):
            wanted = [number - 1 - row for row in range(number - 1)]
            if [len(row) for row in between] != wanted:
                raise ValueError(
                    f"links.between: expected one speed, or {number - 1} rows of {number - 1} to 1 "
                    f"speeds for {number} nodes"
                )
        for side in ("source", "sink"):
            speeds = getattr(self.links, side)
            if isinstance(speeds, tuple) and len(speeds) != number:
                raise ValueError(f"links.{side}: {len(speeds)} speeds for {number} nodes")
        for kind, machine in self.machines.items():
            if machine.chip is not None:
                try:
                    load_chip(machine.chip)
                except InstanceError as error:
                    raise ValueError(f"machines.{kind}.chip: {error}") from None
        return self

    def rate(self, node: int, layers: int) -> float:
        """Tokens/s of a node that holds so many layers; its network card may be slower than its chips."""
        machine = self.machines[self.nodes[node]]
        rate = machine.tokens_per_s[layers - 1]
        if machine.nic_bytes_per_s is None:
            return rate
        return min(rate, machine.nic_bytes_per_s / self.model.activation_bytes)

    def most_layers(self, node: int) -> int:
        """The most layers that a node can hold."""
        return min(self.model.layers, len(self.machines[self.nodes[node]].tokens_per_s))

    def link(self, one: int, other: int) -> float:
        """Tokens/s between two nodes, each way."""
        between = self.links.between
        if isinstance(between, tuple):
            first, last = min(one, other), max(one, other)
            return between[first][last - first - 1] / self.model.activation_bytes
        return between / self.model.activation_bytes

    def entry(self, node: int) -> float:
        """Tokens/s from the source to a node."""
        return _of(self.links.source, node) / self.model.token_bytes

    def leaving(self, node: int) -> float:
        """Tokens/s from a node to the sink."""
        return _of(self.links.sink, node) / self.model.token_bytes

    @property
    def usd_per_hour(self) -> float | None:
        """Price of all nodes, used or not; ``None`` where one has no price."""
        prices = [self.machines[kind].price_usd_per_hour for kind in self.nodes]
        known = [price for price in prices if price is not None]
        return sum(known) if len(known) == len(prices) else None


def _of(speeds: Speeds, node: int) -> float:
    return speeds[node] if isinstance(speeds, tuple) else speeds


def load_flow(name_or_path: str) -> FlowQuestion:
    """The question of a catalogue name or of a YAML or JSON file. Raises ``InstanceError``."""
    path: Path = resolve(name_or_path, "flows")
    with checked(str(path)):
        return FlowQuestion.model_validate(read_data(path))


def flow_names() -> list[str]:
    """Sorted names of the shipped questions."""
    return catalogue_names("flows")
