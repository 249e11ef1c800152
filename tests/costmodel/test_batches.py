"""What a pass really does: no batch, even or not, is priced below its bytes and FLOPs, or faster for more work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest

from costmodel.experts.moe_load import touch_probability
from costmodel.layout.layout import KvShare, Layout, Role
from costmodel.layout.plain_layout import plain_layout
from costmodel.question.instance import Instance, Scenario, resolve_instance
from costmodel.question.workload import Slo, Workload
from costmodel.replica.replica import price_replica
from costmodel.replica.serving import Service

#: model, cluster, and widths that stand on it: tensor parallel, attention ranks, stages
CASES = [
    ("deepseek-v3", "nvl-8", [(1, 1, 8), (1, 4, 2), (2, 4, 1), (1, 8, 1)]),
    ("qwen3-30b-a3b", "hgx-h100", [(2, 1, 3), (1, 2, 4), (1, 8, 1), (2, 2, 2)]),
    ("glm-4.5-air", "mi300x", [(1, 8, 1), (2, 4, 1), (4, 1, 2)]),
    ("llama-3.1-70b", "hgx-h100", [(2, 1, 4), (8, 1, 1)]),
]
ROLES: tuple[Role, ...] = ("prefill", "decode", "mixed")


def question(model: str, cluster: str, context: int = 600, load: str = "skewed") -> Instance:
    return resolve_instance(
        Scenario(
            model=model,
            cluster=cluster,
            workload=Workload(input_tokens=context, output_tokens=200, expert_load=load),
            slo=Slo(),
            profile="physics",
        )
    )


def with_sequences(layout: Layout, sequences: Sequence[int], shard: int = 0) -> Layout:
    """The layout of one replica with so many sequences on each rank, their home one of its chips."""
    (replica,) = layout.replicas
    kv = tuple(
        KvShare(chip=replica.stages[-1].chips[rank * replica.shape.tp + shard], sequences=n)
        for rank, n in enumerate(sequences)
    )
    shape = replica.shape.model_copy(update={"batch": sum(sequences)})
    changed = replica.model_copy(update={"kv": kv, "shape": shape})
    return layout.model_copy(update={"replicas": (changed,)})


@dataclass(frozen=True)
class Priced:
    """A replica of some widths, priced at any sequences per rank."""

    instance: Instance
    role: Role
    tp: int
    ranks: int
    pp: int

    def __call__(self, sequences: Sequence[int], shard: int = 0) -> Service:
        plain = plain_layout(
            self.instance, self.role, tp=self.tp, attention_dp=self.ranks, pp=self.pp,
            batch=self.ranks * self.pp,
        )  # fmt: skip
        layout = with_sequences(plain, sequences, shard)
        return price_replica(self.instance, layout, layout.replicas[0]).service


def seconds(service: Service) -> list[float]:
    return [float(service.tpot_s), float(service.ttft_s), float(service.ttft_mean_s)]


def least_pass_s(instance: Instance, tokens: int, tp: int, ranks: int) -> float:
    """Seconds that a pass of so many tokens takes at least over all stages.

    Chips at full rate share the work evenly: every matrix is read by each rank, each expert that a token
    reaches once by a stage, and every product computed.
    """
    operations, chip = instance.operations, instance.cluster.usable[0].chip
    total = 0.0
    for kind in operations.kinds:
        for matmul in kind.matmuls:
            flops = tokens * matmul.flops_per_token / chip.peak_flops_per_s(matmul.dtype)
            read = matmul.weight_bytes / tp / chip.hbm_bytes_per_s
            total += len(kind.layers) * max(flops / (tp * ranks), read)
        if kind.moe is None:
            continue
        reached = touch_probability(instance.kind_loads(kind), kind.moe.top_k, tokens, 1.0)
        read = float(reached.sum()) * kind.moe.expert_bytes / chip.hbm_bytes_per_s
        flops = tokens * kind.moe.top_k * 2.0 * kind.moe.expert_params * len(kind.layers)
        total += max(read, flops / chip.peak_flops_per_s(kind.moe.expert_dtype)) / (tp * ranks)
    return total


@pytest.mark.parametrize(("model", "cluster", "widths"), CASES)
def test_no_pass_takes_less_than_its_bytes_and_flops(
    model: str, cluster: str, widths: list[tuple[int, int, int]]
) -> None:
    instance = question(model, cluster)
    rng = np.random.default_rng(7)
    for tp, ranks, pp in widths:
        for _ in range(6):
            sequences = rng.integers(0, 3 * pp + 1, ranks)
            sequences[rng.integers(ranks)] = rng.integers(1, 3 * pp + 1)
            decode = Priced(instance, "decode", tp, ranks, pp)(sequences.tolist())
            in_pass = int(np.ceil(sequences / pp).sum())
            least = least_pass_s(instance, in_pass, tp, ranks)
            assert float(decode.tpot_s) >= least
            prefill = Priced(instance, "prefill", tp, ranks, pp)(sequences.tolist())
            tokens = in_pass * instance.workload.new_tokens
            assert float(prefill.ttft_s) >= least_pass_s(instance, tokens, tp, ranks)


def test_empty_microbatches_make_no_pass_quicker() -> None:
    instance = question("deepseek-v3", "nvl-8")
    priced = Priced(instance, "decode", 1, 1, 8)
    one, eight = priced([1]), priced([8])
    assert float(one.tpot_s) == pytest.approx(float(eight.tpot_s), rel=1e-12)
    # every layer's own weights and its top_k experts, read from one chip's HBM after another
    assert float(one.tpot_s) >= least_pass_s(instance, 1, 1, 1)
    prefill = Priced(question("qwen3-30b-a3b", "hgx-h100"), "prefill", 2, 1, 3)
    times = [float(prefill([batch]).ttft_s) for batch in (1, 2, 3)]
    assert times == pytest.approx([times[0]] * 3, rel=1e-12)
    rates = [float(prefill([batch]).requests_per_s) for batch in (1, 2, 3)]
    assert rates == pytest.approx([rates[2] / 3, rates[2] * 2 / 3, rates[2]], rel=1e-12)


@pytest.mark.parametrize(("model", "cluster", "widths"), CASES)
def test_more_sequences_on_any_rank_take_no_less_time(
    model: str, cluster: str, widths: list[tuple[int, int, int]]
) -> None:
    instance = question(model, cluster)
    rng = np.random.default_rng(11)
    for tp, ranks, pp in widths:
        for role in ROLES:
            if role == "mixed" and pp > 1:
                continue
            priced = Priced(instance, role, tp, ranks, pp)
            sequences = rng.integers(0, 2 * pp + 1, ranks)
            sequences[0] = max(1, sequences[0])
            before = seconds(priced(sequences.tolist()))
            for _ in range(6):
                sequences[rng.integers(ranks)] += int(rng.integers(1, pp + 2))
                after = seconds(priced(sequences.tolist()))
                assert all(a <= b * (1 + 1e-12) for a, b in zip(before, after, strict=True)), (
                    role, tp, ranks, pp, sequences,
                )  # fmt: skip
                before = after


@pytest.mark.parametrize(("model", "cluster", "widths"), CASES)
def test_the_same_sequences_spread_evenly_serve_most(
    model: str, cluster: str, widths: list[tuple[int, int, int]]
) -> None:
    """What the bounds of batches rest on: least time, and time per sequence that falls with their number."""
    instance = question(model, cluster)
    rng = np.random.default_rng(13)
    for tp, ranks, pp in widths:
        for role in ROLES:
            if role == "mixed" and pp > 1:
                continue
            priced = Priced(instance, role, tp, ranks, pp)
            for _ in range(3):
                sequences = rng.integers(0, 3 * pp + 1, ranks)
                sequences[0] = max(1, sequences[0])
                uneven = float(priced(sequences.tolist()).requests_per_s)
                each = -(-int(sequences.sum()) // (ranks * pp)) * pp
                even = float(priced([each] * ranks).requests_per_s)
                assert uneven <= even * (1 + 1e-12), (role, tp, ranks, pp, sequences)


@pytest.mark.parametrize(("model", "cluster", "widths"), CASES)
def test_equal_work_described_otherwise_takes_equal_time(
    model: str, cluster: str, widths: list[tuple[int, int, int]]
) -> None:
    instance = question(model, cluster, load="uniform")
    rng = np.random.default_rng(17)
    for tp, ranks, pp in widths:
        for role in ROLES:
            priced = Priced(instance, role, tp, ranks, pp)
            sequences = rng.integers(1, 3 * pp + 1, ranks).tolist()
            here = priced(sequences)
            other_homes, other_ranks = priced(sequences, shard=tp - 1), priced(sequences[::-1])
            for other in (other_homes, other_ranks):
                assert seconds(other) == pytest.approx(seconds(here), rel=1e-12)
                assert float(other.requests_per_s) == pytest.approx(
                    float(here.requests_per_s), rel=1e-12
                )


@pytest.mark.parametrize(("model", "cluster", "widths"), CASES)
def test_longer_contexts_take_more_time(
    model: str, cluster: str, widths: list[tuple[int, int, int]]
) -> None:
    contexts = [question(model, cluster, context) for context in (300, 600, 2400)]
    for tp, ranks, pp in widths:
        sequences = [pp + rank % 2 for rank in range(ranks)]
        for role in ROLES:
            found = [seconds(Priced(own, role, tp, ranks, pp)(sequences)) for own in contexts]
            for short, long in pairwise(found):
                assert all(a <= b for a, b in zip(short, long, strict=True))


def test_a_first_token_may_meet_the_prompts_of_all_ranks() -> None:
    """One sequence more on one rank of a mixed replica, and prompts meet in a pass as before."""
    instance = question("qwen3-30b-a3b", "hgx-h100", 4000)
    priced = Priced(instance, "mixed", 1, 8, 1)
    even, more = priced([1] * 8), priced([2] + [1] * 7)
    assert float(more.ttft_s) >= float(even.ttft_s)
    # with sequences on one rank alone no other prompt is met
    assert float(priced([2] + [0] * 7).ttft_s) < float(even.ttft_s)
