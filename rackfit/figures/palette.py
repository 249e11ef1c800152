"""Colours of every figure, in light and dark: told apart by the colour-blind (Okabe and Ito)."""

from __future__ import annotations

LIGHT = (
    "#0072b2", "#d55e00", "#009e73", "#a6468a", "#b8860b", "#3d9fd6", "#555555", "#7b4a12", "#5e3c99",
    "#c2185b",
)  # fmt: skip
DARK = (
    "#56b4e9", "#ff8c42", "#2fd0a0", "#e59cc9", "#f0e442", "#9ad0f5", "#bbbbbb", "#d8a15c", "#b9a2f0",
    "#ff7eb0",
)  # fmt: skip
#: of each scheme: text, paper, lines behind the marks
LIGHT_PAPER = ("#222222", "#ffffff", "#dddddd")
DARK_PAPER = ("#e6e6e6", "#16181c", "#3a3d44")


def map_style() -> str:
    """CSS of the maps of racks, whose parts are the classes c0 to c6; a page includes it once."""
    fonts = (
        "svg.chart{font:12px system-ui,sans-serif;max-width:100%;height:auto}"
        ".chart .frame{fill:none;stroke:#999}.chart .small{font-size:9px}"
    )
    light, dark = (
        f".chart .back{{fill:{paper}}}.chart text{{fill:{ink}}}"
        + "".join(f".bar.c{index}{{fill:{colour}}}" for index, colour in enumerate(colours))
        for colours, (ink, paper, _) in ((LIGHT, LIGHT_PAPER), (DARK, DARK_PAPER))
    )
    return f"{fonts}{light}@media (prefers-color-scheme:dark){{{dark}}}"
