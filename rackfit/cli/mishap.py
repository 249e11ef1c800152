"""The file that an unexpected error leaves behind: what was asked, with which versions, and where it failed."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import traceback


def write_details(error: BaseException) -> str:
    """Write what a developer needs to know; words that say where it is."""
    try:
        from rackfit.documents.result import versions

        found = ", ".join(f"{name} {version}" for name, version in versions().items())
    except Exception:  # what failed may be just that
        found = f"python {platform.python_version()}"
    text = "\n".join(
        [
            f"versions: {found}",
            f"platform: {platform.platform()}",
            f"command: {sys.argv!r}",
            "",
            *traceback.format_exception(error),
        ]
    )
    try:
        handle, name = tempfile.mkstemp(prefix="rackfit-error-", suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except OSError:
        return "rackfit --debug shows the details"
    return f"the details are in {name}: please report them"
