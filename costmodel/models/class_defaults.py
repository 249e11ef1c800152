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

#: What makes a model what it is: never taken from a class's defaults.
ESSENTIAL = frozenset(
    """
    vocab_size hidden_size d_model n_embd num_hidden_layers n_layers num_layers n_layer
    num_attention_heads n_heads n_head num_heads intermediate_size ffn_dim moe_intermediate_size
    n_routed_experts num_experts num_local_experts moe_num_experts num_experts_per_tok moe_topk
    kv_lora_rank qk_nope_head_dim v_head_dim
    """.split()  # noqa: SIM905
)


@cache
def _table() -> dict[str, dict[str, object]]:
    text = (data_dir("architectures") / "class_defaults.json").read_text(encoding="utf-8")
    found: dict[str, dict[str, object]] = json.loads(text)["defaults"]
    return found


def class_defaults(model_type: object) -> Mapping[str, object]:
    """Defaults of the class of a ``model_type``; none for a type the table does not know."""
    found = _table().get(model_type, {}) if isinstance(model_type, str) else {}
    return {key: value for key, value in found.items() if key not in ESSENTIAL}
