"""Rows of InferenceX bring their deployment: what their sizes mean, and which rows tell no deployment at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import results
from results import saved

from costmodel.measured.rows import DRAWN, ForeignFileError, Group, MeasuredRow
from rackfit.measurements.rows import read_benches, read_runs
from topology.errors import InstanceError


def test_lengths_of_inferencex_are_drawn_below_nominal(folder: Path) -> None:
    (bench,) = read_benches(saved(folder, results.inferencex(isl=8192, osl=1024)))
    assert (bench.input_tokens, bench.output_tokens) == (DRAWN * 8192, DRAWN * 1024)


def test_a_median_is_not_taken_for_the_mean(folder: Path) -> None:
    """As of the other tools: a row without a mean is left out with the reason, other rows are read."""
    row = results.inferencex(median_tpot=0.02)
    medians = {key: value for key, value in row.items() if not key.startswith("mean_")}
    (found,), (skipped,) = read_runs([saved(folder, [row, medians])])
    assert found.tpot_s == 0.025
    assert skipped.reason == "holds medians only, no mean_tpot"


def test_one_pool_over_several_nodes_has_no_decode_workers(folder: Path) -> None:
    """Its row has the sizes under ``prefill_``, and zeros for decode."""
    sizes = {"prefill_tp": 8, "prefill_ep": 8, "prefill_num_workers": 2, "prefill_dp_attention": "true",
             "decode_tp": 0, "decode_ep": 0, "decode_num_workers": 0, "decode_dp_attention": "false"}  # fmt: skip
    (row,), _ = read_runs([saved(folder, results.inferencex(disagg=False, **sizes))])
    assert (row.prefill, row.decode) == (None, Group(1, 8, 1, 2, 8))
    with pytest.raises(InstanceError, match="decode_tp: must be above 0"):
        read_runs([saved(folder, results.inferencex(disagg=True, **sizes))])


#: pools as the harness writes them (SemiAnalysisAI/InferenceX, Apache-2.0, utils/process_result.py and its test)
POOLS = {"prefill_tp": 4, "prefill_ep": 4, "prefill_num_workers": 5, "prefill_dp_attention": "true", "num_prefill_gpu": 20,
         "decode_tp": 8, "decode_ep": 8, "decode_num_workers": 1, "decode_dp_attention": "true", "num_decode_gpu": 8}  # fmt: skip


def of_pools(folder: Path, **more: Any) -> tuple[list[MeasuredRow], str]:
    found, skipped = read_runs(
        [saved(folder, results.inferencex(disagg=True, **{**POOLS, **more}))]
    )
    return found, " ".join(one.reason for one in skipped)


def test_pools_on_unlike_chips_are_no_run_on_chips_of_one_kind(folder: Path) -> None:
    found, why = of_pools(folder, hw="gb200", prefill_hw="gb200", decode_hw="h100")
    assert (found, why) == (
        [],
        "prefills on gb200 and decodes on h100; a run is compared on chips of one kind",
    )
    found, why = of_pools(folder, hw="gb200", prefill_hw="h100")
    assert (found, why[:35]) == ([], "prefills on h100 and decodes on gb2")
    ((row,), _) = of_pools(folder, hw="gb300-nv", prefill_hw="gb300", decode_hw="gb300-nv_2")
    assert row.system == "gb300"
    ((row,), _) = of_pools(folder, hw="cluster:gb300-nv")  # a label of its runners
    assert row.system == "gb300"


def test_rows_of_vllm_give_the_gpus_of_one_attention_rank(folder: Path) -> None:
    """Written anew after configs/nvidia-master.yaml: ``tp: 1, ep: 16, dp-attn: true`` is ``--data-parallel-size 16``."""
    ranks = {"decode_tp": 1, "decode_ep": 16, "num_decode_gpu": 16, "prefill_tp": 1}
    ((row,), _) = of_pools(folder, framework="dynamo-vllm", **ranks)
    assert (row.decode, row.prefill) == (Group(1, 16, 1, 1, 16), Group(1, 4, 1, 5, 4))
    ((row,), _) = of_pools(folder, **ranks | {"num_decode_gpu": None})
    assert row.decode == Group(1, 16, 1, 1, 16)
    ((row,), _) = of_pools(folder, decode_tp=4, decode_ep=16, num_decode_gpu=16)
    assert row.decode == Group(4, 4, 1, 1, 16)


def test_rows_of_agents_are_left_out(folder: Path) -> None:
    """After utils/agentic/aggregation of SemiAnalysisAI/InferenceX (Apache-2.0): no lengths, metrics in parts of their own."""
    row = {"hw": "b200", "conc": 16, "model": "moonshotai/Kimi-K3", "framework": "vllm", "precision": "fp4", "spec_decoding": "none",
           "scenario_type": "agentic-coding", "tp": 8, "ep": 1, "request_metrics": {"throughput": {}}}  # fmt: skip
    found, (skipped,) = read_runs([saved(folder, row)])
    assert not found
    assert skipped.reason.startswith("its prompts share prefixes (agentic-coding)")


def test_a_vocabulary_is_no_row(folder: Path) -> None:
    """In a folder of results it is left out, as other files of no tool are."""
    words = {"hw": 1, "conc": 2, "framework": 3, "isl": 4, "osl": 5, "model": 6}
    with pytest.raises(ForeignFileError, match="no result of a tool that is known"):
        read_benches(saved(folder, words, "vocab.json"))


def test_sizes_that_make_other_gpus_than_the_row_counts_are_left_out(folder: Path) -> None:
    for more, reason in (
        ({"num_decode_gpu": 12}, "num_decode_gpu: says 12, the sizes make 8 GPUs"),
        ({"decode_dp_attention": "false", "num_decode_gpu": 16}, "num_decode_gpu: says 16, the sizes make 8 GPUs"),
        ({"decode_ep": 32, "decode_num_workers": 4, "num_decode_gpu": 32}, "decode_ep: experts over 32 GPUs, attention of a worker over 8"),
        ({"prefill_ep": 8}, "prefill_ep: experts over 8 GPUs, attention of a worker over 4"),
    ):  # fmt: skip
        assert of_pools(folder, **more) == ([], reason)
