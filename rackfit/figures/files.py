"""Figures as files of their own: the charts and maps of a page as SVG, and any of them as PNG.

Charts and PNG need the extra ``rackfit[charts]``, which needs no browser.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import unescape
from pathlib import Path

from rackfit.documents.output import check_writable, make_folder, write_whole
from rackfit.figures.drawing import png_bytes, svg_text
from rackfit.figures.live import specs_of

_MAP = re.compile(r'<svg [^>]*role="img" aria-label="([^"]*)"[^>]*>.*?</svg>', re.DOTALL)


def figures_of(page: str, style: str) -> dict[str, str]:
    """Every chart and labelled map of a page as standalone SVG, by a file's name; maps get ``style``.

    Names come from the titles; a second figure of one name gets a number.
    """
    drawn = [
        (place, str(spec["usermeta"]["title"]), svg_text(spec)) for place, spec in specs_of(page)
    ]
    for match in _MAP.finditer(page):
        text = match[0].replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
        start = text.index(">") + 1
        text = f"{text[:start]}<style>{style}</style>{text[start:]}\n"
        drawn.append((match.start(), unescape(match[1]), text))
    found: dict[str, str] = {}
    for _, label, text in sorted(drawn):
        name = _name(label)
        count = sum(known.rpartition("-")[0] == name or known == name for known in found)
        found[name if not count else f"{name}-{count + 1}"] = text
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
