"""What a command touches: files of a scratch folder before and after, and what its process opens and starts."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from stat import S_ISDIR

Listing = dict[str, tuple[int, ...]]

#: events of ``sys.addaudithook`` that start something or reach out
_STARTS = (
    "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.startfile", "pty.spawn",
    "socket.connect", "socket.bind", "socket.sendto", "webbrowser.open",
)  # fmt: skip
#: events whose first words are paths that are changed
_CHANGES = (
    "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.chmod", "os.chown", "os.truncate", "os.link",
    "os.symlink", "os.utime", "os.mkfifo", "os.mknod", "os.setxattr",
)  # fmt: skip
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def listing(folder: Path) -> Listing:
    """Every path under a folder with what changes when it is written to."""
    found: Listing = {}
    pending = [str(folder)]
    start = len(str(folder)) + 1
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                seen = entry.stat(follow_symlinks=False)
                if S_ISDIR(seen.st_mode):
                    pending.append(entry.path)
                    found[entry.path[start:]] = (seen.st_mode,)
                else:
                    found[entry.path[start:]] = (
                        seen.st_mode, seen.st_size, seen.st_mtime_ns, seen.st_ino,
                    )  # fmt: skip
    return found


class Scratch:
    """A copy of good files under ``folder/in``, and ``out``, ``tmp`` and ``home`` there; put in order again each time."""

    def __init__(self, corpus: Path, folder: Path) -> None:
        self.corpus, self.folder, self.work = corpus, folder, folder / "in"
        shutil.copytree(corpus, self.work)
        for name in ("out", "tmp", "home"):
            (self.work / name).mkdir()
        self.good = listing(folder)

    def tidy(self) -> Listing:
        """Undo whatever was changed; the listing after that."""
        found = listing(self.folder)
        for name in sorted(found.keys() - self.good.keys(), reverse=True):
            path = self.folder / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        for name in sorted(self.good.keys()):
            if found.get(name) == self.good[name]:
                continue
            path = self.folder / name
            if S_ISDIR(self.good[name][0]):
                path.mkdir(exist_ok=True)
                path.chmod(self.good[name][0] & 0o7777)
                continue
            path.unlink(missing_ok=True)
            shutil.copy2(self.corpus / path.relative_to(self.work), path)
        self.good = listing(self.folder)
        return self.good


class Touches:
    """Notes whatever this process writes to outside of some folders, starts, or connects to. One for a process."""

    def __init__(self) -> None:
        self._roots: tuple[str, ...] = ()
        self._handle: int | None = None
        self._inside = False
        sys.addaudithook(self._hook)

    @contextmanager
    def noted(self, roots: Sequence[Path], report: Path) -> Iterator[None]:
        """Note in ``report`` what is done meanwhile outside of ``roots``."""
        self._roots = tuple(os.path.realpath(root) for root in roots)
        self._handle = os.open(report, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            yield
        finally:
            os.close(self._handle)
            self._handle = None

    def _outside(self, path: object) -> bool:
        if path is None or isinstance(path, int):
            return False
        found = os.path.realpath(os.fsdecode(path))  # type: ignore[arg-type]
        return found != os.devnull and not any(
            found == root or found.startswith(root + os.sep) for root in self._roots
        )

    def _hook(self, event: str, given: tuple[object, ...]) -> None:
        if self._handle is None or self._inside:
            return
        if event != "open" and event not in _CHANGES and event not in _STARTS:
            return
        self._inside = True
        try:
            if event in _STARTS:
                touched = True
            elif event == "open":
                flags = given[2]
                writes = isinstance(flags, int) and bool(flags & _WRITES)
                touched = writes and self._outside(given[0])
            else:
                paths = given[:2] if event in ("os.rename", "os.link") else given[:1]
                touched = any(self._outside(path) for path in paths)
            if touched:
                said = f"{event} {given[:2]!r}\n"
                os.write(self._handle, said.encode("utf-8", "backslashreplace"))
        except ValueError:  # a path that no system call takes
            pass
        finally:
            self._inside = False
