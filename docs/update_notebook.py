"""Runs ``examples/*.ipynb`` from top to bottom and keeps what each cell shows.

``python docs/update_notebook.py`` writes the notebooks again; no Jupyter is needed.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
from pathlib import Path
from typing import Any

from rackfit.documents.output import write_whole

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def executed(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook with the outputs of its cells, run in order in one namespace; raises what a cell raises."""
    names: dict[str, Any] = {"__name__": "__main__"}
    cells, count = [], 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            count += 1
            cell = {**cell, "execution_count": count, "outputs": _run(cell, names, count)}
        cells.append(cell)
    return {**notebook, "cells": cells}


def _run(cell: dict[str, Any], names: dict[str, Any], count: int) -> list[dict[str, Any]]:
    tree = ast.parse("".join(cell["source"]))
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, f"cell {count}", "exec"), names)
        value = None
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), f"cell {count}", "eval"), names)
    found: list[dict[str, Any]] = []
    if printed.getvalue():
        text = printed.getvalue().splitlines(keepends=True)
        found.append({"output_type": "stream", "name": "stdout", "text": text})
    if value is not None:
        data = {"text/plain": repr(value)[:200].splitlines(keepends=True)}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = value._repr_html_().splitlines(keepends=True)
        found.append(
            {
                "output_type": "execute_result",
                "execution_count": count,
                "metadata": {},
                "data": data,
            }
        )
    return found


def main() -> None:
    """Write every example again."""
    for path in sorted(EXAMPLES.glob("*.ipynb")):
        done = executed(json.loads(path.read_text(encoding="utf-8")))
        write_whole(json.dumps(done, indent=1, ensure_ascii=False) + "\n", path)


if __name__ == "__main__":
    main()
