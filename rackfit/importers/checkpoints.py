"""Which shipped model a command serves, by the name of what it loads."""

from __future__ import annotations

from collections.abc import Sequence

from costmodel.measured.systems import checkpoint
from costmodel.models.load import load_model
from costmodel.models.spec import ModelSpec
from rackfit.importers.servers import FoundServer
from topology.errors import InstanceError, Problem, on_command_line, option
from topology.names import shown


def model_of(servers: Sequence[FoundServer]) -> tuple[str, str | None]:
    """The shipped model that all servers serve, and the precision of its weights where they have another there.

    Raises ``InstanceError`` where none has such a name, or they serve several.
    """
    names = dict.fromkeys((server.model, server.weights) for server in servers)
    found = {_shipped(*name) for name in names}
    (only,) = found if len(found) == 1 else (None,)
    if only is None:
        said = ", ".join(shown(name, 80) for name, _ in names if name) or "nothing by name"
        what = "no shipped model" if len(found) == 1 else "more than one model"
        message = (
            f"is missing: the commands serve {said}, {what}; give a name{on_command_line(' (rackfit catalogue models)')} or a "
            "config.json"
        )
        raise InstanceError(Problem(option("model"), message))
    return only


def other_model(server: FoundServer, asked: ModelSpec) -> str | None:
    """The shipped model that a server loads, where it is built otherwise than the one asked about."""
    found = _shipped(server.model, server.weights)
    if found is None or found[0] == asked.name:
        return None
    there = load_model(found[0])
    return found[0] if _built(there) != _built(asked) else None


def _shipped(served: str | None, weights: str | None) -> tuple[str, str | None] | None:
    """Name and precision; ``None``: no shipped model is called so."""
    try:
        return checkpoint(served, weights or "") if served else None
    except InstanceError:
        return None


def _built(spec: ModelSpec) -> tuple[int, ...]:
    return spec.hidden_size, len(spec.layers), spec.vocab_size
