"""A child process that runs commands one after another, each on files and streams of its own.

Forking for each would cost several times what most commands do. A command that ends its process, or was
killed, costs a new child. What a command finds out about shipped files is kept for the next ones, as
nothing else is kept between them: a fault that shows only after others is told from one that shows alone.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

import typer.main
from watching import Touches

from rackfit.cli import app
from topology.errors import RackfitError

#: seconds by the clock after which a command is killed, on a machine that does other things, too
KILLED_S = 60.0
#: commands of one child
_EACH = 50


class Asker:
    """Runs commands in ``work``; see :meth:`ask`."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.child = 0
        self.asked = 0
        self.line: socket.socket | None = None

    def ask(self, words: list[str], own: tuple[Path, ...]) -> tuple[int, float, int]:
        """Run one command that may write to ``own``: exit code, seconds of a processor, most memory (KB)."""
        if self.asked == _EACH:
            self.end()
        if self.line is None:
            self._begin()
        assert self.line is not None
        self.asked += 1
        self.line.send(json.dumps([words, [str(path) for path in own]]).encode("utf-8"))
        ready, _, _ = select.select([self.line], [], [], KILLED_S)
        said = self.line.recv(1000) if ready else b""
        if said:
            code, seconds, kb = json.loads(said)
            return code, seconds, kb
        if not ready:
            os.kill(self.child, signal.SIGKILL)
        return self._ended()

    def end(self) -> None:
        """Let the child go."""
        if self.line is not None:
            self.line.close()
            self.line, self.asked = None, 0
            os.waitpid(self.child, 0)

    def _ended(self) -> tuple[int, float, int]:
        """Exit code of a child that has ended; seconds and memory of its last command."""
        assert self.line is not None
        self.line.close()
        self.line, self.asked = None, 0
        _, status, used = os.wait4(self.child, 0)
        before = float((self.work / "tmp" / "std-began").read_text())
        seconds = used.ru_utime + used.ru_stime - before
        return os.waitstatus_to_exitcode(status), seconds, used.ru_maxrss

    def _begin(self) -> None:
        self.line, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.child = os.fork()
        if self.child == 0:
            self.line.close()
            try:
                _serve(far, self.work)
            finally:
                os._exit(98)
        far.close()


def _serve(line: socket.socket, work: Path) -> None:
    """In the child: run what is asked until nothing more is."""
    touches = Touches()
    # a command's options are made from its signature each time; nothing of what it reads is in them
    app.build_app = cache(app.build_app)
    typer.main.get_command = cache(typer.main.get_command)
    os.environ |= {
        "HOME": str(work / "home"),
        "XDG_CACHE_HOME": str(work / "home"),
        "TMPDIR": str(work / "tmp"),
        "RACKFIT_DEBUG": "1",
    }
    while said := line.recv(1_000_000):
        words, own = json.loads(said)
        os.chdir(work)
        tempfile.tempdir = None
        began = time.process_time()
        (work / "tmp" / "std-began").write_text(repr(began))
        _forget_peak()
        code = _run(words, work, [Path(path) for path in own], touches)
        line.send(json.dumps([code, time.process_time() - began, _peak_kb()]).encode())
    os._exit(0)


def _run(words: list[str], work: Path, own: list[Path], touches: Touches) -> int:
    """Exit code of one command; what it says is in files of ``work``."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        handle = os.open(work / "tmp" / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(handle, number)
        os.close(handle)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.argv = ["rackfit", *words]
    code = 99
    with touches.noted(own, work / "tmp" / "touched"):
        try:
            app.main()
        except SystemExit as end:
            code = int(end.code or 0)
        except RackfitError as error:  # a message, with the traceback that was asked for
            code = app.exit_code(error)
        except BaseException:
            import traceback

            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
    return code


def _forget_peak() -> None:
    """Let the kernel count the most memory anew."""
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")


def _peak_kb() -> int:
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        return next(int(text.split()[1]) for text in file if text.startswith("VmHWM:"))
