"""Attention's products and exponentials: what kernels of engines take, and where profiles price them."""

from math import log
from statistics import median

import numpy as np
import pytest

from benchmarks.kernels import beside, page
from costmodel.models.load import load_model
from costmodel.passes.communication import GroupRates
from costmodel.passes.group import ChipGroup
from costmodel.passes.operations import operations_of
from costmodel.passes.pass_sums import PassTime
from costmodel.passes.pass_time import pass_time
from costmodel.passes.tokens import Tokens
from costmodel.question.profile import Efficiency
from topology.chip import load_chip

NONE = np.zeros(())
STILL = GroupRates(NONE, NONE, NONE, NONE, NONE, NONE)
EVERYTHING = Efficiency(softmax=1.0)


def spent(tokens: Tokens, efficiency: Efficiency, chip: str = "h100") -> PassTime:
    """One layer of Llama-3.1-8B on one chip."""
    operations = operations_of(load_model("llama-3.1-8b"))
    group = ChipGroup.of(operations, 1, 1, load_chip(chip), efficiency, STILL)
    return pass_time(group, [(operations.kinds[0], np.ones(()))], tokens, [None], record=True)


def attention_s(tokens: Tokens, efficiency: Efficiency, chip: str = "h100") -> float:
    return float(spent(tokens, efficiency, chip).parts["attention_context"])


def test_engines_take_products_and_exponentials() -> None:
    """With products alone, kernels of engines from A100 to B300 were priced at two thirds of what they take."""
    lines = beside.engine_lines()
    assert {"h100", "h200", "b200", "b300", "gb200"} <= {line["chip"] for line in lines}

    def off(line: beside.Line, *, waits: bool) -> float:
        rate = load_chip(line["chip"]).exponentials_per_s
        assert rate is not None
        priced = beside.score_s(line) - (0.0 if waits else 1.0 / rate)
        return abs(log(float(line["seconds_per_score"]) / priced))

    waiting, hidden = (median(off(x, waits=w) for x in lines) for w in (True, False))
    assert waiting < hidden / 3


def test_every_score_takes_one_exponential_after_its_products() -> None:
    """A prompt of n tokens has n^2 / 2 scores in each of 32 heads."""
    prompt = Tokens(prefill=8192.0, prefill_start=0.0, prefill_end=8192.0)
    rate = load_chip("h100").exponentials_per_s
    assert rate is not None
    more = attention_s(prompt, EVERYTHING) - attention_s(prompt, Efficiency())
    assert more == pytest.approx(32 * 8192**2 / 2 / rate)
    assert attention_s(prompt, Efficiency(softmax=0.5)) == pytest.approx(
        attention_s(prompt, Efficiency()) + 2 * more
    )


def test_decode_waits_for_its_cache_where_heads_share_it() -> None:
    """Four heads to a cache: reading takes far longer than products and exponentials."""
    batch = Tokens(decode=64.0, context=8192.0)
    assert attention_s(batch, EVERYTHING) == attention_s(batch, Efficiency())


def test_exponentials_are_no_arithmetic_of_a_format() -> None:
    """Fits divide products by a format's share of the peak; exponentials have a rate of their own."""
    prompt = Tokens(prefill=8192.0, prefill_start=0.0, prefill_end=8192.0)
    (term,) = (
        one for one in spent(prompt, EVERYTHING).terms or [] if one.part == "attention_context"
    )
    assert float(term.compute_s) == pytest.approx(attention_s(prompt, Efficiency()))
    assert float(term.compute_s + term.softmax_s) == pytest.approx(attention_s(prompt, EVERYTHING))


def test_a_chip_without_a_rate_hides_exponentials() -> None:
    prompt = Tokens(prefill=8192.0, prefill_start=0.0, prefill_end=8192.0)
    assert load_chip("mi300x").exponentials_per_s is None
    assert attention_s(prompt, EVERYTHING, "mi300x") == attention_s(prompt, Efficiency(), "mi300x")


@pytest.mark.parametrize(
    ("chip", "kv", "format_"),
    [("b200", "fp8", "fp8"), ("h200", "fp8", "bf16"), ("b200", "bf16", "bf16")],
)
def test_caches_are_multiplied_in_the_format_that_kernels_take(
    chip: str, kv: str, format_: str
) -> None:
    prompt = Tokens(prefill=8192.0, prefill_start=0.0, prefill_end=8192.0)
    operations = operations_of(load_model("deepseek-v3", kv_dtype=kv))
    group = ChipGroup.of(operations, 1, 1, load_chip(chip), EVERYTHING, STILL)
    done = pass_time(group, [(operations.kinds[0], np.ones(()))], prompt, [None], record=True)
    assert {one.dtype for one in done.terms or [] if one.part == "attention_context"} == {format_}


def test_the_page_says_how_far_engines_are_from_the_price() -> None:
    found: dict[tuple[str, ...], list[float]] = {}
    for line in beside.engine_lines():
        if line["chip"] != "a100":
            key = line["chip"], line["qk_dim"], line["kv"]
            took = float(line["seconds_per_score"]) / beside.score_s(line)
            found.setdefault(key, []).append(took)
    worst = max(abs(median(own) - 1.0) for own in found.values())
    assert f"within {worst:.0%} of the price".replace("%", " %") in " ".join(
        page.PAGE.read_text(encoding="utf-8").split()
    )
