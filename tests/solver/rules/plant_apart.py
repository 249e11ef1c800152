"""A prefill replica whose experts are said to lie apart."""

from __future__ import annotations

from typing import Any

from costmodel.question.instance import Instance


def plant(instance: Instance, data: dict[str, Any]) -> tuple[Instance, dict[str, Any]]:
    """The layout with experts apart in a role that is not priced so."""
    one = data["replicas"][0]
    own = {**one["stages"][-1], "chips": ["r1g3"]}
    changed = {**one, "role": "prefill", "apart": {"microbatches": 2, "experts": own}}
    return instance, {**data, "replicas": [changed, *data["replicas"][1:]]}
