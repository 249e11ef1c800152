"""``rack-boundary``: experts over one to eight domains, by the scale-out's speed and merging of copies.

The first rows are decode in closed form. The others are searched: a second rack whose replicas may lie in both, beside
replicas inside racks, by model, speed and oversubscription.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from costmodel.blackboard.aggregate import usd_per_m_tokens
from costmodel.question.instance import Instance
from rackfit.figures.chart import Chart, Series
from rackfit.studies.altered import with_ratio
from rackfit.studies.base import COUNT, POSITIVE, Axes, Options, Own, Row, Study, asked, solved
from rackfit.studies.systems.balanced import largest_balanced_decode
from rackfit.studies.systems.second_rack import second_rack
from topology.errors import InstanceError, Problem

#: a wider group is worth it when it makes this much more of each chip
_WORTH = 0.01
_OVER = "oversubscription"


def _axes(base: Mapping[str, Any]) -> list[Axes]:
    return [
        {"one_copy": [True, False], "ratio": [3, 8, 18], "domains": [1, 2, 4, 8]},
        {
            "model": ["deepseek-v3", "kimi-k2", "qwen3-235b-a22b"],
            "slo.tpot": [0.015, 0.03, 0.05],
            _OVER: [1, 8, 64],
        },
    ]


def _answer(instance: Instance, own: Own, options: Options) -> Row:
    """Decode alone, tokens evenly over experts, as many sequences as HBM and TPOT allow."""
    if own[_OVER] is not None:
        return second_rack(instance, int(own["racks"]), float(own[_OVER]), options)
    moe = instance.operations.moe
    if moe is None:
        raise InstanceError(Problem("model", f"{instance.model.name} has no routed experts"))
    asked = own["ratio"]
    changed = instance if asked is None else with_ratio(instance, float(asked))
    cluster = changed.cluster
    chip, nic = cluster.usable[0], cluster.network
    size = own["chips_per_domain"]
    size = len(cluster.domains[0].usable) if size is None else int(size)
    domains, merged = int(own["domains"]), bool(own["one_copy"])
    top_k = own["top_k"] if own["top_k"] is not None else round(moe.top_k)
    how: dict[str, Any] = {"top_k": int(top_k), "one_copy_per_domain": merged}
    alone = cluster.rate_for("dispatch", 0, size, 1, **how)
    rate = cluster.rate_for("dispatch", 0, size, domains, **how)
    found = largest_balanced_decode(changed, size * domains, rate)
    even = _even_width(moe.num_experts, size)
    out = nic.nic_bytes_per_s(0, chip.position) if nic is not None else 0.0
    price = chip.chip.usd_per_hour * instance.scenario.prices.chip_price_factor
    return {
        "scale_up_over_scale_out": chip.chip.scale_up_bytes_per_s / out if out else None,
        "ep": found.chips,
        "exchange_s_per_byte": rate.s_per_byte,
        "exchange_slowdown": rate.s_per_byte / alone.s_per_byte,
        "remote_copies_per_token": rate.out_bytes_per_byte / size,
        "busiest_link": rate.busiest_link,
        "sequences_per_chip": found.sequences,
        "batch": found.sequences * found.chips,
        "tpot_s": found.pass_s,
        "exchange_s": found.exchange_s,
        "exchange_share": found.exchange_s / found.pass_s,
        "decode_tokens_per_s_per_gpu": found.tokens_per_s / found.chips,
        "usd_per_m_decoded_tokens": usd_per_m_tokens(found.chips, price, found.tokens_per_s),
        "even_ep": even,
        "experts_per_chip_at_even_ep": moe.num_experts // even,
        "chips_idle_at_even_ep": size - even,
    }


def _even_width(experts: int, chips: int) -> int:
    """The largest power of two of a domain's chips that divides the experts."""
    width = 1
    while 2 * width <= chips and experts % (2 * width) == 0:
        width *= 2
    return width


def _decode(rows: Sequence[Row]) -> list[Row]:
    """Rows in closed form."""
    return [row for row in solved(rows) if "exchange_slowdown" in row]


def _searched(rows: Sequence[Row]) -> dict[tuple[str, float], list[Row]]:
    """Rows that were searched and whose replicas may also lie in one rack, by model and oversubscription."""
    found: dict[tuple[str, float], list[Row]] = {}
    for row in solved(rows):
        if row.get("saved") is not None:
            found.setdefault((str(row["model_name"]), float(row[_OVER])), []).append(row)
    return found


def _lines(rows: Sequence[Row]) -> dict[tuple[bool, Any], list[Row]]:
    found: dict[tuple[bool, Any], list[Row]] = {}
    for row in sorted(_decode(rows), key=lambda row: int(row["ep"])):
        key = bool(row.get("one_copy", True)), row["scale_up_over_scale_out"]
        found.setdefault(key, []).append(row)
    return found


def _named(merged: bool, ratio: Any) -> str:
    return f"{ratio:.3g}:1, " + ("one copy per domain" if merged else "every copy")


def _charts(rows: Sequence[Row]) -> list[Chart]:
    charts = []
    if _decode(rows):
        charts.append(_decode_chart(rows))
    bars: dict[float, list[tuple[float | str, float]]] = {}
    for (model, over), own in _searched(rows).items():
        bars.setdefault(over, []).extend((model + _speed(row), _per_cent(row)) for row in own)
    # bars, as most save nothing: lines would lie upon each other
    if bars and all(len(dict(points)) == len(points) for points in bars.values()):
        charts.append(
            Chart(
                "What replicas over two racks save, by model, TPOT target and oversubscription", "model and TPOT target",
                "% of the cost inside racks, as found", [Series(f"{over:g}:1", points) for over, points in bars.items()],
                kind="bar",
            )
        )  # fmt: skip
    return charts


def _decode_chart(rows: Sequence[Row]) -> Chart:
    series = [
        Series(_named(*key), [(r["ep"], r["decode_tokens_per_s_per_gpu"]) for r in line])
        for key, line in _lines(rows).items()
    ]
    return Chart(
        "Decode against the width of expert parallelism, by scale-up : scale-out",
        "chips that share a layer's experts", "tokens per second and chip", series, log_x=True,
    )  # fmt: skip


def _conclude(rows: Sequence[Row]) -> list[str]:
    said = []
    for key, line in _lines(rows).items():
        first, last = line[0], line[-1]
        best = max(line, key=lambda row: float(row["decode_tokens_per_s_per_gpu"]))
        gain = best["decode_tokens_per_s_per_gpu"] / first["decode_tokens_per_s_per_gpu"] - 1
        where = (
            f"{first['ep']} chips are best"
            if gain <= _WORTH
            else f"{best['ep']} chips make {gain:.0%} more of each than {first['ep']}"
        )
        said.append(
            f"{_named(*key)}: the exchange takes {last['exchange_slowdown']:.2f} times as long per "
            f"token over {last['ep']} chips as over {first['ep']} "
            f"({last['remote_copies_per_token']:.2f} copies of a token leave its domain); {where}, "
            f"with {best['exchange_share']:.0%} of a pass in the exchange."
        )
    for row in _decode(rows)[:1]:
        said.append(
            f"Experts divide evenly over {row['even_ep']} chips of a domain, "
            f"{row['experts_per_chip_at_even_ep']} each, which leaves {row['chips_idle_at_even_ep']} idle."
        )
    return [*said, *_worth(rows)]


def _worth(rows: Sequence[Row]) -> list[str]:
    """Where replicas over two racks are proven to pay, where not, and where that is open."""
    every = [(model, over, row) for (model, over), own in _searched(rows).items() for row in own]
    kinds: dict[str, Callable[[Row], bool]] = {
        "Replicas over two racks save, proven": lambda row: row["saved_at_least"] > 0,
        f"They are proven to save less than {_WORTH:.0%}": lambda row: (
            row["saved_at_most"] < _WORTH
        ),
        "Open": lambda row: True,
    }
    said, left = [], every
    for words, holds in kinds.items():
        own = [one for one in left if holds(one[2])]
        left = [one for one in left if not holds(one[2])]
        points = [
            f"{model}{_speed(row)}, {over:g}:1 ({100 * row['saved_at_least']:.1f} to "
            f"{100 * row['saved_at_most']:.1f}%)"
            for model, over, row in own
        ]
        if points:
            said.append(f"{words}: {'; '.join(points)}.")
    if every:
        gap = max(row["gap"] for _, _, row in every)
        said.append(f"Widest gap of these {len(every)} comparisons: {gap:.2%}.")
    return said


def _per_cent(row: Row) -> float:
    """What is saved, without what rounding leaves of nothing."""
    return round(100 * float(row["saved"]), 6)


def _speed(row: Row) -> str:
    target = asked(row, "slo.tpot")
    return "" if target is None else f" at {1e3 * target:g} ms"


STUDY = Study(
    name="rack-boundary",
    question="What happens when a layer's experts leave the rack?",
    default={"model": "deepseek-v3", "workload": "chat", "slo": {"tpot": 0.03}},
    fixed={"cluster": "nvl-72@8"},
    axes=_axes,
    chart=_charts,
    conclude=_conclude,
    parameters={
        "domains": 1,
        "ratio": None,
        "one_copy": True,
        "chips_per_domain": None,
        "top_k": None,
        _OVER: None,
        "racks": 2,
    },
    numbers={
        **dict.fromkeys(("domains", "chips_per_domain", "top_k", "racks"), COUNT),
        "ratio": POSITIVE,
        _OVER: POSITIVE,
    },
    answer=_answer,
    shown={
        "ep": "ep",
        "exchange_slowdown": "exchange x",
        "remote_copies_per_token": "copies out",
        "exchange_share": "of a pass",
        "tpot_s": "TPOT s",
        "decode_tokens_per_s_per_gpu": "tok/s/chip",
        "usd_per_m_decoded_tokens": "$/M decoded",
        "usd_inside_racks": "$/M inside racks",
        "usd_over_racks": "$/M over racks",
        "saved_at_least": "saved, at least",
        "saved_at_most": "at most",
        "gap": "gap",
    },
)
