"""Charts as Vega-Lite, SVG and PNG, made by Vega-Altair and vl-convert (extra ``rackfit[charts]``).

Nothing here is imported before a chart is drawn. SVG and PNG are drawn in the light colours.
"""

from __future__ import annotations

import importlib
import textwrap
from collections.abc import Mapping, Sequence
from math import floor, log10
from typing import Any

from rackfit.figures import palette
from rackfit.figures.chart import Chart, digits, short
from topology.errors import InstanceError, Problem

NEEDS_EXTRA = "needs the extra: pip install 'rackfit[charts]'"
#: plot of a file, in pixels; a page takes the width that there is
_WIDTH, _HEIGHT = 640, 320
#: around the plot of a file, for letters that are wider where it is shown than where it was laid out
_ROOM = {"left": 32, "right": 16, "top": 8, "bottom": 8}
#: letters of a line: titles of files, labels of bars, titles of axes
_TITLE, _BAR, _AXIS = 78, 24, 46
#: around the plot in a page: the last label of an axis is half beside it
_MARGIN = {"left": 5, "right": 18, "top": 5, "bottom": 5}
#: pixels beside a bar for its figure
_FIGURE = 52
_DASHES = [[1, 0], [7, 4], [2, 3], [10, 3, 2, 3], [4, 4], [1, 4], [12, 4]]
_SHAPES = ("circle", "square", "triangle-up", "cross", "diamond", "triangle-right", "triangle-down", "triangle-left")  # fmt: skip
#: what stands in a key for a series that is a line alone, among series of dots
_LINE = "M-1.2,-.15L1.2,-.15L1.2,.15L-1.2,.15Z"
_TICK = "datum.value >= 1e7 ? format(datum.value, '.3~s') : format(datum.value, ',.4~r')"


def check_charts(option: str) -> None:
    """Raise ``InstanceError`` at ``option`` where charts cannot be drawn, before anything is computed."""
    for name in ("altair", "vl_convert"):
        _package(name, option)


def can_draw() -> bool:
    """Whether the extra is installed."""
    try:
        check_charts("")
    except InstanceError:
        return False
    return True


def theme(dark: bool = False) -> dict[str, Any]:
    """Vega-Lite's configuration of every chart in one scheme."""
    ink, paper, line = palette.DARK_PAPER if dark else palette.LIGHT_PAPER
    words = {"labelColor": ink, "titleColor": ink, "labelFontSize": 12, "titleFontSize": 12}
    return {
        "background": paper,
        "font": "system-ui, sans-serif",
        "view": {"stroke": None},
        "axis": {**words, "gridColor": line, "domainColor": line, "tickColor": line,
                 "titleFontWeight": "normal", "labelLimit": 0, "titleLimit": 0},
        "legend": {**words, "labelLimit": 0, "titleLimit": 0, "symbolStrokeWidth": 2},
        "title": {"color": ink, "subtitleColor": ink, "anchor": "start", "limit": 0, "offset": 10},
        "line": {"strokeWidth": 2.2},
        "text": {"color": ink, "fontSize": 12},
        "range": {"category": list(palette.DARK if dark else palette.LIGHT)},
    }  # fmt: skip


def chart_spec(chart: Chart) -> dict[str, Any]:
    """The chart as Vega-Lite that takes its width from where it stands; title and note are ``usermeta``."""
    alt = _package("altair", "chart")
    chart = chart.with_logarithms
    names = list(chart.names) or list(dict.fromkeys(series.name for series in chart.series))
    chosen = alt.selection_point(name="chosen", fields=["series"], bind="legend")
    made = _bars(alt, chart, names) if chart.kind == "bar" else _lines(alt, chart, names)
    spec: dict[str, Any] = (
        made.add_params(chosen)
        .transform_filter(chosen)
        .properties(
            width="container",
            padding=_MARGIN,
            autosize=alt.AutoSizeParams(type="fit-x", contains="padding"),
            description=chart.description,
        )
        .to_dict()
    )
    spec.pop("config", None)
    spec["datasets"] = {"rows": _rows(chart, names)}
    spec["usermeta"] = {"title": chart.title, "note": chart.note}
    return spec


def svg_text(spec: Mapping[str, Any]) -> str:
    """A chart as SVG that stands alone, with its title."""
    convert, alt = _package("vl_convert", "chart"), _package("altair", "chart")
    told = spec["usermeta"]
    title = {
        "text": textwrap.wrap(told["title"], _TITLE) or [""],
        "subtitle": textwrap.wrap(told["note"], _TITLE + 20),
    }
    whole = {**spec, "title": title, "width": _WIDTH, "padding": _ROOM}
    version = ".".join(alt.SCHEMA_VERSION.lstrip("v").split(".")[:2])
    config = theme()
    config |= {"font": "Arial, Helvetica, sans-serif"}
    config["legend"]["columnPadding"] = 32
    text: str = convert.vegalite_to_svg(whole, vl_version=version, config=config)
    return text


def chart_svg(chart: Chart) -> str:
    """A chart as SVG that stands alone, with its title."""
    return svg_text(chart_spec(chart))


def png_bytes(svg: str) -> bytes:
    """A standalone SVG as PNG, twice as many pixels as it is wide."""
    drawn: bytes = _package("vl_convert", "PNG").svg_to_png(svg, scale=2.0)
    return drawn


def bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script that sets ``window.vegaEmbed``; 0.9 MB."""
    convert, alt = _package("vl_convert", "chart"), _package("altair", "chart")
    version = ".".join(alt.SCHEMA_VERSION.lstrip("v").split(".")[:2])
    text: str = convert.javascript_bundle(vl_version=version)
    return text


def _rows(chart: Chart, names: Sequence[str]) -> list[dict[str, Any]]:
    dashes = {name: at % len(_DASHES) for at, name in enumerate(names)}
    looks = {series.name: series.look for series in chart.series}
    rows = []
    for name, x, y, about in chart.values:
        said = short(x) if isinstance(x, int | float) else x
        words = f"{name}: {said}, {digits(y, 4)}" + (f"; {about}" if about else "")
        label = x if isinstance(x, int | float) else "\n".join(textwrap.wrap(x, _BAR))
        rows.append(
            {"series": name, "x": label, "y": y, "words": words, "look": looks[name],
             "end": max(0.0, y), "figure": brief(y), "about": about, "dash": dashes[name]}
        )  # fmt: skip
    return rows


def brief(value: float) -> str:
    """A number at a bar: three digits, or whole."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _legend(alt: Any, names: Sequence[str], **more: Any) -> Any:
    """Under the plot, as many beside each other as fit."""
    letters = max(map(len, names), default=1) + 4
    # of what the chart stands in: the plot's own width still changes while it is laid out
    room = f"(isValid(containerSize()[0]) ? containerSize()[0] : {_WIDTH})"
    columns = alt.ExprRef(f"max(1, floor(({room} - 80) / {7 * letters}))")
    return alt.Legend(title=None, orient="bottom", columns=columns, symbolOpacity=1, **more)


def _axis(alt: Any, label: str, across: bool, values: Sequence[float] | None = None) -> Any:
    title = textwrap.wrap(label, _AXIS)
    more = {} if values is None else {"values": list(values)}
    ticks = alt.ExprRef("ceil(width / 90)") if across else alt.Undefined
    return alt.Axis(
        title=title,
        labelExpr=_TICK,
        labelOverlap="greedy",
        labelSeparation=8,
        tickCount=ticks,
        **more,
    )


def _decades(log: bool, values: Sequence[float]) -> list[float] | None:
    """Round numbers of a logarithmic axis: 1, 2 and 5 of each decade; ``None`` where these are too few."""
    if not log or not values:
        return None
    powers = range(floor(log10(values[0])), floor(log10(values[-1])) + 1)
    found = [float(f"{digit}e{power}") for power in powers for digit in (1, 2, 5)]
    inside = [tick for tick in found if values[0] <= tick <= values[-1]]
    return inside if len(inside) >= 3 else None


def _scale(alt: Any, log: bool, zero: bool, **more: Any) -> Any:
    """Logarithmic, or linear with or without its zero."""
    return (
        alt.Scale(type="log", nice=False, padding=12)
        if log
        else alt.Scale(type="linear", zero=zero, **more)
    )


def _lines(alt: Any, chart: Chart, names: list[str]) -> Any:
    xs = sorted({float(x) for _, x, _, _ in chart.values})
    ys = sorted({y for _, _, y, _ in chart.values})
    few = len(xs) <= 10 and all(float(f"{x:.3g}") == x for x in xs)
    x_scale = _scale(alt, chart.log_x, zero=False, nice=False, padding=12)
    y_scale = _scale(alt, chart.log_y, zero=True)
    looks = {series.look for series in chart.series}
    only_lines = looks == {"line"}
    legend = _legend(alt, names, **({"symbolType": "stroke"} if only_lines else {}))
    colour = alt.Color("series:N", scale=alt.Scale(domain=names), sort=names, legend=legend)
    base = alt.Chart(alt.NamedData("rows")).encode(
        x=alt.X(
            "x:Q",
            scale=x_scale,
            axis=_axis(
                alt, chart.x_label, not chart.log_x, xs if few else _decades(chart.log_x, xs)
            ),
        ),
        y=alt.Y(
            "y:Q", scale=y_scale, axis=_axis(alt, chart.y_label, False, _decades(chart.log_y, ys))
        ),
        color=colour,
    )
    layers = []
    if looks & {"both", "line"}:
        every = [_DASHES[i % len(_DASHES)] for i in range(len(names))]
        dashes = alt.Scale(domain=names, range=every)
        dash = alt.StrokeDash("series:N", scale=dashes, sort=names, legend=legend)
        if not only_lines:
            # a scale of dashes would be drawn round the dots of the key
            dash = alt.StrokeDashValue(
                every[0],
                condition=[
                    {"test": f"datum.dash == {at}", "value": own} for at, own in enumerate(_DASHES)
                ],
            )
        layers.append(
            base.mark_line().encode(strokeDash=dash).transform_filter("datum.look != 'dots'")
        )
    dots = base.mark_point(filled=True, size=80).encode(
        tooltip=_tooltip(alt, chart), description="words:N"
    )
    if only_lines:
        # nothing to see, but something to point at
        layers.append(dots.mark_point(filled=True, size=80, opacity=0))
    else:
        lines = {series.name for series in chart.series if series.look == "line"}
        drawn = (_SHAPES[at % len(_SHAPES)] for at in range(len(names)))
        kinds = [_LINE if name in lines else next(drawn) for name in names]
        shapes = alt.Shape(
            "series:N", scale=alt.Scale(domain=names, range=kinds), sort=names, legend=legend
        )
        layers.append(dots.encode(shape=shapes).transform_filter("datum.look != 'line'"))
    return alt.layer(*layers).properties(height=_HEIGHT)


def _bars(alt: Any, chart: Chart, names: list[str]) -> Any:
    many = len(names) > 1
    split = alt.Axis(title=None, labelExpr=r"split(datum.label, '\n')")
    base = alt.Chart(alt.NamedData("rows")).encode(y=alt.Y("x:N", sort=None, axis=split))
    legend = _legend(alt, names) if many else None
    if many:
        base = base.encode(yOffset=alt.YOffset("series:N", sort=names))
    room = alt.Scale(rangeMax=alt.ExprRef(f"width - {_FIGURE}"))
    across = alt.X("y:Q", scale=room, axis=_axis(alt, chart.y_label, True))
    bars = base.mark_bar().encode(
        x=across,
        color=alt.Color("series:N", scale=alt.Scale(domain=names), sort=names, legend=legend),
        tooltip=_tooltip(alt, chart),
        description="words:N",
    )
    figures = base.mark_text(align="left", dx=4).encode(x=alt.X("end:Q"), text="figure:N")
    labels = {x for _, x, _, _ in chart.values}
    return alt.layer(bars, figures).properties(height=len(labels) * max(40, 22 * len(names)))


def _tooltip(alt: Any, chart: Chart) -> list[Any]:
    bar = chart.kind == "bar"
    shown = [alt.Tooltip("series:N", title="series")]
    if bar:
        shown.append(alt.Tooltip("x:N", title=chart.x_label))
    else:
        shown.append(alt.Tooltip("x:Q", title=chart.x_label, format=",.4~g"))
    shown.append(alt.Tooltip("y:Q", title=chart.y_label, format=",.4~g"))
    if any(series.about for series in chart.series):
        shown.append(alt.Tooltip("about:N", title="more"))
    return shown


def _package(name: str, place: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise InstanceError(Problem(place, NEEDS_EXTRA)) from None
