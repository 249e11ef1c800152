"""Puts layers, embedding and head together into a :class:`ModelSpec`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from costmodel.models.parts.builder import Builder
from costmodel.models.spec import MTP, Layer, ModelSpec, MoE, Sublayer, Weights

#: Longest context that is believed.
MAX_POSITIONS = 2**32


def layer(b: Builder, *sublayers: Sublayer, norms: int | None = None) -> Layer:
    """A layer with ``norms`` norm parameters; one hidden-sized norm per sublayer by default."""
    size = len(sublayers) * b.hidden if norms is None else norms
    return Layer(tuple(sublayers), (b.vector("norms", size),) if size else ())


def borrowed(weights: tuple[Weights, ...]) -> tuple[Weights, ...]:
    """The same matrices where a later layer reads them again: used there, stored once."""
    return tuple(replace(part, params=0, borrowed=True) for part in weights)


def decoder(
    b: Builder,
    layer_at: Callable[[int], Layer],
    *,
    tied_default: bool = False,
    final_norm: int | None = None,
    head_bias: bool = False,
    num_layers: int | None = None,
    table_width: int | None = None,
    never_tied: bool = False,
    extra_head: tuple[Weights, ...] = (),
    extra_embedding: tuple[Weights, ...] = (),
    mtp: Callable[[], MTP | None] = lambda: None,
) -> ModelSpec:
    """A decoder of ``num_layers`` layers built by ``layer_at``, between embedding and head.

    ``table_width`` is the width of embedding and head where it is not the hidden size: a projection
    follows the one and comes before the other. ``never_tied``: the class has two tables whatever the
    config says.
    """
    count = b.num_layers if num_layers is None else num_layers
    vocab = b.config.size("vocab_size")
    tied = b.tied(tied_default)
    if tied and never_tied:
        b.config.log.note("tie_word_embeddings is true, but the model's class keeps two tables")
        tied = False
    max_context = b.config.optional_size(
        "max_position_embeddings", "max_sequence_length", "max_seq_len", "n_positions",
        "model_max_length", because="no limit is known", high=MAX_POSITIONS,
    )  # fmt: skip
    b.config.log.stop_if_wrong()
    layers = tuple(layer_at(index) for index in range(count))
    if any(w.borrowed for item in layers for part in item.sublayers if not isinstance(part, MoE)
           for w in part.weights):  # fmt: skip
        b.config.log.note(
            "some layers read the matrices of layers before them: these are counted once, and a "
            "pipeline stage without the first of them would need a copy"
        )
    modules = mtp()
    b.config.log.stop_if_wrong()
    width = table_width or b.hidden
    if width != b.hidden:
        extra_head += (b.matrix("embedding projections", "model.project_in", width, b.hidden,
                                "replicated", copies=2),)  # fmt: skip
    table = b.matrix("embedding", "model.embed_tokens", vocab, width, "vocab", role="plain")
    embedding = Weights("embedding", table.params, table.num_bytes, table.dtype, "vocab", 0)
    head = b.matrix(
        "tied embedding and head" if tied else "head", "lm_head", vocab, width, "vocab",
        role="plain", bias=head_bias,
    )  # fmt: skip
    norm = b.vector("final norm", b.hidden if final_norm is None else final_norm)
    return ModelSpec(
        name=b.name,
        family=b.family,
        hidden_size=b.hidden,
        vocab_size=vocab,
        layers=layers,
        embedding=(*(() if tied else (embedding,)), *extra_embedding),
        head=(head, norm, *extra_head),
        tied_embeddings=tied,
        max_context=max_context,
        kv_dtype=b.precision.kv_dtype or "bf16",
        activation_dtype=b.precision.base.dtype,
        native_dtype=b.precision.label,
        native=b.precision.native,
        mtp=modules,
    )
