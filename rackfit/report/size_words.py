"""``rackfit size`` in words: how many units of each kind, the cheapest mix, and what random arrivals said."""

from __future__ import annotations

from rich.table import Table

from rackfit.console import make_console, print_sentence, print_table
from rackfit.quoting import plain
from rackfit.wording import BASES, amount, at_most, counted, rests_on, some
from solver.plan.sizing.mix import Mix
from solver.plan.sizing.size import Sized, Wanted
from solver.verify import ROUNDING
from topology.quantity import figure


def _replay_line(one: Sized) -> str:
    """What random arrivals at the peak said of one kind."""
    if not one.replays:
        return f"{one.kind}: random arrivals were not replayed, the time was over"
    last = one.replays[-1]
    words = (
        f"{one.kind}: {last.requests:,} random requests at the peak on {counted(last.units, 'unit')}: "
        f"TTFT P99 {last.ttft_p99_s:.2f} s, TPOT P99 {last.tpot_p99_s * 1e3:.1f} ms, "
        f"{'meets' if last.meets else 'misses a target'}"
    )
    first = one.replays[0]
    if first.units < last.units:
        words += f"; {first.units}, enough for even arrivals, miss"
    return f"{words}; {one.reason}" if one.reason else words


def mix_line(one: Mix, *, replays: bool) -> str:
    """The cheapest mix in words."""
    proven = "not proven" if one.gap is None else f"proven within {at_most(one.gap, 1)}"
    sure = one.gap is not None and one.gap <= ROUNDING
    if len(one.units) == 1:
        alone = f"${one.one_kind_usd_per_hour:,.2f}/h"
        if sure:
            return f"no mix of these kinds costs less than {alone}"
        return f"no mix was found that costs less than {alone} ({proven})"
    units = " and ".join(f"{number} {kind}" for kind, number in one.units.items())
    less = 1.0 - one.usd_per_hour / one.one_kind_usd_per_hour
    words = (
        f"the cheapest mix{'' if sure else ' found'}: {units}, ${one.usd_per_hour:,.2f}/h, {some(less)} less than one kind ({proven}), "
        f"{one.headroom:.1%} over the peak after the worst loss"
    )
    if one.replays:
        return f"{words}\n{_mix_replay_line(one)}"
    return f"{words}; not replayed" if replays else words


def _mix_replay_line(one: Mix) -> str:
    """What the requests of a mix met, all together."""
    first, tokens = (
        max(getattr(seen, name) for seen in one.replays) for name in ("ttft_p99_s", "tpot_p99_s")
    )
    count = sum(seen.requests for seen in one.replays)
    losses = "after every loss: " if any(seen.lost for seen in one.replays) else ""
    return (
        f"its {count:,} replayed requests, {losses}TTFT P99 {first:.2f} s, TPOT P99 {tokens * 1e3:.1f} ms; "
        "each kind's share meets the targets"
    )


def _bases(found: list[Sized]) -> dict[str, list[str]]:
    """What the figures of the kinds rest on: kinds of one basis together."""
    kinds: dict[str, list[str]] = {}
    for one in found:
        if words := rests_on(one.provenance, *BASES):
            kinds.setdefault(words, []).append(one.kind)
    return kinds


def print_sizes(
    found: list[Sized],
    wanted: Wanted,
    together: Mix | None,
    left_out: dict[str, str],
    *,
    replays: bool,
) -> None:
    """A table of the kinds, the mix, and what is to be said of each kind."""
    console = make_console()
    loss = f", {counted(wanted.spare, 'unit')} lost" if wanted.spare else ""
    if wanted.spare_chips:
        loss = f", as many units lost as hold {counted(wanted.spare_chips, 'chip')}"
    print_sentence(
        console,
        f"{figure(wanted.rate, 6)} requests/s on average, {figure(wanted.peak_rate, 6)} at the peak{loss}",
    )
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in (
        "kind",
        "units",
        "proven least",
        "chips",
        "$/h",
        "$/M output at the mean",
        "headroom",
    ):
        table.add_column(column, justify="left" if column == "kind" else "right")
    for one in found:
        if one.count is None:
            continue
        table.add_row(
            one.kind, str(one.count), str(one.least), f"{one.count * one.chips_per_unit:,}",
            f"{one.usd_per_hour:,.2f}", amount(one.usd_per_m_output_tokens), f"{one.headroom:.1%}",
        )  # fmt: skip
    if table.row_count:
        print_table(console, table)
    for words, kinds in _bases(found).items():
        print_sentence(console, plain(f"basis of {', '.join(kinds)}: {words}"))
    if together is not None:
        for line in mix_line(together, replays=replays).splitlines():
            print_sentence(console, plain(line))
    too_large = {one.kind: one.reason for one in found if one.count is None}
    for kind, reason in (too_large | left_out).items():
        print_sentence(console, plain(f"{kind}: {reason}"))
    for one in found if replays else ():
        if one.count is not None:
            print_sentence(console, plain(_replay_line(one)))
