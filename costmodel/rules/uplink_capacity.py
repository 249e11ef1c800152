r"""What replicas send between domains fits through NICs and leaves.

For every domain and unit of domains, ``bytes/s of the replicas' passes <= bytes/s of its uplinks``. KV goes to
decode replicas at the rate that what is left carries (:mod:`costmodel.replica.hand_over`): a layout that hands
over less than its replicas could serve is valid, unless a rate is asked for that it then misses, or a prefill
replica has no way to any decode replica.
"""

from __future__ import annotations

import numpy as np

from costmodel.layout.layout import Layout
from costmodel.passes.communication import AGES_S
from costmodel.question.instance import Instance
from costmodel.replica.fleet import PricedLayout
from costmodel.rules import Violation
from costmodel.tolerance import exceeds
from topology.quantity import figure


def check(instance: Instance, layout: Layout, priced: PricedLayout) -> list[Violation]:
    """Domains and units that send more than they can, and replicas that are cut off."""
    links, domains = instance.cluster.uplinks, instance.cluster.domains
    found = []
    for place, loads, room in (
        ("domain r{}", priced.passes.out, links.domain),
        ("unit {} of domains", priced.passes.unit_out, links.unit),
    ):
        for index in np.flatnonzero(loads > 0).tolist():
            load, capacity = float(loads[index]), float(room[index])
            if exceeds(load, capacity):
                message = f"sends {figure(load / 1e9)} GB/s, its uplinks carry {figure(capacity / 1e9)} GB/s"
                found.append(Violation("uplink_capacity", place.format(index), message))
    for index, (replica, price) in enumerate(zip(layout.replicas, priced.replicas, strict=True)):
        if max(float(price.service.tpot_s), float(price.service.ttft_s)) > AGES_S:
            message = "chips that exchange data have no working link to each other"
            found.append(Violation("uplink_capacity", f"replicas[{index}]", message))
        elif priced.transfer_s[index] is None:
            home = domains[instance.cluster.chip(replica.chips[0]).domain].name
            message = f"no link carries its KV from {home} to a decode replica"
            found.append(Violation("uplink_capacity", f"replicas[{index}]", message))
    wanted = instance.scenario.rate
    if wanted is not None and priced.held_back_by_links:
        able = min(priced.prefill_per_s, priced.decode_per_s) + priced.mixed_per_s
        if exceeds(wanted, priced.requests_per_s) and not exceeds(wanted, able):
            message = (
                f"links between domains carry the KV of {figure(priced.pooled_per_s)} requests/s, the "
                f"replicas could serve {figure(able)}, {figure(wanted, 6)} are asked for"
            )
            found.append(Violation("uplink_capacity", "replicas", message))
    return found
