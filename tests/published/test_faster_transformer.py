"""FasterTransformer on A100: which layout is faster, from one GPU to 32 over four nodes (X01, X02).

*Source:* NVIDIA's published FasterTransformer benchmarks (A100-80, FP16; MT-NLG 530B and GPT-20B): total
milliseconds for prompt and answer tokens. A100 was never fitted and has the calibrated profile's common values.
"""

import json
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from statistics import median

import pytest

from costmodel.layout.plain_layout import plain_layout
from costmodel.question.instance import resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.workload import Limits, Workload
from costmodel.replica.replica import price_replica

PUBLISHED = Path(__file__).parents[2] / "docs" / "published.md"
MODELS = {"530b": (105, 20480, 128, 51200), "20b": (44, 6144, 64, 51200)}
LAYOUTS = {"TP16": (16, 1), "TP32": (32, 1), "TP8xPP3": (8, 3)}
#: (prompt, answer, batch): milliseconds of the three layouts, None where it ran out of memory
X01 = {
    (20, 8, 1): (565, 431, 842), (20, 8, 64): (1191, 942, 1722), (20, 8, 256): (3341, 2483, 3140),
    (60, 20, 1): (1379, 1037, 2085), (60, 20, 128): (5406, 4099, 5319), (60, 20, 256): (None, 7203, 8318),
    (128, 8, 1): (585, 451, 866), (128, 8, 64): (4002, 3114, 3578), (128, 8, 128): (None, 5784, 5512),
    (128, 8, 256): (None, 11232, 9614),
}  # fmt: skip
#: GPT-20B on 1, 2, 4 and 8 chips
X02 = {(20, 8, 1): (225, 147, 102, 89), (60, 20, 1): (560, 358, 248, 212), (20, 8, 256): (1352, 844, 533, 416)}  # fmt: skip


def microbatch(batch, rows, pp):
    """Sequences of one microbatch as FasterTransformer cuts a batch of sequences of ``rows`` tokens each."""
    if pp == 1:
        return batch
    size = batch // pp if batch % pp == 0 else batch
    while size * rows > 1024 and size % 2 == 0:
        size //= 2
    return size


@pytest.fixture(scope="module")
def milliseconds(tmp_path_factory):
    """``milliseconds(model, (prompt, answer, batch), tp, pp, profile)`` by the evaluator."""
    folder = tmp_path_factory.mktemp("a100")
    for name, (layers, hidden, heads, vocabulary) in MODELS.items():
        config = {
            "architectures": ["GPTNeoXForCausalLM"], "model_type": "gpt_neox", "vocab_size": vocabulary,
            "hidden_size": hidden, "intermediate_size": 4 * hidden, "num_hidden_layers": layers,
            "num_attention_heads": heads, "torch_dtype": "float16", "max_position_embeddings": 2048,
            "tie_word_embeddings": False, "hidden_act": "gelu",
        }  # fmt: skip
        (folder / f"{name}.json").write_text(json.dumps(config))

    @lru_cache
    def found(model, case, tp, pp, profile="calibrated"):
        prompt, answer, batch = case
        instance = resolve_instance(
            Scenario(
                model=str(folder / f"{model}.json"),
                cluster=f"hgx-a100@{-(-tp * pp // 8)}",
                workload=Workload(input_tokens=prompt, output_tokens=answer),
                limits=Limits(prefill_chunk_tokens=1_000_000),
                profile=profile,
            )
        )
        # the evaluator's pricing without its rules: a layout proper keeps a rank inside a node
        sizes = {"prefill": microbatch(batch, prompt, pp), "decode": microbatch(batch, 1, pp)}
        layouts = [
            plain_layout(instance, role, tp=tp, attention_dp=1, pp=pp, batch=pp * size)
            for role, size in sizes.items()
        ]
        prefill, decode = (price_replica(instance, one, one.replicas[0]).service for one in layouts)
        # worst and mean wait differ by half of what a microbatch keeps a stage busy
        busy = 2 * (float(prefill.ttft_s) - float(prefill.ttft_mean_s))
        first = float(prefill.ttft_s) - busy + (batch // sizes["prefill"] - 1) * busy
        return 1e3 * (first + (answer - 1) * float(decode.tpot_s))

    return found


def test_x01_layouts_of_a_large_dense_model_are_in_order(milliseconds):
    """All pairs in order that ran over 10 % apart, most others too, ratios of times within 25 %; times are 0.7 to 0.9 of those stated.

    At batch 1 all-reduces between nodes cost latency alone. Documented disagreements: pairs that ran a few per cent
    apart are priced within 3 % of each other, the wrong one first.
    """
    times = {}
    for case, measured in X01.items():
        for name, stated in zip(LAYOUTS, measured, strict=True):
            if stated is not None:
                times[case, name] = stated, milliseconds("530b", case, *LAYOUTS[name])
    pairs = [pair for pair in combinations(times, 2) if pair[0][0] == pair[1][0]]
    assert len(pairs) == 24
    turned = []
    for one, other in pairs:
        (stated, found), (than, beside) = times[one], times[other]
        in_order = (stated < than) == (found < beside)
        if not in_order:
            turned.append((one, other))
            assert max(stated, than) / min(stated, than) < 1.1, (one, other)
            assert found == pytest.approx(beside, rel=0.03)
        assert found / beside == pytest.approx(stated / than, rel=0.25), (one, other)
    apart = sorted(
        max(times[one][0], times[other][0]) / min(times[one][0], times[other][0]) - 1
        for one, other in turned
    )
    words = ", ".join(f"{100 * one:.0f} %" for one in apart)
    said = (
        f"{len(pairs) - len(turned)} in order, the other ran {words} apart; every ratio within 25 %"
    )
    assert said in PUBLISHED.read_text()
    ratios = [found / stated for stated, found in times.values()]
    assert median(ratios) == pytest.approx(0.82, abs=0.05)
    assert (
        f"times are {min(ratios):.2f} to {max(ratios):.2f} of those measured"
        in PUBLISHED.read_text()
    )
    assert 0.7 <= min(ratios) <= max(ratios) <= 1


def test_x01_pipelining_wins_per_chip_at_a_large_batch(milliseconds):
    case = (128, 8, 256)
    per_chip = {
        name: tp * pp * milliseconds("530b", case, tp, pp) for name, (tp, pp) in LAYOUTS.items()
    }
    assert 24 * X01[case][2] < 32 * X01[case][1]
    assert per_chip["TP8xPP3"] < per_chip["TP32"]


@pytest.mark.parametrize("case", X02)
def test_x02_tensor_parallelism_helps_less_than_linearly(milliseconds, case):
    found = [milliseconds("20b", case, tp, 1) for tp in (1, 2, 4, 8)]
    for times in (X02[case], found):
        for wide, narrow in zip(times[1:], times, strict=False):
            assert narrow / 2 < wide < narrow
    bound = [milliseconds("20b", case, tp, 1, "physics") for tp in (1, 2, 4, 8)]
    assert all(least <= stated for least, stated in zip(bound, X02[case], strict=True))
