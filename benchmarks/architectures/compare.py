"""Reads the counted configs with Rackfit and compares parameters, cache and state. No torch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costmodel.models.load import read_model
from costmodel.models.spec import Attention, LinearState, ModelSpec
from costmodel.models.summary import summarise
from topology.errors import InstanceError

#: A class counts as read where parameters differ by no more than this.
TOLERANCE = 0.005


@dataclass(frozen=True)
class Row:
    """One class built from one config."""

    kind: str
    name: str  #: class
    group: str  #: ``text`` or ``multimodal``
    variant: str
    counted: int | None  #: parameters of the class; ``None`` where it could not be built
    read: int | None  #: parameters that Rackfit reads; ``None`` where it refuses
    family: str
    message: str  #: why Rackfit refuses, or why the class could not be built
    cache: str  #: ``right``, how it differs, or why it cannot be asked

    @property
    def verdict(self) -> str:
        """``read``, ``wrong``, ``refused``, or ``not built`` where the class gives no count."""
        if self.counted is None:
            return "not built"
        if self.read is None:
            return "refused"
        return "read" if abs(self.read - self.counted) <= TOLERANCE * self.counted else "wrong"


def rows(counts: dict[str, Any]) -> Iterator[Row]:
    """Every class and config of a file of counts."""
    for kind, entry in counts["classes"].items():
        for variant, found in entry["variants"].items():
            yield _row(kind, entry, variant, found)


def _row(kind: str, entry: dict[str, Any], variant: str, found: dict[str, Any]) -> Row:
    counted, read, family, message, cache = found.get("total"), None, "", found.get("error", ""), ""
    if counted is not None:
        counted = own_parameters(found)
        try:
            spec = read_model(found["config"], kind, kind)
        except InstanceError as error:
            message = str(error)
        else:
            read, family = summarise(spec).total_params, spec.family
            cache = compare_cache(spec, found)
    return Row(kind, entry["class"], entry["group"], variant, counted, read, family, message, cache)


def own_parameters(found: dict[str, Any]) -> int:
    """Parameters of the text model as Rackfit counts them.

    Image and sound towers are not part of it; routers' selection biases are, though classes keep them
    as saved buffers.
    """
    total: int = found["total"]
    total -= sum(num for name, num in found["groups"].items() if _is_tower(name))
    return total + sum(num for name, num in found["buffers"].items() if _is_bias(name))


#: Parts of names of what reads images or sound: not part of the text model.
_TOWERS = ("vision", "visual", "vit.", "image", "audio", "projector", "embed_tokens_extend", "aligner",
           "merger", "downsample", "img_", "speech", "resampler", "connector", "perception", "qformer",
           "query_tokens", "language_projection", "generation_", "video_tower", "talker", "token2wav", "code2wav", "vqmodel", "acoustic", "semantic_")  # fmt: skip


def _is_tower(name: str) -> bool:
    return name.startswith(("encoder.", "model.encoder.")) or any(word in name for word in _TOWERS)


def _is_bias(buffer: str) -> bool:
    return buffer.endswith(("e_score_correction_bias", "correction_bias", "expert_bias"))


def compare_cache(spec: ModelSpec, found: dict[str, Any]) -> str:
    """Elements of keys, values and states after some tokens beside those of the class's cache."""
    if "cache" not in found:
        return "not asked: " + found.get("cache_error", "")[:60]
    parts = [part for layer in spec.layers for part in layer.sublayers]
    has = any(isinstance(part, LinearState) for part in parts)
    differ = []
    for text, tensors in found["cache"].items():
        length = int(text)
        if set(tensors) == {"state"} and not has:  # a plain tuple of keys and values
            tensors = {"keys": tensors["state"]}
        theirs = sum(num for name, num in tensors.items() if name in _KV)
        ours = sum(part.stored_tokens(length) * part.kv_elements + part.index_elements * length
                   for part in parts if isinstance(part, Attention))  # fmt: skip
        if ours != theirs:
            differ.append(f"{ours:,.0f} for {theirs:,} at {length} tokens")
    states = sum(num for name, num in tensors.items() if name not in _KV)
    if bool(states) != has:
        differ.append(f"state {'read' if has else 'not read'}, class has {states:,} elements")
    return "; ".join(differ) or "right"


#: Names under which caches hold what grows with the tokens.
_KV = ("keys", "values", "key_cache", "value_cache", "indexer_keys")


def load(path: Path) -> dict[str, Any]:
    """A file of counts."""
    found: dict[str, Any] = json.loads(path.read_text())
    return found
