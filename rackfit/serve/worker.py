"""The process that answers one request: it waits with everything loaded, reads one line, answers and ends.

It has as much memory as it was given, and sees what :mod:`rackfit.serve.guard` lets it.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rackfit.serve.guard import close
from topology.errors import (
    ExportError,
    InstanceError,
    NoFeasibleLayout,
    NoLayoutInTime,
    Problem,
    RackfitError,
)

_MEMORY = Problem("request", "needs more memory than a request has here")


def answer(words: list[str]) -> dict[str, Any]:
    """The document of a command, or ``error`` with its kind and every problem."""
    import typer

    from rackfit.cli.app import build_app, refusal

    out, said = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
            command = typer.main.get_command(build_app(words[0]))
            try:
                with command.make_context("rackfit", words) as context:
                    command.invoke(context)
            except typer.Exit:
                pass  # a layout that breaks a rule has a document, too
        return {"document": json.loads(out.getvalue())}
    except InstanceError as error:
        return _error("bad_input", error.problems)
    except NoFeasibleLayout as error:
        return _error("infeasible", [Problem("", str(error))])
    except NoLayoutInTime as error:
        return _error("no_layout_in_time", [Problem("", str(error))])
    except ExportError as error:
        return _error("cannot_export", [Problem("", line) for line in str(error).splitlines()])
    except RackfitError as error:
        return _error("internal", [Problem("", str(error))])
    except MemoryError:
        return _error("too_large", [_MEMORY])
    except Exception as error:
        if "can't start new thread" in str(error):  # there is no room for its stack
            return _error("too_large", [_MEMORY])
        said_of_words = refusal(error)
        if said_of_words is not None:
            return _error("bad_input", [Problem("request", said_of_words)])
        return _error("internal", [Problem("", f"{type(error).__name__}: {str(error)[:500]}")])


def _error(kind: str, problems: Any) -> dict[str, Any]:
    told = [{"place": one.place, "message": one.message} for one in problems]
    return {"error": {"kind": kind, "problems": told}}


def main() -> None:
    """Wait for a request on stdin, answer on stdout."""
    most = int(sys.argv[1])
    import rackfit.api
    import rackfit.cli.commands.diff
    import rackfit.cli.commands.evaluate
    import rackfit.cli.commands.export
    import rackfit.cli.commands.replay
    import rackfit.cli.commands.size
    import rackfit.cli.commands.solve  # noqa: F401
    from rackfit import progress

    line = sys.stdin.buffer.readline()
    if not line:
        return
    asked = json.loads(line)
    folder = Path(asked["folder"])
    os.chdir(folder)
    for name, content in asked["files"].items():
        (folder / name).write_text(content, encoding="utf-8")
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    close(folder)
    out = sys.stdout

    def tell(said: dict[str, Any]) -> None:
        out.write(json.dumps(said, allow_nan=False) + "\n")
        out.flush()

    if asked["progress"]:
        progress.listeners.append(lambda state: tell({"progress": asdict(state)}))
    tell(answer([asked["command"], *asked["words"]]))
    if threading.active_count() > 1:
        os._exit(0)  # work that had to be left is not waited for


if __name__ == "__main__":
    main()
