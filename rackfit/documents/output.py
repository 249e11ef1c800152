"""Writing results: a file appears whole or not at all, and nothing but an ordinary file is ever replaced."""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath

from rackfit import stopping
from topology.errors import InstanceError, Problem
from topology.names import shown, shown_lines

#: characters of a name kept in that of its draft
_HEAD = 64
#: endings of files that a page is not
_NO_PAGE = frozenset({".pdf", ".png", ".svg", ".jpg", ".jpeg", ".docx", ".json", ".yaml"})


def say(text: str) -> None:
    """A message on stderr; characters that a terminal would obey are written as escapes."""
    with suppress(OSError, ValueError):  # nobody listens: the result matters, not the message
        print(shown_lines(text), file=sys.stderr)


def write_whole(text: str | bytes, out: Path | None) -> None:
    """Print ``text`` (``out`` is ``None``), or write it to a draft that then takes the place of ``out``.

    A symbolic link is followed, an existing file keeps its mode. Raises ``InstanceError`` where the path
    cannot be written or is no ordinary file (a device, a pipe, a folder); nothing is left behind then.
    """
    if out is None:
        sys.stdout.write(text if isinstance(text, str) else text.decode())
        return
    target = _target(out)
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:_HEAD]}.")
        stopping.drafts.add(Path(name))
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_encoded(text))
            os.chmod(name, _mode(target))
            with stopping.replacing:
                os.replace(name, target)
                stopping.drafts.discard(Path(name))
        except BaseException:
            os.unlink(name)
            stopping.drafts.discard(Path(name))
            raise
    except OSError as error:
        raise _refused(out, error) from None


def write_folder(files: Mapping[str, str], out: Path) -> None:
    """Write all files, by relative path, under a new or empty folder ``out``, or none of them.

    Files that name their interpreter may be executed. Raises ``InstanceError`` as :func:`write_whole` does.
    """
    target = new_folder(out)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name[:_HEAD]}."))
        stopping.drafts.add(draft)
        try:
            for name, text in files.items():
                path = draft / _inside(name)
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("xb") as file:  # two names that a file system confuses are not lost
                    file.write(_encoded(text))
                if text.startswith("#!"):
                    path.chmod(0o755)
            draft.chmod(0o755)
            with stopping.replacing:
                if target.is_dir():
                    target.rmdir()
                os.replace(draft, target)
                stopping.drafts.discard(draft)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            stopping.drafts.discard(draft)
            raise
    except OSError as error:
        raise _refused(out, error) from None


def new_folder(out: Path) -> Path:
    """The new or empty folder that ``out`` stands for, links followed. Raises ``InstanceError`` where it is something else."""
    try:
        target = Path(os.path.realpath(out))
        if os.path.lexists(target) and (not target.is_dir() or any(target.iterdir())):
            raise InstanceError(Problem(str(out), "exists and is not an empty folder"))
    except (OSError, ValueError) as error:
        raise _refused(out, error) from None
    return target


def check_writable(
    *outs: Path | None, page: Path | None = None, besides: tuple[Path | None, ...] = ()
) -> None:
    """Raise ``InstanceError`` early if a file cannot be written, before hours of work.

    Also where two outputs are one file, or an output is one of the inputs ``besides``, or a ``page`` is named as what it will not be.
    """
    problems: list[Problem] = []
    if page is not None and page.suffix.lower() in _NO_PAGE:
        message = f"a page is HTML: name it {page.stem}.html; a browser prints it as PDF"
        problems.append(Problem(shown(page, 200), message))
    outs = (*outs, page)
    seen = [(path, "is read, too") for path in besides if path is not None and os.path.isfile(path)]
    for out in outs:
        if out is None:
            continue
        try:
            target = _target(out)
        except InstanceError as error:
            problems += error.problems
            continue
        if not os.access(target.parent, os.W_OK | os.X_OK):
            message = f"no permission to write in the folder {target.parent}"
            problems.append(Problem(str(out), message))
        problems += [Problem(str(out), word) for path, word in seen if _same(path, target)][:1]
        seen.append((out, "is written twice; give each output its own file"))
    if problems:
        raise InstanceError(problems)


def make_folder(folder: Path | None) -> None:
    """Make a folder that files are going to be written into; ``InstanceError`` where that fails."""
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise _refused(folder, error) from None
    if not os.access(folder, os.W_OK):
        raise InstanceError(Problem(str(folder), "cannot be written"))


def _target(out: Path) -> Path:
    """The ordinary or new file that ``out`` stands for, links followed. Raises ``InstanceError``."""
    try:
        target = Path(os.path.realpath(out))
        try:
            found: os.stat_result | None = os.stat(out)
        except FileNotFoundError:
            found = None
        folder = target.parent.is_dir()
    except (OSError, ValueError) as error:
        raise _refused(out, error) from None
    if found is not None and stat.S_ISDIR(found.st_mode):
        raise InstanceError(Problem(str(out), "is a directory; a file name is needed"))
    if found is not None and not stat.S_ISREG(found.st_mode):
        message = "is not an ordinary file; leave the option out to print to stdout"
        raise InstanceError(Problem(str(out), message))
    if found is not None and not (found.st_mode & 0o222 and os.access(target, os.W_OK)):
        raise InstanceError(Problem(str(out), "may only be read"))
    if not folder:
        raise InstanceError(Problem(str(out), f"the folder {target.parent} does not exist"))
    return target


def _same(path: Path, target: Path) -> bool:
    """Whether both are one file, or will be."""
    with suppress(OSError, ValueError):
        if path.exists() and target.exists():
            return os.path.samefile(path, target)
        return os.path.realpath(path) == str(target)
    return False


def _mode(target: Path) -> int:
    """The mode of the file that is replaced; of a new one as the umask says."""
    with suppress(FileNotFoundError):
        return stat.S_IMODE(os.stat(target).st_mode)
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask


def _inside(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or not path.parts or ".." in path.parts:
        raise InstanceError(Problem(name, "is no path inside a folder"))
    return path


def _encoded(text: str | bytes) -> bytes:
    """Bytes in UTF-8; what has none (a file's name of other bytes) as an escape."""
    return text.encode("utf-8", "backslashreplace") if isinstance(text, str) else text


def _refused(out: Path, error: OSError | ValueError) -> InstanceError:
    reason = getattr(error, "strerror", None) or "not a usable path"
    return InstanceError(Problem(str(out), reason))
