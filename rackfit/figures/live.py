"""Charts in a page: drawn by the browser from the page alone, beside their values as a table.

A page with charts carries Vega once (0.9 MB) and asks for nothing outside. Where the extra
``rackfit[charts]`` is missing, the page names it and shows the values.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from functools import lru_cache
from typing import Any

from rackfit.figures.chart import Chart, digits
from rackfit.figures.drawing import NEEDS_EXTRA, bundle, can_draw, chart_spec, chart_svg, theme
from rackfit.quoting import markup, script_json

_SPEC = re.compile(r'<script type="application/json" class="spec">(.*?)</script>', re.DOTALL)
#: draws every chart, again when the scheme changes; a page of one scheme is not asked twice
_DRAW = """
(() => {
  const themes = THEMES, scheme = matchMedia('(prefers-color-scheme:dark)'), views = [];
  const options = {renderer: 'svg', actions: {export: true, source: false, compiled: false, editor: false}};
  const draw = async () => {
    while (views.length) views.pop().finalize();
    const config = themes[scheme.matches && !matchMedia('print').matches ? 1 : 0];
    for (const figure of document.querySelectorAll('figure.live')) {
      const spec = JSON.parse(figure.querySelector('script.spec').textContent);
      const name = spec.usermeta.title.toLowerCase().replace(/[^a-z0-9]+/g, '-');
      const made = await vegaEmbed(figure.querySelector('.plot'), spec,
        {...options, config, downloadFileName: name || 'chart'});
      views.push(made);
      figure.querySelector('.plot summary')?.setAttribute('aria-label', 'save: ' + spec.usermeta.title);
    }
    document.documentElement.dataset.drawn = views.length;
  };
  scheme.addEventListener('change', draw);
  draw();
})();
"""
STYLE = (
    "figure{margin:1.5em 0}figcaption{padding-right:2.4em}figcaption strong{font-size:1.05em}.plot{width:100%;margin:.4em 0}"
    "figure .plot.vega-embed{display:block;padding-right:0!important}figure .plot.vega-embed summary{top:-2.2em}"
    "figure details:not(.vega-embed details){font-size:.9em}"
)


def figure(chart: Chart) -> str:
    """The chart as a part of a page: title, plot, and its values as a table."""
    caption = f"<strong>{markup(chart.title)}</strong>"
    if chart.note:
        caption += f'<br><span class="note">{markup(chart.note)}</span>'
    inside, kind = f'<p class="note">This chart {markup(NEEDS_EXTRA)}</p>', "still"
    if can_draw():
        spec = script_json(chart_spec(chart))
        inside = (
            f'<script type="application/json" class="spec">{spec}</script><div class="plot"></div>'
        )
        kind = "live"
    label = markup(chart.title)
    return (
        f'<figure class="{kind}"><figcaption>{caption}</figcaption>{inside}'
        f"<details{'' if kind == 'live' else ' open'}><summary>Values of the chart</summary>"
        f'<div class="wide" tabindex="0" role="region" aria-label="values: {label}">{_values(chart)}</div>'
        "</details></figure>"
    )


def still(chart: Chart) -> str:
    """The chart as a picture, for what runs no scripts; its values where it cannot be drawn."""
    if not can_draw():
        return figure(chart)
    drawn = b64encode(chart_svg(chart).encode()).decode()
    return f'<img alt="{markup(chart.description)}" src="data:image/svg+xml;base64,{drawn}">'


def scripts(body: str) -> str:
    """What a page with charts needs at its end; nothing for one without."""
    if '<figure class="live">' not in body:
        return ""
    return f"<script>{bundle_script()}</script>\n<script>{draw_script()}</script>"


@lru_cache(maxsize=1)
def draw_script() -> str:
    """The script that draws the charts of a page, with both schemes."""
    return _DRAW.replace("THEMES", script_json([theme(), theme(dark=True)]))


def specs_of(page: str) -> list[tuple[int, dict[str, Any]]]:
    """Every chart of a page, with the place where it stands."""
    return [(match.start(), json.loads(match[1])) for match in _SPEC.finditer(page)]


@lru_cache(maxsize=1)
def bundle_script() -> str:
    """Vega as a page carries it: nothing in it ends its script."""
    # what ends a script stands for the same inside a string or an expression of JavaScript
    return re.sub(r"</(?=script)", r"<\\/", bundle(), flags=re.IGNORECASE).replace("<!--", r"<\!--")


def _values(chart: Chart) -> str:
    about = any(more for *_, more in chart.values)
    head = ["series", chart.x_label, chart.y_label, *(["more"] if about else [])]
    lines = ["<tr>" + "".join(f'<th scope="col">{markup(name)}</th>' for name in head) + "</tr>"]
    for name, x, y, more in chart.values:
        cells = [name, digits(x, 6) if isinstance(x, float) else str(x), digits(y, 6)]
        cells += [more] if about else []
        lines.append("<tr>" + "".join(f"<td>{markup(cell)}</td>" for cell in cells) + "</tr>")
    return f"<table>{''.join(lines)}</table>"
