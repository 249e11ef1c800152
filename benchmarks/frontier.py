"""What an optimum promises beyond the best measured run, freedom by freedom: ``python -m benchmarks.frontier``.

For each group of measured runs (model, system, precision, lengths) the run with the most output tokens/s per GPU (those
below the physics bound at their stated users left out), and
what Rackfit says can be had at that run's TPOT with the constants of its engine and its KV precision. One freedom is
given at a time, in this order, and each factor is the rate after it over the rate before:

1. model error: predicted over measured rate of the run as it was;
2. batch: the largest batch that the TPOT and HBM allow, requests that come evenly; experts in order, not placed;
3. balance: experts placed on the same workers, widths and numbers, or each cut over all chips, which loads them alike;
4. widths: any widths of the same roles, prefill and decode workers in any ratio;
5. apart: mixed workers, or prefill and decode apart, whichever serves more;
6. idle chips: whole workers on whole domains that hold the run's chips, none left unpaid.

The product of the factors is the optimum over the measured run. Writes ``instances/measured/frontier.csv``, line by line;
goes on where it stopped (``--anew`` does not). ``python -m costmodel.measured`` puts the table into
``docs/accuracy.md``; ``--page`` does that alone.
"""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import astuple, fields, replace
from itertools import pairwise
from math import ceil
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from costmodel.evaluate import evaluate
from costmodel.layout.layout import Role
from costmodel.layout.plain_layout import plain_layout
from costmodel.measured.fitting.calibration import shipped_rows
from costmodel.measured.frontier_report import (
    FILE,
    HEADING,
    NEXT,
    Split,
    frontier_lines,
    read_splits,
)
from costmodel.measured.predict import predict_under
from costmodel.measured.rows import Group, MeasuredRow
from costmodel.measured.runs import Run, runs_of
from costmodel.measured.scores import possible
from costmodel.measured.systems import served, workload_of
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.profile import load_profile
from costmodel.question.scenario import Scenario
from costmodel.question.workload import Slo
from solver.clock import Clock
from solver.rounds import Search
from solver.shapes.shapes import ROLES
from topology import load_cluster
from topology.catalogue import data_dir
from topology.errors import NoFeasibleLayout, NoLayoutInTime

#: rules that end a batch
_LIMITS = ("hbm_capacity", "tpot_target")
#: shapes that are placed for one rate at most
_PLACED = 24
#: a bound so little above a placed rate is reached
_REACHED = 1.002


def main() -> None:
    """Split every group that is not in the file yet."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.frontier", description=__doc__)
    parser.add_argument("--anew", action="store_true")
    parser.add_argument("--most", type=int, default=None, help="groups to do now")
    parser.add_argument("--page", action="store_true", help="write the table of docs/accuracy.md")
    asked = parser.parse_args()
    if asked.page:
        write_page()
        return
    path = data_dir("measured") / FILE
    done = {} if asked.anew else {one.run: one for one in read_splits()}
    best = [run for group in groups_of(shipped_rows()[0]) if (run := best_run(group)) is not None]
    kept = [done[run.row.id] for run in best if run.row.id in done]
    fresh = [run for run in best if run.row.id not in done]
    with path.open("w", encoding="utf-8", newline="") as text:
        table = csv.writer(text, lineterminator="\n")
        table.writerow([field.name for field in fields(Split)])
        table.writerows(astuple(one) for one in kept)
        for run in fresh[: asked.most]:
            found = split(run)
            if found is not None:
                table.writerow(astuple(found))
                text.flush()
                print(found, flush=True)


def write_page() -> None:
    """Put the table of the file into the accuracy report, in place of the one there."""
    page = Path(__file__).resolve().parents[1] / "docs" / "accuracy.md"
    text = page.read_text()
    rest = text.index(NEXT)
    start = text.index(HEADING) if HEADING in text else rest
    lines = frontier_lines(read_splits())
    page.write_text(text[:start] + "\n".join(lines[1:]) + "\n\n" + text[rest:])


def groups_of(rows: Sequence[MeasuredRow]) -> list[list[MeasuredRow]]:
    """Rows of each group, those with the most output tokens/s per GPU first; groups of most rows first."""
    groups: dict[object, list[MeasuredRow]] = defaultdict(list)
    for row in rows:
        if row.ttft_s is not None:
            key = (served(row), row.system, row.input_tokens, row.output_tokens)
            groups[key].append(row)
    ordered = sorted(groups.values(), key=len, reverse=True)
    return [sorted(group, key=measured_rate, reverse=True) for group in ordered]


def best_run(group: Sequence[MeasuredRow]) -> Run | None:
    """The first row of a group that can be priced and that is not below the physics bound at its stated users."""
    for row in group:
        runs, _ = runs_of([row])
        if runs and possible(runs)[0]:
            return runs[0]
    return None


def chips_of(row: MeasuredRow) -> int:
    """Chips of all workers."""
    return sum(group.chips * group.workers for group in (row.decode, row.prefill) if group)


def measured_rate(row: MeasuredRow) -> float:
    """Requests per second and chip, closed loop."""
    whole = (row.ttft_s or 0.0) + row.output_tokens * row.tpot_s
    return row.concurrency / whole / chips_of(row)


def split(run: Run) -> Split | None:
    """The factors of one run; ``None`` where nothing meets its TPOT."""
    row = run.row
    rates = [measured_rate(row), _predicted(run)]
    asked = question(row)
    rates.append(_plain(run, asked))
    search = Search(asked, Clock(None), 0.01, 0, None)
    rates += _freed(row, search)
    try:
        whole = Search(asked, Clock(None), 0.01, 0, None, like=search).run()
    except (NoFeasibleLayout, NoLayoutInTime):
        return None
    assert whole is not None
    rates.append((whole.evaluation.requests_per_s or 0.0) / whole.evaluation.chips_total)
    if min(rates) <= 0:
        return None
    factors = [after / before for before, after in pairwise(rates)]
    what = served(row)
    return Split(
        row.id, what.model, what.chip, row.engine, row.precision, row.mode, row.input_tokens,
        row.output_tokens, 1e3 * row.tpot_s, rates[0] * row.output_tokens, *factors,
    )  # fmt: skip


def _predicted(run: Run) -> float:
    """The run as it was, under the constants of its engine.

    What one release's host takes to launch kernels is left out, as it is of the optimum; else it would count as batch.
    """
    profile = load_profile("calibrated").model_copy(update={"launches": {}})
    found = predict_under([run], profile)
    row = run.row
    whole = float(found.ttft_s[0]) + row.output_tokens * float(found.tpot_s[0])
    return row.concurrency / whole / chips_of(row)


def question(row: MeasuredRow) -> Instance:
    """The group's question at the run's TPOT, on whole domains that hold its chips; experts are loaded unevenly."""
    what = served(row)
    domain = len(load_cluster(what.cluster).domains[0].chips)
    count = max(1, ceil(chips_of(row) / domain))
    return resolve_instance(
        Scenario(
            model=what.model,
            cluster=what.cluster if count == 1 else f"{what.cluster}@{count}",
            weight_dtype=what.weight_dtype,
            kv_dtype=what.kv_dtype,
            workload=workload_of(row).model_copy(update={"expert_load": "skewed"}),
            slo=Slo(tpot=row.tpot_s),
            profile=f"calibrated:{row.engine}",
        )
    )


def _plain(run: Run, asked: Instance) -> float:
    """The run's workers at the largest batches that keep to the TPOT, experts in order, loaded as the run's were."""
    row = run.row
    profile = asked.profile.routed_as(str(run.instance.workload.expert_load))
    instance = replace(run.instance, profile=profile, scenario=run.instance.scenario.model_copy(
        update={"slo": Slo(tpot=row.tpot_s)}))  # fmt: skip
    if row.prefill is None:
        return _most(instance, row.decode, "mixed") / row.decode.chips
    pools = [
        row.prefill.workers * _most(instance, row.prefill, "prefill"),
        row.decode.workers * _most(instance, row.decode, "decode"),
    ]
    return min(pools) / chips_of(row)


def _most(instance: Instance, group: Group, role: Role) -> float:
    """Requests per second of one worker at the largest batch that keeps to HBM and the TPOT; 0 where none does."""

    def served(per_rank: int) -> float | None:
        layout = plain_layout(
            instance, role, tp=group.tp, attention_dp=group.attention_dp, pp=group.pp,
            batch=per_rank * group.attention_dp,
        )  # fmt: skip
        found = evaluate(instance, layout)
        if any(one.rule in _LIMITS for one in found.violations) or not found.priced.replicas:
            return None
        return float(found.priced.replicas[0].service.requests_per_s)

    most = instance.limits.max_sequences_per_rank
    good, best = 0, 0.0
    step = 1
    while step and good < most:
        rate = served(min(good + step, most))
        if rate is not None:
            good, best = min(good + step, most), max(best, rate)
            step = 2 * step if good == 2 * step - 1 else step // 2
        else:
            step //= 2
    return best


def _freed(row: MeasuredRow, search: Search) -> list[float]:
    """Requests per second and chip with experts placed, then of any widths, then of any roles."""
    shapes = search.shapes
    roles: list[tuple[Role, Group]] = [("mixed", row.decode)]
    if row.prefill is not None:
        roles = [("prefill", row.prefill), ("decode", row.decode)]
    own = []
    for role, group in roles:
        like = _of(search, role) & (shapes.tp == group.tp) & (shapes.pp == group.pp)
        like &= shapes.attention_dp == group.attention_dp
        own.append((_rate(search, like) * group.chips, group))
    placed = min(rate * group.workers for rate, group in own) / chips_of(row)
    apart = _together(*(_rate(search, _of(search, role)) for role in ("prefill", "decode")))
    mixed = _rate(search, _of(search, "mixed"))
    return [placed, mixed if row.prefill is None else apart, max(mixed, apart)]


def _of(search: Search, role: Role) -> NDArray[np.bool_]:
    return np.asarray(search.shapes.role == ROLES.index(role))


def _together(prefill: float, decode: float) -> float:
    """Requests per second and chip of pools in the best ratio."""
    return 1.0 / (1.0 / prefill + 1.0 / decode) if min(prefill, decode) > 0 else 0.0


def _rate(search: Search, among: NDArray[np.bool_]) -> float:
    """The most requests per second and chip that a placed shape among these serves, best bounds first."""
    chips = search.shapes.chips
    bounds = np.where(among, search.bounds.requests_per_s / chips, 0.0)
    best = 0.0
    for row in np.argsort(-bounds, kind="stable")[:_PLACED].tolist():
        if bounds[row] <= best * _REACHED:
            break
        if row not in search.placed.realised:
            search.place([row])
        best = max(best, search.placed.realised[row].requests_per_s / float(chips[row]))
    return best


if __name__ == "__main__":
    main()
