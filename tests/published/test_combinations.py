"""The three ways to combine operations, against each other: where they must agree and by how much not."""

import numpy as np
import pytest

from costmodel.models import load_model
from costmodel.passes.communication import GroupRates
from costmodel.passes.group import ChipGroup
from costmodel.passes.operations import operations_of
from costmodel.passes.pass_sums import PassTime
from costmodel.passes.pass_time import pass_time
from costmodel.passes.tokens import ExpertShares, Tokens
from costmodel.question.profile import Efficiency
from topology import load_chip

NO_TRAFFIC = GroupRates(*[np.zeros(())] * 6)
MODELS = ("llama-3.1-8b", "deepseek-v3", "gpt-oss-120b", "qwen3-next-80b-a3b")


def timed(model, tokens, chip=None):
    operations = operations_of(load_model(model))
    kinds = [(kind, float(len(kind.layers))) for kind in operations.kinds]
    shares = [
        None
        if kind.moe is None
        else ExpertShares(
            np.ones((len(kind.layers), 1)),
            np.full((len(kind.layers), 1), float(kind.moe.num_experts)),
        )
        for kind, _ in kinds
    ]
    return pass_time(
        ChipGroup.of(operations, 1, 1, chip or load_chip("h200"), Efficiency(), NO_TRAFFIC),
        kinds,
        tokens,
        shares,
    )


def all_three(found):
    return [float(found.total_s(name)) for name in ("lecture", "book", "per_op")]


@pytest.mark.parametrize("model", MODELS)
def test_they_agree_where_memory_is_all(model):
    chip = load_chip("h200")
    endless = chip.model_copy(update={"flops_per_s": dict.fromkeys(chip.flops_per_s, 1e30)})
    lecture, book, per_op = all_three(timed(model, Tokens(decode=16.0, context=4096.0), endless))
    assert book == pytest.approx(lecture)
    assert per_op == pytest.approx(lecture)


@pytest.mark.parametrize("model", MODELS)
def test_they_agree_where_compute_is_all(model, monkeypatch):
    """With memory that is endlessly fast, and kernels that lose no time between tiles of weights."""
    monkeypatch.setattr("costmodel.passes.routed.NARROW_S_PER_B", 0.0)
    endless = load_chip("h200").model_copy(update={"hbm_bytes_per_s": 1e30})
    lecture, book, per_op = all_three(timed(model, Tokens(decode=16.0, context=4096.0), endless))
    assert book == pytest.approx(lecture)
    assert per_op == pytest.approx(lecture)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("batch", [1, 30, 300, 3000])
def test_the_lecture_is_the_least_and_none_exceeds_twice_it(model, batch):
    lecture, book, per_op = all_three(timed(model, Tokens(decode=float(batch), context=2048.0)))
    assert lecture <= book * (1 + 1e-12)
    assert lecture <= per_op * (1 + 1e-12)
    assert max(book, per_op) <= 2 * lecture * (1 + 1e-12)


def test_one_operation_is_the_same_in_lecture_and_per_operation():
    single = PassTime()
    single.roofline("dense_ffn", np.asarray(3.0), np.asarray(5.0))
    assert all_three(single) == [5.0, 5.0, 5.0]


def test_deepseek_v3_at_its_aggregate_balance_batch_waits_longer_by_operation():
    """Weights of routed experts wait while attention computes: 1.40 times in the source."""
    chip = load_chip("h100")
    lecture, _, per_op = all_three(timed("deepseek-v3", Tokens(decode=5440.0, context=1.0), chip))
    assert per_op / lecture == pytest.approx(1.40, rel=0.1)
