"""What engines refuse, on both sides: the shapes that the search enumerates are those that the judge lets run.

Random replicas of every way to stand, with and without spare slots, with experts in order and out of order, are
held against both.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml

from costmodel.layout.layout import Layout, Replica, spread
from costmodel.layout.plain_layout import plain_layout
from costmodel.question.engine import in_order
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.replica.exchanges import moved_in
from costmodel.replica.fleet import NOTHING
from costmodel.rules import engine_runs
from rackfit.exporters.export import export_layout
from solver.bounds.pricing import Pricer
from solver.place.build import build_replica, stage_chips
from solver.place.placements import engine_places
from solver.shapes.pools import pool_classes
from solver.shapes.shapes import COLUMNS, ShapeTable, enumerate_shapes
from topology.errors import ExportError

#: model (with what drafts for it) and engine: all rules of the kept engines that look at a layout are among them
QUESTIONS = [
    ("gpt-oss-20b", "vllm"), ("gpt-oss-20b", "sglang"), ("gpt-oss-20b", "trtllm"),
    ("qwen3-30b-a3b", "vllm"), ("qwen3-30b-a3b", "sglang@0.5.21"), ("qwen3-30b-a3b", "trtllm"),
    ("mixtral-8x7b", "sglang"), ("llama-3.1-8b", "vllm@0.32"), ("llama-3.1-8b", "trtllm"),
    ("qwen3-30b-a3b qwen3-8b", "sglang"), ("qwen3-30b-a3b qwen3-8b", "trtllm"),
]  # fmt: skip
#: what the judge says of each kind of refusal
KINDS = {
    "split_attention": "does one or the other",
    "decode_stages": "stages in a decode replica",
    "hybrid_prefill_stages": "stages in a prefill replica",
    "uneven": "gives every chip the same number",
    "spare": "has none in",
    "spare_in_order": "takes none for experts in order",
    "placement": "loads no placement here",
    "most_tokens": "has room for",
    "one_rank": "one rank would do",
}
#: random replicas of each question
COUNT = 120


@cache
def asked(model: str, engine: str | None, folder: Path) -> Instance:
    """A question on hosts of 8, 8, 4 and 3 chips, the last of another type."""
    path = folder / "unlike.yaml"
    fabric = {"kind": "nvswitch", "links_per_switch": [5, 4, 4, 5]}
    hosts = [("h100", 8), ("h100", 8), ("h100", 4), ("h200", 3)]
    domains = [
        {"fabric": fabric, "chips": [{"chip": chip, "count": count}]} for chip, count in hosts
    ]
    scale_out = {"kind": "rail-optimised"}
    served, _, draft = model.partition(" ")
    drafting = {"draft_tokens": 2, "acceptance": 0.7, "draft": draft}
    path.write_text(yaml.safe_dump({"name": "unlike", "domains": domains, "scale_out": scale_out}))
    return resolve_instance(
        Scenario.model_validate(
            {
                "model": served,
                "speculative": drafting if draft else None,
                "cluster": str(path),
                "workload": {"input_tokens": 200, "output_tokens": 50},
                "engine": engine,
            }
        )
    )


def chips_of(instance: Instance, shapes: ShapeTable, row: int) -> list[list[str]]:
    """Chips of a shape's pools, a class's pools in order."""
    classes = pool_classes(instance.cluster)
    left = {found.index: [pool.chips for pool in found.pools] for found in classes}
    return [list(left[index].pop(0)[:count]) for index, count in shapes.parts(row)]


def replica_of(
    instance: Instance, shapes: ShapeTable, row: int, per_pass: int, rng: random.Random
) -> tuple[Replica, dict[str, dict[int, tuple[int, ...]]], bool]:
    """A replica of a shape, its expert maps, and whether experts lie as an engine starts."""
    shape = shapes.row(row)
    width, layers = shape["tp"] * shape["attention_dp"], len(instance.model.layers)
    counts = spread(layers, shape["pp"])
    ends = [sum(counts[: number + 1]) for number in range(shape["pp"])]
    stages = [(end - count, end - 1) for end, count in zip(ends, counts, strict=True)]
    moe, slots, maps, plain = instance.operations.moe, (), {}, True
    if moe is not None:
        slots = tuple(spread(shape["slots"], width))
    if shape["slots"]:
        experts = list(in_order(moe.num_experts, shape["slots"]))
        plain = width == 1 or rng.random() < 0.5
        if not plain:
            experts = experts[1:] + experts[:1]
        maps = {"one": dict.fromkeys(instance.operations.moe_layers, tuple(experts))}
    sequences = [per_pass * shape["pp"]] * shape["attention_dp"]
    names = ["one"] * shape["pp"] if maps else None
    chips = stage_chips(shape, chips_of(instance, shapes, row))
    return build_replica(instance, shape, sequences, stages, slots, chips, names), maps, plain


def compared(model: str, engine: str, folder: Path) -> Iterator[tuple[bool, list[str]]]:
    """For random replicas: whether the search would build it, and what the judge says against it."""
    free, instance = asked(model, None, folder), asked(model, engine, folder)
    classes = pool_classes(instance.cluster)
    rng = random.Random(f"{model} {engine}")
    within = enumerate_shapes(instance, classes)
    rates = Pricer(instance, classes).rates(within)
    own = {
        (*(within.row(row)[name] for name in COLUMNS if name != "span"), within.parts(row)): row
        for row in range(len(within))
    }
    every = enumerate_shapes(free, classes)
    rows = rng.sample(range(len(every)), min(COUNT, len(every)))
    for row in rows:
        per_pass = rng.choice([1, 3, 1024, 1025])
        replica, maps, plain = replica_of(instance, every, row, per_pass, rng)
        layout = Layout(replicas=(replica,), expert_maps=maps)
        said = [one.message for one in engine_runs.check(instance, layout, NOTHING)]
        key = (*(every.row(row)[name] for name in COLUMNS if name != "span"), every.parts(row))
        found = own.get(key)
        built = found is not None and (plain or engine_places(instance, replica.shape.attention_dp))
        if found is not None:
            moved = moved_in(instance, replica)
            assert bool(rates.skewed[found]) != moved.gathers, (model, engine, every.row(row))
            assert rates.most_sequences[found] == moved.most_sequences
            built &= replica.role == "prefill" or per_pass <= rates.most_sequences[found]
        yield built, said


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("engines")


@pytest.fixture(scope="module")
def fired(folder: Path) -> Counter[str]:
    """Refusals of both sides by kind; fails where one side alone refuses."""
    found: Counter[str] = Counter()
    for model, engine in QUESTIONS:
        for built, said in compared(model, engine, folder):
            assert built == (not said), (model, engine, built, said)
            found["built" if built else "refused"] += 1
            found.update({kind for kind, words in KINDS.items() for one in said if words in one})
    return found


@pytest.mark.parametrize("kind", [*KINDS, "built"])
def test_both_sides_refuse_the_same(kind: str, fired: Counter[str]) -> None:
    assert fired[kind] >= 5


@pytest.mark.parametrize("engine", ["sglang", "trtllm", "vllm"])
def test_no_server_mixes_types_of_chip(engine: str, folder: Path) -> None:
    instance = asked("gpt-oss-20b", engine, folder)
    classes = pool_classes(instance.cluster)
    shapes = enumerate_shapes(instance, classes)
    types = [
        {classes[index].chip.name for index, _ in shapes.parts(row)} for row in range(len(shapes))
    ]
    assert all(len(names) == 1 for names in types)
    wide = next(row for row in range(len(shapes)) if shapes.row(row)["slice_chips"] == 2)
    replica, maps, _ = replica_of(instance, shapes, wide, 1, random.Random(0))
    (other,) = {placed.id for placed in instance.cluster.usable if placed.chip.name == "h200"} - {
        placed.id for placed in instance.cluster.usable[:-1]
    }
    first, *rest = replica.stages
    mixed = replica.model_copy(
        update={"stages": (first.model_copy(update={"chips": (*first.chips[:-1], other)}), *rest)}
    )
    layout = Layout(replicas=(mixed,), expert_maps=maps)
    (said,) = (one.message for one in engine_runs.check(instance, layout, NOTHING))
    assert "mixes h100, h200" in said


@pytest.mark.parametrize(("engine", "starts"), [("vllm", False), ("sglang", False), ("trtllm", True)])  # fmt: skip
def test_blocks_of_scales_stay_whole(engine: str, starts: bool) -> None:
    """DeepSeek-V3's dense layers have 144 blocks of 128 columns: 16 shares of whole ones, 32 of parts; an export says so too."""
    data = {
        "model": "deepseek-v3", "cluster": "gb200-nvl72", "engine": engine,
        "workload": {"input_tokens": 200, "output_tokens": 50},
    }  # fmt: skip
    instance = resolve_instance(Scenario.model_validate(data))
    widths = set(enumerate_shapes(instance, pool_classes(instance.cluster)).tp.tolist())
    assert {8, 16} < widths
    assert (32 in widths) == starts
    layout = plain_layout(instance, "mixed", tp=32, batch=4)
    words = "tensor parallel 32 does not divide the 144 columns, or blocks of scales, of"
    said = [one.message for one in engine_runs.check(instance, layout, NOTHING)]
    assert any(words in one for one in said) != starts
    free = resolve_instance(Scenario.model_validate(data | {"engine": None}))
    assert 32 in enumerate_shapes(free, pool_classes(free.cluster)).tp
    if not starts:
        with pytest.raises(ExportError, match=words):
            export_layout(free, layout, engine, allow_approximate=True)
    bf16 = resolve_instance(Scenario.model_validate(data | {"weight_dtype": "bf16"}))
    assert bf16.model.parted(32) is None


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_heads_and_columns_are_shared_out_evenly(engine: str) -> None:
    """Command A: 96 query heads and 8 KV heads in six shards start under no engine; GLM-4.7-Flash: five for 1,536 columns."""
    data = {
        "cluster": "nvl-6", "engine": engine, "workload": {"input_tokens": 200, "output_tokens": 50}
    }  # fmt: skip
    for model, good, odd, words in (
        ("command-a", {1, 2, 4}, 6, "tensor parallel 6 neither divides 8 KV heads nor is divided"),
        ("glm-4.7-flash", {1, 2, 4}, 5, "tensor parallel 5 does not divide the 1,536 columns"),
    ):
        if model == "glm-4.7-flash" and engine == "trtllm":
            continue
        instance = resolve_instance(Scenario.model_validate({"model": model, **data}))
        shapes = enumerate_shapes(instance, pool_classes(instance.cluster))
        assert set(shapes.tp.tolist()) == good
        layout = plain_layout(instance, "mixed", tp=odd, batch=1)
        said = [one.message for one in engine_runs.check(instance, layout, NOTHING)]
        assert any(words in one for one in said)
