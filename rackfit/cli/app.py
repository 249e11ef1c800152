"""The command line: one typer application, one file per command in ``rackfit/cli/commands``.

Every module there has ``register(app)``; it is found by its file name and no list is edited.
Errors become one message on stderr and an exit code: 1 infeasible, 2 bad input, 3 no layout within
the time limit, 4 an error of Rackfit's own. A traceback is shown only with ``--debug``.
"""

from __future__ import annotations

import errno
import importlib
import inspect
import os
import pkgutil
import sys
import threading
import warnings
from typing import TYPE_CHECKING, Any, cast

from rackfit.stopping import began, came_of_ctrl_c, exit_code_of_stop, leave, watch

# heavy imports stay inside functions: Ctrl-C while they load must not print a traceback
if TYPE_CHECKING:
    import typer

    from topology.errors import RackfitError

EXIT_INFEASIBLE, EXIT_BAD_INPUT, EXIT_TIME_LIMIT, EXIT_INTERNAL = 1, 2, 3, 4
#: lines of an error that are printed, and characters of each
_MOST_LINES, _MOST_LINE = 25, 500
#: why an output cannot be written
UNWRITABLE = (errno.ENOSPC, errno.EBADF, errno.EIO, errno.EFBIG, errno.EDQUOT)
#: set where the traceback is wanted
DEBUG = "RACKFIT_DEBUG"


def build_app(*words: str) -> typer.Typer:
    """The application with every command found in ``rackfit.cli.commands``.

    Of ``words``, a command line, the first that is no option chooses: where it is a command's name, that
    one alone is loaded.
    """
    import typer

    from rackfit.cli import commands
    from rackfit.cli.options import every_command

    app = typer.Typer(
        name="rackfit",
        help="Which layout serves this model on this cluster for the least money per token?",
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
        pretty_exceptions_enable=False,
    )
    app.callback()(every_command)
    names = sorted(module.name for module in pkgutil.iter_modules(commands.__path__))
    chosen = next((word for word in words if not word.startswith("-")), None)
    for name in [chosen] if chosen in names else names:
        importlib.import_module(f"{commands.__name__}.{name}").register(app)
    for command in app.registered_commands:
        # lines of a docstring end where those of the source do, not those of a terminal
        paragraphs = (inspect.getdoc(command.callback) or "").split("\n\n")
        command.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    return app


def main() -> None:
    """Entry point of the ``rackfit`` command."""
    watch()
    try:
        sys.exit(_ended())
    finally:
        began.clear()


def _ended() -> int:
    """Run the command line; its exit code, whatever happens."""
    try:
        from rackfit.cli.streams import usable_streams

        usable_streams()
        if not os.environ.get(DEBUG):  # a library's warnings tell a person nothing
            warnings.simplefilter("ignore")
        code = run()
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read our output has seen enough, as of ``| head -1``
        code = 0
        _silence()
    except BaseException as error:  # a Rust panic is no Exception
        if isinstance(error.__context__, BrokenPipeError):  # as rich ends a program then
            code = 0
            _silence()
        elif isinstance(error, SystemExit):
            raise
        elif isinstance(error, OSError) and error.errno in UNWRITABLE and error.filename is None:
            _complain(f"stdout: {error.strerror}")
            code = EXIT_BAD_INPUT
            _silence()
        else:
            code = _unexpected(error)
    if any(thread.name.startswith("rackfit-work") for thread in threading.enumerate()):
        leave(code)  # work that had to be left is not waited for
    return code


def run() -> int:
    """Run the command line; errors raised on purpose become messages on stderr and an exit code."""
    import typer

    from topology.errors import RackfitError, VerificationError

    if "_RACKFIT_COMPLETE" in os.environ:
        build_app()(prog_name="rackfit")  # a shell asks how a word goes on; ends the process
    try:
        command = typer.main.get_command(build_app(*sys.argv[1:]))
        with command.make_context("rackfit", sys.argv[1:]) as context:
            command.invoke(context)
    except typer.Exit as end:
        return int(end.exit_code)
    except RackfitError as error:
        if os.environ.get(DEBUG):
            raise
        if isinstance(error, VerificationError):
            return _unexpected(error)
        _complain(str(error))
        return exit_code(error)
    except Exception as error:
        said = refusal(error)
        if said is None:
            raise
        place = getattr(error, "ctx", None)
        if said:
            hint = f" (see {place.command_path} --help)" if place is not None else ""
            _complain(f"{said}{hint}")
        return EXIT_BAD_INPUT
    return 0


def refusal(error: Exception) -> str | None:
    """What is wrong with the words of a command line, where that is the error (``ClickException``, wherever it lies)."""
    from topology.catalogue import plain_words

    if all(kind.__name__ != "ClickException" for kind in type(error).__mro__):
        return None
    # a list of choices comes on lines of its own
    message = " ".join(str(cast(Any, error).format_message()).split())
    what, colon, why = message.partition(": ")
    return f"{what}{colon}{plain_words(why)}"


def exit_code(error: RackfitError) -> int:
    """Exit code: 1 infeasible, 2 bad input or export, 3 time limit, 4 a failed verification."""
    from topology.errors import (
        ExportError,
        InstanceError,
        NoFeasibleLayout,
        NoLayoutInTime,
        VerificationError,
    )

    if isinstance(error, NoFeasibleLayout):
        return EXIT_INFEASIBLE
    if isinstance(error, NoLayoutInTime):
        return EXIT_TIME_LIMIT
    if isinstance(error, VerificationError):
        return EXIT_INTERNAL
    return EXIT_BAD_INPUT if isinstance(error, (InstanceError, ExportError)) else EXIT_INTERNAL


def _complain(text: str) -> None:
    """Say what is wrong, line by line; of very much the beginning."""
    from rackfit.documents.output import say
    from topology.names import shown

    lines = text.splitlines()
    for line in lines[:_MOST_LINES]:
        say(f"rackfit: {shown(line, _MOST_LINE)}")
    if len(lines) > _MOST_LINES:
        say(f"rackfit: and {len(lines) - _MOST_LINES} more lines")


def _unexpected(error: BaseException) -> int:
    """Exit code of what should not have happened; the details go into a file that a person can send."""
    if came_of_ctrl_c(error):
        # a solve that is stopped before it began has no layout, like one that ran out of time
        return exit_code_of_stop()
    if os.environ.get(DEBUG):
        raise error
    from rackfit.cli.mishap import write_details

    _complain(f"internal error: {type(error).__name__}: {str(error)[:200]}; {write_details(error)}")
    return EXIT_INTERNAL


def _silence() -> None:
    """Let nothing more be written, also not when Python flushes what is left."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
