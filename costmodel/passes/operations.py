"""From a model spec to the operations that a pass consists of, layers of one kind counted once.

Nothing here knows hardware or batch: an operation says how many FLOPs a token costs, how many bytes
its weights are, and how tensor parallelism divides it. Layers that are alike share a
:class:`LayerKind`, so that 61 layers are priced as two.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from costmodel.models.parts.quantisation.formats import ELEMENT_BYTES
from costmodel.models.spec import (
    Attention,
    DenseFFN,
    Drafter,
    Layer,
    LinearState,
    ModelSpec,
    MoE,
    Shard,
    Weights,
)
from costmodel.passes.encoders import Encoder
from costmodel.passes.kernels import num_kernels_of, quantised_activations
from costmodel.question.adapters import Adapters

Array = NDArray[np.float64]
Part = Literal["attention_projections", "dense_ffn", "shared_experts", "router", "adapters", "head"]

_ONE: Array = np.ones(())


@dataclass(frozen=True, slots=True)
class Matmul:
    """One group of matrices: 2 FLOPs per active parameter and token, its bytes read once a pass."""

    part: Part
    flops_per_token: float
    weight_bytes: float
    dtype: str
    shard: Shard
    query_heads: int
    kv_heads: int
    #: bytes that the layer stores: all it reads but matrices it borrows from another layer
    stored_bytes: float

    def ways(self, tp: Array) -> Array:
        """By how much the busiest chip's share shrinks under ``tp``-way sharding."""
        if self.shard == "replicated":
            return _ONE
        if self.shard == "heads" and self.query_heads:
            return np.asarray(self.query_heads / np.ceil(self.query_heads / tp))
        if self.shard == "kv_heads" and self.kv_heads:
            return np.asarray(self.kv_heads / np.ceil(self.kv_heads / tp))
        return tp


@dataclass(frozen=True)
class LayerKind:
    """Layers that cost the same: which ones, and their operations."""

    layers: tuple[int, ...]
    matmuls: tuple[Matmul, ...]
    attentions: tuple[Attention, ...]
    states: tuple[LinearState, ...]
    moe: MoE | None
    num_sublayers: int
    #: branches whose output tensor parallelism must sum over its shards
    num_reductions: int
    #: kernels a pass starts in one such layer: matrix products, attention or state, grouped experts
    num_kernels: int
    #: rows of this kind's layers in arrays that are indexed by MoE layer
    moe_rows: tuple[int, ...]
    #: activations that one such layer quantises before products of a format: format, how many
    quantised: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Draft:
    """What drafts at work: ``tokens`` runs per decode pass of ``layers`` (kinds and how many).

    Where a model ships several MTP modules they take turns, and one run is their average; ``modules`` of
    them are held in HBM. A model beside the one that is served has widths and a head of its ``own``.
    """

    tokens: int
    modules: int
    layers: tuple[tuple[LayerKind, float], ...]
    #: operations of a model of its own, with the head that its drafts pass
    own: Operations | None = None
    #: what only the first run of a pass multiplies
    once: tuple[Matmul, ...] = ()
    #: bytes of embedding and head that are held for it alone
    table_bytes: float = 0.0


@dataclass(frozen=True)
class Operations:
    """All operations of a model; ``draft`` where its MTP modules draft tokens."""

    spec: ModelSpec
    kinds: tuple[LayerKind, ...]
    head: tuple[Matmul, ...]
    embedding_bytes: float
    head_bytes: float
    kv_element_bytes: float
    activation_bytes: float
    hidden_size: int
    moe_layers: tuple[int, ...]
    draft: Draft | None = None
    #: image and audio towers that prompts pass; priced and held with the last stage, whole in one stage
    encoders: tuple[Encoder, ...] = ()
    #: whether the caches of sequences in flight lie in HBM, or in a tier from which every pass reads them
    kv_in_hbm: bool = True

    @property
    def num_layers(self) -> int:
        """Layers of the model."""
        return len(self.spec.layers)

    @cached_property
    def moe(self) -> MoE | None:
        """The mixture of experts of the model (the first MoE layer's), if it has one."""
        return next((kind.moe for kind in self.kinds if kind.moe is not None), None)

    @cached_property
    def query_heads(self) -> frozenset[int]:
        """Numbers of query heads that tensor parallelism divides: of the layers, and of what drafts."""
        kinds = [*self.kinds, *(kind for kind, _ in (self.draft.layers if self.draft else ()))]
        return frozenset(part.query_heads for kind in kinds for part in kind.attentions)

    def layers_within(self, first: int, last: int) -> list[int]:
        """Layers of each kind between two layers, both included."""
        return [
            bisect_right(kind.layers, last) - bisect_left(kind.layers, first) for kind in self.kinds
        ]

    def kind_of_layer(self) -> list[int]:
        """Index into ``kinds`` of every layer."""
        index = [0] * self.num_layers
        for place, kind in enumerate(self.kinds):
            for layer in kind.layers:
                index[layer] = place
        return index


def operations_of(
    spec: ModelSpec,
    draft_tokens: int = 0,
    encoders: tuple[Encoder, ...] = (),
    adapters: Adapters | None = None,
) -> Operations:
    """Compile a model spec into operations; its MTP modules, or its drafter, draft so many tokens per pass.

    ``encoders``: what the images and sound of a prompt pass first. ``adapters``: LoRA beside every layer.
    """
    moe_layers = tuple(
        index
        for index, layer in enumerate(spec.layers)
        if any(isinstance(part, MoE) for part in layer.sublayers)
    )
    row_of = {layer: row for row, layer in enumerate(moe_layers)}
    alike: dict[object, list[int]] = {}
    for index, layer in enumerate(spec.layers):
        alike.setdefault((layer.sublayers, layer.extra), []).append(index)
    kinds = tuple(
        _layer_kind(spec.layers[indices[0]], tuple(indices), row_of, by_block=spec.scaled_by_block)
        for indices in alike.values()
    )
    if adapters is not None:
        own = _adapter(adapters, len(spec.layers))
        kinds = tuple(replace(kind, matmuls=(*kind.matmuls, own)) for kind in kinds)
    head = tuple(_matmul(weights, "head", 0, 0) for weights in spec.head if weights.num_bytes)
    return Operations(
        spec=spec,
        kinds=kinds,
        head=head,
        embedding_bytes=sum(w.num_bytes for w in spec.embedding),
        head_bytes=sum(w.num_bytes for w in spec.head),
        kv_element_bytes=ELEMENT_BYTES[spec.kv_dtype],
        activation_bytes=ELEMENT_BYTES[spec.activation_dtype],
        hidden_size=spec.hidden_size,
        moe_layers=moe_layers,
        encoders=encoders,
        draft=_draft(spec, draft_tokens, head) if draft_tokens else None,
    )


def _adapter(adapters: Adapters, layers: int) -> Matmul:
    """One layer's part of the adapters; tensor parallelism divides it as the matrices it adds to."""
    held = adapters.held_bytes / layers
    return Matmul(
        part="adapters", flops_per_token=adapters.flops_per_token / layers, weight_bytes=held,
        dtype="bf16", shard="width", query_heads=0, kv_heads=0, stored_bytes=held,
    )  # fmt: skip


def _draft(spec: ModelSpec, tokens: int, head: tuple[Matmul, ...]) -> Draft | None:
    """What drafts: a drafter's layers, or the modules' with their projections in the first. See :class:`Draft`."""
    mtp = spec.mtp
    if spec.drafter is not None:
        return _drafter(spec.drafter, spec.kv_dtype, tokens, head)
    if mtp is None:
        return None
    kinds = []
    for index, layer in enumerate(mtp.layers):
        own = layer if index else replace(layer, extra=(*layer.extra, *mtp.extra))
        kind = _layer_kind(own, (index,), {index: index}, by_block=spec.scaled_by_block)
        kinds.append((kind, 1.0 / mtp.num_modules))
    return Draft(tokens, min(tokens, mtp.num_modules), tuple(kinds))


def _drafter(drafter: Drafter, kv_dtype: str, tokens: int, head: tuple[Matmul, ...]) -> Draft:
    """A model beside the one whose ``head`` is given, and which it uses unless it has one; caches are in one format."""
    own = operations_of(replace(drafter.spec, kv_dtype=kv_dtype))
    once = tuple(_matmul(weights, "attention_projections", 0, 0) for weights in drafter.once)
    tables = own.embedding_bytes + own.head_bytes
    if not own.head:
        own = replace(own, head=head)
    layers = tuple((kind, float(len(kind.layers))) for kind in own.kinds)
    return Draft(tokens, 1, layers, own, once, tables)


def _layer_kind(
    layer: Layer, layers: tuple[int, ...], row_of: dict[int, int], *, by_block: bool
) -> LayerKind:
    matmuls: list[Matmul] = [_matmul(w, "attention_projections", 0, 0) for w in layer.extra]
    attentions: list[Attention] = []
    states: list[LinearState] = []
    moe: MoE | None = None
    reductions = 0
    for part in layer.sublayers:
        if isinstance(part, Attention):
            attentions.append(part)
            matmuls += [
                _matmul(w, "attention_projections", part.query_heads, part.kv_heads)
                for w in part.weights
            ]
        elif isinstance(part, LinearState):
            states.append(part)
            matmuls += [
                _matmul(w, "attention_projections", part.heads, part.heads) for w in part.weights
            ]
        elif isinstance(part, DenseFFN):
            matmuls += [_matmul(w, "dense_ffn", 0, 0) for w in part.weights]
        else:
            moe = part
            matmuls += [_matmul(w, "router", 0, 0) for w in part.router]
            matmuls += [_matmul(w, "shared_experts", 0, 0) for w in part.shared]
        reductions += not isinstance(part, MoE)
    return LayerKind(
        layers=layers,
        matmuls=tuple(_merge(matmuls)),
        attentions=tuple(attentions),
        states=tuple(states),
        moe=moe,
        num_sublayers=len(layer.sublayers),
        num_reductions=reductions,
        num_kernels=num_kernels_of(layer.sublayers),
        quantised=quantised_activations(layer.sublayers, by_block=by_block),
        moe_rows=tuple(row_of[index] for index in layers) if moe is not None else (),
    )


def _matmul(weights: Weights, part: Part, query_heads: int, kv_heads: int) -> Matmul:
    return Matmul(
        part=part,
        flops_per_token=2.0 * weights.active_params,
        weight_bytes=float(weights.num_bytes),
        dtype=weights.dtype,
        shard=weights.shard,
        query_heads=query_heads,
        kv_heads=kv_heads,
        stored_bytes=0.0 if weights.borrowed else float(weights.num_bytes),
    )


def _merge(matmuls: list[Matmul]) -> list[Matmul]:
    """Join matrices of one part, dtype and sharding: engines fuse them, and fewer are priced."""
    merged: dict[object, Matmul] = {}
    for m in matmuls:
        key = (m.part, m.dtype, m.shard, m.query_heads, m.kv_heads)
        known = merged.get(key)
        if known is None:
            merged[key] = m
        else:
            merged[key] = replace(
                known,
                flops_per_token=known.flops_per_token + m.flops_per_token,
                weight_bytes=known.weight_bytes + m.weight_bytes,
                stored_bytes=known.stored_bytes + m.stored_bytes,
            )
    return list(merged.values())
