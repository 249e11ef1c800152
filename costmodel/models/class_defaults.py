"""What configuration classes say where a config.json is silent. The table is data, written by a script.

``instances/architectures/class_defaults.json`` holds, for each ``model_type``, the numbers, flags and
names that the class in ``transformers`` has as defaults; ``make architectures`` writes it. Sizes that
make a model what it is (hidden size, layers, heads, experts) are required whatever the table says.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache

from topology.catalogue import data_dir


@cache
def _table() -> dict[str, dict[str, object]]:
    text = (data_dir("architectures") / "class_defaults.json").read_text(encoding="utf-8")
    found: dict[str, dict[str, object]] = json.loads(text)["defaults"]
    return found


def class_defaults(model_type: object) -> Mapping[str, object]:
    """Defaults of the class of a ``model_type``; none for a type the table does not know."""
    return _table().get(model_type, {}) if isinstance(model_type, str) else {}
