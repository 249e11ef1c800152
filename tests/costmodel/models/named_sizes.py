"""Sizes in the names of released models, and why some differ from what is counted."""

from __future__ import annotations

import re

from costmodel.models.summary import Summary

#: Sizes in names that are off by more than 6 %, with the reason.
EXPLAINED = {
    "Qwen--Qwen3-VL-2B-Instruct": "2B counts the image tower: 1.72 B and 0.41 B",
    "XiaomiMiMo--MiMo-7B-Base": "7.6 B, rounded down",
    "meta-llama--Llama-4-Maverick-17B-128E-Instruct": "17B are the active parameters",
    "meta-llama--Llama-4-Scout-17B-16E-Instruct": "17B are the active parameters",
    "meta-models--Muse-Glimmer-30B": "30B counts the image tower: 27.9 B and 1.9 B",
    "mistralai--Mixtral-8x22B-v0.1": "eight experts that share their attention",
    "mistralai--Mixtral-8x7B-v0.1": "eight experts that share their attention",
}
_SIZE = re.compile(r"[-x](\d+(?:\.\d+)?)(B|T)(?:-A(\d+(?:\.\d+)?)B|-\d+E)?(?=-|$)")


def named(name: str) -> tuple[float, float | None] | None:
    """Total and active parameters that a name gives; ``None`` where it gives none."""
    found = _SIZE.search(name)
    if found is None:
        return None
    total = float(found[1]) * (1e12 if found[2] == "T" else 1e9)
    return total, float(found[3]) * 1e9 if found[3] else None


def closest_active(s: Summary, active: float) -> float:
    """Active parameters, with or without embeddings as names count them, that come closest."""
    counts = (s.active_params, s.active_params_no_input_embedding, s.active_params_no_embedding)
    return min(counts, key=lambda num: abs(num / active - 1))


def off(name: str, s: Summary) -> bool:
    """Whether a size in a name differs by more than 6 % from what is read."""
    sizes = named(name)
    if sizes is None:
        return False
    total, active = sizes
    wrong = abs(s.total_params / total - 1) > 0.06
    return wrong or (active is not None and abs(closest_active(s, active) / active - 1) > 0.06)
