"""``rackfit catalogue``: what is shipped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from costmodel.question.scenario import OneModel

Kind = Literal[
    "models",
    "chips",
    "tiers",
    "clusters",
    "workloads",
    "drafts",
    "scenarios",
    "profiles",
    "loads",
    "traffic",
    "flows",
    "plans",
    "exporters",
    "studies",
]


def register(app: typer.Typer) -> None:
    """Add ``catalogue`` to the command line."""
    app.command("catalogue")(catalogue_command)


def catalogue_command(
    kind: Annotated[Kind, typer.Argument(help="What to list.")],
    picture: Annotated[
        str | None, typer.Option(help="A cluster (name, name@N or file) to draw as HTML.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the picture here, not to stdout.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """List what is shipped: models, drafts, chips, and so on.

    ``catalogue clusters --picture gb200-nvl72 --out rack.html`` draws a cluster instead, its links
    coloured by bandwidth.
    """
    if picture is not None:
        _draw(kind, picture, out)
        return
    rows = rows_of(kind)
    if json:
        import json as json_module

        print(json_module.dumps(rows, indent=1))
        return
    from rich.table import Table

    from rackfit.console import make_console, print_table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in rows[0] if rows else ["name"]:
        table.add_column(column.replace("_", " "))
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    print_table(make_console(), table)


def _draw(kind: Kind, name: str, out: Path | None) -> None:
    from rackfit.documents.output import check_writable, write_whole
    from rackfit.figures.cluster_picture import cluster_picture
    from topology import load_cluster
    from topology.errors import InstanceError, Problem

    if kind != "clusters":
        raise InstanceError(Problem("--picture", f"draws clusters, not {kind}"))
    check_writable(out, besides=(Path(name.partition("@")[0]),))
    write_whole(cluster_picture(load_cluster(name)), out)


def rows_of(kind: Kind) -> list[dict[str, Any]]:
    """One row per entry: its name and what tells it from the others."""
    from topology.catalogue import catalogue_names

    own = {
        "exporters": _exporters, "chips": _chips, "tiers": _tiers, "clusters": _clusters,
        "workloads": _workloads, "scenarios": _scenarios, "models": _models, "drafts": _drafts, "traffic": _traffic,
        "flows": _flows, "plans": _plans,
    }  # fmt: skip
    if kind in own:
        return own[kind]()
    if kind == "studies":
        from rackfit.studies.registry import studies

        return [{"name": name, "question": study.question} for name, study in studies().items()]
    suffixes = (".npz", ".csv", ".json") if kind == "loads" else (".json", ".yaml")
    return [{"name": name} for name in catalogue_names(kind, suffixes)]


def _chips() -> list[dict[str, Any]]:
    from topology import chip_names, load_chip

    rows = []
    for name in chip_names():
        chip = load_chip(name)
        rows.append(
            {
                "name": name,
                "bf16_PFLOP/s": f"{chip.peak_flops_per_s('bf16') / 1e15:.3g}",
                "fp8_PFLOP/s": f"{chip.peak_flops_per_s('fp8') / 1e15:.3g}",
                "HBM_GB": f"{chip.hbm_bytes / 1e9:.1f}",
                "HBM_TB/s": f"{chip.hbm_bytes_per_s / 1e12:.3g}",
                "scale_up_GB/s": f"{chip.scale_up_bytes_per_s / 1e9:.4g}",
                "$/h": f"{chip.usd_per_hour:.2f}",
                "status": chip.status,
            }
        )
    return rows


def _flows() -> list[dict[str, Any]]:
    from costmodel.flow.question import flow_names, load_flow

    return [
        {
            "name": name,
            "model": found.model.name,
            "layers": found.model.layers,
            "machines": len(found.nodes),
            "title": found.title,
        }
        for name, found in ((name, load_flow(name)) for name in flow_names())
    ]


def _plans() -> list[dict[str, Any]]:
    from costmodel.plan.question import load_plan, plan_names, rates_of

    return [
        {
            "name": name,
            "models": ", ".join(one.called for one in found.models),
            "units": ", ".join(f"{one.count} {one.cluster}" for one in found.units),
            "hours": len(rates_of(found)[0]),
            "title": found.title,
        }
        for name, found in ((name, load_plan(name)) for name in plan_names())
    ]


def _tiers() -> list[dict[str, Any]]:
    from topology.tier import load_tier, tier_names

    return [
        {
            "name": name,
            "kind": tier.kind,
            "GB": f"{tier.bytes / 1e9:.4g}",
            "read_GB/s": f"{tier.read_bytes_per_s / 1e9:.3g}",
            "write_GB/s": f"{tier.write_bytes_per_s / 1e9:.3g}",
            "$/GB": f"{tier.usd_per_byte * 1e9:.3g}",
            "in_chip_price": tier.in_chip_price,
            "title": tier.title,
        }
        for name, tier in ((name, load_tier(name)) for name in tier_names())
    ]


def _clusters() -> list[dict[str, Any]]:
    from topology import cluster_names, load_cluster
    from topology.errors import InstanceError

    rows: list[dict[str, Any]] = []
    for name in cluster_names():
        try:
            cluster = load_cluster(name)
        except InstanceError:  # a family that needs a size, such as nvl-N
            rows.append({"name": f"{name}-N", "chips": "N", "chip": "", "domains": "", "title": ""})
            continue
        kinds = sorted({placed.chip.name for placed in cluster.chips})
        rows.append(
            {
                "name": name,
                "chips": len(cluster.chips),
                "chip": ", ".join(kinds),
                "domains": len(cluster.domains),
                "title": cluster.title,
            }
        )
    return rows


def _workloads() -> list[dict[str, Any]]:
    from costmodel.question.scenario import load_workload
    from topology.catalogue import catalogue_names

    loaded = [load_workload(name) for name in catalogue_names("workloads")]
    return [
        {
            "name": w.name,
            "input_tokens": w.input_tokens,
            "output_tokens": w.output_tokens,
            "cached_tokens": w.cached_tokens,
            "description": w.description,
        }
        for w in loaded
    ]


def _scenarios() -> list[dict[str, Any]]:
    from costmodel.question.scenario import has_models, load_scenario
    from costmodel.together.question import load_together
    from topology.catalogue import catalogue_names, read_data, resolve

    def row(name: str) -> dict[str, Any]:
        if has_models(read_data(resolve(name, "scenarios"))):
            asked = load_together(name)
            return _question(asked.name, asked.cluster, asked.models)
        one = load_scenario(name)
        return _question(one.name, one.cluster, [one])

    return [row(name) for name in catalogue_names("scenarios")]


def _question(name: str, cluster: str, models: Sequence[OneModel]) -> dict[str, Any]:
    """The row of a scenario, with what each of its models is asked."""

    def of(figure: Callable[[OneModel], str]) -> str:
        return ", ".join(dict.fromkeys(figure(one) for one in models))

    return {
        "name": name,
        "model": of(lambda m: m.model),
        "cluster": cluster,
        "workload": of(lambda m: m.workload if isinstance(m.workload, str) else "in place"),
        "TTFT": of(lambda m: "-" if m.slo.ttft is None else f"{m.slo.ttft:g} s"),
        "TPOT": of(lambda m: "-" if m.slo.tpot is None else f"{m.slo.tpot * 1e3:g} ms"),
    }


def _traffic() -> list[dict[str, Any]]:
    from costmodel.question.traffic.load import load_traffic, read_traffic, traffic_names

    rows = []
    for name in traffic_names():
        file, drawn = read_traffic(name), load_traffic(name)
        rows.append(
            {
                "name": name,
                "requests": len(drawn) if file.arrivals is None else "drawn",
                "seconds": f"{drawn.duration_s:,.0f}" if file.arrivals is None else "-",
                "requests/s": f"{drawn.rate:.3g}",
                "input": f"{drawn.input_tokens.mean():,.0f}",
                "output": f"{drawn.output_tokens.mean():,.0f}",
                "prefixes": "yes" if len(drawn.blocks) else "no",
                "title": file.title,
                "licence": file.licence,
            }
        )
    return rows


def _models() -> list[dict[str, Any]]:
    from costmodel.models import load_model
    from costmodel.models.summary import summarise
    from topology.catalogue import catalogue_names

    rows = []
    for name in catalogue_names("models", (".json",)):
        summary = summarise(load_model(name))
        rows.append(
            {
                "name": name,
                "total_B": f"{summary.total_params / 1e9:.1f}",
                "active_B": f"{summary.active_params / 1e9:.1f}",
                "layers": summary.layers,
                "experts": summary.routed_experts,
                "weights_GB": f"{summary.weight_bytes / 1e9:.0f}",
                "KV_B/token": f"{summary.kv_bytes_per_token:,.0f}",
            }
        )
    return rows


def _drafts() -> list[dict[str, Any]]:
    from costmodel.models.drafts import drafts_of_catalogue

    return [
        {"name": head.spec.name, "kind": head.kind, "hidden": head.spec.hidden_size,
         "weights_GB": f"{num_bytes / 1e9:.2f}"}
        for head, num_bytes in drafts_of_catalogue()
    ]  # fmt: skip


def _exporters() -> list[dict[str, Any]]:
    from rackfit.exporters.registry import exporters

    return [{"name": name, "writes": module.SUMMARY} for name, module in exporters().items()]
