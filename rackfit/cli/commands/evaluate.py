"""``rackfit evaluate``: re-derive every figure of a written layout and list violations.

With ``--from`` the layout is read from the files of a deployment that already runs.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from rackfit.cli import question


def register(app: typer.Typer) -> None:
    """Add ``evaluate`` to the command line."""
    app.command("evaluate")(evaluate_command)


@question.asking("scenario", "draft_tokens", "acceptance", "draft", "choose", "layer_slots")
def evaluate_command(
    asked: question.Asked,
    *,
    layout: Annotated[
        Path, typer.Argument(help="A document of rackfit solve; with --from, the engine's file.")
    ],
    from_: Annotated[
        str | None, typer.Option("--from", help="sglang, vllm or trtllm: price what they deploy.")
    ] = None,
    scenario: Annotated[str | None, typer.Option(help="Scenario: a name or a file.")] = None,
    balanced: Annotated[
        bool, typer.Option("--balanced", help="With --from: the engine's balancer is ideal.")
    ] = False,
    compare: Annotated[
        bool,
        typer.Option(
            "--compare", help="With --from: also solve; what is lost, what to change and how."
        ),
    ] = False,
    into: Annotated[
        Path | None,
        typer.Option(help="With --compare: write the layouts of the change into this new folder."),
    ] = None,
    time_limit: question.TimeLimit = None,
    out: Annotated[
        Path | None, typer.Option(help="With --from: write the layout as a document here.")
    ] = None,
    json: question.AsJson = False,
) -> None:
    """Price a layout from scratch: from the cluster's graph and the placements alone.

    A document of rackfit solve holds its question; options that ask one are for --from alone.

    Exit code 0 if every rule holds, 1 if the layout breaks one.
    """
    import json as json_module

    from costmodel.evaluate import evaluate
    from rackfit.documents.output import say, write_whole
    from rackfit.documents.result import SCHEMA_VERSION, read_result

    asked = replace(asked, scenario=scenario)
    if from_ is not None:
        from rackfit.documents.output import check_writable
        from rackfit.importers.running import price_running

        if asked.model is None and asked.scenario is None:
            asked = _served(asked, from_, layout)
        if not compare:
            _refuse({"into": into, "time_limit": time_limit}, "is for --compare")
        check_writable(out, besides=(layout, *asked.files()))
        broken = price_running(
            asked.build(), from_, layout, balanced=balanced, compare=compare, out=out, into=into,
            as_json=json, time_limit_s=time_limit,
        )  # fmt: skip
        raise typer.Exit(1 if broken else 0)
    _refuse(
        asdict(asked)
        | {
            "balanced": balanced or None,
            "compare": compare or None,
            "time_limit": time_limit,
            "out": out,
            "into": into,
        }
    )
    instance, decision, document = read_result(layout)
    evaluation = evaluate(instance, decision)
    written = document.get("instance", {}).get("digest")
    if written != instance.digest:
        say(
            "rackfit: the instance has changed since the layout was written (other data or version); "
            "the figures are today's"
        )
    if json:
        data = {
            "schema_version": SCHEMA_VERSION,
            "instance": instance.describe(),
            "evaluation": evaluation.as_dict(),
        }
        write_whole(json_module.dumps(data, indent=1, allow_nan=False) + "\n", None)
    else:
        from rackfit.report.render import print_evaluation

        print_evaluation(instance, decision, evaluation)
    if evaluation.violations:
        raise typer.Exit(1)


def _served(asked: question.Asked, engine: str, path: Path) -> question.Asked:
    """What is asked, of the shipped model that the commands name, in its precision there; both are said."""
    from rackfit.documents.output import say
    from rackfit.importers.checkpoints import model_of
    from rackfit.importers.files import read_servers
    from topology.names import shown

    servers = read_servers(engine, path)
    model, weights = model_of(servers)
    served, weights = shown(servers[0].model or "", 120), asked.weight_dtype or weights
    precision = f" in {weights}" if weights else ""
    say(f"note: {servers[0].place}: serves {served}, read as {model}{precision}")
    return replace(asked, model=model, weight_dtype=weights)


def _refuse(
    options: dict[str, Any],
    message: str = "is for --from; a document of rackfit solve holds its question",
) -> None:
    """Raise ``InstanceError`` for every option that would be ignored."""
    from topology.errors import InstanceError, Problem

    given = [name for name, value in options.items() if value is not None]
    if given:
        raise InstanceError([Problem(f"--{name.replace('_', '-')}", message) for name in given])
