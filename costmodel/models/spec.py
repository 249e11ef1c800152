"""What the cost model needs to know of a model: layers, each a list of sublayers.

A :class:`ModelSpec` holds counts and bytes only, no times and no hardware. Family readers in
``costmodel/models/families`` build it from a ``config.json``; the cost model never looks at a
config. One sublayer is one residual branch: attention of a kind, a state-space or linear
attention, a dense FFN or a mixture of experts.

Words: *params* are parameters of the text model as the ground truth counts them, *bytes* are the
bytes of the checkpoint at its native (or the asked-for) precision, scales included. ``dtype`` is the
storage dtype, one of ``bf16 fp16 fp32 fp8 int8 fp4 int4``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Shard = Literal["heads", "kv_heads", "width", "vocab", "replicated"]
"""How tensor parallelism divides a matrix: by query heads, by KV heads (at most one head per chip,
replicated beyond), by FFN width, by vocabulary, or not at all."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One value the reader used, for the person who checks it."""

    key: str  #: path of the key in the config
    value: str
    source: str  #: ``config``, or the reason for a default


@dataclass(frozen=True, slots=True)
class Weights:
    """One group of matrices that are stored, sharded and multiplied together."""

    name: str
    params: int
    num_bytes: float
    dtype: str
    shard: Shard
    #: Multiply-adds per token in the pass, in parameters; equals ``params`` for a plain matrix,
    #: 0 for a bias, a norm or an embedding table.
    active_params: int
    #: whether these are another layer's matrices (with ``params`` 0): read here, stored there
    borrowed: bool = False
    #: blocks of scales, or columns, along what tensor parallelism divides, of which engines give every share as many; 0: any share
    blocks: int = 0


@dataclass(frozen=True, slots=True)
class Attention:
    """Softmax attention of one layer.

    Decode reads ``read_tokens(context)`` cached entries of ``kv_elements`` each. One query token
    against one cached token costs ``2 * query_heads * (qk_dim + v_dim)`` FLOPs (score and value);
    MLA decodes in the absorbed form and prefills in the expanded one, so both widths are kept.
    """

    kind: str  #: label of the kind: mha gqa mqa gqa-swa gqa-chunked mla dsa dsa-shared csa hca ...
    weights: tuple[Weights, ...]
    query_heads: int
    kv_heads: int  #: 1 for MLA: its latent cache is replicated, not sharded, under TP
    kv_elements: int  #: cached elements per stored token, all KV heads, keys and values
    decode_qk_dim: int
    decode_v_dim: int
    prefill_qk_dim: int
    prefill_v_dim: int
    window: int | None = None  #: bounded KV: at most this many tokens are kept and read
    index_elements: int = 0  #: elements of sparse-attention index keys stored per token
    #: index query heads; each costs ``2 * index_dim`` FLOPs per cached entry (``1 / compress`` per token)
    index_heads: int = 0
    index_dim: int = 0
    read_top_k: int | None = None  #: sparse attention reads at most this many entries
    compress: int = 1  #: cached entries per token is ``1 / compress`` (DeepSeek-V4)
    local_window: int = 0  #: uncompressed entries kept and read beside the compressed ones
    owns_cache: bool = (
        True  #: False where the layer reads another layer's cache; its local window is its own
    )

    def stored_tokens(self, context: float) -> float:
        """Entries kept for a sequence of ``context`` tokens."""
        local = min(context, float(self.local_window))
        return (self._visible(context / self.compress) if self.owns_cache else 0.0) + local

    def read_tokens(self, context: float) -> float:
        """Entries read by one decode step at ``context`` tokens."""
        entries = self._visible(context / self.compress)
        if self.read_top_k is not None:
            entries = min(entries, float(self.read_top_k))
        return entries + min(context, float(self.local_window))

    def _visible(self, entries: float) -> float:
        return min(entries, float(self.window)) if self.window is not None else entries


@dataclass(frozen=True, slots=True)
class LinearState:
    """State-space or linear attention: a constant state per sequence instead of a growing cache."""

    kind: str  #: mamba, gated-delta, lightning, kda ...
    weights: tuple[Weights, ...]
    heads: int
    state_bytes: float  #: bytes of state per sequence, read and written by every decode step
    state_flops_per_token: float  #: FLOPs of the state update and read-out for one token


@dataclass(frozen=True, slots=True)
class DenseFFN:
    """A dense feed-forward branch (gated or not)."""

    weights: tuple[Weights, ...]
    width: int


@dataclass(frozen=True, slots=True)
class MoE:
    """Router, routed experts, shared experts and latent projections of one layer."""

    num_experts: int  #: routed experts that carry weights
    top_k: float  #: expected experts with weights per token (an expectation with zero-compute ones)
    expert_params: int  #: parameters of one routed expert
    expert_bytes: float  #: bytes of one routed expert, scales included
    expert_dtype: str
    expert_input_dim: int  #: width of the vector dispatched to an expert (hidden or latent)
    expert_width: int
    router: tuple[Weights, ...]
    shared: tuple[Weights, ...]  #: shared experts and latent projections: every token passes
    zero_experts: int = 0  #: zero-compute experts the router can also pick
    num_groups: int = 1  #: n_group: the router first picks groups ...
    top_groups: int = 1  #: topk_group: ... and a token's experts lie in so many of them
    num_shared: int = 0  #: shared experts (a dense branch beside the routed ones counts as one)
    expert_block: int = 1  #: columns of an expert that share scales: no cut parts them
    #: columns of which engines make every slice a multiple, filled up with zeros; 0: slices are equal, none is filled up
    slice_step: int = 0

    def cut_over(self, chips: int) -> bool:
        """Whether engines cut every expert over so many chips: whole blocks of scales for all, equally many unless they fill up."""
        blocks, rest = divmod(self.expert_width, self.expert_block)
        if rest or not self.slice_step:
            return not rest and blocks % chips == 0
        return -(-blocks // chips) * (chips - 1) < blocks

    def slice_share(self, chips: ArrayLike) -> NDArray[np.float64]:
        """Share of an expert that each of so many chips holds and multiplies where it is cut over them."""
        even = 1.0 / np.asarray(chips, dtype=float)
        if not self.slice_step:
            return even
        steps = self.expert_width / self.slice_step
        return np.ceil(steps * even * (1 - 1e-12)) / steps


Sublayer = Attention | LinearState | DenseFFN | MoE


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer (or one block of a hybrid model that lists its blocks singly)."""

    sublayers: tuple[Sublayer, ...]
    #: norms and other vectors that belong to no sublayer
    extra: tuple[Weights, ...] = ()


@dataclass(frozen=True, slots=True)
class MTP:
    """Multi-token-prediction modules shipped with the model. Not part of ``total_params``."""

    num_modules: int
    layers: tuple[Layer, ...]
    extra: tuple[Weights, ...] = ()
    #: the checkpoint repeats embedding and head in each module; engines share the main model's
    copies_tables: bool = False


#: an EAGLE head, which reads hidden states of the model, one of EAGLE-3, or a whole model
DrafterKind = Literal["eagle", "eagle3", "model"]


@dataclass(frozen=True)
class Drafter:
    """A model beside the one that is served, with weights and caches of its own, which drafts its tokens."""

    kind: DrafterKind
    #: its layers, and the embedding and head that it holds itself
    spec: ModelSpec
    #: what only the first run of a pass multiplies: hidden states of the model, made one vector
    once: tuple[Weights, ...] = ()

    @property
    def key(self) -> str:
        """All of it that is priced, as text."""
        return repr((self.kind, self.spec.layers, self.spec.embedding, self.spec.head, self.once))


@dataclass(frozen=True, slots=True)
class Tower:
    """An image or audio encoder in front of the text model: ``depth`` blocks of ``width``."""

    params: int
    num_bytes: float
    width: int
    depth: int


@dataclass(frozen=True)
class ModelSpec:
    """A transformer's architecture, read from a Hugging Face ``config.json``."""

    name: str
    family: str  #: the reader that understood it
    hidden_size: int
    vocab_size: int
    layers: tuple[Layer, ...]
    embedding: tuple[
        Weights, ...
    ]  #: input embedding (0 params here if tied and counted in the head)
    head: tuple[Weights, ...]  #: LM head and final norm
    tied_embeddings: bool
    max_context: int | None  #: positions the model supports, where the config says so
    kv_dtype: str = "bf16"
    activation_dtype: str = "bf16"
    #: what attention over the context multiplies in; ``None``: the activations' dtype
    attention_dtype: str | None = None
    #: what tokens are sent to experts in; ``None``: FP8 to experts of 8 bits or fewer, else activations
    dispatch_dtype: str | None = None
    native_dtype: str = "bf16"  #: label of the native quantisation
    native: bool = True  #: whether the checkpoint itself has this precision, or it was asked for
    #: whether 8-bit weights have scales by block where their size says so; ``None``: those of the checkpoint itself
    block_scales: bool | None = None
    #: whether the checkpoint brings code for a type of model that transformers has no class for
    own_code: bool = False
    mtp: MTP | None = None
    #: what drafts tokens instead of the model's own modules
    drafter: Drafter | None = None
    notes: tuple[str, ...] = field(default=())  #: assumptions and warnings a person should read
    readings: tuple[Reading, ...] = field(default=())  #: every value used and where it came from
    vision: Tower | None = None  #: image tower; not part of ``total_params``
    audio: Tower | None = None  #: audio tower; not part of ``total_params``

    @property
    def scaled_by_block(self) -> bool:
        """Whether scales by block are the checkpoint's: inputs are then quantised at run time."""
        return self.native if self.block_scales is None else self.block_scales

    @property
    def hybrid(self) -> bool:
        """Whether layers differ in what they keep: a window, or a state in place of KV."""
        parts = [part for layer in self.layers for part in layer.sublayers]
        windows = {part.window for part in parts if isinstance(part, Attention)}
        return any(isinstance(part, LinearState) for part in parts) or len(windows) > 1

    def odd_kv_heads(self, tp: int) -> int | None:
        """KV heads of a layer that ``tp`` shards neither share out evenly nor hold equally often; ``None``: of none."""
        return next((heads for heads in self._kv_heads if heads % tp and tp % heads), None)

    @cached_property
    def _kv_heads(self) -> frozenset[int]:
        parts = [part for layer in self.layers for part in layer.sublayers]
        return frozenset(part.kv_heads for part in parts if isinstance(part, Attention))

    def parted(self, tp: int) -> str | None:
        """Which columns or blocks of scales ``tp`` shares do not divide, in words; ``None`` if they divide all."""
        found = next((one for one in self._in_blocks if one.blocks % tp), None)
        return (
            None
            if found is None
            else f"the {found.blocks:,} columns, or blocks of scales, of {found.name}"
        )

    @cached_property
    def _in_blocks(self) -> tuple[Weights, ...]:
        """A matrix for each number of blocks or columns; none where the precision was asked for."""
        parts = [part for layer in self.layers for part in layer.sublayers]
        held = [one for part in parts if isinstance(part, DenseFFN) for one in part.weights]
        held += [one for part in parts if isinstance(part, MoE) for one in part.shared]
        return tuple(
            {one.blocks: one for one in held if one.blocks and self.scaled_by_block}.values()
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """Notes that may mean wrong numbers: whoever uses the model should see them."""
        return tuple(note for note in self.notes if note.startswith("warning: "))

    @property
    def named_warnings(self) -> tuple[str, ...]:
        """The warnings of the model and of what drafts for it, each after the name of its model."""
        both = (self,) if self.drafter is None else (self, self.drafter.spec)
        return tuple(f"{spec.name}: {warning}" for spec in both for warning in spec.warnings)
