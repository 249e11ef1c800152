"""SGLang's ``--init-expert-location`` file: one row per layer of the model, dense layers included.

SGLang passes the dictionary on as keyword arguments, so it holds ``physical_to_logical_map`` and
no other key. Rows of dense layers are never used and hold the trivial map.
"""

from __future__ import annotations

import json

from rackfit.exporters.placements.table import AnyTable


def render(table: AnyTable) -> str:
    """The file's text. Raises ``InstanceError`` for uneven slots or unlike layers."""
    table = table.uniform("SGLang")
    rows = [[slot % table.num_experts for slot in range(table.num_slots)]] * table.num_layers
    for layer, row in zip(table.layer_ids, table.physical_to_logical.tolist(), strict=True):
        rows[layer] = row
    return json.dumps({"physical_to_logical_map": rows}) + "\n"


def hint(table: AnyTable) -> str:
    """How the file is used."""
    spare = table.uniform("SGLang").num_slots - table.num_experts
    return f"sglang: --init-expert-location FILE --ep-num-redundant-experts {spare}"
