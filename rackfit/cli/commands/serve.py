"""``rackfit serve``: a page to explore with, and the JSON API, on this machine."""

from __future__ import annotations

import os
from typing import Annotated

import typer

#: addresses that only this machine reaches
_LOCAL = ("127.0.0.1", "localhost", "::1")


def register(app: typer.Typer) -> None:
    """Add ``serve`` to the command line."""
    app.command("serve")(serve_command)


def serve_command(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 is any free one.")] = 8344,
    address: Annotated[
        str, typer.Option(help="Address to listen on; others than this machine need a token.")
    ] = "127.0.0.1",
    token: Annotated[
        str | None,
        typer.Option(envvar="RACKFIT_TOKEN", help="What callers must give; made up where needed."),
    ] = None,
    time_limit: Annotated[float, typer.Option(help="Seconds of a request at most.")] = 60.0,
    memory: Annotated[float, typer.Option(help="GB of memory of a request at most.")] = 8.0,
    at_once: Annotated[
        int | None, typer.Option(min=1, max=256, help="Requests worked on at once.")
    ] = None,
) -> None:
    """Show a page to explore with, and answer questions over HTTP with their documents.

    The schema is at /api/openapi.json. Each request has a time limit and a memory limit, one that brings
    files a process of its own, and reads nothing but the catalogue and what it brings. Needs the extra serve.
    """
    import asyncio
    import secrets

    from rackfit.documents.output import say
    from topology.errors import InstanceError, Problem

    problems = []
    if not 0 < time_limit <= 86_400:
        message = f"must be above 0 and at most 86400 seconds, got {time_limit:g}"
        problems.append(Problem("--time-limit", message))
    if not 1 <= memory <= 4096:
        problems.append(Problem("--memory", f"must be 1 to 4096 GB, got {memory:g}"))
    if token is not None and not (token.isascii() and token.isprintable() and len(token) >= 16):
        problems.append(Problem("--token", "must be 16 or more printable ASCII characters"))
    if problems:
        raise InstanceError(problems)
    try:
        from rackfit.serve.running import run
    except ImportError:
        raise InstanceError(
            Problem("serve", "needs the extra: pip install 'rackfit[serve]'")
        ) from None
    if token is None and address not in _LOCAL:
        token = secrets.token_urlsafe(24)
        say(f"token: {token}")
    cores = at_once or max(1, (os.cpu_count() or 2) // 2)
    asyncio.run(run(address, port, token, cores, time_limit, int(memory * 1e9)))
