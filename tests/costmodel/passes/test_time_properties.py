"""What must hold whatever the numbers: never below physics, longer with batch and context, shorter with bandwidth."""

import itertools
from dataclasses import replace

import pytest

from costmodel.evaluate import evaluate
from costmodel.layout.plain_layout import plain_layout
from costmodel.question.instance import resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.speculation import Speculative
from costmodel.question.workload import Workload
from topology import Cluster

CASES = [
    ("glm-4.5-air", "hgx-h200", 1, 8, None),
    ("glm-4.5-air", "hgx-b200", 8, 1, Speculative(draft_tokens=2, acceptance=0.7)),
    ("llama-3.1-70b", "hgx-h100", 4, 1, None),
    ("gpt-oss-120b", "mi355x", 2, 2, None),
    ("qwen3-next-80b-a3b", "hgx-h100", 1, 8, Speculative(acceptance=0.8)),
]


def question(model, cluster, speculative, profile="calibrated", context=2000):
    return resolve_instance(
        Scenario(
            model=model,
            cluster=cluster,
            workload=Workload(input_tokens=context, output_tokens=400),
            speculative=speculative,
            profile=profile,
        )
    )


def times(instance, tp, dp, batch):
    """TPOT of decode and of mixed replicas, and how long a prefill takes."""
    found = []
    for role in ("decode", "mixed", "prefill"):
        layout = plain_layout(instance, role, tp=tp, attention_dp=dp, batch=batch)
        service = evaluate(instance, layout).priced.replicas[0].service
        found.append(float(service.ttft_s if role == "prefill" else service.tpot_s))
    return found


def faster(instance, **factors):
    """The same instance on chips with some rates multiplied."""
    kinds = {placed.chip for placed in instance.cluster.chips}
    better = {
        chip: chip.model_copy(update={key: getattr(chip, key) * by for key, by in factors.items()})
        for chip in kinds
    }
    domains = []
    for domain in instance.cluster.domains:
        chips = tuple(replace(placed, chip=better[placed.chip]) for placed in domain.chips)
        usable = tuple(placed for placed in chips if placed.usable)
        domains.append(replace(domain, chips=chips, usable=usable))
    old = instance.cluster
    cluster = Cluster(
        old.name, domains, old.network, title=old.title, sources=old.sources, notes=old.notes,
        provenance=old.provenance,
    )  # fmt: skip
    return replace(instance, cluster=cluster)


@pytest.mark.parametrize(("model", "cluster", "tp", "dp", "speculative"), CASES)
def test_times_never_fall_below_physics(model, cluster, tp, dp, speculative):
    for batch in (8, 64, 512):
        bound = times(question(model, cluster, speculative, "physics"), tp, dp, batch)
        found = times(question(model, cluster, speculative), tp, dp, batch)
        assert all(a >= b > 0 for a, b in zip(found, bound, strict=True))


@pytest.mark.parametrize(("model", "cluster", "tp", "dp", "speculative"), CASES)
def test_times_grow_with_batch_and_context(model, cluster, tp, dp, speculative):
    for profile in ("physics", "calibrated"):
        instance = question(model, cluster, speculative, profile)
        steps = [times(instance, tp, dp, batch) for batch in (8, 32, 128, 512)]
        longer = [
            times(question(model, cluster, speculative, profile, context), tp, dp, 64)
            for context in (500, 2000, 8000, 32_000)
        ]
        for row in (steps, longer):
            for before, after in itertools.pairwise(row):
                assert all(a <= b * (1 + 1e-12) for a, b in zip(before, after, strict=True))
        # what grows, grows: ten times the context is read, ten times the prompt computed
        assert longer[-1][0] > longer[0][0]
        assert longer[-1][2] > 10 * longer[0][2]


@pytest.mark.parametrize(("model", "cluster", "tp", "dp", "speculative"), CASES)
def test_times_fall_with_bandwidth(model, cluster, tp, dp, speculative):
    for profile in ("physics", "calibrated"):
        instance = question(model, cluster, speculative, profile)
        before = times(instance, tp, dp, 32)
        after = times(faster(instance, hbm_bytes_per_s=2.0), tp, dp, 32)
        assert all(b <= a for a, b in zip(before, after, strict=True))
        assert after[0] < before[0]
        assert after[0] >= before[0] / 2
