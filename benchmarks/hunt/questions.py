"""A random question from a seed: cluster, model, workload, targets, rate, limits and options.

Every question is valid. The seed alone decides it, so that a failure is reproduced by its number.
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import yaml

from benchmarks.hunt.clusters import Data, DrawnCluster, draw_cluster
from benchmarks.hunt.models import DrawnModel, draw_model
from topology import load_cluster
from topology.catalogue import catalogue_names
from topology.chip import Chip


@dataclass
class Question:
    """A question as data; ``scenario`` lacks the paths of model and cluster."""

    seed: int
    model: DrawnModel
    cluster: DrawnCluster
    scenario: Data

    def copied(self) -> Question:
        """A copy whose cluster and scenario may be altered."""
        return Question(self.seed, self.model, self.cluster.copied(), copy.deepcopy(self.scenario))

    def write(self, folder: Path) -> Path:
        """Write everything that the question is asked with; the scenario's path."""
        folder.mkdir(parents=True, exist_ok=True)
        model = self.model.name
        if self.model.config is not None:
            model = f"./{model}.json"
            (folder / model).write_text(json.dumps(self.model.config))
        cluster = self.cluster.write(folder)
        scenario = {"model": model, "cluster": f"./{cluster.name}", **self.scenario}
        path = folder / "scenario.yaml"
        path.write_text(yaml.safe_dump(scenario, sort_keys=False))
        return path


def draw_question(seed: int, folder: Path) -> Question:
    """The question of a seed; ``folder`` is for the cluster's files while its chips are read."""
    draw = Random(seed)
    model = draw_model(draw)
    workload = _draw_workload(draw, model)
    caches = 4 * model.kv_bytes_per_token * (workload["input_tokens"] + workload["output_tokens"])
    cluster = draw_cluster(draw, model.weight_bytes + caches)
    chips = [placed.chip for placed in load_cluster(cluster.write(folder)).chips]
    scenario: Data = {"workload": workload}
    scenario["slo"] = _draw_targets(draw, model, chips, workload)
    scenario["pay"] = draw.choice(("whole", "used"))
    if draw.random() < 0.3:
        scenario["rate"] = _draw_rate(draw, model, chips, workload)
        scenario["pay"] = "used"
    scenario["profile"] = draw.choice(("calibrated", "calibrated", "physics"))
    _draw_options(draw, model, chips, scenario)
    limits = _draw_limits(draw)
    if limits:
        scenario["limits"] = limits
    return Question(seed, model, cluster, scenario)


def _lengths(draw: Random, low: float, high: float) -> int:
    return int(low * (high / low) ** draw.random())


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")


def _draw_workload(draw: Random, model: DrawnModel) -> Data:
    most = min(model.max_context or 50_000, 50_000)
    inputs = _lengths(draw, 64, most * 0.7)
    outputs = max(1, min(_lengths(draw, 1, 4000), most - inputs - 1))
    workload: Data = {"input_tokens": inputs, "output_tokens": outputs}
    if draw.random() < 0.25:
        workload["cached_tokens"] = int(inputs * draw.uniform(0.05, 0.95))
    if model.moe:
        workload["expert_load"] = draw.choice(("skewed", "uniform"))
        workload["expert_load_seed"] = draw.randrange(3)
    if draw.random() < 0.05:
        workload["prompts_together"] = draw.choice((2, 4, 16))
    return workload


def _draw_targets(draw: Random, model: DrawnModel, chips: list[Chip], workload: Data) -> Data:
    """Targets between well below and well above what a few chips reach by a plain roofline."""
    fastest = max(chip.hbm_bytes_per_s for chip in chips)
    peak = max(chip.peak_flops_per_s("bf16") for chip in chips)
    group = min(len(chips), draw.choice((1, 2, 4, 8)))
    targets: Data = {}
    if draw.random() < 0.6:
        floor = model.weight_bytes / fastest / group + 1e-3
        targets["tpot"] = _rounded(floor * 0.7 * 20 ** draw.random())
    if draw.random() < 0.6:
        new = workload["input_tokens"] - workload.get("cached_tokens", 0)
        floor = 2 * model.active_params * new / peak / group + 0.02
        targets["ttft"] = _rounded(floor * 40 ** draw.random())
    return targets


def _draw_rate(draw: Random, model: DrawnModel, chips: list[Chip], workload: Data) -> float:
    """Requests/s from next to nothing to what the chips' arithmetic allows."""
    flops = 2 * model.active_params * (workload["input_tokens"] + workload["output_tokens"])
    most = sum(chip.peak_flops_per_s("bf16") for chip in chips) / flops
    return _rounded(max(1e-5, most * 10 ** draw.uniform(-4.0, -0.5)))


def _draw_options(draw: Random, model: DrawnModel, chips: list[Chip], scenario: Data) -> None:
    workload: dict[str, Any] = scenario["workload"]
    if draw.random() < 0.35:
        scenario["engine"] = draw.choice(("sglang", "trtllm", "vllm"))
    elif model.moe and draw.random() < 0.15:
        scenario["layer_slots"] = draw.choice(("rows", "any"))
    if draw.random() < 0.1:
        scenario["weight_dtype"] = draw.choice(("bf16", "fp8", "fp4", "int8"))
    if draw.random() < 0.1:
        scenario["kv_dtype"] = draw.choice(("bf16", "fp8"))
    if draw.random() < 0.05:
        scenario["prices"] = {"chip_price_factor": draw.choice((0.5, 2.0))}
    if model.drafts and draw.random() < 0.3:
        scenario["speculative"] = {
            "draft_tokens": draw.choice((1, 2, 3)),
            "acceptance": draw.choice((0.0, 0.5, 0.8, 1.0)),
        }
        return
    if not model.drafts and draw.random() < 0.2:
        own = model.name if model.config is None else f"./{model.name}.json"
        heads = [
            name for name in catalogue_names("drafts", (".json",)) if name.startswith(own + "-")
        ]
        scenario["speculative"] = {
            "draft_tokens": draw.choice((1, 3, 5)),
            "acceptance": draw.choice((0.5, 0.8)),
            # a model has its own tokenizer
            "draft": draw.choice([own, *heads]),
        }
        return
    tiers = sorted({tier.kind for chip in chips for tier in chip.tiers})
    if tiers and draw.random() < 0.08:
        scenario["kv_tiers"] = sorted(draw.sample(tiers, draw.randint(1, len(tiers))))
    if workload.get("cached_tokens") and draw.random() < 0.15:
        workload["hold_s"] = float(draw.choice((1, 60, 3600)))
        workload["return_rate"] = draw.choice((0.1, 0.5, 1.0))


def _draw_limits(draw: Random) -> Data:
    limits: Data = {}
    if draw.random() < 0.12:
        limits["max_sequences_per_rank"] = draw.choice((1, 2, 3, 7, 16, 64))
    if draw.random() < 0.12:
        limits["max_pipeline_stages"] = draw.choice((1, 2, 3, 4))
    if draw.random() < 0.1:
        limits["max_domains_per_replica"] = draw.choice((1, 2, 3))
    if draw.random() < 0.1:
        limits["prefill_chunk_tokens"] = draw.choice((256, 1024, 2048, 32_768))
    return limits
