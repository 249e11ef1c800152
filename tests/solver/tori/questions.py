"""Random questions on small tori, whole and with chips and links that failed."""

from __future__ import annotations

import random
from itertools import pairwise
from math import prod
from pathlib import Path

import yaml

from costmodel.question.instance import Instance, Scenario, resolve_instance

SHAPES = [(2, 2), (2, 3), (2, 4), (3, 3), (2, 2, 2), (1, 5)]
CHIPS = ["tpu-v5e", "tpu-v6e", "tpu-v5p", "tpu-v7"]
#: model, and TPOT in seconds between which targets are drawn
DENSE = [
    ("llama-3.1-8b", (0.004, 0.03)),
    ("gemma-3-27b", (0.01, 0.06)),
    ("qwen3-8b", (0.004, 0.03)),
    ("llama-3.1-70b", (0.02, 0.12)),
]
MIXTURES = [("gpt-oss-20b", (0.002, 0.03))]
#: working chips up to which mixtures of experts are asked for: there are many ways to stand
_FEW = 5


def draw(seed: int, folder: Path) -> Instance:
    """The question of a seed; its cluster file is written to the folder."""
    dice = random.Random(seed)
    shape = dice.choice(SHAPES)
    count = prod(shape)
    failed: list[str] = []
    if dice.random() < 0.6 or count > 8:
        dead = dice.sample(range(count), dice.randint(1, max(1, count // 3)))
        failed += [f"r0g{chip}" for chip in dead]
    if dice.random() < 0.2:
        row = shape[-1]
        pairs = [(a, b) for a, b in pairwise(range(count)) if b % row]
        a, b = dice.choice(pairs or [(0, row)])
        failed.append(f"r0g{a}--r0g{b}")
    cluster = {
        "name": f"torus{seed}",
        "domains": [
            {
                "fabric": {
                    "kind": "torus",
                    "shape": list(shape),
                    "wrap": dice.choice(["none", "none", "all"]),
                },
                "chips": [{"chip": dice.choice(CHIPS), "count": count}],
            }
        ],
        "scale_out": {"kind": "datacentre"},
        "failed": failed,
    }
    path = folder / f"torus{seed}.yaml"
    path.write_text(yaml.safe_dump(cluster))
    working = count - sum("--" not in name for name in failed)
    model, (quick, slow) = dice.choice(DENSE + (MIXTURES * 2 if working <= _FEW else []))
    question = {
        "model": model,
        "cluster": str(path),
        "workload": {
            "input_tokens": dice.choice([500, 2000, 8000]),
            "output_tokens": dice.choice([200, 1000]),
            "expert_load": "uniform",
        },
        "slo": {
            "tpot": quick * (slow / quick) ** dice.random(),
            "ttft": dice.choice([0.5, 2.0, 10.0]),
        },
        "limits": {"max_pipeline_stages": dice.choice([1, 1, 2])},
    }
    return resolve_instance(Scenario.model_validate(question))
