"""A region of clusters, models and hours, planned by parts: its gap, and how the time grows.

``python -m benchmarks.region [--clusters 100] [--models 20] [--hours 168] [--seed 0] [--jobs 2] [--spare 0] [--scaling]``
makes a question from a seed: clusters of the catalogue of 8 to 4,608 chips, models of the catalogue, and by model a day of ServeGen that is
shifted by hours, rescaled by days and so that all models' peaks alone take half of the region in equal parts. ``--scaling`` plans
smaller questions as well and fits exponents.
"""

from __future__ import annotations

import argparse
import random
import resource
import time
from collections.abc import Sequence
from math import exp, log

import numpy as np
from joblib.externals.loky import get_reusable_executor

from costmodel.plan.question import PlanModel, PlanQuestion, PlanUnits, load_plan, rates_of
from costmodel.question.workload import Slo
from solver.clock import Clock
from solver.plan.day import DayPlan, plan_offers
from solver.plan.offers import Offers, offers_for
from topology import load_cluster

KINDS = ("hgx-h100", "hgx-h200", "hgx-b200", "gb200-nvl72", "hgx-b300")
MODELS = (
    "deepseek-v3", "llama-3.1-8b", "qwen3-32b", "gpt-oss-120b", "llama-3.1-70b", "qwen3-30b-a3b", "gemma-3-27b", "qwen3-235b-a22b",
    "qwen3-8b", "mixtral-8x7b", "qwen2.5-72b", "gpt-oss-20b", "mistral-nemo", "glm-4.5-air", "command-a", "qwen3-14b", "mistral-large-2",
    "qwen2.5-7b", "gemma-2-27b", "llama-3.1-405b",
)  # fmt: skip
WORKLOADS = ("chat", "chat", "reasoning")
#: chips of the smallest and of the largest cluster; share of the region that the peaks take together
LEAST, MOST, SHARE = 8, 4608, 0.5


def made(clusters: int, models: int, hours: int, seed: int, spare: int = 0) -> PlanQuestion:
    """The question with rates whose highest is 1 request/s; fewer clusters, models or hours are the first ones."""
    rng = random.Random(seed)
    units = []
    for number in range(clusters):
        kind = KINDS[number % len(KINDS)]
        size = len(load_cluster(kind).chips)
        # one of the least and one of the most chips, others evenly in the logarithm
        ends = {0: LEAST, 3: MOST}
        chips = ends.get(number, exp(rng.uniform(log(max(size, LEAST)), log(MOST))))
        units.append(
            PlanUnits(cluster=kind, name=f"{kind}-{number}", count=max(1, int(chips) // size))
        )
    days = [[most for _, most in own] for own in rates_of(load_plan("servegen-day"))]
    asked = []
    for number in range(models):
        own = random.Random(f"{seed} {number}")
        day = days[own.randrange(len(days))]
        shift, weekend = own.randrange(24), own.uniform(0.5, 0.9)
        scales = [own.uniform(0.9, 1.0) * (weekend if turn >= 5 else 1.0) for turn in range(7)]
        rates = [day[(hour + shift) % 24] * scales[hour // 24 % 7] for hour in range(hours)]
        asked.append(
            PlanModel(
                model=MODELS[number], name=MODELS[number], workload=own.choice(WORKLOADS),
                slo=Slo(ttft=2.0, tpot=0.05), requests_per_s=tuple(rate / max(rates) for rate in rates),
            )
        )  # fmt: skip
    return PlanQuestion(
        name="region", models=tuple(asked), units=tuple(units), spare=spare,
        load_from="host", load_extra=60.0, least_hours=2,
    )  # fmt: skip


def scaled(asked: PlanQuestion, offers: Offers, seed: int) -> PlanQuestion:
    """The question with each model's peak at its part of :data:`SHARE` of the region, times 0.5 to 1.5."""
    rng = random.Random(f"{seed} shares")
    models = []
    for m, model in enumerate(asked.models):
        carried = sum(
            units.count * max((one.requests_per_s / one.group for one in offers[m, k].layouts), default=0.0)
            for k, units in enumerate(asked.units)
        )  # fmt: skip
        peak = carried * SHARE / len(asked.models) * rng.uniform(0.5, 1.5)
        assert model.requests_per_s is not None
        rates = tuple(rate * peak for rate in model.requests_per_s)
        models.append(model.model_copy(update={"requests_per_s": rates}))
    return asked.model_copy(update={"models": tuple(models)})


def searched(asked: PlanQuestion, jobs: int) -> Offers:
    """What every kind runs for every model: all searches side by side, ``jobs`` at a time."""
    clock = Clock()
    found = offers_for(
        asked, clock=clock, gap=0.02, jobs=jobs,
        on_progress=lambda said: print(f"{clock.elapsed_s:.0f} s: {said}", flush=True),
    )  # fmt: skip
    # processes that wait for more work count only once they ended
    get_reusable_executor().shutdown(wait=True)
    return found


def not_served(asked: PlanQuestion, offers: Offers) -> list[str]:
    """Which model no unit of which kind runs, with why: of each kind the place with most units."""
    largest: dict[str, int] = {}
    for k, units in enumerate(asked.units):
        before = largest.setdefault(units.cluster, k)
        if asked.units[before].count < units.count:
            largest[units.cluster] = k
    return [
        f"{model.called} is not served on {kind}: {offers[m, k].reason.splitlines()[0]}"
        for m, model in enumerate(asked.models)
        for kind, k in largest.items()
        if not offers[m, k].layouts
    ]


def part(offers: Offers, clusters: int, models: int) -> Offers:
    """Of the first clusters and models."""
    return {(m, k): one for (m, k), one in offers.items() if m < models and k < clusters}


def cpu_s() -> float:
    """Seconds of CPU of this process and of those that ended."""
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(sum(resource.getrusage(one)[:2]) for one in who)


def planned(asked: PlanQuestion, offers: Offers) -> tuple[DayPlan, float]:
    """The plan, and seconds of CPU that it took without the searches."""
    began = cpu_s()
    found = plan_offers(
        asked, offers, clock=Clock(), on_progress=lambda said: print(f"  {said}", flush=True)
    )
    return found, cpu_s() - began


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """``p`` of ``seconds ~ size ** p``, by least squares of logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def scaling(offers: Offers, clusters: int, models: int, seed: int, spare: int) -> None:
    """Times of smaller questions, and exponents: by clusters, models and hours, the other two at their most and 48 hours."""
    axes = {
        "clusters": [(clusters // part_of, models, 48) for part_of in (8, 4, 2, 1)],
        "models": [(clusters, models // part_of, 48) for part_of in (4, 2, 1)],
        "hours": [(clusters, models, hours) for hours in (24, 48, 96, 168)],
    }
    times: dict[tuple[int, int, int], float] = {}
    for size in dict.fromkeys(one for own in axes.values() for one in own):
        own = part(offers, *size[:2])
        asked = scaled(made(*size, seed, spare), own, seed)
        found, times[size] = planned(asked, own)
        print(f"{size[0]} clusters, {size[1]} models, {size[2]} hours: {times[size]:.1f} s of CPU, gap {found.planned.gap:.2%} "
              f"of these layouts, {found.gap:.2%} of any", flush=True)  # fmt: skip
    for place, (name, sizes) in enumerate(axes.items()):
        fitted = exponent([one[place] for one in sizes], [times[one] for one in sizes])
        print(f"time ~ {name} ^ {fitted:.2f}")


def main() -> None:
    """Plan the region."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (
        ("clusters", 100),
        ("models", 20),
        ("hours", 168),
        ("seed", 0),
        ("jobs", 2),
        ("spare", 0),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--scaling", action="store_true")
    words = parser.parse_args()
    began, cpu = time.perf_counter(), cpu_s()
    asked = made(words.clusters, words.models, words.hours, words.seed, words.spare)
    offers = searched(asked, words.jobs)
    print(f"searches: {time.perf_counter() - began:.0f} s, {cpu_s() - cpu:.0f} s of CPU")
    for line in not_served(asked, offers):
        print(line)
    if words.scaling:
        scaling(offers, words.clusters, words.models, words.seed, words.spare)
        return
    asked = scaled(asked, offers, words.seed)
    found, seconds = planned(asked, offers)
    chips = sum(len(load_cluster(one.cluster).chips) * one.count for one in asked.units)
    per_day = 24.0 / found.hours.hours
    used = [sum(hour.serving) + sum(hour.moving) for hour in found.planned.judged.hours]
    print(f"{len(asked.units)} clusters, {chips:,} chips, {sum(k.units for k in found.hours.kinds):,} units, "
          f"{min(used):,} to {max(used):,} in use")  # fmt: skip
    print(f"${found.planned.judged.usd * per_day:,.0f} per day; gap {found.planned.gap:.2%} of these layouts, "
          f"{found.gap:.2%} of any layouts")  # fmt: skip
    print(
        f"plan {seconds:.0f} s of CPU; all {time.perf_counter() - began:.0f} s, {cpu_s() - cpu:.0f} s of CPU"
    )


if __name__ == "__main__":
    main()
