"""Writes the tables and the picture of docs/architecture.md from the packages themselves.

Every room is a folder of a package; what it is for is the first line of its ``__init__.py``.
``python docs/update_architecture.py`` rewrites both; a test compares them.
"""

from __future__ import annotations

import ast
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE, PICTURE = ROOT / "docs" / "architecture.md", ROOT / "docs" / "architecture.svg"
START, END = "<!-- rooms: start -->\n", "<!-- rooms: end -->\n"
#: packages, lowest first: each imports only those before it
PACKAGES = ("topology", "costmodel", "solver", "rackfit")
#: sizes of the picture in pixels
_WIDE, _COLUMN, _LINE, _PAD = 900, 215, 22, 12


def purpose(folder: Path) -> str:
    """First sentence of a package's docstring."""
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or ""
    return text.splitlines()[0].split(". ")[0].rstrip(".").replace("``", "`")


def _sentence(text: str) -> str:
    return text if text.endswith("?") else f"{text}."


def rooms(package: str) -> dict[str, str]:
    """Rooms of a package and what each is for."""
    folders = sorted(path.parent for path in (ROOT / package).glob("*/__init__.py"))
    return {folder.name: purpose(folder) for folder in folders}


def tables() -> str:
    """One table for each package."""
    lines = []
    for package in PACKAGES:
        lines += [
            f"### `{package}`",
            "",
            _sentence(purpose(ROOT / package)),
            "",
            "| room | holds |",
        ]
        lines += ["|---|---|"]
        lines += [f"| `{package}/{name}/` | {text} |" for name, text in rooms(package).items()]
        lines += [""]
    return "\n".join(lines)


def page(text: str) -> str:
    """The page with its tables as the folders say."""
    before, _, rest = text.partition(START)
    _, _, after = rest.partition(END)
    return before + START + "\n" + tables() + "\n" + END + after


def picture() -> str:
    """Packages as columns, their rooms below; arrows point to what a package imports."""
    tall = max(len(rooms(package)) for package in PACKAGES) * _LINE + 110
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDE} {tall}" role="img" '
        'font-family="sans-serif" font-size="13">',
        "<title>Packages and their rooms; imports point left</title>",
        '<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8Z" fill="#555"/></marker></defs>',
        f'<rect width="{_WIDE}" height="{tall}" fill="#fff"/>',
    ]
    for column, package in enumerate(PACKAGES):
        left, width = _PAD + column * (_COLUMN + 8), _COLUMN - 16
        parts.append(
            f'<rect x="{left}" y="40" width="{width}" height="{tall - 52}" rx="8" '
            'fill="#eef1fb" stroke="#3f51b5"/>'
        )
        parts.append(f'<text x="{left + 12}" y="64" font-weight="bold">{package}</text>')
        parts += [
            f'<text x="{left + 12}" y="{92 + line * _LINE}">{escape(name)}/</text>'
            for line, name in enumerate(rooms(package))
        ]
        if column:
            parts.append(
                f'<path d="M{left} 28H{left - 24 - 80}" stroke="#555" marker-end="url(#a)"/>'
                f'<text x="{left - 88}" y="20" fill="#555">imports</text>'
            )
    return "\n".join([*parts, "</svg>"]) + "\n"


def main() -> None:
    """Rewrite the page's tables and the picture."""
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    PICTURE.write_text(picture(), encoding="utf-8")


if __name__ == "__main__":
    main()
