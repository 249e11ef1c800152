"""Layouts of several models on one cluster in words: what each gets, which money, and what is proven."""

from __future__ import annotations

from rich.table import Table

from rackfit.console import make_console, print_sentence, print_table
from rackfit.documents.replica_groups import replica_groups
from rackfit.documents.result import for_traffic
from rackfit.documents.together_document import layout_file
from rackfit.quoting import plain
from rackfit.report.traffic_words import traffic_lines
from rackfit.wording import BASES, amount, at_least, at_most, rests_on
from solver.together.divided import Divided
from topology.quantity import figure


def lines(found: Divided) -> list[str]:
    """Sentences about all models together."""
    judged, models = found.judged, found.models
    total = judged.evaluations[0].chips_total
    usable = len(models.instances[0].cluster.usable)
    paid = f"all {usable} usable chips are paid" if models.whole else "only these are paid"
    said = [
        f"{len(models.names)} models on {judged.chips_used} of {total} chips, {paid}: "
        f"${judged.usd_per_hour:,.2f}/h. All rates may grow by a factor of {figure(judged.headroom, 3, 'down')}"
    ]
    proof = "proven" if found.status == "optimal" else "best found"
    if models.whole:
        said.append(
            f"{proof}: no division of the chips that the proof covers lets them grow by more than {figure(found.bound, 4, 'up')} "
            f"({at_most(found.gap, 3)} more)"
        )
    else:
        said.append(
            f"{proof}: at most {at_most(found.gap, 3)} above the least possible cost. No division of the chips that the proof "
            f"covers costs less than ${at_least(found.bound, 2)}/h"
        )
    bases = (rests_on(one.provenance, *BASES) for one in judged.evaluations)
    return said + [f"basis: {words}" for words in dict.fromkeys(bases) if words]


def replica_words(found: Divided, model: int) -> str:
    """``llama-8b: 3 mixed replicas (tp 1, 1 chip)``."""
    groups = replica_groups(found.layouts[model], found.judged.evaluations[model])
    said = []
    for replica, _, members in groups:
        many, chips = "s" if len(members) > 1 else "", len(replica.chips)
        said.append(
            f"{len(members)} {replica.role} replica{many} "
            f"(tp {replica.shape.tp}, {chips} chip{'s' if chips > 1 else ''})"
        )
    return f"{found.models.names[model]}: {', '.join(said)}"


def print_together(found: Divided, *, written: bool) -> None:
    """Print an answer; ``written``: layouts were written to files, which are named."""
    console = make_console()
    for line in lines(found):
        print_sentence(console, plain(line))
    head = (
        "model", "req/s asked", "req/s at most", "chips", "$/h", "$/M output", "TTFT ms", "TPOT ms",
    )  # fmt: skip
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in head:
        table.add_column(column, justify="left" if column == "model" else "right", no_wrap=True)
    for at, name in enumerate(found.models.names):
        own = found.judged.evaluations[at]
        table.add_row(
            plain(name),
            f"{found.models.rates[at]:g}",
            f"{own.priced.requests_per_s:.4g}",
            str(own.chips_used),
            f"{own.usd_per_hour or 0.0:,.2f}",
            amount(own.usd_per_m_output_tokens or 0.0),
            f"{(own.ttft_s or 0.0) * 1e3:.0f}",
            f"{(own.tpot_s or 0.0) * 1e3:.2f}",
        )
    print_table(console, table)
    for at in range(len(found.layouts)):
        where = f" in {layout_file(found, at)}" if written else ""
        print_sentence(console, plain(f"{replica_words(found, at)}{where}"))
        for line in traffic_lines(for_traffic(found.replayed[at]) if found.replayed else {}):
            print_sentence(console, plain(line), indent="  ")
