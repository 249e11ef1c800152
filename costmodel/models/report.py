"""A model's numbers as rows for people and as one JSON document. Prints nothing."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any

from costmodel.models.parts.quantisation.formats import ELEMENT_BYTES
from costmodel.models.spec import Attention, Layer, LinearState, ModelSpec, MoE, Weights
from costmodel.models.summary import Summary, cache_bytes, own_weights, stored_formats, summarise

#: Contexts at which KV and state are shown.
CONTEXTS = {"4k": 4 * 1024, "32k": 32 * 1024, "128k": 128 * 1024, "1M": 1024 * 1024}

_GB = 1e9


def _whole(value: float) -> float | int:
    return int(value) if float(value).is_integer() else value


def as_json(spec: ModelSpec) -> dict[str, Any]:
    """The document of ``rackfit model --json``. Bytes are bytes, counts are whole where they can be."""
    numbers = {key: _tidy(value) for key, value in asdict(summarise(spec)).items()}
    return {
        "schema_version": 1,
        "name": spec.name,
        "family": spec.family,
        "weight_dtype": spec.native_dtype,
        "kv_dtype": spec.kv_dtype,
        "hidden_size": spec.hidden_size,
        "vocab_size": spec.vocab_size,
        "max_context": spec.max_context,
        "tied_embeddings": spec.tied_embeddings,
        **numbers,
        "sequence_bytes": {
            name: _whole(cache_bytes(spec, context)) for name, context in CONTEXTS.items()
        },
        "parts": [
            {"name": name, "params": params, "bytes": _whole(size), "dtype": dtype}
            for name, params, size, dtype in _parts(spec)
        ],
        "readings": [asdict(item) for item in spec.readings],
        "stored_formats": stored_formats(spec),
        "warnings": list(spec.warnings),
        "notes": list(spec.notes),
    }


def _tidy(value: object) -> object:
    return _whole(value) if isinstance(value, float) else value


def summary_rows(spec: ModelSpec) -> list[tuple[str, str]]:
    """Label and value of the numbers that model cards give."""
    s = summarise(spec)
    rows = [
        ("total parameters", _billions(s.total_params)),
        ("  without embedding and head", _billions(s.total_params - s.embedding_params)),
    ]
    if s.mtp_params:
        rows.append(("  MTP modules, not in the total", _billions(s.mtp_params)))
    if s.vision_params:
        rows.append(("  image tower, not in the total", _billions(s.vision_params)))
    if s.audio_params:
        rows.append(("  audio tower, not in the total", _billions(s.audio_params)))
    rows += [
        ("active parameters, everything", _billions(s.active_params)),
        ("  without input embedding", _billions(s.active_params_no_input_embedding)),
        ("  without embedding and head", _billions(s.active_params_no_embedding)),
        ("weights", f"{s.weight_bytes / _GB:,.2f} GB"),
        ("  stored as", stored_formats(spec)),
        ("hidden size, vocabulary", f"{spec.hidden_size:,}, {spec.vocab_size:,}"),
        ("layers", f"{s.layers} ({s.layers - s.moe_layers} without, {s.moe_layers} with experts)"),
        ("attention", ", ".join(f"{kind} x{num}" for kind, num in s.attention.items())),
    ]
    if s.moe_layers:
        rows.append(("experts: routed, per token, shared", _experts(spec, s)))
    rows.append((f"KV per token, {spec.kv_dtype}", f"{s.kv_bytes_per_token:,.0f} B"))
    if s.kv_index_bytes_per_token:
        rows.append(("  index keys per token", f"{s.kv_index_bytes_per_token:,.0f} B"))
    if s.kv_window_bytes:
        rows.append(("  windows, at most", f"{s.kv_window_bytes / 2**20:,.1f} MiB"))
    if s.state_bytes_per_sequence:
        rows.append(("state per sequence", f"{s.state_bytes_per_sequence / 2**20:,.1f} MiB"))
    if spec.max_context:
        rows.append(("longest context", f"{spec.max_context:,} tokens"))
    return rows


def _experts(spec: ModelSpec, s: Summary) -> str:
    mixtures = [part for layer in spec.layers for part in layer.sublayers if isinstance(part, MoE)]
    text = f"{s.routed_experts}, {s.experts_per_token:g}, {s.shared_experts}"
    if mixtures[0].num_groups > 1:
        text += f" ({mixtures[0].top_groups} of {mixtures[0].num_groups} groups)"
    if mixtures[0].zero_experts:
        text += f" (and {mixtures[0].zero_experts} that compute nothing)"
    return text


def layer_rows(spec: ModelSpec) -> list[tuple[str, str, str]]:
    """How many layers of each make there are."""
    makes = Counter(_make(layer) for layer in spec.layers)
    return [(str(num), mixer, feed) for (mixer, feed), num in makes.items()]


def _make(layer: Layer) -> tuple[str, str]:
    mixers, feeds = [], []
    for part in layer.sublayers:
        if isinstance(part, Attention):
            text = f"{part.kind}, {part.query_heads} query and {part.kv_heads} KV heads"
            text += f", window {part.window}" if part.window is not None else ""
            text += f", 1/{part.compress} of the tokens" if part.compress > 1 else ""
            text += "" if part.owns_cache else ", another layer's cache"
            mixers.append(text)
        elif isinstance(part, LinearState):
            mixers.append(f"{part.kind}, {part.state_bytes / 2**20:.2f} MiB of state")
        elif isinstance(part, MoE):
            feeds.append(f"{part.num_experts} experts of {part.expert_width}")
        else:
            feeds.append(f"dense, {part.width}")
    return " + ".join(mixers) or "-", " + ".join(feeds) or "-"


def part_rows(spec: ModelSpec) -> list[tuple[str, str, str, str, str]]:
    """Parameters and bytes by part, summed over layers."""
    parts = _parts(spec)
    total = sum(params for _, params, _, _ in parts)
    return [
        (name, f"{params:,}", f"{100 * params / total:.2f} %", f"{size / _GB:,.3f}", dtype)
        for name, params, size, dtype in parts
    ]


def _parts(spec: ModelSpec) -> list[tuple[str, int, float, str]]:
    sums: dict[tuple[str, str], list[float]] = {}

    def add(name: str, params: int, size: float, dtype: str) -> None:
        entry = sums.setdefault((name, dtype), [0, 0.0])
        entry[0] += params
        entry[1] += size

    def add_all(weights: tuple[Weights, ...]) -> None:
        for part in weights:
            if not part.borrowed:
                add(part.name, part.params, part.num_bytes, part.dtype)

    add_all(spec.embedding)
    for layer in spec.layers:
        for part in layer.sublayers:
            add_all(own_weights(part))
            if isinstance(part, MoE):
                num = part.num_experts
                add("routed experts", num * part.expert_params, num * part.expert_bytes,
                    part.expert_dtype)  # fmt: skip
        add_all(layer.extra)
    add_all(spec.head)
    return [(name, int(num), size, dtype) for (name, dtype), (num, size) in sums.items()]


def context_rows(spec: ModelSpec) -> list[tuple[str, str, str, str, str]]:
    """KV, index and state of one sequence at several contexts."""
    s, element = summarise(spec), ELEMENT_BYTES[spec.kv_dtype]
    attentions = [p for layer in spec.layers for p in layer.sublayers if isinstance(p, Attention)]
    rows = []
    for name, context in CONTEXTS.items():
        index = s.kv_index_bytes_per_token * context
        kv = sum(p.stored_tokens(context) * p.kv_elements for p in attentions) * element
        cells = (kv, index, s.state_bytes_per_sequence, cache_bytes(spec, context))
        kv_text, index_text, state, everything = (f"{value / _GB:,.3f}" for value in cells)
        beyond = spec.max_context is not None and context > spec.max_context
        label = f"{name} (beyond the longest context)" if beyond else name
        rows.append((label, kv_text, index_text, state, everything))
    return rows


def _billions(value: float) -> str:
    return f"{value:,.0f} ({value / 1e9:,.3f} B)"
