"""Makes the weights of a model at their stored precision. What families build everything with."""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm
from typing import Literal

from costmodel.models.config import MAX_LAYERS, Config
from costmodel.models.parts.quantisation.precision import Precision
from costmodel.models.spec import Shard, Weights


@dataclass(frozen=True)
class Builder:
    """The text model's config, the config around it, and the precision of its matrices."""

    config: Config
    outer: Config  #: the same as ``config`` where nothing is nested
    precision: Precision
    name: str
    family: str

    def matrix(
        self,
        name: str,
        module: str,
        rows: int,
        cols: int,
        shard: Shard,
        *,
        role: str = "linear",
        bias: bool = False,
        copies: int = 1,
        divided: Literal["rows", "cols"] | None = None,
    ) -> Weights:
        """``copies`` matrices of ``rows`` outputs and ``cols`` inputs each, with a bias or without.

        ``module`` is the dotted name quantisers know it by; ``role`` as in
        :meth:`Precision.of`. A bias is kept in the base format. ``divided``: what tensor parallelism divides, where
        engines keep blocks of scales whole.
        """
        gated = copies == 2 and module.endswith(".up_proj")
        stored = self.precision.of(module, role, gated=gated)
        num_bias = copies * rows if bias else 0
        return Weights(
            name,
            copies * rows * cols + num_bias,
            copies * stored.num_bytes(rows, cols) + num_bias * self.base_bytes,
            stored.dtype,
            shard,
            copies * rows * cols,
            blocks=0 if divided is None else stored.blocks(rows, cols, divided),
        )

    def expert_block(self, experts: str, *, gated: bool) -> int:
        """Columns of an expert that share scales: outputs of its up projection, inputs of its down projection.

        1 where each has its own or all share one, and where integers share them, whose groups engines make smaller.
        """
        up = self.precision.of(f"{experts}.up_proj", "expert", gated=gated)
        down = self.precision.of(f"{experts}.down_proj", "expert")
        rows = up.block[0] if up.block is not None else 1
        columns = down.block[1] if down.block is not None and down.dtype in ("fp8", "fp4") else 1
        return lcm(max(rows, 1), max(columns, 1))

    def vector(self, name: str, num: int, shard: Shard = "replicated") -> Weights:
        """``num`` parameters that are added or multiplied elementwise: norms, biases, sinks."""
        return Weights(name, num, num * self.base_bytes, self.precision.base.dtype, shard, 0)

    @property
    def base_bytes(self) -> float:
        """Bytes of one parameter that is not quantised."""
        return self.precision.base.bits / 8

    # -- keys that nearly every family has -------------------------------------------------------

    @property
    def hidden(self) -> int:
        """Width of the residual stream."""
        return self.config.size("hidden_size", "d_model", "n_embd", high=2**17)

    @property
    def heads(self) -> int:
        """Query heads of a layer."""
        return self.config.size(
            "num_attention_heads", "n_heads", "n_head", "num_heads", "attention_heads", high=2**12
        )

    @property
    def num_layers(self) -> int:
        """Transformer layers (or blocks of a hybrid model)."""
        return self.config.size("num_hidden_layers", "n_layers", "num_layers", "n_layer",
                                high=MAX_LAYERS)  # fmt: skip

    @property
    def ffn_width(self) -> int:
        """``intermediate_size``: what it means depends on the family."""
        return self.config.size("intermediate_size")

    def kv_heads(self, *names: str) -> int:
        """Key/value heads; absent or null means as many as query heads."""
        sound = self.config.log.so_far()
        heads = self.heads
        found = self.config.size(
            "num_key_value_heads", *names, default=heads, because="as many as query heads",
            high=2**12,
        )  # fmt: skip
        if sound() and heads % found:
            self.config.problem(
                "num_key_value_heads", f"{found} does not divide the {heads} query heads"
            )
        return found

    def head_dim(self, default: int | None = None) -> int:
        """Width of a head. Without a class default, hidden size / heads, which must be whole."""
        because = "family default"
        if self.config.class_defaults and "head_dim" not in self.config.data:
            # a class without a number of its own takes hidden size / heads
            default = self.config.class_default(("head_dim",), int)
        if default is None:
            sound = self.config.log.so_far()
            default, because = max(self.hidden // self.heads, 1), "hidden size / query heads"
            uneven = sound() and bool(self.hidden % self.heads)
            if uneven and self.config.class_defaults:
                self.config.log.note(
                    f"warning: head_dim is not given, and {self.heads} heads do not divide the hidden "
                    f"size {self.hidden}: rounded down, as the model's class does"
                )
            elif uneven and not self.config.has("head_dim"):
                self.config.problem(
                    "head_dim",
                    f"is missing, and {self.heads} heads do not divide the hidden size {self.hidden}",
                )
        return self.config.size("head_dim", "attention_head_dim", default=default, because=because,
                                high=2**14)  # fmt: skip

    def tied(self, default: bool) -> bool:
        """Whether the head reuses the embedding; the outermost config that says so decides."""
        around = [self.config]
        while around[0].within is not None:
            around.insert(0, around[0].within)
        for where in around:
            if where.has("tie_word_embeddings"):
                for inner in around:
                    inner.ignore("tie_word_embeddings")
                return where.flag("tie_word_embeddings")
        own = self.outer.class_default(("tie_word_embeddings",), bool)
        if own is not None and self.outer is not self.config:
            self.config.log.note(f"assumed: tie_word_embeddings = {own} (class default)")
            return own
        return self.config.flag(
            "tie_word_embeddings", default=default, because=f"class default of {self.family}"
        )
