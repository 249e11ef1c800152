"""Decoders told in a few words: what a class fixes of attention, norms and feed-forward branch.

A recipe says what the model's code fixes; what the config may switch is read under the keys the recipe
names. A family that differs in more than words has code of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from costmodel.models.parts.attention import grouped_query
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import MAX_POSITIONS, decoder, layer
from costmodel.models.parts.ffn import dense_ffn
from costmodel.models.parts.hyper import hyper_connections, hyper_head
from costmodel.models.parts.mixture_recipe import Mixed, Mixtures
from costmodel.models.parts.mla import Indexer, Latent, latent_attention
from costmodel.models.parts.schedule import index_owners
from costmodel.models.parts.windows import SLIDING, patterned_windows, typed_windows, uniform_window
from costmodel.models.read_log import shown
from costmodel.models.registry import Family
from costmodel.models.spec import Attention, DenseFFN, Layer, ModelSpec, MoE, Weights


@dataclass(frozen=True)
class Recipe:
    """What one architecture fixes."""

    architecture: str
    latent: bool = False  #: multi-head latent attention, with an index where the config has one
    bias: bool | str = False  #: q, k, v bias, or the key that switches it
    bias_default: bool = False
    o_bias: bool | str | None = None  #: output bias; None: as q, k, v
    mlp_bias: bool | str = False
    gated: bool = True
    qk_norm: Literal["none", "head", "full", "head+bias"] = "none"
    norms: int = 2  #: norms per layer
    norm_bias: bool = False  #: layer norms with a bias instead of RMS norms
    norm_weight: bool = True  #: False: norms without parameters
    final_norm: bool | str = True
    tied: bool = False
    window: Literal["none", "all", "pattern", "types"] = "none"
    pattern: int = 4  #: one layer in so many is full, where layer_types is absent
    pattern_keys: tuple[str, ...] = ()  #: keys of that number
    #: which of so many layers slide where layer_types is absent
    slides: Callable[[int, int], bool] | None = None
    head_dim: int | None = None
    #: KV heads: by the config, as many as queries, or one where ``multi_query`` says so
    heads: Literal["grouped", "all", "multi_query"] = "grouped"
    gate: Literal["none", "full", "head"] = "none"  #: output gate: a row per channel or per head
    head_vectors: int = 0  #: numbers per query head: sinks, scales
    vectors: int = 0  #: numbers per layer besides
    kv_rows: int = 0  #: rows projected per KV head besides, and as many numbers
    hidden_vectors: int = 0  #: vectors of the hidden size per layer besides norms
    width_vectors: int = 0  #: vectors of the FFN's width per layer
    width_keys: tuple[str, ...] = ("intermediate_size",)
    width_times: int | None = None  #: FFN width in hidden sizes where no key gives it
    times_keys: tuple[str, ...] = ()  #: keys of that number
    table_width_keys: tuple[str, ...] = ()  #: embedding and head may be narrower, and projected
    head_bias: bool = False
    embedding_norms: int = 0  #: vectors of the hidden size after the embedding
    positions: tuple[str, ...] = ()  #: keys of the number of learned positions
    more_rows: tuple[str, ...] = ()  #: keys of the number of input rows beyond the vocabulary
    more_positions: int = 0  #: positions of the table beyond that number
    streams: str = ""  #: key of the number of residual streams (hyper-connections)
    mixture: Mixed | None = None
    fixed: tuple[tuple[str, object], ...] = ()  #: keys of which only one value is understood
    no_effect: tuple[str, ...] = ()


def read_recipe(b: Builder, recipe: Recipe) -> ModelSpec:
    """The decoder that a recipe describes."""
    c, count = b.config, b.num_layers
    c.ignore(*recipe.no_effect)
    for key, value in recipe.fixed:
        c.ignore(key)
        if c.data.get(key, value) != value:
            c.problem(key, f"only {value} is understood, got {shown(c.data[key])}")
    attend = _Latent(b, recipe, count) if recipe.latent else _Heads(b, recipe, count)
    feed = _Feed(b, recipe, count)
    norm = b.hidden * (int(recipe.norm_weight) + int(recipe.norm_bias))
    extra = recipe.vectors + recipe.hidden_vectors * b.hidden + recipe.width_vectors * feed.width

    streams = c.size(recipe.streams, high=64) if recipe.streams else 0
    ends: tuple[Weights, ...] = ()
    if streams:
        ends = tuple(hyper_head(b, streams))
        c.ignore("hc_sinkhorn_iters")

    def at(index: int) -> Layer:
        plain = layer(b, attend(index), feed(index), norms=recipe.norms * norm + extra)
        hyper = hyper_connections(b, streams, 2) if streams else ()
        return Layer(plain.sublayers, (*plain.extra, *hyper))

    final = switch(b, recipe.final_norm, True)
    width = b.hidden
    if recipe.table_width_keys:
        width = c.size(*recipe.table_width_keys, default=b.hidden, because="the hidden size")
    return decoder(
        b, at, tied_default=recipe.tied, final_norm=norm if final else 0, table_width=width,
        head_bias=recipe.head_bias, extra_embedding=_tables(b, recipe), extra_head=ends,
    )  # fmt: skip


def _tables(b: Builder, recipe: Recipe) -> tuple[Weights, ...]:
    """Learned positions, read one row per token, and norms of the embedding."""
    found = []
    if recipe.positions:
        own = b.config.class_default(recipe.positions, int)
        rows = b.config.size(*recipe.positions, default=own, high=MAX_POSITIONS)
        rows += recipe.more_positions
        table = b.matrix(
            "positions", "model.embed_positions", rows, b.hidden, "vocab", role="plain"
        )
        found.append(replace(table, active_params=0))
    if recipe.more_rows:
        rows = b.config.size(*recipe.more_rows, default=0, because="none", low=0)
        table = b.matrix(
            "further rows", "model.embed_tokens", rows, b.hidden, "vocab", role="plain"
        )
        found.append(replace(table, active_params=0))
    if recipe.embedding_norms:
        found.append(b.vector("embedding norm", recipe.embedding_norms * b.hidden))
    return tuple(found)


class _Heads:
    def __init__(self, b: Builder, recipe: Recipe, count: int):
        c = b.config
        self.b, self.recipe, self.count = b, recipe, count
        self.heads = b.heads
        self.kv_heads = self.heads if recipe.heads == "all" else b.kv_heads("num_kv_heads")
        if recipe.heads == "multi_query":
            self.kv_heads = 1 if c.flag("multi_query", default=True) else self.heads
        self.dim = b.head_dim(recipe.head_dim)
        self.bias = switch(b, recipe.bias, recipe.bias_default)
        self.o_bias = self.bias if recipe.o_bias is None else switch(b, recipe.o_bias, False)
        per_head = {"none": 0, "head": 2 * self.dim, "head+bias": 4 * self.dim}
        norms = per_head.get(recipe.qk_norm, (self.heads + self.kv_heads) * self.dim)
        self.vectors = norms + recipe.head_vectors * self.heads
        self.gate = {"none": 0, "full": self.heads * self.dim, "head": self.heads}[recipe.gate]
        self.vectors += recipe.kv_rows * self.kv_heads
        self.windows: list[int | None] = [None] * count
        if recipe.window == "all":
            self.windows = [uniform_window(b)] * count
        elif recipe.window == "pattern":
            self.windows = patterned_windows(b, count, recipe.pattern, recipe.pattern_keys)
        elif recipe.window == "types":
            self.windows = typed_windows(b, count, recipe.slides)
        elif not set(c.data.get("layer_types") or ()) & set(SLIDING):
            c.ignore("layer_types")

    def __call__(self, index: int) -> Attention:
        return grouped_query(
            self.b, f"model.layers.{index}.self_attn", self.heads, self.kv_heads, self.dim,
            qkv_bias=self.bias, o_bias=self.o_bias, vectors=self.vectors, gate_rows=self.gate,
            window=self.windows[index], extra=self._rows(index),
        )  # fmt: skip

    def _rows(self, index: int) -> tuple[Weights, ...]:
        rows = self.recipe.kv_rows * self.kv_heads
        if not rows:
            return ()
        at = f"model.layers.{index}.self_attn.dt_proj"
        return (self.b.matrix("mask gate", at, rows, self.b.hidden, "kv_heads"),)


class _Latent:
    def __init__(self, b: Builder, recipe: Recipe, count: int):
        c = b.config
        self.b, self.latent, self.recipe = b, Latent.read(b), recipe
        self.indexer = Indexer.read(b) if c.has("index_topk") else None
        self.owners = index_owners(b, count) if self.indexer else [True] * count
        self.bias = switch(b, recipe.bias, recipe.bias_default)
        width = self.latent.heads * self.latent.v
        self.gate = {"none": 0, "full": width, "head": self.latent.heads}[recipe.gate]
        c.ignore("head_dim", "qk_head_dim", "layer_types")

    def __call__(self, index: int) -> Attention:
        return latent_attention(
            self.b, f"model.layers.{index}.self_attn", self.latent, indexer=self.indexer,
            owns_index=self.owners[index], bias=self.bias, gate_rows=self.gate,
            vectors=self.recipe.head_vectors * self.latent.heads,
        )  # fmt: skip


class _Feed:
    def __init__(self, b: Builder, recipe: Recipe, count: int):
        self.b, self.recipe = b, recipe
        self.mixtures = Mixtures(b, recipe.mixture, count) if recipe.mixture else None
        self.bias = switch(b, recipe.mlp_bias, recipe.bias_default)
        self.width = 0
        if self.mixtures is None or not all(self.mixtures.sparse):
            times = recipe.width_times
            if recipe.times_keys:
                times = b.config.size(*recipe.times_keys, default=times, high=64)
            self.width = b.config.size(
                *recipe.width_keys, default=times * b.hidden if times else None,
                because=f"{times} times the hidden size",
            )  # fmt: skip
        else:
            b.config.ignore(*recipe.width_keys)

    def __call__(self, index: int) -> DenseFFN | MoE:
        at = f"model.layers.{index}.mlp"
        if self.mixtures is not None and self.mixtures.sparse[index]:
            return self.mixtures(at)
        return dense_ffn(self.b, at, self.width, gated=self.recipe.gated, bias=self.bias)


def switch(b: Builder, what: bool | str, default: bool) -> bool:
    """A fact, or the flag under a key."""
    return b.config.flag(what, default=default) if isinstance(what, str) else what


def recipe_family(name: str, recipes: dict[str, Recipe]) -> Family:
    """The family of some recipes, found by ``model_type`` or, without one, by architecture."""

    def read(b: Builder) -> ModelSpec:
        kind = b.config.data.get("model_type")
        if isinstance(kind, str) and kind in recipes:
            return read_recipe(b, recipes[kind])
        names = [
            item
            for where in (b.config, b.outer)
            if isinstance(listed := where.data.get("architectures"), list)
            for item in listed
        ]
        found = next((r for r in recipes.values() if r.architecture in names), None)
        if found is None:
            found = recipes[str(b.outer.data.get("model_type"))]
        return read_recipe(b, found)

    return Family(name, tuple(recipes), tuple(dict.fromkeys(
        recipe.architecture for recipe in recipes.values()
    )), read)  # fmt: skip
