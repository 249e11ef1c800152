"""The process that answers requests: it waits with everything loaded, reads a line, answers in lines, and waits again.

It has as much memory as it was given, and sees what :mod:`rackfit.serve.guard` lets it. Nothing that a request
brought is left when it waits again.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rackfit import stopping
from rackfit.serve.guard import close
from topology.errors import (
    ExportError,
    InstanceError,
    NoFeasibleLayout,
    NoLayoutInTime,
    Problem,
    RackfitError,
    asked_with,
)

if TYPE_CHECKING:
    from rackfit.documents.result import Result

#: how the last line of an answer begins, and what is said after it by a process that can take another request
LAST = (b'{"document"', b'{"error"')
READY = b'{"ready": true}\n'
#: memory in use beyond which a process takes no other request
_MOST_KEPT_BYTES = 350e6
_MEMORY = Problem("request", "needs more memory than a request has here")


def answer(words: list[str]) -> str:
    """The line that holds the document of a command, or ``error`` with its kind and every problem."""
    out, said = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
            command, exits = _command(words[0])
            with contextlib.suppress(exits), command.make_context("rackfit", words) as context:
                command.invoke(context)  # a layout that breaks a rule exits with a document, too
        json.loads(out.getvalue())
        return _line(document=out.getvalue())
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
        from rackfit.cli.app import refusal

        said_of_words = refusal(error)
        if said_of_words is not None:
            return _error("bad_input", [Problem("request", said_of_words)])
        return _error("internal", [Problem("", f"{type(error).__name__}: {str(error)[:500]}")])


@cache
def _command(name: str) -> tuple[Any, type[BaseException]]:
    """A command, and what it raises to end with a code."""
    import typer

    from rackfit.cli.app import build_app

    return typer.main.get_command(build_app(name)), typer.Exit


def _line(**texts: str) -> str:
    """One JSON object in one line, of JSON texts by key."""
    inside = ", ".join(f'"{key}": {text}' for key, text in texts.items())
    return "{" + inside.replace("\n", "") + "}\n"  # JSON has line ends between its values only


def _error(kind: str, problems: Any) -> str:
    told = [{"place": one.place, "message": one.message} for one in problems]
    return _line(error=json.dumps({"kind": kind, "problems": told}))


class Talk:
    """What a process says of one request after the other."""

    def __init__(self, say: Callable[[str], None]):
        from rackfit import progress
        from rackfit.serve.sight import Sights

        self.say = say
        self.sights = Sights()
        #: whether somebody hears how a search goes
        self.tells = False
        progress.listeners.append(
            lambda state: self.tell(progress=json.dumps(asdict(state), allow_nan=False))
        )
        progress.answer_listeners.append(self.hear)

    def tell(self, **texts: str) -> None:
        """Say a line before the last, to who hears it."""
        if self.tells:
            self.say(_line(**texts))

    def hear(self, result: Result) -> None:
        """An answer with its proof; what stands beside it is still looked for."""
        self.sights.add(result)
        if self.tells:
            self.tell(answer=result.text())

    def take(self, asked: dict[str, Any]) -> None:
        """Answer one request."""
        self.tells = asked["tell"]
        for name, content in asked["files"].items():
            Path(name).write_text(content, encoding="utf-8")
        if asked["command"] == "solve" and self.tells:
            with asked_with(asked["fields"]):
                seen = self.sights.of(asked["words"][0])
            if seen is not None:
                self.tell(sight=seen)
        try:
            with asked_with(asked["fields"]):
                self.say(answer([asked["command"], *asked["words"]]))
        finally:
            for name in asked["files"]:
                Path(name).write_text("")


def _memory() -> Callable[[], float]:
    """How many bytes of memory this process has in use; where no system tells, the most that it had."""
    try:
        told = open("/proc/self/statm", encoding="ascii")  # noqa: SIM115  the guard lets nothing be opened
    except OSError:
        return lambda: 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def in_use_bytes() -> float:
        told.seek(0)
        return float(told.read().split()[1]) * resource.getpagesize()

    return in_use_bytes


def main() -> None:
    """Wait for requests on stdin, answer on stdout."""
    most, folder = int(sys.argv[1]), Path(sys.argv[2])
    import rackfit.api
    import rackfit.cli.commands.diff
    import rackfit.cli.commands.evaluate
    import rackfit.cli.commands.export
    import rackfit.cli.commands.replay
    import rackfit.cli.commands.size
    import rackfit.cli.commands.solve  # noqa: F401

    signal.signal(signal.SIGINT, lambda number, frame: stopping.ask())
    out = sys.stdout

    def say(line: str) -> None:
        out.write(line)
        out.flush()

    talk, in_use_bytes = Talk(say), _memory()
    os.chdir(folder)
    line = sys.stdin.buffer.readline()
    if not line:
        return
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    close(folder)
    while line:
        talk.take(json.loads(line))
        if threading.active_count() > 1:
            os._exit(0)  # work that had to be left is not waited for
        if in_use_bytes() > _MOST_KEPT_BYTES:
            return
        say(READY.decode())
        line = sys.stdin.buffer.readline()


if __name__ == "__main__":
    main()
