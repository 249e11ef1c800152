"""``rack-boundary``: experts over one to eight domains, by the scale-out's speed and merging of copies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from costmodel.blackboard.aggregate import usd_per_m_tokens
from costmodel.question.instance import Instance
from rackfit.figures.chart import Chart, Series
from rackfit.studies.altered import with_ratio
from rackfit.studies.base import Axes, Options, Own, Row, Study, solved
from rackfit.studies.systems.balanced import largest_balanced_decode
from topology.errors import InstanceError, Problem

#: a wider group is worth it when it makes this much more of each chip
_WORTH = 0.01


def _axes(base: Mapping[str, Any]) -> Axes:
    return {"one_copy": [True, False], "ratio": [3, 8, 18], "domains": [1, 2, 4, 8]}


def _answer(instance: Instance, own: Own, options: Options) -> Row:
    """Decode alone, tokens evenly over experts, as many sequences as HBM and TPOT allow."""
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


def _lines(rows: Sequence[Row]) -> dict[tuple[bool, Any], list[Row]]:
    found: dict[tuple[bool, Any], list[Row]] = {}
    for row in sorted(solved(rows), key=lambda row: int(row["ep"])):
        key = bool(row.get("one_copy", True)), row["scale_up_over_scale_out"]
        found.setdefault(key, []).append(row)
    return found


def _named(merged: bool, ratio: Any) -> str:
    return f"{ratio:.3g}:1, " + ("one copy per domain" if merged else "every copy")


def _chart(rows: Sequence[Row]) -> Chart:
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
    row = solved(rows)[0]
    said.append(
        f"Experts divide evenly over {row['even_ep']} chips of a domain, "
        f"{row['experts_per_chip_at_even_ep']} each, which leaves {row['chips_idle_at_even_ep']} idle."
    )
    return said


STUDY = Study(
    name="rack-boundary",
    question="What happens when a layer's experts leave the rack?",
    default={"model": "deepseek-v3", "workload": "chat", "slo": {"tpot": 0.03}},
    fixed={"cluster": "nvl-72@8"},
    axes=_axes,
    chart=_chart,
    conclude=_conclude,
    parameters={
        "domains": 1,
        "ratio": None,
        "one_copy": True,
        "chips_per_domain": None,
        "top_k": None,
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
    },
)
