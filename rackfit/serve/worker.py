"""The process that answers one request: it waits with everything loaded, reads one line, answers and ends.

It opens no file but those of the request, the shipped data and Python's own; starts no process and no
connection; and has as much memory as it was given.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from topology.catalogue import data_dir
from topology.errors import InstanceError, NoFeasibleLayout, NoLayoutInTime, Problem, RackfitError
from topology.names import shown

_FORBIDDEN = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "socket.connect",
              "os.remove", "os.rename", "shutil.rmtree", "os.symlink", "os.link")  # fmt: skip
_MEMORY = Problem("request", "needs more memory than a request has here")
#: what Python itself reads of its folders
_CODE = (".py", ".pyc", ".so", ".pth", "METADATA", "entry_points.txt", "RECORD")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def guard(folder: Path) -> Callable[[str, tuple[Any, ...]], None]:
    """An audit hook that refuses every file outside ``folder``, the shipped data and Python's own."""
    own, data = str(folder.resolve()), str(data_dir("chips").resolve().parent)

    def hook(event: str, values: tuple[Any, ...]) -> None:
        if event in _FORBIDDEN:
            raise InstanceError(Problem("request", f"{event} is not allowed"))
        if event != "open" or isinstance(values[0], int):
            return
        path = os.path.realpath(os.fsdecode(values[0]))
        if path.startswith(own + os.sep):
            return
        reads = not (isinstance(values[2], int) and values[2] & _WRITING)
        if reads and (path.startswith(data + os.sep) or path.endswith(_CODE)):
            return
        message = "is not offered: give a name of the catalogue, or a file's name and its content in files"
        raise InstanceError(Problem(shown(str(values[0]), 200), message))

    return hook


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
    import rackfit.cli.commands.evaluate
    import rackfit.cli.commands.replay
    import rackfit.cli.commands.size
    import rackfit.cli.commands.solve  # noqa: F401

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
    sys.addaudithook(guard(folder))
    told = json.dumps(answer([asked["command"], *asked["words"]]), allow_nan=False)
    sys.stdout.write(told + "\n")
    sys.stdout.flush()
    if threading.active_count() > 1:
        os._exit(0)  # work that had to be left is not waited for


if __name__ == "__main__":
    main()
