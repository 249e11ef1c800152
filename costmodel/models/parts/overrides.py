"""``per_layer_config``: sizes of single layers that differ from the model's."""

from __future__ import annotations

from costmodel.models.config import MAX_SIZE, Config
from costmodel.models.read_log import shown


def per_layer_overrides(
    c: Config, count: int, allowed: tuple[str, ...]
) -> dict[int, dict[str, int]]:
    """Overridden sizes by layer; the keys are layer numbers as text, the names all of ``allowed``."""
    section = c.section("per_layer_config")
    found: dict[int, dict[str, int]] = {}
    if section is None:
        return found
    for key in list(section.data):
        inner = section.section(key) if key.isascii() and key.isdigit() else None
        if inner is None or int(key) >= count:
            raise section.fail(key[:20], f"is not the number of one of {count} layers")
        unknown = sorted(set(inner.data) - set(allowed))
        if unknown:
            raise inner.fail(unknown[0], f"{shown(inner.data[unknown[0]])} is not understood here")
        found[int(key)] = {name: inner.size(name, high=MAX_SIZE) for name in allowed}
    return found
