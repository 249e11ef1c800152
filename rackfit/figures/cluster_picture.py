"""A picture of a cluster as one HTML page: chips, switches and links coloured by bandwidth.

Every kind of domain is drawn once in full, with how many there are; the scale-out is drawn as
domains, leaves and spines. Plain SVG, no script and no outside file.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from rackfit.quoting import markup
from topology import Cluster, Domain
from topology.fabric import Link

_WIDTH = 920
#: Colours from slow to fast, and of chips by state.
_RAMP = ((59, 76, 192), (120, 170, 220), (240, 200, 90), (230, 110, 50), (180, 4, 38))
_STATE = {"usable": "#2b7a4b", "taken": "#c9a227", "failed": "#b3261e"}
_MAX_BOXES = 64
_MAX_TITLED_LINKS = 2000

Point = tuple[float, float]


def cluster_picture(cluster: Cluster) -> str:
    """The HTML page. Links are coloured by bytes/s per direction on a logarithmic scale."""
    kinds: dict[object, list[Domain]] = {}
    for domain in cluster.domains:
        state = tuple(chip.healthy + 2 * chip.available for chip in domain.chips)
        kinds.setdefault((domain.signature, domain.fabric.failed, state), []).append(domain)
    rates = [link.bytes_per_s for group in kinds.values() for link in group[0].fabric.links()]
    if cluster.network is not None:
        rates += [link.bytes_per_s for link in cluster.network.links()]
    scale = _Scale(rates or [1.0])
    body = [_summary(cluster), scale.legend(), _states()]
    for group in kinds.values():
        body += [_heading(group), _domain_svg(group[0], scale)]
    if cluster.network is not None:
        body += ["<h2>Scale-out</h2>", _network_svg(cluster, scale)]
    return _PAGE.format(title=markup(cluster.name), body="\n".join(body))


class _Scale:
    """Bandwidth to colour, logarithmic between the slowest and the fastest link."""

    def __init__(self, rates: Iterable[float]):
        found = sorted(set(rates))
        self.low, self.high = found[0], found[-1]
        self._found = found

    def colour(self, rate: float) -> str:
        span = math.log(self.high / self.low)
        place = math.log(rate / self.low) / span if span > 0 else 1.0
        step = place * (len(_RAMP) - 1)
        index = min(int(step), len(_RAMP) - 2)
        part = step - index
        mixed = (
            round(a + (b - a) * part) for a, b in zip(_RAMP[index], _RAMP[index + 1], strict=True)
        )
        return "#" + "".join(f"{value:02x}" for value in mixed)

    def legend(self) -> str:
        shown = self._found if len(self._found) <= 8 else [self.low, self.high]
        keys = (
            f'<span class="key"><i style="background:{self.colour(rate)}"></i>{_rate(rate)}</span>'
            for rate in shown
        )
        return f'<p class="legend">Links, one direction: {" ".join(keys)}</p>'


def _summary(cluster: Cluster) -> str:
    said = cluster.describe()
    rows = {
        "domains": ", ".join(
            f"{entry['count']} x {entry['kind']} of {entry['size']} {'/'.join(entry['chips'])}"
            for entry in said["domains"]
        ),
        "chips": f"{said['chips_usable']} usable of {said['chips_total']}",
        "price": f"{said['usd_per_hour']:,.2f} USD/h for all healthy chips",
        "scale-out": said["scale_out"]["kind"] if said["scale_out"] else "none",
        "sources": ", ".join(said["sources"]),
    }
    lines = "".join(
        f"<tr><th>{markup(key)}</th><td>{markup(value)}</td></tr>" for key, value in rows.items()
    )
    return f"<p>{markup(cluster.title)}</p><table>{lines}</table>"


def _states() -> str:
    keys = (
        f'<span class="key"><i style="background:{colour}"></i>{state} chip</span>'
        for state, colour in _STATE.items()
    )
    return f'<p class="legend">{" ".join(keys)}</p>'


def _heading(group: list[Domain]) -> str:
    names = ", ".join(domain.name for domain in group[:8]) + (" ..." if len(group) > 8 else "")
    first = group[0]
    return (
        f"<h2>{len(group)} x {markup(first.kind)}: {len(first.chips)} chips, "
        f"{len(first.usable)} usable</h2><p>{markup(names)}</p>"
    )


def _domain_svg(domain: Domain, scale: _Scale) -> str:
    links = list(domain.fabric.links())
    places = _grid(domain) or _rows(domain)
    height = max(y for _, y in places.values()) + 30
    drawn = _lines(links, places, scale)
    for chip in domain.chips:
        x, y = places[f"g{chip.position}"]
        state = "failed" if not chip.healthy else "usable" if chip.available else "taken"
        about = f"{chip.id} {chip.chip.name} {state}, {_rate(domain.fabric.width(chip.position))}"
        drawn.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{_STATE[state]}">'
            f"<title>{markup(about)}</title></circle>"
        )
    for switch in domain.fabric.switch_names():
        if switch in places:
            x, y = places[switch]
            colour = _STATE["failed"] if switch in domain.fabric.failed else "#444"
            drawn.append(
                f'<rect x="{x - 5:.1f}" y="{y - 5:.1f}" width="10" height="10" fill="{colour}">'
                f"<title>{markup(switch)}</title></rect>"
            )
    return _svg(drawn, height)


def _grid(domain: Domain) -> dict[str, Point] | None:
    """Tori: planes of the last two axes side by side."""
    shape = getattr(domain.fabric.spec, "shape", None) if hasattr(domain.fabric, "spec") else None
    if shape is None:
        return _circle(domain) if not domain.fabric.switch_names() else None
    planes, rows, columns = (1,) * (3 - len(shape)) + tuple(shape)
    side_by_side = planes * (columns + 1) * 20 <= _WIDTH
    across = planes if side_by_side else max(1, math.ceil(math.sqrt(planes)))
    step = min(48.0, (_WIDTH - 40) / (across * (columns + 1)))
    places = {}
    for position in range(len(domain.chips)):
        plane, rest = divmod(position, rows * columns)
        row, column = divmod(rest, columns)
        down, right = divmod(plane, across)
        x = 24 + (right * (columns + 1) + column + 0.25 * row) * step * 0.95
        places[f"g{position}"] = (x, 24 + (down * (rows + 1) + row) * step)
    return places


def _circle(domain: Domain) -> dict[str, Point]:
    count = len(domain.chips)
    return {
        f"g{k}": (
            _WIDTH / 2 + 150 * math.cos(2 * math.pi * k / count),
            175 + 150 * math.sin(2 * math.pi * k / count),
        )
        for k in range(count)
    }


def _rows(domain: Domain) -> dict[str, Point]:
    """Switched domains: second layer above, first layer in the middle, chips below."""
    switches = domain.fabric.switch_names()
    layers = [
        [name for name in switches if name.startswith("top")],
        [name for name in switches if not name.startswith("top")],
        domain.fabric.chip_names(),
    ]
    places: dict[str, Point] = {}
    y = 24.0
    for layer in layers:
        if layer:
            step = (_WIDTH - 40) / len(layer)
            places.update(
                {name: (20 + (index + 0.5) * step, y) for index, name in enumerate(layer)}
            )
            y += 130.0
    return places


def _lines(links: list[Link], places: Mapping[str, Point], scale: _Scale) -> list[str]:
    if len(links) > _MAX_TITLED_LINKS:
        return _merged(links, places, scale)
    faint = 0.75 if len(links) < 400 else 0.25
    drawn = []
    for link in links:
        (x1, y1), (x2, y2) = places[link.a], places[link.b]
        path = f"M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}"
        if abs(x1 - x2) + abs(y1 - y2) > 60 and _far_on_grid(link, places):
            path = f"M{x1:.1f} {y1:.1f}Q{(x1 + x2) / 2 + 12:.1f} {(y1 + y2) / 2 - 14:.1f} {x2:.1f} {y2:.1f}"
        wide = 1 + math.log2(link.links) / 2
        drawn.append(
            f'<path d="{path}" stroke="{scale.colour(link.bytes_per_s)}" stroke-width="{wide:.1f}" '
            f'fill="none" opacity="{faint}"><title>{markup(link.a)} to {markup(link.b)}: '
            f"{_rate(link.bytes_per_s)}</title></path>"
        )
    return drawn


def _merged(links: list[Link], places: Mapping[str, Point], scale: _Scale) -> list[str]:
    """One path for all links of a bandwidth, where there are too many to name each."""
    paths: dict[float, list[str]] = {}
    for link in links:
        (x1, y1), (x2, y2) = places[link.a], places[link.b]
        paths.setdefault(link.bytes_per_s, []).append(f"M{x1:.0f} {y1:.0f}L{x2:.0f} {y2:.0f}")
    return [
        f'<path d="{"".join(strokes)}" stroke="{scale.colour(rate)}" fill="none" '
        f'stroke-width="0.5" opacity="0.15"><title>{len(strokes)} links of {_rate(rate)}</title></path>'
        for rate, strokes in paths.items()
    ]


def _far_on_grid(link: Link, places: Mapping[str, Point]) -> bool:
    """Wraparound links are bent so that they do not hide the line of chips between."""
    return link.a.startswith("g") and link.b.startswith("g") and len(places) > 8


def _network_svg(cluster: Cluster, scale: _Scale) -> str:
    assert cluster.network is not None
    shown = cluster.domains[:_MAX_BOXES]
    width: dict[tuple[str, str], float] = {}
    wires: dict[tuple[str, str], float] = {}
    owner = {f"{chip.id}.nic": domain.name for domain in shown for chip in domain.chips}
    for link in cluster.network.links():
        if link.a in owner:
            key = (owner[link.a], link.b)
            width[key] = width.get(key, 0.0) + link.bytes_per_s
        elif link.a.startswith("leaf"):
            wires[link.a, link.b] = link.bytes_per_s
    leaves = sorted({leaf for _, leaf in width}, key=lambda name: int(name[4:]))
    spines = sorted({b for a, b in wires if a in set(leaves)}, key=lambda name: int(name[5:]))
    places: dict[str, Point] = {}
    for y, row in ((24.0, spines), (154.0, leaves), (284.0, [d.name for d in shown])):
        step = (_WIDTH - 40) / max(1, len(row))
        places.update({name: (20 + (i + 0.5) * step, y) for i, name in enumerate(row)})
    links = [Link(a, b, rate, 0.0) for (a, b), rate in width.items()]
    links += [Link(a, b, rate, 0.0) for (a, b), rate in wires.items() if a in places]
    every = _Scale([link.bytes_per_s for link in links] or [scale.low])
    drawn = _lines(links, places, every)
    for name, (x, y) in places.items():
        drawn.append(
            f'<rect x="{x - 6:.1f}" y="{y - 6:.1f}" width="12" height="12" rx="2" fill="#444">'
            f"<title>{markup(name)}</title></rect>"
        )
    hidden = len(cluster.domains) - len(shown)
    more = f"<p>{hidden} more domains are not drawn.</p>" if hidden > 0 else ""
    return every.legend() + _svg(drawn, 310) + more


def _svg(drawn: list[str], height: float) -> str:
    inside = "\n".join(drawn)
    return f'<svg viewBox="0 0 {_WIDTH} {height:.0f}" role="img">{inside}</svg>'


def _rate(bytes_per_s: float) -> str:
    if bytes_per_s >= 1e12:
        return f"{bytes_per_s / 1e12:.3g} TB/s"
    return f"{bytes_per_s / 1e9:.3g} GB/s"


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>
body {{ font: 14px/1.5 system-ui, sans-serif; max-width: 960px; margin: 2em auto; color: #222; }}
table {{ border-collapse: collapse; }} th {{ text-align: left; padding-right: 1em; }}
th, td {{ vertical-align: top; }} svg {{ width: 100%; border: 1px solid #ddd; background: #fff; }}
.key {{ margin-right: 1em; }} .key i {{ display: inline-block; width: 1.6em; height: .7em; margin-right: .3em; }}
</style></head><body><h1>{title}</h1>
{body}
</body></html>
"""
