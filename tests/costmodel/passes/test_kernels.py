"""What one chip took for single kernels, beside what is priced for them."""

from math import log, log1p
from statistics import median

import numpy as np
import pytest

from benchmarks.kernels import beside, engine, page, under_load
from costmodel.models.load import load_model
from costmodel.passes.communication import GroupRates
from costmodel.passes.group import ChipGroup
from costmodel.passes.operations import operations_of
from costmodel.passes.pass_sums import PassTime
from costmodel.passes.pass_time import pass_time
from costmodel.passes.routed import NARROW_S_PER_B, add_experts
from costmodel.passes.tokens import ExpertShares, Tokens
from costmodel.question.profile import Efficiency, load_profile
from solver.shapes.shapes import NARROWEST
from topology.chip import load_chip

NONE = np.zeros(())
STILL = GroupRates(NONE, NONE, NONE, NONE, NONE, NONE)


def test_page_says_what_was_measured() -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    assert text.split(page.BEGIN)[1].split(page.END)[0].strip() == page.tables().strip()


def test_page_says_how_late_first_tokens_of_lone_prompts_are() -> None:
    rows = [row.strip("| ").split(" | ") for row in page.engine_runs().splitlines()]
    ratios = {
        (row[0], int(row[1].split()[-2].replace(",", ""))): row[-1]
        for row in rows
        if row[1:] and row[1].startswith("first token of one prompt")
    }
    long = sorted(ratio for (_, tokens), ratio in ratios.items() if tokens >= 8192)
    short = sorted(
        ratio
        for (model, tokens), ratio in ratios.items()
        if tokens <= 1024 and model == "llama-3.1-8b"
    )
    text = " ".join(page.PAGE.read_text(encoding="utf-8").split())
    assert f"prompts from 8,192 tokens on take {long[0]} to {long[-1]}." in text
    assert f"up to 1,024 tokens in {short[0]} to {short[-1]} of what is predicted" in text


def test_page_says_how_an_engine_under_load_differs_from_its_replay() -> None:
    runs = under_load.loaded()
    text = " ".join(page.PAGE.read_text(encoding="utf-8").split())
    further = sorted(one.tpot_ms[0] / one.tpot_ms[1] for one in runs if one.tpot_ms)
    assert f"Further tokens take {further[0]:.2f} to {further[-1]:.2f} of the replay" in text
    rates = {
        (one.server.model, one.replayed.run.prompt_len.mean): one.ttft_ms[0][1] / one.ttft_ms[0][0]
        for one in runs
        if not one.tpot_ms and one.replayed.run.concurrency != 1
    }
    for model, words in (("qwen3-30b-a3b", "{:.2f} and {:.2f} of the replayed rate"), ("llama-3.1-8b", "{:.2f} and {:.2f} from Llama-3.1-8B")):  # fmt: skip
        assert words.format(*(rates[model, tokens] for tokens in (1024.0, 8192.0))) in text
    late = {
        (one.replayed.run.requested_rate, one.server.api_servers): one.ttft_ms
        for one in runs
        if one.replayed.run.loop == "open" and one.server.model == "llama-3.1-8b"
    }
    for processes, words in ((4, "within {:.0f} and {:.0f} ms at 20"), (1, "within {:.0f} and {:.0f} ms, and")):  # fmt: skip
        assert words.format(*(late[rate, processes][0][0] for rate in (20.0, 40.0))) in text


def test_layers_take_what_is_priced_with_what_lies_between_kernels() -> None:
    """Cut experts of long prompts were priced at 60 % of what they take."""
    measured = [
        line for line in beside.lines("layer") if line["how"] == "cut" and line["tokens"] == "8192"
    ]
    own = [float(line["seconds"]) for line in measured]
    found = median(s / beside.layer_s(x) for s, x in zip(own, measured, strict=True))
    held = median(s / beside.layer_s(x, between=False) for s, x in zip(own, measured, strict=True))
    assert abs(log(found)) < abs(log(held)) / 5


@pytest.mark.parametrize("chip", beside.CHIPS)
def test_narrow_slices_are_read_as_they_were_measured(chip: str) -> None:
    """The one number that is taken from kernels, on slices that searches make."""
    found = [one for one in beside.slices(chip) if one[1] >= NARROWEST]
    kinds = sorted({kind for kind, _, _ in found})
    turn = NARROW_S_PER_B * load_chip(chip).hbm_bytes_per_s

    def spread(columns: float) -> float:
        """Root mean square of what is left of the rates' logarithms beside each kind's mean."""
        left: dict[tuple[str, ...], list[float]] = {kind: [] for kind in kinds}
        for kind, width, rate in found:
            left[kind].append(log(rate) + log1p(columns / width))
        return float(np.sqrt(np.mean([np.var(own) for own in left.values()])))

    best = min(range(100), key=spread)
    assert turn == pytest.approx(best, abs=1.0)
    assert spread(turn) < 0.03 < spread(0.0)


def _experts(*, cut: bool, efficiency: Efficiency, rows: float = 4096.0) -> float:
    operations, moe = beside.routed_of("qwen3-30b-a3b")
    group = ChipGroup(
        operations, np.asarray(4.0), np.ones(()), beside.achieved("h100", efficiency), STILL,
        0.0 if cut else 1.0,
    )  # fmt: skip
    shares = ExpertShares(np.array([[0.25]]), np.array([[32.0]]))
    spent = PassTime()
    add_experts(spent, group, moe, np.ones(()), Tokens(prefill=rows), shares)
    return float(spent.parts["routed_experts"])


def test_outputs_of_cut_experts_are_whole_on_every_chip() -> None:
    """By hand: 4,096 tokens of eight experts each; inside 3 x 768 columns over four chips, 2,048 outputs on each of them."""
    bandwidth = beside.achieved("h100", Efficiency()).bandwidth()
    counted, held = Efficiency(activations=0.5), Efficiency()
    for cut, numbers in ((True, 4.0 * 2048 + 3 * 768), (False, 2048.0 + 3 * 768)):
        moved = 2 * 2 * 8 * 4096 / 4 * numbers
        more = _experts(cut=cut, efficiency=counted) - _experts(cut=cut, efficiency=held)
        assert more == pytest.approx(moved / (0.5 * bandwidth))


def test_dense_networks_move_what_lies_between_their_products() -> None:
    """By hand: Llama-3.1-8B over two chips, 32 layers of 3 x 14,336 columns inside, two bytes written and read."""
    operations = operations_of(load_model("llama-3.1-8b"))
    layers = [(kind, float(len(kind.layers))) for kind in operations.kinds]

    def spent(efficiency: Efficiency) -> float:
        group = ChipGroup(
            operations, np.asarray(2.0), np.ones(()), beside.achieved("h100", efficiency), STILL
        )
        found = pass_time(
            group, layers, Tokens(prefill=1000.0, prefill_end=1000.0), [None] * len(layers)
        )
        return float(found.parts["dense_ffn"])

    moved = 32 * 1000 * 3 * 14336 / 2 * 2 * 2
    bandwidth = beside.achieved("h100", Efficiency()).bandwidth()
    more = spent(Efficiency(activations=0.5)) - spent(Efficiency())
    assert more == pytest.approx(moved / (0.5 * bandwidth))


def test_tokens_of_a_whole_engine_are_within_the_stated_interval() -> None:
    """Of answers of 256 tokens, all but those of 256 users, which one process of the server hands out one by one."""
    held_out = load_profile("calibrated").held_out
    assert held_out is not None
    low, high = held_out.factors("tpot", 0.9)
    found = {
        (engine.name(one.line), one.line["users"]): float(one.line["tpot_ms"]) / 1e3 / one.tpot_s
        for one in engine.beside()
        if one.line["output_tokens"] == "256"
    }
    assert len(found) == 9
    outside = {key for key, ratio in found.items() if not low <= ratio <= high}
    assert outside == {("llama-3.1-8b", "256")}


def test_weights_and_kv_of_a_whole_engine_are_those_it_says() -> None:
    for one in engine.held():
        line = one.line
        assert one.weight_gib == pytest.approx(float(line["weight_gib"]), rel=0.01)
        room = float(line["kv_gib"]) * engine.GIB
        assert room / one.kv_token_bytes == pytest.approx(float(line["kv_tokens"]), rel=0.01)
