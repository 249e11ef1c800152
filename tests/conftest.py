"""Tiny instances that are small enough to be enumerated, made from a seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from costmodel.models.spec import (
    MTP,
    Attention,
    DenseFFN,
    Layer,
    ModelSpec,
    MoE,
    Shard,
    Sublayer,
    Weights,
)
from costmodel.question.instance import Instance
from costmodel.question.profile import Efficiency, Profile
from costmodel.question.scenario import Scenario
from costmodel.question.speculation import Speculative
from costmodel.question.workload import Limits, Slo, Workload
from topology import load_cluster

HIDDEN = 64


def _weights(name: str, params: int, shard: Shard) -> Weights:
    return Weights(name, params, 2.0 * params, "bf16", shard, params)


def tiny_model(rng: np.random.Generator, num_layers: int, num_experts: int) -> ModelSpec:
    """A model of ``num_layers`` layers; all but perhaps the first are mixtures if there are experts."""
    heads = int(rng.choice([2, 4, 6]))
    attention = Attention(
        kind="gqa",
        weights=(
            _weights("q_proj", HIDDEN * HIDDEN, "heads"),
            _weights("kv_proj", HIDDEN * HIDDEN // 2, "kv_heads"),
            _weights("o_proj", HIDDEN * HIDDEN, "heads"),
        ),
        query_heads=heads,
        kv_heads=int(rng.choice([1, 2])),
        kv_elements=HIDDEN,
        decode_qk_dim=16,
        decode_v_dim=16,
        prefill_qk_dim=16,
        prefill_v_dim=16,
    )
    dense = DenseFFN((_weights("ffn", HIDDEN * 256 * 3, "width"),), 256)
    params = HIDDEN * int(rng.integers(64, 512)) * 3
    moe = MoE(
        num_experts=num_experts,
        top_k=float(min(num_experts, int(rng.integers(1, 3)))),
        expert_params=params,
        expert_bytes=2.0 * params,
        expert_dtype="bf16",
        expert_input_dim=HIDDEN,
        expert_width=768,
        router=(_weights("router", HIDDEN * num_experts, "replicated"),),
        shared=(),
    )
    first_dense = num_experts > 0 and bool(rng.integers(0, 2))
    layers = [
        Layer((attention, dense if num_experts == 0 or (first_dense and i == 0) else moe))
        for i in range(num_layers)
    ]
    return ModelSpec(
        name="tiny",
        family="tiny",
        hidden_size=HIDDEN,
        vocab_size=512,
        layers=tuple(layers),
        embedding=(_weights("embedding", 512 * HIDDEN, "vocab"),),
        head=(_weights("head", 512 * HIDDEN, "vocab"),),
        tied_embeddings=False,
        max_context=None,
    )


def make_tiny(folder: Path, seed: int, chips: int, num_layers: int, num_experts: int) -> Instance:
    """A random instance on one switched domain of ``chips`` chips."""
    rng = np.random.default_rng(seed)
    model = tiny_model(rng, num_layers, num_experts)
    whole = _bytes(model)
    write_chip(folder, rng, f"chip{seed}", whole)
    cluster = {
        "name": f"tiny{seed}",
        "domains": [
            {
                "fabric": {"kind": "nvswitch", "links_per_switch": [1]},
                "chips": [{"chip": str(folder / f"chip{seed}.yaml"), "count": chips}],
            }
        ],
    }
    path = folder / f"cluster{seed}.yaml"
    path.write_text(yaml.safe_dump(cluster))
    return _instance(rng, model, path, stages=2)


def _bytes(model: ModelSpec) -> float:
    """Bytes of the layers' weights."""
    whole = sum(w.num_bytes for layer in model.layers for p in layer.sublayers for w in _own(p))
    return whole + sum(
        p.expert_bytes * p.num_experts
        for layer in model.layers
        for p in layer.sublayers
        if isinstance(p, MoE)
    )


def write_chip(folder: Path, rng: np.random.Generator, name: str, whole: float) -> None:
    """A chip file with random figures; some hold the weights of ``whole`` bytes, some do not."""
    chip = {
        "name": name.replace("chip", "tiny"),
        "vendor": "NVIDIA",
        "flops_per_s": {"bf16": float(rng.uniform(0.5, 5.0)) * 1e10},
        "hbm_bytes": float(whole * rng.uniform(0.35, 2.0)),
        "hbm_bytes_per_s": float(rng.uniform(0.5, 2.0)) * 1e9,
        "scale_up_bytes_per_s": float(rng.uniform(0.2, 2.0)) * 1e9,
        "nic_bytes_per_s": 1e8,
        "power_w": 100.0,
        "usd_per_hour": 1.0,
        "price_basis": "test",
    }
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(chip))


def make_odd(folder: Path, seed: int) -> Instance:
    """A random instance on one to three domains of unlike size, some with two types of chips.

    Chips have failed or are taken, and now and then a switch has failed; then no replica is cut into
    stages, as stages over unlike links are not solved to proven optimality.
    """
    rng = np.random.default_rng(seed)
    num_experts = int(rng.choice([0, 0, 2, 3]))
    model = tiny_model(rng, int(rng.integers(2, 4)), num_experts)
    types = [f"chip{seed}{letter}" for letter in "ab"[: int(rng.integers(1, 3))]]
    for name in types:
        write_chip(folder, rng, name, _bytes(model))
    sizes = [int(size) for size in rng.integers(1, 4, int(rng.integers(1, 4)))]
    if sum(sizes) < 3:
        sizes.append(2)
    while sum(sizes) > 6:
        sizes[sizes.index(max(sizes))] -= 1
    domains, failed, taken = [], [], []
    for index, size in enumerate(sizes):
        rows = [{"chip": str(folder / f"{rng.choice(types)}.yaml"), "count": size}]
        if len(types) > 1 and size > 1 and rng.random() < 0.3:
            rows = [
                {"chip": str(folder / f"{types[0]}.yaml"), "count": size - 1},
                {"chip": str(folder / f"{types[1]}.yaml"), "count": 1},
            ]
        domains.append({"fabric": {"kind": "nvswitch", "links_per_switch": [1, 1]}, "chips": rows})
        if sum(sizes) > 3 and size > 1 and rng.random() < 0.25:
            (failed if rng.random() < 0.5 else taken).append(f"r{index}g{rng.integers(size)}")
    broken = rng.random() < 0.2
    if broken:
        failed.append(f"r{rng.integers(len(sizes))}sw0")
    cluster = {"name": f"odd{seed}", "domains": domains, "failed": failed, "taken": taken}
    if len(sizes) > 1:
        cluster["scale_out"] = {"kind": "leaf-spine"}
    path = folder / f"odd{seed}.yaml"
    path.write_text(yaml.safe_dump(cluster))
    return _instance(rng, model, path, stages=1 if broken else 2)


def _instance(rng: np.random.Generator, model: ModelSpec, path: Path, *, stages: int) -> Instance:
    """Random expert loads, workload, targets and efficiencies."""
    num_experts = max(
        (p.num_experts for layer in model.layers for p in layer.sublayers if isinstance(p, MoE)),
        default=0,
    )
    loads = np.zeros((0, 0))
    moe_layers = sum(any(isinstance(p, MoE) for p in layer.sublayers) for layer in model.layers)
    if moe_layers:
        loads = rng.lognormal(0.0, 0.7, (moe_layers, num_experts))
        loads /= loads.sum(axis=1, keepdims=True)
    workload = Workload(
        input_tokens=int(rng.integers(8, 40)), output_tokens=int(rng.integers(4, 30))
    )
    scenario = Scenario(
        model="tiny",
        cluster=str(path),
        workload=workload,
        slo=Slo(tpot=float(rng.uniform(0.002, 0.02)), ttft=float(rng.uniform(0.02, 0.2))),
        limits=Limits(
            max_sequences_per_rank=2, max_pipeline_stages=stages, prefill_chunk_tokens=64
        ),
    )
    profile = Profile(
        name="tiny",
        description="random efficiencies",
        default=Efficiency(
            compute={"bf16": 0.8},
            hbm=0.9,
            all_reduce=0.5,
            all_to_all=0.6,
            layer_overhead_s=float(rng.uniform(0.0, 2e-4)),
            sync_overhead_s=1e-5,
        ),
    )
    return Instance(scenario, model, load_cluster(path), workload, profile, loads, "assumed")


def with_drafts(instance: Instance, draft_tokens: int, acceptance: float) -> Instance:
    """The same instance, its model with an MTP module like its last layer that drafts tokens."""
    projection = _weights("eh_proj", 2 * HIDDEN * HIDDEN, "replicated")
    module = MTP(1, (instance.model.layers[-1],), (projection,))
    speculative = Speculative(draft_tokens=draft_tokens, acceptance=acceptance)
    return replace(
        instance,
        model=replace(instance.model, mtp=module),
        scenario=instance.scenario.model_copy(update={"speculative": speculative}),
    )


def _own(part: Sublayer) -> tuple[Weights, ...]:
    if isinstance(part, MoE):
        return part.router + part.shared
    return part.weights


@pytest.fixture
def tiny(tmp_path: Path) -> Callable[[int, int, int, int], Instance]:
    """``tiny(seed, chips, layers, experts)`` makes a random instance."""

    def make(seed: int, chips: int, num_layers: int, num_experts: int) -> Instance:
        return make_tiny(tmp_path, seed, chips, num_layers, num_experts)

    return make


@pytest.fixture
def drafting(
    tiny: Callable[[int, int, int, int], Instance],
) -> Callable[[int, int, int, int], Instance]:
    """Like ``tiny``, with speculative decoding of one to three drafts."""

    def make(seed: int, chips: int, num_layers: int, num_experts: int) -> Instance:
        rng = np.random.default_rng(seed)
        drafts, acceptance = int(rng.integers(1, 4)), float(rng.uniform(0.2, 0.95))
        return with_drafts(tiny(seed, chips, num_layers, num_experts), drafts, acceptance)

    return make


@pytest.fixture
def odd(tmp_path: Path) -> Callable[[int], Instance]:
    """``odd(seed)`` makes a random instance on unlike, mixed and degraded domains."""

    def make(seed: int) -> Instance:
        return make_odd(tmp_path, seed)

    return make
