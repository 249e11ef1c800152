"""A replica on part of a tray: trays of two, taken chip by chip."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from costmodel.layout.plain_layout import plain_layout
from costmodel.question.instance import Instance, resolve_instance


def plant(instance: Instance, data: dict[str, Any]) -> tuple[Instance, dict[str, Any]]:
    """The question for whole trays, and a replica on chips of two of them."""
    path = Path(instance.scenario.cluster)
    cluster = yaml.safe_load(path.read_text())
    cluster["domains"][0]["granularity"] = {"tray": 2}
    sold = path.with_name("sold.yaml")
    sold.write_text(yaml.safe_dump(cluster))
    changed = instance.scenario.model_copy(update={"cluster": str(sold), "granularity": "tray"})
    asked = resolve_instance(changed)
    across = plain_layout(asked, "mixed", tp=1, attention_dp=2, batch=2, first_chip=1)
    return asked, across.model_dump(mode="json")
