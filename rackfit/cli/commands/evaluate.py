"""``rackfit evaluate``: re-derive every figure of a written layout and list violations.

With ``--from`` the layout is read from the files of a deployment that already runs.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer


def register(app: typer.Typer) -> None:
    """Add ``evaluate`` to the command line."""
    app.command("evaluate")(evaluate_command)


def evaluate_command(
    layout: Annotated[
        Path, typer.Argument(help="A document of rackfit solve; with --from, the engine's file.")
    ],
    from_: Annotated[
        str | None, typer.Option("--from", help="sglang, vllm or trtllm: price what they deploy.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="With --from: name or config.json.")] = None,
    cluster: Annotated[str | None, typer.Option(help="With --from: name, name@N or file.")] = None,
    scenario: Annotated[str | None, typer.Option(help="With --from: a scenario.")] = None,
    workload: Annotated[str | None, typer.Option(help="With --from: name or file.")] = None,
    input_tokens: Annotated[int | None, typer.Option(help="With --from: prompt tokens.")] = None,
    output_tokens: Annotated[int | None, typer.Option(help="With --from: answer tokens.")] = None,
    cached_tokens: Annotated[int | None, typer.Option(help="With --from: cached tokens.")] = None,
    ttft: Annotated[str | None, typer.Option(help="With --from: target for TTFT, s.")] = None,
    tpot: Annotated[str | None, typer.Option(help="With --from: target for TPOT, s.")] = None,
    pay: Annotated[
        Literal["whole", "used"] | None, typer.Option(help="With --from: what is paid.")
    ] = None,
    weight_dtype: Annotated[str | None, typer.Option(help="With --from: weights.")] = None,
    kv_dtype: Annotated[str | None, typer.Option(help="With --from: KV cache.")] = None,
    profile: Annotated[str | None, typer.Option(help="With --from: efficiencies.")] = None,
    balanced: Annotated[
        bool, typer.Option("--balanced", help="With --from: the engine's balancer is ideal.")
    ] = False,
    compare: Annotated[
        bool, typer.Option("--compare", help="With --from: also solve, and print what is lost.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="With --from: write the layout as a document here.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Price a layout from scratch: from the cluster's graph and the placements alone.

    Exit code 0 if every rule holds, 1 if the layout breaks one.
    """
    import json as json_module

    from costmodel.evaluate import evaluate
    from rackfit.output import write_whole
    from rackfit.result import SCHEMA_VERSION, read_result

    if from_ is not None:
        from rackfit.cli.commands.solve import build_scenario
        from rackfit.importers.running import price_running

        changes = {
            "model": model, "cluster": cluster, "pay": pay, "weight_dtype": weight_dtype,
            "kv_dtype": kv_dtype, "profile": profile,
        }  # fmt: skip
        lengths = {
            "input_tokens": input_tokens, "output_tokens": output_tokens,
            "cached_tokens": cached_tokens,
        }  # fmt: skip
        asked = build_scenario(scenario, changes, workload, lengths, {"ttft": ttft, "tpot": tpot})
        broken = price_running(
            asked, from_, layout, balanced=balanced, compare=compare, out=out, as_json=json
        )
        raise typer.Exit(1 if broken else 0)
    instance, decision, document = read_result(layout)
    evaluation = evaluate(instance, decision)
    written = document.get("instance", {}).get("digest")
    if written != instance.digest:
        print(
            "rackfit: the instance has changed since the layout was written (other data or version); "
            "the figures are today's",
            file=sys.stderr,
        )
    if json:
        data = {
            "schema_version": SCHEMA_VERSION,
            "instance": instance.describe(),
            "evaluation": evaluation.as_dict(),
        }
        write_whole(json_module.dumps(data, indent=1, allow_nan=False) + "\n", None)
    else:
        from rackfit.render import print_evaluation

        print_evaluation(instance, decision, evaluation)
    if evaluation.violations:
        raise typer.Exit(1)
