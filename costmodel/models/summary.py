"""What an architecture costs in plain numbers: parameters, bytes, cache and state. No hardware."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from costmodel.models.parts.quantisation.formats import ELEMENT_BYTES
from costmodel.models.spec import (
    Attention,
    DenseFFN,
    Layer,
    LinearState,
    ModelSpec,
    MoE,
    Sublayer,
    Weights,
)


def params_of(weights: Iterable[Weights]) -> int:
    """Parameters of a group of weights."""
    return sum(part.params for part in weights)


def bytes_of(weights: Iterable[Weights]) -> float:
    """Bytes of a group of weights, scales included."""
    return sum(part.num_bytes for part in weights if not part.borrowed)


def own_weights(sublayer: Sublayer) -> tuple[Weights, ...]:
    """All weights of a sublayer but the routed experts."""
    if isinstance(sublayer, MoE):
        return (*sublayer.router, *sublayer.shared)
    return sublayer.weights


def layer_params(layer: Layer) -> int:
    """Parameters of a layer, every expert included."""
    total = params_of(layer.extra)
    for part in layer.sublayers:
        total += params_of(own_weights(part))
        if isinstance(part, MoE):
            total += part.num_experts * part.expert_params
    return total


def layer_active_params(layer: Layer) -> float:
    """Parameters of a layer that one token passes (an expectation with zero-compute experts)."""
    idle = sum(
        (part.num_experts - part.top_k) * part.expert_params
        for part in layer.sublayers
        if isinstance(part, MoE)
    )
    return layer_params(layer) - idle


def layer_bytes(layer: Layer) -> float:
    """Bytes of a layer's weights."""
    total = bytes_of(layer.extra)
    for part in layer.sublayers:
        total += bytes_of(own_weights(part))
        if isinstance(part, MoE):
            total += part.num_experts * part.expert_bytes
    return total


@dataclass(frozen=True)
class Summary:
    """The numbers of a model that a model card gives. Bytes are of one copy, one sequence."""

    total_params: int  #: text model, without MTP modules and image tower
    active_params: float  #: everything used for one token, embeddings included
    active_params_no_input_embedding: float  #: a tied table still counts, as the head
    active_params_no_embedding: float  #: neither embedding nor head
    embedding_params: int  #: input embedding and head matrix (one table if tied)
    weight_bytes: float
    kv_bytes_per_token: float  #: what one more token adds for ever, index keys apart
    kv_index_bytes_per_token: float
    kv_window_bytes: float  #: bounded part at full window
    state_bytes_per_sequence: float
    layers: int
    moe_layers: int
    routed_experts: int
    experts_per_token: float
    shared_experts: int
    attention: dict[str, int]  #: layers by kind; linear attentions of every sort are ``linear``
    state_kinds: dict[str, int]
    mtp_params: int
    mtp_bytes: float
    file_bytes: float  #: all safetensors files of the text model: MTP, copied tables, headers
    vision_params: int
    audio_params: int
    totals: dict[str, int]  #: the total by what a model card may count


def summarise(spec: ModelSpec) -> Summary:
    """Add up a model."""
    parts = [part for layer in spec.layers for part in layer.sublayers]
    attentions = [part for part in parts if isinstance(part, Attention)]
    states = [part for part in parts if isinstance(part, LinearState)]
    mixtures = [part for part in parts if isinstance(part, MoE)]
    ends = params_of(spec.embedding) + params_of(spec.head)
    total = ends + sum(layer_params(layer) for layer in spec.layers)
    active = ends + sum(layer_active_params(layer) for layer in spec.layers)
    table = spec.vocab_size * spec.hidden_size
    element = ELEMENT_BYTES[spec.kv_dtype]
    mtp_params, mtp_bytes = _mtp(spec)
    main_bytes = bytes_of(spec.embedding) + bytes_of(spec.head)
    main_bytes += sum(layer_bytes(layer) for layer in spec.layers)
    tables, vision = (
        table if spec.tied_embeddings else 2 * table,
        spec.vision.params if spec.vision else 0,
    )
    totals = {
        "text": total,
        "text+image": total + vision,
        "text+mtp": total + mtp_params,
        "text-embeddings": total - tables,
        "text-embeddings+mtp": total - tables + mtp_params,
    }
    return Summary(
        total_params=total,
        active_params=active,
        active_params_no_input_embedding=active - params_of(spec.embedding),
        active_params_no_embedding=active - tables,
        embedding_params=tables,
        weight_bytes=main_bytes,
        kv_bytes_per_token=sum(growing_elements(part) for part in attentions) * element,
        kv_index_bytes_per_token=sum(part.index_elements for part in attentions) * element,
        kv_window_bytes=sum(window_elements(part) for part in attentions) * element,
        state_bytes_per_sequence=sum(part.state_bytes for part in states),
        layers=len(spec.layers),
        moe_layers=sum(
            any(isinstance(part, MoE) for part in layer.sublayers) for layer in spec.layers
        ),
        routed_experts=max((part.num_experts for part in mixtures), default=0),
        experts_per_token=max((part.top_k for part in mixtures), default=0),
        shared_experts=max((part.num_shared for part in mixtures), default=0),
        attention=dict(
            Counter(part.kind for part in attentions)
            + Counter("mamba" if part.kind.startswith("mamba") else "linear" for part in states)
        ),
        state_kinds=dict(Counter(part.kind for part in states)),
        mtp_params=mtp_params,
        mtp_bytes=mtp_bytes,
        file_bytes=main_bytes + mtp_bytes + copied_bytes(spec) + _header_bytes(spec),
        vision_params=vision,
        audio_params=spec.audio.params if spec.audio else 0,
        totals=totals,
    )


def growing_elements(part: Attention) -> float:
    """Cached elements one more token adds for ever: none where a window bounds the cache."""
    if part.window is not None or not part.owns_cache:
        return 0.0
    return part.kv_elements / part.compress


def window_elements(part: Attention) -> float:
    """Cached elements of the bounded part once the window is full."""
    own = (part.window or 0) if part.owns_cache else 0
    return float((own + part.local_window) * part.kv_elements)


def stored_formats(spec: ModelSpec) -> str:
    """Which matrices are stored how, counted: what the lists of a quantiser came to in this model."""
    counts: dict[str, Counter[str]] = {}
    for layer in spec.layers:
        for part in layer.sublayers:
            group = _GROUPS.get(type(part), "experts")
            matrices = counts.setdefault(group, Counter())
            if isinstance(part, MoE):
                matrices[part.expert_dtype] += part.num_experts
                shared = counts.setdefault("shared", Counter())
                shared.update(w.dtype for w in part.shared if w.active_params)
            else:
                matrices.update(w.dtype for w in part.weights if w.active_params)
    counts["head"] = Counter((spec.head[0].dtype,))
    texts = []
    for group, matrices in counts.items():
        if len(matrices) == 1:
            texts.append(f"{group} {next(iter(matrices))}")
        elif matrices:
            texts.append(
                f"{group} " + " + ".join(f"{n:,} {dtype}" for dtype, n in matrices.items())
            )
    return ", ".join(texts)


#: What the matrices of a sublayer are called together; an MoE's experts and shared experts are apart.
_GROUPS = {Attention: "attention", LinearState: "state layers", DenseFFN: "FFN"}


def _mtp(spec: ModelSpec) -> tuple[int, float]:
    if spec.mtp is None:
        return 0, 0.0
    params = params_of(spec.mtp.extra) + sum(layer_params(layer) for layer in spec.mtp.layers)
    num_bytes = bytes_of(spec.mtp.extra) + sum(layer_bytes(layer) for layer in spec.mtp.layers)
    return params, num_bytes


def copied_bytes(spec: ModelSpec) -> float:
    """Embedding and head repeated in each MTP module of the checkpoint."""
    if spec.mtp is None or not spec.mtp.copies_tables:
        return 0.0
    return spec.mtp.num_modules * (bytes_of(spec.embedding) + spec.head[0].num_bytes)


#: A safetensors header names each tensor with dtype, shape and offsets in about this many bytes.
_HEADER_ENTRY_BYTES = 130


def _header_bytes(spec: ModelSpec) -> float:
    """Headers of the files: three matrices per expert, and a scale each where they are quantised."""
    layers = (*spec.layers, *(spec.mtp.layers if spec.mtp else ()))
    tensors = 0
    for layer in layers:
        for part in layer.sublayers:
            tensors += len(own_weights(part))
            if isinstance(part, MoE):
                tensors += (
                    part.num_experts * 3 * (1 if ELEMENT_BYTES[part.expert_dtype] >= 2 else 2)
                )
    return float(tensors * _HEADER_ENTRY_BYTES)


def cache_bytes(spec: ModelSpec, context: float) -> float:
    """Bytes of KV cache, index keys and state of one sequence of ``context`` tokens."""
    element, total = ELEMENT_BYTES[spec.kv_dtype], 0.0
    for layer in spec.layers:
        for part in layer.sublayers:
            if isinstance(part, LinearState):
                total += part.state_bytes
            elif isinstance(part, Attention):
                total += part.stored_tokens(context) * part.kv_elements * element
                total += part.index_elements * context * element
    return total
