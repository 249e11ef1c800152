"""The graph's own answer: every message of a collective is listed and walked over cluster.graph.

Written apart from the closed forms: it knows messages, not formulas. Switched domains and meshes
take weighted shortest paths, tori dimension order (all orders of the axes alike); all-gathers on tori are asked of maximum flow.
"""

from collections import defaultdict
from itertools import pairwise, permutations

import networkx as nx

from topology.routing.dimension import dimension_order, rotations
from topology.routing.spread import spread


def graph_seconds_per_byte(cluster, kind, ids, top_k=None, one_copy_per_domain=True):
    """Seconds per byte of the slowest directed link of the whole cluster graph."""
    loads = defaultdict(float)
    groups = defaultdict(list)
    for name in ids:
        groups[cluster.chip(name).domain].append(name)
    spread_kinds = ("all-gather", "reduce-scatter", "all-reduce", "broadcast")
    torus = {d: cluster.domains[d].kind == "torus" for d in groups}
    inside, outside = _messages(cluster, kind, groups, top_k, one_copy_per_domain)
    worst = 0.0
    for domain, messages in inside.items():
        fabric = cluster.domains[domain].fabric
        if torus[domain] and kind in spread_kinds:
            worst = max(worst, _torus_spread(cluster, kind, groups[domain]))
        elif torus[domain]:
            for a, b, amount in messages:
                pa, pb = cluster.chip(a).position, cluster.chip(b).position
                every = list(permutations(range(len(fabric.axes))))
                orders = rotations(fabric.axes, pa, pb) if kind == "send" else every
                for order in orders:
                    for (u, v), part in dimension_order(fabric.axes, pa, pb, order):
                        edge = (f"r{domain}{u}", f"r{domain}{v}")
                        # chips outside the group serve their ports in turn
                        own = kind == "send" or set(edge) <= set(groups[domain])
                        turns = 1 if own else sum(min(2, axis.side - 1) for axis in fabric.axes)
                        loads[edge] += turns * part * amount / len(orders)
        elif kind == "all-reduce" and getattr(fabric.spec, "in_network_reduction", False):
            _in_switch(cluster, messages, groups[domain], loads)
        else:
            _walk(_domain_graph(cluster, domain), messages, loads)
    _walk(cluster.graph, outside, loads)
    for (u, v), load in loads.items():
        worst = max(worst, load / cluster.graph.edges[u, v]["bytes_per_s"])
    return worst


def _domain_graph(cluster, domain):
    """Traffic inside a domain stays off the NICs."""
    nodes = cluster.graph.nodes(data="domain")
    return cluster.graph.subgraph(node for node, home in nodes if home == domain).copy()


def _walk(graph, messages, loads):
    def forwards(node):
        return graph.nodes[node].get("kind") != "chip"

    for edge, load in spread(graph, messages, forwards).items():
        loads[edge] += load


def _messages(cluster, kind, groups, top_k, dedup):
    """Messages inside each domain and between chips of different domains, per byte."""
    inside = {domain: [] for domain in groups}
    outside = []
    members = [name for group in groups.values() for name in group]
    n = len(members)
    relayed = cluster.network is not None and cluster.network.spec.relayed
    if kind == "send":
        a, b = members
        same = cluster.chip(a).domain == cluster.chip(b).domain
        (inside[cluster.chip(a).domain] if same else outside).append((a, b, 1.0))
    elif kind in ("all-to-all", "dispatch"):
        copies = min(top_k, n) if kind == "dispatch" else 1
        for home, group in groups.items():
            for a in group:
                for away, others in groups.items():
                    if away == home:
                        inside[home] += [(a, b, copies / n) for b in others if b != a]
                    elif kind == "dispatch" and dedup:
                        # one copy to a peer there (on the same rail, or spread), which forwards
                        reach = 1 - (1 - len(others) / n) ** top_k
                        lane = [others[group.index(a) % len(others)]] if relayed else others
                        for landing in lane:
                            outside.append((a, landing, reach / len(lane)))
                            inside[away] += [
                                (landing, b, copies / n / len(lane)) for b in others if b != landing
                            ]
                    else:
                        for index, b in enumerate(others):
                            via = group[index % len(group)] if relayed else a
                            if via != a:
                                inside[home].append((a, via, copies / n))
                            outside.append((via, b, copies / n))
    elif kind == "broadcast":
        ordered = list(groups.items())
        root = members[0]
        for index, (domain, group) in enumerate(ordered):
            stripe = 1 / len(group)
            if index:
                before = ordered[index - 1][1]
                outside += [(before[k], group[k], stripe) for k in range(len(group))]
                inside[domain] += [(a, b, stripe) for a in group for b in group if a != b]
            elif cluster.domains[domain].kind == "mesh":
                peers = group[1:]
                inside[domain] += [(root, b, 1 / len(peers)) for b in peers]
                inside[domain] += [(a, b, 1 / len(peers)) for a in peers for b in peers if a != b]
            else:
                inside[domain] += [(a, b, 1.0) for a, b in pairwise(group)]
    else:
        rounds = 2 if kind == "all-reduce" else 1
        for domain, group in groups.items():
            share = rounds / len(group)
            inside[domain] += [(a, b, share) for a in group for b in group if a != b]
        outside += _gather_between(cluster, groups, rounds / n)
    return inside, outside


def _gather_between(cluster, groups, shard):
    """A shard goes once to each other unit, from there to each domain of that unit."""
    units = defaultdict(list)
    for domain in groups:
        units[cluster.network.unit(domain) if cluster.network else 0].append(domain)
    messages = []
    for home_unit, domains in units.items():
        for home in domains:
            for index, a in enumerate(groups[home]):

                def lane(domain, index=index):
                    return groups[domain][index % len(groups[domain])]

                messages += [(a, lane(d), shard) for d in domains if d != home]
                for unit, others in units.items():
                    if unit != home_unit:
                        entry = others[domains.index(home) % len(others)]
                        messages.append((a, lane(entry), shard))
                        messages += [(lane(entry), lane(d), shard) for d in others if d != entry]
    return messages


def _in_switch(cluster, messages, group, loads):
    """In-switch reduction: every chip's data up once, the reduced shard to each of them."""
    direct = defaultdict(float)
    _walk(_domain_graph(cluster, cluster.chip(group[0]).domain), messages, direct)
    switched = defaultdict(float)
    for name in group:
        wires = dict(cluster.graph.adj[name])
        wires = {s: w for s, w in wires.items() if cluster.graph.nodes[s].get("kind") == "switch"}
        total = sum(w["bytes_per_s"] for w in wires.values())
        for switch, wire in wires.items():
            part = (1 + 1 / len(group)) * wire["bytes_per_s"] / total
            switched[name, switch] += part
            switched[switch, name] += part

    def slowest(found):
        edges = cluster.graph.edges
        return max((v / edges[e]["bytes_per_s"] for e, v in found.items()), default=0)

    best = direct if slowest(direct) <= slowest(switched) else switched
    for edge, load in best.items():
        loads[edge] += load


def _torus_spread(cluster, kind, group):
    """Whole shards through the ports of the group's own subgraph; trees by maximum flow."""
    graph = cluster.graph.subgraph(group)
    if len(group) == 1:
        return 0.0
    rates = {rate for _, _, rate in graph.edges(data="bytes_per_s")}
    if kind == "broadcast":
        net = nx.DiGraph()
        net.add_weighted_edges_from(graph.edges(data="bytes_per_s"), weight="capacity")
        return 1 / min(nx.maximum_flow_value(net, group[0], sink) for sink in group[1:])
    into = min(sum(rate for _, _, rate in graph.in_edges(x, data="bytes_per_s")) for x in group)
    shards = len(group) - 1
    time = shards / len(group) / into
    if len(rates) == 1:
        ports = round(into / min(rates))
        time = -(-shards // ports) / len(group) / min(rates)
    return time * (2 if kind == "all-reduce" else 1)
