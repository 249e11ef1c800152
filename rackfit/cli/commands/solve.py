"""``rackfit solve``: the cheapest layout, and how far from optimal it can be."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from rackfit.result import Result

Pay = Literal["whole", "used"]


def register(app: typer.Typer) -> None:
    """Add ``solve`` to the command line."""
    app.command("solve")(solve_command)


def solve_command(
    scenario: Annotated[
        str | None, typer.Argument(help="Scenario: a shipped name or a YAML or JSON file.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Model: name or config.json.")] = None,
    cluster: Annotated[
        str | None, typer.Option(help="Cluster: name, name@N for N domains, or file.")
    ] = None,
    workload: Annotated[str | None, typer.Option(help="Workload: name or file.")] = None,
    input_tokens: Annotated[int | None, typer.Option(help="Prompt tokens of a request.")] = None,
    output_tokens: Annotated[int | None, typer.Option(help="Answer tokens of a request.")] = None,
    cached_tokens: Annotated[
        int | None, typer.Option(help="Prompt tokens whose KV is already there.")
    ] = None,
    expert_load: Annotated[
        str | None, typer.Option(help="skewed, uniform, or a file of recorded counts.")
    ] = None,
    ttft: Annotated[str | None, typer.Option(help="Target: time to first token, s.")] = None,
    tpot: Annotated[str | None, typer.Option(help="Target: time per output token, s.")] = None,
    rate: Annotated[float | None, typer.Option(help="Requests/s to serve at least cost.")] = None,
    pay: Annotated[
        Pay | None, typer.Option(help="Pay for the whole cluster or for used chips.")
    ] = None,
    weight_dtype: Annotated[str | None, typer.Option(help="Weights in this precision.")] = None,
    kv_dtype: Annotated[str | None, typer.Option(help="KV cache in this precision.")] = None,
    draft_tokens: Annotated[
        int | None, typer.Option(help="Tokens the model's MTP module drafts per pass.")
    ] = None,
    acceptance: Annotated[
        float | None, typer.Option(help="Probability that a drafted token is right.")
    ] = None,
    profile: Annotated[
        str | None, typer.Option(help="physics, calibrated, or a profile file.")
    ] = None,
    time_limit: Annotated[float | None, typer.Option(help="Seconds to search at most.")] = None,
    gap: Annotated[float, typer.Option(help="Stop when this gap is proven.")] = 0.01,
    workers: Annotated[int | None, typer.Option(help="Threads to use.")] = None,
    seed: Annotated[int, typer.Option(help="Same seed, same answer.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Write the layout as JSON here.")] = None,
    report: Annotated[Path | None, typer.Option(help="Write an HTML report here.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Find the cheapest layout and prove how far from optimal it can be."""
    from rackfit.cli.interrupts import answer_or_exit_3, uninterrupted

    with answer_or_exit_3("the first verified layout"):
        from rackfit.api import make_instance, solve
        from rackfit.output import check_writable
        from rackfit.progress import ProgressPrinter

        check_writable(out)
        check_writable(report)
        changes: dict[str, Any] = {
            "model": model,
            "cluster": cluster,
            "rate": rate,
            "pay": pay,
            "weight_dtype": weight_dtype,
            "kv_dtype": kv_dtype,
            "profile": profile,
        }
        lengths = {
            "input_tokens": input_tokens,
            "output_tokens": output_tokens,
            "cached_tokens": cached_tokens,
            "expert_load": expert_load,
        }
        drafts = {"draft_tokens": draft_tokens, "acceptance": acceptance}
        if any(value is not None for value in drafts.values()):
            changes["speculative"] = {k: v for k, v in drafts.items() if v is not None}
        instance = make_instance(
            build_scenario(scenario, changes, workload, lengths, {"ttft": ttft, "tpot": tpot})
        )
        with ProgressPrinter(sys.stderr) as progress:
            result = solve(
                instance,
                time_limit_s=time_limit,
                gap=gap,
                workers=workers,
                seed=seed,
                on_progress=progress,
            )
        with uninterrupted():
            _write(result, out, report, as_json=json)


def _write(result: Result, out: Path | None, report: Path | None, *, as_json: bool) -> None:
    """Write what was asked for, and print the answer."""
    from rackfit.output import write_whole

    if out is not None:
        result.write(out)
    if report is not None:
        from rackfit.report import report_page

        page = report_page(result.instance, result.layout, result.evaluation, result.as_dict())
        write_whole(page, report)
    if as_json:
        write_whole(result.text(), None)
        return
    from rackfit.render import print_result

    print_result(result)
    if out is not None:
        print(f"layout written to {out}", file=sys.stderr)


def build_scenario(
    name: str | None,
    changes: dict[str, Any],
    workload: str | None,
    lengths: dict[str, Any],
    slo: dict[str, Any],
) -> Any:
    """A scenario from a file, with whatever the flags say instead. Reports all problems at once."""
    from costmodel.instance import Scenario, load_scenario, load_workload
    from topology.catalogue import parse_model
    from topology.errors import InstanceError, Problem

    data: dict[str, Any] = {}
    if name is not None:
        data = load_scenario(name).model_dump(mode="json", exclude_none=True)
    given = {key: value for key, value in changes.items() if value is not None}
    if "speculative" in given:
        given["speculative"] = {**data.get("speculative", {}), **given["speculative"]}
    data |= given
    if workload is not None:
        data["workload"] = workload
    given = {key: value for key, value in lengths.items() if value is not None}
    if given:
        base = data.get("workload", "chat")
        if isinstance(base, str):
            base = load_workload(base).model_dump(mode="json")
        changed = any(base.get(key) != value for key, value in given.items())
        data["workload"] = {**base, **given, **({"name": "custom"} if changed else {})}
    elif "workload" not in data:
        data["workload"] = "chat"
    targets = {key: value for key, value in slo.items() if value is not None}
    if targets:
        data["slo"] = {**data.get("slo", {}), **targets}
    missing = [key for key in ("model", "cluster") if key not in data]
    if missing:
        raise InstanceError(
            [
                Problem(f"--{key}", "is missing: give it, or a scenario that names it")
                for key in missing
            ]
        )
    return parse_model(Scenario, data, name or "command line")
