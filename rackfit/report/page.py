"""The frame of every HTML page Rackfit writes: one file, no outside request, light and dark."""

from __future__ import annotations

from collections.abc import Sequence

from rackfit.figures.live import STYLE as CHART_STYLE
from rackfit.figures.live import scripts
from rackfit.figures.palette import map_style
from rackfit.quoting import markup

_STYLE = """
:root{color-scheme:light dark;--ink:#222;--paper:#fff;--soft:#f3f4f6;--line:#d5d8dd;--link:#0055aa}
@media (prefers-color-scheme:dark){:root{--ink:#e6e6e6;--paper:#16181c;--soft:#22252b;--line:#3a3d44;
--link:#7ab8ff}}
*{box-sizing:border-box}
body{font:15px/1.55 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:1000px;
margin:0 auto;padding:1.5em 1em}
h1{font-size:1.5em;line-height:1.25;overflow-wrap:anywhere}
h2{font-size:1.15em;margin-top:2em;border-bottom:1px solid var(--line)}
.headline{background:var(--soft);padding:.8em 1em;border-radius:6px}.headline strong{font-size:1.3em}
.wide{overflow-x:auto}.wide>svg.chart{min-width:620px}.wide:focus-visible,rect:focus-visible{outline:2px solid var(--link)}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.9em}
th,td{text-align:left;vertical-align:top;padding:.25em .8em .25em 0;border-bottom:1px solid var(--line)}
th{white-space:nowrap}td{min-width:5em;max-width:28em;white-space:nowrap}
td.long{min-width:14em;white-space:normal;overflow-wrap:anywhere}
.note{font-size:.9em;opacity:.85}
@media screen and (max-width:640px){th[scope=row]{white-space:normal;min-width:9em}td.long{min-width:12em}}
@media print{body{max-width:none;font-size:12px;padding:0}.wide{overflow:visible}svg.chart,.plot,tr{break-inside:avoid}
h2,.note,h2+p{break-after:avoid}figure details{display:none}.wide>svg.chart{min-width:0!important;max-width:90%}}
"""


def page(title: str, sections: Sequence[str], style: str = "") -> str:
    """An HTML document of sections that are HTML already; the title is escaped here."""
    body = "\n".join(sections)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<title>{markup(title)}</title><style>{_STYLE}{map_style()}{CHART_STYLE}{style}</style></head>\n"
        f"<body><main><h1>{markup(title)}</h1>\n{body}</main>\n{scripts(body)}</body></html>\n"
    )


def table(header: Sequence[str], rows: Sequence[Sequence[object]], label: str) -> str:
    """An HTML table of escaped cells that scrolls inside its own box, also by keyboard."""
    head = "".join(f'<th scope="col">{markup(name)}</th>' for name in header)
    lines = "".join(
        "<tr>" + "".join(_data(_cell(value)) for value in row) + "</tr>" for row in rows
    )
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{markup(label)}"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>"
    )


def _data(text: str) -> str:
    return f'<td class="long">{markup(text)}</td>' if len(text) > 32 else f"<td>{markup(text)}</td>"


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float) and 1e4 <= abs(value) < 1e9:
        return f"{value:,.0f}"
    return f"{value:,.4g}" if isinstance(value, float) else str(value)
