"""Plain leaf/spine with an oversubscription ratio: all NICs of a unit on one logical leaf."""

from __future__ import annotations

from typing import Literal

from topology.scaleout.base import NetworkSpec, network_kind


@network_kind
class LeafSpine(NetworkSpec):
    """One logical leaf per domain unless ``domains_per_unit`` says otherwise."""

    kind: Literal["leaf-spine"] = "leaf-spine"
