"""What one pass works on: tokens of an attention rank, and how routed tokens fall on chips."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from costmodel.models.spec import MoE

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Tokens:
    """One attention rank's work in one pass.

    ``decode`` sequences are at ``context`` tokens of context and have ``verified`` tokens each (one,
    and drafts where decoding is speculative); ``prefill`` prompt tokens start after ``prefill_start``
    earlier ones and end at ``prefill_end``; ``prompts`` of them reach the LM head.
    """

    decode: ArrayLike = 0.0
    context: float = 0.0
    prefill: ArrayLike = 0.0
    prefill_start: float = 0.0
    prefill_end: float = 0.0
    prompts: ArrayLike = 0.0
    #: tokens of the average rank over those of the busiest, which the other figures describe
    fill: Array | float = 1.0
    verified: Array | float = 1.0

    @cached_property
    def rows(self) -> Array:
        """Tokens that the pass computes."""
        return np.asarray(
            np.asarray(self.decode, dtype=float) * self.verified
            + np.asarray(self.prefill, dtype=float)
        )

    @cached_property
    def sampled(self) -> Array:
        """Tokens that reach the LM head."""
        return np.asarray(
            np.asarray(self.decode, dtype=float) * self.verified
            + np.asarray(self.prompts, dtype=float)
        )

    @classmethod
    def side_by_side(cls, passes: Sequence[Tokens], times: Sequence[int]) -> Tokens:
        """Several passes of one workload as arrays, each of them so many times in a row.

        Raises ``ValueError`` where contexts or prompts of different lengths would have to share one.
        """

        def shared(name: str, present: str) -> float:
            found = {getattr(one, name) for one in passes if float(getattr(one, present))}
            if len(found) > 1:
                raise ValueError(f"passes with {name} {sorted(found)} cannot be priced together")
            return float(next(iter(found), 0.0))

        own = [(one.decode, one.prefill, one.prompts, one.fill, one.verified) for one in passes]
        columns = np.array(own, dtype=float).repeat(times, axis=0)
        decode, prefill, prompts, fill, verified = columns.T
        return cls(
            decode=decode,
            context=shared("context", "decode"),
            prefill=prefill,
            prefill_start=shared("prefill_start", "prefill"),
            prefill_end=shared("prefill_end", "prefill"),
            prompts=prompts,
            fill=fill,
            verified=verified,
        )


@dataclass(frozen=True)
class ExpertShares:
    """How the routed experts' work falls on chips, per MoE layer.

    ``load [..., layers, chips]``: share of the layer's routed tokens on each chip (even split over
    replicas); ``touched [..., layers, chips]``: expected number of resident experts that at least
    one token reaches. A last axis of length 1 is the busiest chip alone (used for bounds).
    ``stage_layers [stages]``: how many of the layers belong to each of the stages that are priced
    at once, in order; ``None`` for one stage.
    """

    load: Array
    touched: Array
    stage_layers: NDArray[np.int64] | None = None

    @property
    def num_layers(self) -> ArrayLike:
        """Layers of each stage."""
        return self.load.shape[-2] if self.stage_layers is None else self.stage_layers

    def per_layer(self, values: Array) -> Array:
        """``values``, one for each stage, as ``[..., layers]``."""
        if self.stage_layers is None:
            return values[..., None]
        if values.shape != self.stage_layers.shape:
            values = np.broadcast_to(values, self.stage_layers.shape)
        return values.repeat(self.stage_layers)

    def layer_by_layer(self, values: Array) -> Array:
        """``values [..., layers]`` as ``[layers, ...]``; of several stages, 0 on those without the layer."""
        if self.stage_layers is None:
            return np.moveaxis(values, -1, 0)
        own = np.repeat(np.arange(len(self.stage_layers)), self.stage_layers)
        return np.asarray((own[:, None] == np.arange(len(self.stage_layers))) * values[:, None])

    def over_layers(self, values: Array) -> Array:
        """Sum of ``values [..., layers]`` over the layers of each stage."""
        if self.stage_layers is None:
            return np.asarray(values.sum(axis=-1))
        filled, starts = self._filled
        if len(starts) == len(self.stage_layers):
            return np.add.reduceat(values, starts)
        sums = np.zeros(len(self.stage_layers))
        sums[filled] = np.add.reduceat(values, starts)
        return sums

    @cached_property
    def busiest_load(self) -> Array:
        """Largest share of a layer's routed tokens on one chip ``[..., layers]``."""
        return np.asarray(self.load.max(axis=-1))

    @cached_property
    def most_touched(self) -> Array:
        """Most experts touched on one chip ``[..., layers]``."""
        return np.asarray(self.touched.max(axis=-1))

    @cached_property
    def _filled(self) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Which stages have layers, and the first layer of each of these."""
        assert self.stage_layers is not None
        filled = self.stage_layers > 0
        return filled, (self.stage_layers.cumsum() - self.stage_layers)[filled]


def held_evenly(moe: MoE, chips: ArrayLike, whole: ArrayLike = 1.0) -> Array:
    """Experts on the fullest chip where each lies once: as even as they go over the chips, or (``whole`` 0) cut over all."""
    share = moe.num_experts / np.asarray(chips, dtype=float)
    cut = moe.num_experts * moe.slice_share(chips)
    return np.where(np.asarray(whole) > 0, np.ceil(share), cut)


def even_shares(moe: MoE, chips: Array, tokens: Array, whole: ArrayLike = 1.0) -> ExpertShares:
    """Experts as :func:`held_evenly`, evenly loaded.

    ``tokens`` in the pass over all ranks. How the experts of what drafts lie, so that the search and the
    evaluation see the same, and how those of a shape lie before anything is decided about them.
    """
    resident = held_evenly(moe, chips, whole)
    reached = -np.expm1(tokens * np.log1p(-min(moe.top_k / moe.num_experts, 1.0 - 1e-12)))
    load, touched = np.broadcast_arrays(resident / moe.num_experts, resident * reached)
    return ExpertShares(load[..., None, None], touched[..., None, None])


def runs_in_halves(overlap: bool, ranks: ArrayLike) -> Array:
    """Whether passes of so many attention ranks run in halves: one exchanges nothing that a second half could hide."""
    return np.asarray(overlap & (np.asarray(ranks) > 1))


def half(tokens: Tokens, parts: ArrayLike = 2.0) -> Tokens:
    """One of ``parts`` equal parts of the sequences and prompts of a pass, at the same lengths."""
    return replace(
        tokens,
        decode=np.asarray(tokens.decode, dtype=float) / parts,
        prefill=np.asarray(tokens.prefill, dtype=float) / parts,
        prompts=np.asarray(tokens.prompts, dtype=float) / parts,
    )
