"""``rackfit check``: running servers beside the layout that they were exported from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rackfit.cli import question

if TYPE_CHECKING:
    from rackfit.live.site import Site
    from rackfit.live.verdict import Checked


def register(app: typer.Typer) -> None:
    """Add ``check`` to the command line."""
    app.command("check", no_args_is_help=True)(check_command)


def check_command(
    layout: Annotated[Path, typer.Argument(help="A document of rackfit solve.")],
    urls: Annotated[
        list[str],
        typer.Argument(
            help="Servers: URL, or NAME=URL with a name of commands.sh (decode-0=http://node0:20000); "
            "router=URL is timed alone."
        ),
    ],
    *,
    engine: Annotated[
        str | None, typer.Option(help="vllm or sglang, where the layout was solved for none.")
    ] = None,
    requests: Annotated[
        int, typer.Option(min=0, max=1000, help="Timed requests; 0 sends none.")
    ] = 4,
    timeout: Annotated[
        float, typer.Option(min=0.01, max=3600, help="Seconds for each answer.")
    ] = 60.0,
    key_variable: Annotated[
        str | None, typer.Option(help="Environment variable that holds the servers' API key.")
    ] = None,
    json: question.AsJson = False,
) -> None:
    """Ask running vLLM or SGLang servers whether they run what was exported, as fast as promised.

    Reads /metrics and the server's information, and times a few requests, one after the other, at the
    router or at a server of both phases. No other URL is asked. Exit code 1 where something differs.
    """
    import json as json_module

    from costmodel.evaluate import evaluate
    from rackfit.documents.output import write_whole
    from rackfit.documents.result import SCHEMA_VERSION, read_result
    from rackfit.live.expected import expected_servers, matched
    from rackfit.live.shown import shown_by
    from rackfit.live.timing import timed
    from rackfit.live.verdict import compare, report
    from topology.errors import InstanceError, Problem
    from topology.names import shown_lines

    key = None
    if key_variable is not None:
        key = os.environ.get(key_variable)
        if not key or not key.isascii() or not key.isprintable():
            message = "is not a variable that is set to a key (printable ASCII)"
            raise InstanceError(Problem(f"--key-variable {key_variable}", message))
    instance, decision, _ = read_result(layout)
    named = (instance.scenario.engine or "").partition("@")[0]
    table, servers = expected_servers(instance, decision, engine or named or "vllm")
    sites = matched(urls, servers, timeout, key)
    checked: list[Checked] = []
    timeable: list[Site] = []
    model = servers[0].model
    for site, server in sites:
        if server is None:
            timeable.insert(0, site)
            continue
        shown = shown_by(site)
        model = shown.model or model
        checked.append(compare(table, server, shown, site.url))
        if server.role == "mixed":
            timeable.append(site)
    measured, failure = None, None
    if requests and timeable:
        try:
            measured = timed(timeable[0], model, instance, requests)
        except InstanceError as error:
            failure = error
    found = report(checked, len(servers), measured, evaluate(instance, decision))
    if json and failure is None:
        document = {"schema_version": SCHEMA_VERSION} | found.as_dict()
        write_whole(json_module.dumps(document, indent=1, allow_nan=False) + "\n", None)
    elif not json:
        lines = found.lines()
        if requests and not timeable:
            lines.append("nothing was timed: router=URL names the router of prefill and decode")
        write_whole("".join(f"{shown_lines(line)}\n" for line in lines), None)
    if failure is not None:
        raise failure
    if not found.as_exported or found.slow:
        raise typer.Exit(1)
