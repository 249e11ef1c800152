"""A plan in words: what to reserve and rent, hour by hour, for which money, and what is proven."""

from __future__ import annotations

from math import isfinite

from costmodel.findings import provenance
from rackfit.documents.plan_document import (
    hour_document,
    left_out,
    unit_hours_per_day,
    usd_per_day,
    usd_per_m_output_tokens,
)
from rackfit.quoting import plain
from rackfit.wording import BASES, amount, at_least, at_most, counted, rests_on
from solver.plan.confirm import Confirmed
from solver.plan.day import DayPlan

#: misses that are told one by one
_MOST_MISSED = 5


def lines(found: DayPlan, confirmed: Confirmed | None = None) -> list[str]:
    """Sentences about the whole plan."""
    asked, judged = found.hours, found.planned.judged
    said = [
        f"${usd_per_day(found, judged.usd):,.2f} per day, "
        f"${amount(usd_per_m_output_tokens(found))} per million output tokens"
    ]
    for index, kind in enumerate(asked.kinds):
        rented = [hour.on_demand[index] for hour in judged.hours]
        reserved = found.planned.plan.reserved[index]
        said.append(
            f"{kind.name}: {counted(reserved, 'unit')} reserved, up to {max(rented)} rented by the hour "
            f"({unit_hours_per_day(found, rented):,.4g} unit-hours per day)"
        )
    said.append(_proof(found))
    if asked.spare:
        said.append(f"every hour's rates are carried after the loss of {asked.loss_words}")
    if confirmed is not None:
        said += _replayed(found, confirmed)
    bases = (rests_on(provenance(one.instance, one.layout), *BASES) for one in found.layouts)
    return said + [f"basis: {words}" for words in dict.fromkeys(bases)]


def _proof(found: DayPlan) -> str:
    """What is proven of the plan's money: over any layouts, over its own, or nothing yet."""
    own = (
        "of these layouts none costs less than "
        f"${at_least(usd_per_day(found, found.planned.bound_usd), 2)}"
    )
    if isfinite(found.gap):
        return (
            f"proven: at most {at_most(found.gap, 3)} above the least possible cost: no {found.space.words} with any "
            f"layouts costs less than ${at_least(usd_per_day(found, found.bound_usd), 2)} per day; {own}"
        )
    if isfinite(found.planned.gap):
        return f"the time ended before a bound over any layouts; {own}"
    return (
        "the time ended before a bound: how far above the least possible cost this is, is not known"
    )


def _replayed(found: DayPlan, confirmed: Confirmed) -> list[str]:
    """What replays say of every hour after every loss, and what they took off."""
    missed = [one for one in confirmed.replays if not one.meets]
    number = len(confirmed.replays)
    said = [
        f"replayed after every loss, hour by hour: {number - len(missed)} of {number} replays meet their targets"
        + (f"; the time ended before {confirmed.unknown} more" if confirmed.unknown else "")
    ]
    said += [
        f"missed in hour {one.hour}: {one.model} on {one.groups} groups of {one.column}: P99 of TTFT "
        f"{one.ttft_p99_s:.3g} s, of TPOT {one.tpot_p99_s * 1e3:.3g} ms"
        for one in missed[:_MOST_MISSED]
    ]
    if confirmed.reason:
        said.append(f"no other plan was found that replays confirm: {confirmed.reason}")
    if confirmed.cuts:
        before = usd_per_day(found, confirmed.first_usd)
        said.append(
            f"the first plan, for ${before:,.2f} per day, missed targets: {len(confirmed.cuts)} numbers of groups now count for "
            "less, as replays say; the bounds are those of the question without that"
        )
    return said


def header(found: DayPlan) -> list[str]:
    """Columns of the table of hours."""
    asked = found.hours
    return [
        "hour",
        *(f"{name}, req/s" for name in asked.models),
        *(f"{name}, units" for name in asked.models),
        "stand by",
        "$/h",
    ]


def rows(found: DayPlan) -> list[list[str]]:
    """The table of hours."""
    listed = []
    for hour in range(found.hours.hours):
        own = hour_document(found, hour)
        listed.append(
            [
                str(hour),
                *(f"{rate:,.4g}" for rate in own["requests_per_s"].values()),
                *(
                    _units(by_kind, shared)
                    for by_kind, shared in zip(
                        own["fleet_by_model"].values(), own["shared_by_model"].values(), strict=True
                    )
                ),
                _units(own["standing_by"]),
                f"{own['usd']:,.2f}",
            ]
        )
    return listed


def column_lines(found: DayPlan) -> list[str]:
    """One line for what each group of units runs, and for each kind on which a model runs on none; of parts of units those that serve."""
    said = []
    for column, one, *groups in zip(
        found.hours.columns, found.layouts, *found.planned.plan.groups, strict=True
    ):
        if column.shared and not any(groups):
            continue
        most = one.units * found.offers[column.model, column.kind].most_requests_per_s
        counts: dict[str, int] = {}
        for replica in one.layout.replicas:
            shape = replica.shape
            chips = counted(len(replica.chips), "chip")
            name = f"{replica.role} of {chips}, batch {shape.batch:,}"
            counts[name] = counts.get(name, 0) + 1
        built = "; ".join(f"{count} x {name}" for name, count in counts.items())
        said.append(
            f"{column.name}: {one.requests_per_s:,.4g} requests/s (no layout more than {most:,.4g}); "
            + (f"{one.left_requests_per_s:,.4g} after the loss of a unit; " if one.kept else "")
            + f"loads in {column.start_s:,.0f} s, finishes in {column.drain_s:,.0f} s; {built}"
        )
    return said + [
        f"{one['model']} runs on no {one['unit']}: {one['reason']}" for one in left_out(found)
    ]


def print_plan(found: DayPlan, confirmed: Confirmed | None = None) -> None:
    """Print a plan."""
    from rich.table import Table

    from rackfit.console import make_console, print_sentence, print_table

    console = make_console()

    def say(line: str) -> None:
        print_sentence(console, plain(line))

    for line in lines(found, confirmed):
        say(line)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in header(found):
        table.add_column(name, justify="right")
    for row in rows(found):
        table.add_row(*row)
    print_table(console, table)
    for line in column_lines(found):
        say(line)


def _units(by_kind: dict[str, int], shared: dict[str, int] | None = None) -> str:
    """Units of each kind that there are, and how many of them others share."""
    said = [
        f"{n} {kind}" if len(by_kind) > 1 else str(n)
        for kind, n in by_kind.items()
        if n or len(by_kind) == 1
    ]
    parted, units = sum((shared or {}).values()), sum(by_kind.values())
    told = " shared" if parted == units else f" ({parted} shared)"
    return (" + ".join(said) or "0") + told * bool(parted)
