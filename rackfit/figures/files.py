"""Figures as files of their own: the charts of a page as SVG, and any of them as PNG.

PNG needs the package ``resvg-py`` (extra ``rackfit[png]``), which needs no browser.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from html import unescape
from pathlib import Path
from typing import Any

from rackfit.documents.output import check_writable, make_folder, write_whole
from topology.errors import InstanceError, Problem

#: pixels across, twice what the figures are laid out for
_WIDTH_PX = 1520
_CHART = re.compile(r'<svg [^>]*role="img" aria-label="([^"]*)"[^>]*>.*?</svg>', re.DOTALL)


def check_png(option: str) -> None:
    """Raise ``InstanceError`` where PNG files cannot be drawn, before anything is computed."""
    _resvg(option)


def png_bytes(svg: str) -> bytes:
    """A standalone SVG as PNG, in its light colours."""
    drawn: bytes = bytes(_resvg("PNG").svg_to_bytes(svg_string=svg, width=_WIDTH_PX))
    return drawn


def figures_of(page: str, style: str) -> dict[str, str]:
    """Every labelled chart of a page as standalone SVG with ``style``, by a file's name.

    Names come from the labels; a second figure of one name gets a number.
    """
    found: dict[str, str] = {}
    for match in _CHART.finditer(page):
        if match[0].startswith('<svg xmlns="http://www.w3.org/2000/svg" class="chart narrow"'):
            continue  # the same again, for telephones
        name = _name(unescape(match[1]))
        count = sum(known.rpartition("-")[0] == name or known == name for known in found)
        drawn = match[0]
        if " xmlns=" not in drawn:
            drawn = drawn.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
        start = drawn.index(">") + 1
        found[name if not count else f"{name}-{count + 1}"] = (
            f"{drawn[:start]}<style>{style}</style>{drawn[start:]}\n"
        )
    return found


def write_figures(
    figures: Mapping[str, str],
    svg: Path | None,
    png: Path | None,
    *,
    page: Path | None = None,
    besides: tuple[Path | None, ...] = (),
) -> list[Path]:
    """Write standalone SVG texts by name as ``NAME.svg`` and ``NAME.png``; the paths.

    Raises ``InstanceError`` before any is written where one cannot be, or is the file of the ``page``, or
    one of the inputs ``besides``.
    """
    planned: dict[Path, str] = {}
    for folder, ending in ((svg, ".svg"), (png, ".png")):
        if folder is not None:
            make_folder(folder)
            planned |= {folder / f"{name}{ending}": text for name, text in figures.items()}
    check_writable(*planned, page, besides=besides)
    for path, text in planned.items():
        write_whole(text if path.suffix == ".svg" else png_bytes(text), path)
    return list(planned)


def _name(label: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")[:60] or "figure"


def _resvg(place: str) -> Any:
    try:
        return importlib.import_module("resvg_py")
    except ImportError:
        message = "needs the extra: pip install 'rackfit[png]'"
        raise InstanceError(Problem(place, message)) from None
