"""Writing results: a file appears whole or not at all."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from topology.errors import InstanceError, Problem


def write_whole(text: str | bytes, out: Path | None) -> None:
    """Print ``text`` (``out`` is ``None``), or write it to a temporary file that is then renamed.

    Raises ``InstanceError`` where the path cannot be written; nothing is left behind then.
    """
    if out is None:
        sys.stdout.write(text if isinstance(text, str) else text.decode())
        return
    try:
        handle, name = tempfile.mkstemp(dir=out.parent, prefix=f".{out.name[:64]}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(text.encode() if isinstance(text, str) else text)
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(name, 0o666 & ~umask)
            os.replace(name, out)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise InstanceError(Problem(str(out), error.strerror or "cannot be written")) from None


def check_writable(out: Path | None) -> None:
    """Raise ``InstanceError`` early if ``out`` cannot be written, before hours of work."""
    if out is None:
        return
    try:
        taken, there = out.is_dir(), out.parent.is_dir()
    except OSError as error:
        raise InstanceError(Problem(str(out), error.strerror or "cannot be written")) from None
    if taken:
        raise InstanceError(Problem(str(out), "is a directory; a file name is needed"))
    if not there:
        raise InstanceError(Problem(str(out), f"the folder {out.parent} does not exist"))
    if not os.access(out.parent, os.W_OK | os.X_OK):
        raise InstanceError(Problem(str(out), f"no permission to write in the folder {out.parent}"))


def make_folder(folder: Path | None) -> None:
    """Make a folder that files are going to be written into; ``InstanceError`` where that fails."""
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InstanceError(Problem(str(folder), error.strerror or "no folder")) from None
    if not os.access(folder, os.W_OK):
        raise InstanceError(Problem(str(folder), "cannot be written"))
