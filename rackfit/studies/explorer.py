"""Sliders over the solved points of a study, in a page that needs no server.

Each point shows its own answer and certificate. Between two points nothing is interpolated: the page says
that it is not solved, and, between two latency targets, what both neighbours prove of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

from rackfit.quoting import markup, script_json
from rackfit.studies.base import Row

#: steps of a slider from one solved value to the next
_STEPS = 10
#: more points than this are left to the CSV file, so that the page stays small
_MAX_POINTS = 2000
#: what a point shows, with its words: the columns of the table, unrounded
FIGURES = {
    "status": "status",
    "usd_per_m_output_tokens": "$ per million output tokens",
    "bound_usd_per_m_output_tokens": "proven: no less than, $",
    "gap": "at most above the least possible cost",
    "tpot_s": "s per output token",
    "ttft_s": "s to the first token",
    "output_tokens_per_s": "output tokens/s",
    "chips_used": "chips in use",
    "chips_total": "of chips",
    "prefill_chips": "chips that prefill",
    "tp": "tensor parallel",
    "experts_on": "experts on",
    "pp": "pipeline stages",
    "attention_dp": "attention data parallel",
    "batch": "batch",
    "bottleneck": "limited by",
    "assumed": "assumed",
    "digest": "digest of the instance",
    "error": "no answer",
}
#: a layout that meets a tighter target meets a looser one, so that neighbours bound what is between them
_NESTED = ("slo.tpot", "slo.ttft")
STYLE = (
    ".explore label{display:grid;grid-template-columns:9em 1fr 12em;gap:.3em 1em;align-items:center;margin:.5em 0}"
    ".explore input,.explore select{width:100%;min-width:0;font:inherit}.explore dl{display:grid;"
    "grid-template-columns:minmax(8em,18em) 1fr;gap:.1em 1em}.explore dd{margin:0;overflow-wrap:anywhere}"
    ".explore .found{background:var(--soft);padding:.6em 1em;border-radius:6px;min-height:16em}"
    "@media screen and (max-width:640px){.explore label{grid-template-columns:1fr}.explore dl{grid-template-columns:1fr 1fr}}"
)
EXPLORE = """
(() => {
  const box = document.querySelector('.explore'), found = box.querySelector('.found');
  const told = JSON.parse(box.querySelector('script').textContent);
  const controls = [...box.querySelectorAll('input,select')];
  const plain = value => value.toLocaleString('en', {maximumSignificantDigits: 15});
  const word = value => typeof value === 'number' ? plain(+value.toPrecision(4)) : String(value);
  // a bound loses its last digits in the safe direction
  const safe = (value, round) => {
    const scale = 10 ** (3 - Math.floor(Math.log10(value)));
    return plain(+(round(value * scale) / scale).toPrecision(4));
  };
  const add = (parent, tag, text) => parent.appendChild(Object.assign(document.createElement(tag), {textContent: text}));
  const point = places => told.points[places.reduce((sum, place, i) => sum * told.axes[i].values.length + place, 0)];
  const show = () => {
    const places = controls.map((c, i) => c.tagName === 'INPUT' ? c.value / told.steps : c.selectedIndex);
    const open = [];
    places.forEach((place, i) => {
      const values = told.axes[i].values, low = values[Math.floor(place)], high = values[Math.ceil(place)];
      let text = word(values[place]);
      if (low !== high) {
        open.push(i);
        text = `between ${word(low)} and ${word(high)}`;
      }
      const said = controls[i].parentElement.querySelector('output');
      if (said) said.textContent = text;
      if (said) controls[i].setAttribute('aria-valuetext', text);
    });
    found.replaceChildren();
    found.dataset.solved = open.length ? 'no' : 'yes';
    if (!open.length) {
      const row = point(places), list = document.createElement('dl');
      for (const [key, words] of Object.entries(told.figures)) {
        const value = row[key];
        if (value === undefined || value === null || value === '') continue;
        add(list, 'dt', words);
        const said = key === 'gap' ? safe(100 * Math.max(value, 1e-7), Math.ceil) + '%'
          : key.startsWith('bound') ? safe(value, Math.floor) : word(value);
        Object.assign(add(list, 'dd', said).dataset, {key, value: String(value)});
      }
      found.append(list);
      return;
    }
    add(found, 'p', 'Not solved here. Solved beside it:');
    const list = add(found, 'ul', '');
    const corners = open.reduce((all, i) => all.flatMap(own => [Math.floor, Math.ceil].map(round =>
      own.map((place, j) => j === i ? round(place) : place))), [places]);
    for (const corner of corners) {
      const row = point(corner), where = open.map(i => `${told.axes[i].name} ${word(told.axes[i].values[corner[i]])}`);
      const cost = row.usd_per_m_output_tokens;
      add(list, 'li', `${where.join(', ')}: ${row.error ? row.error : '$' + word(cost)}`);
    }
    if (open.length === 1 && told.axes[open[0]].nested) {
      const [tight, loose] = corners.map(point), said = [];
      if (!loose.error) said.push(`at least $${safe(loose.bound_usd_per_m_output_tokens, Math.floor)}`);
      if (!tight.error) said.push(`at most $${safe(tight.usd_per_m_output_tokens, Math.ceil)}`);
      if (said.length) add(found, 'p', `Proven of the least cost between them: ${said.join(', ')}.`);
    }
  };
  box.addEventListener('input', show);
  show();
})();
"""


def explorer(axes: Mapping[str, Sequence[Any]], rows: Sequence[Row]) -> str:
    """The sliders, as a part of a page; nothing unless the rows are every combination of the axes' values.

    Axes of numbers are sliders, others are lists to choose from.
    """
    kept = {name: _ordered(values) for name, values in axes.items()}
    count = prod(len(values) for values in kept.values())
    if not 2 <= count == len(rows) <= _MAX_POINTS:
        return ""
    by_place = {tuple(repr(row.get(name)) for name in kept): row for row in rows}
    wanted = [tuple(map(repr, values)) for values in product(*kept.values())]
    if set(wanted) != set(by_place):
        return ""
    points = [
        {key: by_place[place][key] for key in FIGURES if key in by_place[place]} for place in wanted
    ]
    told = {
        "steps": _STEPS,
        "figures": FIGURES,
        "axes": [
            {"name": name, "values": values, "nested": name in _NESTED} for name, values in kept.items()
        ],
        "points": points,
    }  # fmt: skip
    controls = "".join(_control(name, values) for name, values in kept.items())
    return (
        '<section class="explore"><h2>Move through the solved points</h2>'
        '<noscript><p class="note">Sliders need a browser that runs the scripts of this page; the table has '
        "every point.</p></noscript>"
        f'<script type="application/json">{script_json(told)}</script><div>{controls}</div>'
        '<div class="found" role="status" aria-live="polite"></div></section>'
        f"<script>{EXPLORE}</script>"
    )


def _control(name: str, values: Sequence[Any]) -> str:
    said = markup(name)
    if len(values) > 1 and all(_number(value) for value in values):
        last = _STEPS * (len(values) - 1)
        return (
            f'<label><span>{said}</span><input type="range" min="0" max="{last}" step="1" value="0">'
            "<output></output></label>"
        )
    options = "".join(f"<option>{markup(str(value))}</option>" for value in values)
    return f"<label><span>{said}</span><select>{options}</select></label>"


def _ordered(values: Sequence[Any]) -> list[Any]:
    """Numbers from least to greatest, others as they came."""
    return sorted(values) if all(_number(value) for value in values) else list(values)


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
