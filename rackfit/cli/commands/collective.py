"""``rackfit collective``: what a collective costs on a cluster, beside its bound and busiest link."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated

import typer

from topology import Cluster, Rate, load_cluster
from topology.collectives.demand import KINDS
from topology.collectives.loads import LinkKind, by_kind
from topology.errors import InstanceError, Problem
from topology.quantity import parse_quantity

#: Walking every route for the table of links is skipped for larger groups (their rate is not).
MAX_WALKED_CHIPS = 300


def register(app: typer.Typer) -> None:
    """Add ``collective`` to the application."""
    app.command("collective", no_args_is_help=True)(collective)


def collective(
    kind: Annotated[str, typer.Argument(help=f"One of {', '.join(KINDS)}.")],
    cluster: Annotated[str, typer.Option(help="Catalogue name, NAME@COUNT, or a YAML file.")],
    num_bytes: Annotated[str, typer.Option("--bytes", help="Such as 1048576, '512 MiB'.")],
    chips: Annotated[
        str | None,
        typer.Option(help="How many chips, or ids: r0g0,r0g1 or r0 (a domain). All by default."),
    ] = None,
    top_k: Annotated[int | None, typer.Option(help="Copies per token (dispatch).")] = None,
    per_domain: Annotated[
        bool,
        typer.Option(
            "--one-copy-per-domain/--copy-per-chip",
            help="Dispatch: one copy per remote domain, forwarded inside it, or one per chip.",
        ),
    ] = True,
    profile: Annotated[
        str, typer.Option(help="physics (links at full speed) or calibrated (as measured).")
    ] = "physics",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Cost of one collective, from the links of the cluster.

    BYTES is the whole tensor per chip, as NCCL-tests counts it: all-gather, the gathered tensor;
    reduce-scatter and all-reduce, the tensor each chip puts in; all-to-all, what each chip
    sources (1/n of it for each chip, itself included); dispatch, the token vectors each chip
    sources before they are copied to top-k destinations; broadcast and send, the message. The
    bandwidth shown is NCCL's bus bandwidth.
    """
    place = load_cluster(cluster).with_profile(profile)
    size = parse_size(num_bytes)
    ids = choose_chips(place, chips, 2 if kind == "send" else None)
    rate = place.rate(kind, ids, top_k=top_k, one_copy_per_domain=per_domain)
    links: dict[str, LinkKind] = {}
    if len(ids) <= MAX_WALKED_CHIPS:
        loads = place.loads(kind, ids, top_k=top_k, one_copy_per_domain=per_domain)
        links = by_kind(place.graph, loads)
    answer = {
        "schema_version": 1,
        "kind": kind,
        "cluster": place.name,
        "chips": len(ids),
        "domains": len({place.chip(name).domain for name in ids}),
        "bytes": size,
        "profile": profile,
        "time_s": rate.time(size),
        "bound_s": rate.bound(size),
        "latency_s": rate.latency_s,
        "s_per_byte": rate.s_per_byte,
        "bus_bytes_per_s": bus_bytes_per_s(kind, len(ids), rate, size),
        "busiest_link": rate.busiest_link,
        "links": {
            name: {
                "count": found.links,
                "max_bytes": found.max_bytes * size,
                "total_bytes": found.total_bytes * size,
                "max_s": found.max_seconds * size,
            }
            for name, found in links.items()
        },
    }
    if as_json:
        typer.echo(json.dumps(answer, indent=2))
    else:
        typer.echo(_text(kind, place, len(ids), size, rate, links))


def parse_size(text: str) -> float:
    """Bytes of ``"1048576"`` or ``"512 MiB"``. Raises ``InstanceError`` below zero or not a size."""
    try:
        size = parse_quantity(text, "B")
    except ValueError as error:
        raise InstanceError(Problem("--bytes", str(error))) from None
    if size < 0:
        raise InstanceError(Problem("--bytes", f"must not be negative, got {text}"))
    return size


def choose_chips(cluster: Cluster, text: str | None, default: int | None) -> list[str]:
    """Ids that ``--chips`` names: a count, or ids and domains with commas. All usable by default."""
    if text is None:
        text = str(default) if default else str(len(cluster.usable))
    if text.strip().isdecimal():
        return [chip.id for chip in cluster.pick(int(text.strip()[:9]))]
    chosen: list[str] = []
    domains = {domain.name: domain for domain in cluster.domains}
    for word in filter(None, (part.strip() for part in text.split(","))):
        if word in domains:
            chosen += [chip.id for chip in domains[word].usable]
        else:
            chosen.append(cluster.chip(word).id)
    return chosen


def bus_bytes_per_s(kind: str, num_chips: int, rate: Rate, size: float) -> float | None:
    """NCCL-tests' bus bandwidth: bytes over time, times *2(n-1)/n*, *(n-1)/n* or 1."""
    seconds = rate.time(size)
    if seconds <= 0:
        return None
    others = (num_chips - 1) / num_chips
    factor = {
        "all-reduce": 2 * others,
        "all-gather": others,
        "reduce-scatter": others,
        "all-to-all": others,
        "dispatch": others,
    }.get(kind, 1.0)
    return size * factor / seconds


def _text(
    kind: str, cluster: Cluster, count: int, size: float, rate: Rate, links: dict[str, LinkKind]
) -> str:
    bandwidth = bus_bytes_per_s(kind, count, rate, size) or 0.0
    lines = [
        f"{kind} of {size:,.0f} B on {count} chips of {cluster.name}",
        f"  time   {rate.time(size) * 1e6:14,.3f} us   (latency {rate.latency_s * 1e6:,.3f} us)",
        f"  bound  {rate.bound(size) * 1e6:14,.3f} us",
        f"  bus    {bandwidth / 1e9:14,.2f} GB/s",
        f"  busiest link {rate.busiest_link}",
    ]
    for name, found in links.items():
        row = dataclasses.astuple(found)
        lines.append(
            f"  {name:<10} {row[0]:6d} links, busiest carries {row[1] * size:,.0f} B "
            f"in {row[3] * size * 1e6:,.3f} us"
        )
    return "\n".join(lines)
