"""The command line: one typer application, one file per command in ``rackfit/cli/commands``.

Every module there has ``register(app)``; it is found by its file name and no list is edited.
Errors become one message on stderr and an exit code: 1 infeasible, 2 bad input, 3 no layout within
the time limit, 4 a failed verification. A traceback is shown only with ``RACKFIT_DEBUG=1``.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
from typing import TYPE_CHECKING

from rackfit.cli.ctrl_c import came_of_ctrl_c, watch

# heavy imports stay inside functions: Ctrl-C while they load must not print a traceback
if TYPE_CHECKING:
    import typer

    from topology.errors import RackfitError

EXIT_INFEASIBLE, EXIT_BAD_INPUT, EXIT_TIME_LIMIT, EXIT_INTERNAL = 1, 2, 3, 4


def build_app() -> typer.Typer:
    """The application with every command found in ``rackfit.cli.commands``."""
    import typer

    from rackfit.cli import commands

    app = typer.Typer(
        name="rackfit",
        help="Which layout serves this model on this cluster for the least money per token?",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    for module in sorted(pkgutil.iter_modules(commands.__path__), key=lambda found: found.name):
        importlib.import_module(f"{commands.__name__}.{module.name}").register(app)
    return app


def main() -> None:
    """Entry point of the ``rackfit`` command."""
    watch()
    try:
        sys.exit(run())
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except BaseException as error:  # a Rust panic is no Exception
        if isinstance(error, SystemExit) or not came_of_ctrl_c(error):
            raise
        # a solve that is stopped before it began has no layout, like one that ran out of time
        sys.exit(EXIT_TIME_LIMIT if sys.argv[1:2] == ["solve"] else 130)


def run() -> int:
    """Run the command line; errors raised on purpose become messages on stderr and an exit code."""
    from topology.errors import RackfitError

    try:
        build_app()()
    except RackfitError as error:
        if os.environ.get("RACKFIT_DEBUG"):
            raise
        for line in str(error).splitlines():
            print(f"rackfit: {line}", file=sys.stderr)
        return exit_code(error)
    return 0


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
