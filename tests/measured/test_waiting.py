"""What settings of engines hold prompts back, and behind how many passes of others a prompt stands."""

from dataclasses import replace

import numpy as np
import pytest

from costmodel.measured.load.host import fit_host, replayed_ttft_s
from costmodel.measured.predict import predict, predict_under, profile_pricing
from costmodel.measured.recipes import UNKNOWN, Settings
from costmodel.measured.rows import Group
from costmodel.measured.runs import runs_of
from costmodel.measured.waiting import held_passes, passes_ahead
from costmodel.question.profile import load_profile
from costmodel.question.profile_parts import FirstToken


@pytest.fixture(scope="module")
def run(rows):
    """TensorRT-LLM, Llama-70B on two chips, lengths drawn around 922 and 922."""
    (row,) = [
        r
        for r in rows
        if r.engine == "trtllm" and "Llama-3.1-70B" in r.model and r.system == "h200_sxm"
        and (r.decode.chips, r.concurrency, round(r.output_tokens)) == (2, 4, 922)
        and round(r.input_tokens) == 922
    ]  # fmt: skip
    return runs_of([row])[0][0]


def changed(run, settings=UNKNOWN, *, ranks=1, **row):
    group = Group(1, ranks, 1, 1, settings=settings)
    return replace(run, row=replace(run.row, decode=group, **row))


def simulated(run, held):
    """Mean wait of prompts that come one by one at random, ``held(arrivals of a window) -> its end``."""
    rng = np.random.default_rng(1)
    rate = run.row.concurrency / run.instance.workload.decode_steps
    come = np.cumsum(rng.exponential(1.0 / rate, 60_000))
    rank = rng.integers(0, run.row.decode.attention_dp, len(come))
    waits, place = [], 0
    while place < len(come) - 2_000:
        end = held(come[place : place + 2_000], rank[place : place + 2_000])
        last = int(np.searchsorted(come, end, side="right"))
        waits.append(end - come[place:last])
        place = last
    return float(np.concatenate(waits).mean())


def test_looks_for_requests_are_missed_by_half_their_distance(run):
    assert held_passes(changed(run)) == 0
    assert held_passes(changed(run, Settings(looks_every=30))) == 15


@pytest.mark.parametrize("users", [4.0, 64.0, 512.0])
def test_gathering_lasts_as_long_as_simulated(run, users):
    """Until 20 passes are over or 16 prompts wait, whichever is first."""
    tokens = 16 * run.row.input_tokens
    one = changed(run, Settings(gathers_passes=20, gathers_tokens=tokens), concurrency=users)
    expected = simulated(one, lambda come, rank: min(come[0] + 20, come[15]))
    assert held_passes(one) == pytest.approx(expected, rel=0.06)


@pytest.mark.parametrize(("ranks", "users"), [(2, 16.0), (8, 64.0), (8, 2048.0)])
def test_ranks_wait_for_each_other_as_long_as_simulated(run, ranks, users):
    one = changed(run, Settings(ranks_passes=60), ranks=ranks, concurrency=users)

    def all_have_one(come, rank):
        first = [come[rank == place][:1] for place in range(ranks)]
        return min(come[0] + 60, max((one[0] if len(one) else np.inf) for one in first))

    assert held_passes(one) == pytest.approx(simulated(one, all_have_one), rel=0.08)


def test_a_pool_of_its_own_decodes_nothing_that_prompts_could_wait_for(run):
    one = changed(run, Settings(looks_every=30), prefill=Group(1, 1, 1, 1))
    assert held_passes(one) == 0
    assert passes_ahead([one], np.ones(1)) == 0


def test_prompts_share_passes_as_far_as_tokens_go(run):
    """64 users: one prompt a pass, eight, or all in one."""
    tokens = run.row.input_tokens
    runs = [
        changed(run, Settings(chunk_tokens=count * tokens), concurrency=64.0)
        for count in (0.5, 8.0, 1000.0)
    ]
    assert passes_ahead(runs, np.ones(3)) == pytest.approx([64, 8, 1])


def test_a_prompt_waits_for_what_the_host_adds_to_the_passes_of_others(run):
    """Half of the 63 passes of others with one prompt each, every layer a millisecond longer."""
    tokens = run.row.input_tokens
    one = changed(run, Settings(chunk_tokens=tokens), concurrency=64.0)
    pricing = profile_pricing([one], load_profile("calibrated"))
    bare, host = (
        predict([one], pricing, {"drawn": FirstToken(queue_share=0.5, prefill_layer_s=seconds)})
        for seconds in (0.0, 0.001)
    )
    assert host.ttft_s[0] - bare.ttft_s[0] == pytest.approx(
        0.5 * 63 * one.instance.operations.num_layers * 0.001, rel=1e-6
    )


def test_recipes_say_what_holds_prompts_back(rows):
    """Gathering is set where 1,024 tokens are asked and answered on fewer than eight chips, and nowhere else."""
    llama = [r for r in rows if r.engine == "trtllm" and "Llama-3.1-70B" in r.model]
    for row in llama:
        gathers = row.decode.settings.gathers_passes == 20
        short = row.input_tokens < 1000 and row.output_tokens < 1000
        assert gathers == (short and row.decode.chips < 8)
        assert row.decode.settings.chunk_tokens == 16384
    looks = {
        (row.decode.settings.looks_every, row.concurrency >= 16)
        for row in rows
        if row.engine == "sglang" and row.prefill is None and row.decode.settings.looks_every
    }
    assert looks >= {(10, False), (30, True)}
    assert (30, False) not in looks
    ranked = [r for r in rows if r.decode.settings.ranks_passes]
    assert {r.engine for r in ranked} == {"trtllm"}
    assert all(r.decode.attention_dp > 1 and r.decode.settings.ranks_passes == 60 for r in ranked)


def test_a_chunk_that_scripts_compute_follows_from_users_and_prompt(rows):
    row = next(r for r in rows if r.decode.settings.ranks_passes and r.concurrency == 256)
    nominal = round(row.input_tokens / 0.9)
    assert row.decode.settings.chunk_tokens >= -(-(256 + nominal + 64) // 64) * 64


def test_the_first_token_comes_later_by_what_holds_it_back(run):
    """A fifth of a second at 20 passes of twelve milliseconds, which is what was measured beside eight chips."""
    free, held = (changed(run, settings) for settings in (UNKNOWN, Settings(gathers_passes=20)))
    found = predict_under([free, held], load_profile("calibrated"))
    assert found.ttft_s[1] - found.ttft_s[0] == pytest.approx(
        held_passes(held) * found.tpot_s[1], rel=1e-6
    )
    assert found.tpot_s[0] == found.tpot_s[1]


def test_seconds_of_the_server_are_without_what_settings_hold_back(run):
    """Runs that were made up of a replay, 20 held passes and 30 ms."""
    pytest.importorskip("scipy")
    profile = load_profile("calibrated")
    runs = [
        changed(run, Settings(gathers_passes=20), concurrency=users) for users in (2.0, 3.0, 4.0)
    ]
    made = [
        replace(
            one,
            row=replace(
                one.row,
                ttft_s=replayed_ttft_s(one, profile) + held_passes(one) * one.row.tpot_s + 0.03,
            ),
        )
        for one in runs
    ]
    host = fit_host(made, profile)["trtllm"]
    assert host.of(run.row.input_tokens) == pytest.approx(0.03, rel=0.05)


def test_who_is_alone_waits_for_nobody(run):
    """A single user had been given a share of the others' prompts, and of a decode pass."""
    alone = FirstToken(base_s=0.02)
    crowd = FirstToken(
        base_s=0.02, prefill_factor=2.0, queue_share=0.1, decode_passes=1.0, prefill_layer_s=0.001
    )
    runs = [changed(run, concurrency=users) for users in (1.0, 2.0, 4.0)]
    pricing = profile_pricing(runs, load_profile("calibrated"))
    plain, waited = (predict(runs, pricing, {"trtllm drawn": one}).ttft_s for one in (alone, crowd))
    assert waited[0] == pytest.approx(plain[0], rel=1e-9)
    assert plain[1] * 1.1 < waited[1] < waited[2]
