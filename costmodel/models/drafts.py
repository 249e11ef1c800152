"""Models that draft tokens for another: EAGLE heads, read from their own ``config.json``, and whole small models.

An EAGLE head is a layer or two that read the hidden states of the model they draft for. EAGLE (Li et al. 2024) joins the
embedding of a token with the model's last hidden state in every run and uses the model's LM head. EAGLE-3 (Li et al. 2025)
joins the hidden states of three layers once in a pass, its first layer's attention reads the embedding beside that, and
it has a head of its own, often over fewer tokens. Both use the model's embedding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from costmodel.models.config import MAX_LAYERS, Config
from costmodel.models.files import find_config, read_object
from costmodel.models.load import load_model
from costmodel.models.parts.attention import grouped_query
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import layer
from costmodel.models.parts.ffn import dense_ffn
from costmodel.models.parts.mla import Latent, latent_attention
from costmodel.models.parts.quantisation.quantisers import read_precision
from costmodel.models.read_log import shown
from costmodel.models.refused import DECODERS, class_names, is_eagle
from costmodel.models.registry import by_architecture
from costmodel.models.spec import Attention, Drafter, DrafterKind, Layer, ModelSpec, Weights
from costmodel.models.summary import bytes_of, layer_bytes
from topology.catalogue import catalogue_names
from topology.errors import InstanceError, Problem, kind_of_data, on_command_line
from topology.names import check_name

#: what published files call the part that describes the layers, where they nest it
_SECTIONS = ("transformer_layer_config", "model")
#: layers of the model whose hidden states an EAGLE-3 head joins, and how many where its config lists none
_TAPS, _STATES = "eagle_aux_hidden_state_layer_ids", 3
#: tables of one tokenizer may be padded: to multiples of this at most, by released models
_PADDED_TO = 1024
#: layers of a head at most; published ones have one
_MOST_LAYERS = 8
#: keys of heads and models that draft side by side: DFlash and its kin, then the token that P-EAGLE and PARD fill up with
_PARALLEL = ("dflash_config", "block_size", "num_target_layers", "ptd_token_id", "pard_token")
_READ = "EAGLE and EAGLE-3 heads and whole text generators, which draft a token in a run, are read"
_WHOLE_BLOCK = f"drafts a whole block of tokens in one pass, which is not priced: {_READ}"
_NOT_READ = f"is no draft that is known: {_READ}"


def load_drafter(name_or_path: str, target: ModelSpec) -> Drafter:
    """What drafts for ``target``: a catalogue name (of a draft or a model), a ``config.json`` or the folder of one.

    Raises ``InstanceError`` naming every key that is wrong, missing, or does not fit the target.
    """
    path = _found(name_or_path)
    data = read_object(path)
    kind = _kind_of(data, str(path))
    if kind == "model":
        return _whole(path, target)
    folder = path.resolve().parent.name
    name = folder if path.name == "config.json" and folder else path.stem
    return _head(kind, data, check_name(name, f"{shown(path.name)}: draft"), str(path), target)


def drafts_of_catalogue() -> Iterator[tuple[Drafter, float]]:
    """The heads that are shipped and the bytes of each, without the embedding that they share with their model."""
    for name in catalogue_names("drafts", (".json",)):
        path = find_config(name, "drafts")
        data = read_object(path)
        drafter = _head(_kind_of(data, str(path)), data, name, str(path), None)
        spec = drafter.spec
        layers = sum(layer_bytes(layer) for layer in spec.layers)
        yield drafter, layers + bytes_of(spec.head) + bytes_of(drafter.once)


def _found(name_or_path: str) -> Path:
    """The file: a draft of the catalogue first, then a model of it, then whatever the path says."""
    try:
        return find_config(name_or_path, "drafts")
    except InstanceError:
        if "/" in name_or_path or name_or_path.endswith(".json"):
            raise
    try:
        return find_config(name_or_path)
    except InstanceError:
        known = ", ".join(catalogue_names("drafts", (".json",)))
        file = on_command_line(
            "the path of a config.json", "a file's name and its content in files"
        )
        message = f"unknown draft {shown(name_or_path)}; known: {known}, and every model; or {file}"
        raise InstanceError(Problem(kind_of_data("drafts"), message)) from None


def _kind_of(data: Mapping[str, Any], place: str) -> DrafterKind:
    """Which of the kinds that are read a config is; raises ``InstanceError`` for every other."""
    asked, classes = Config(data, place), class_names(data)
    form = data.get("speculators_model_type")
    for key, value in [
        *(("architectures", name) for name in classes),
        ("speculators_model_type", form),
    ]:
        if isinstance(value, str) and "peagle" in value.lower().replace("-", ""):
            raise asked.fail(key, f"{shown(value)} {_WHOLE_BLOCK}")
    for key in filter(asked.has, _PARALLEL):
        whose = shown(classes[0]) if classes else "this"
        raise asked.fail(key, f"says that {whose} {_WHOLE_BLOCK}")
    words = [name for name in (*classes, data.get("model_type"), form) if isinstance(name, str)]
    heads = [word.lower() for word in words if is_eagle(word)]
    if heads:
        return "eagle3" if any("eagle3" in word for word in heads) else "eagle"
    if form is not None:
        raise asked.fail("speculators_model_type", f"{shown(form)} {_NOT_READ}")
    known = by_architecture()
    if classes and not any(name.endswith(DECODERS) or name in known for name in classes):
        raise asked.fail("architectures", f"{shown(classes[0])} {_NOT_READ}")
    return "model"


def _whole(path: Path, target: ModelSpec) -> Drafter:
    spec = load_model(str(path))
    padded = [-(-one.vocab_size // _PADDED_TO) for one in (spec, target)]
    if padded[0] != padded[1]:
        message = (
            f"{spec.name} knows {spec.vocab_size:,} tokens and {target.name} {target.vocab_size:,}: "
            "drafts need the tokenizer of the model"
        )
        raise InstanceError(Problem(kind_of_data("drafts"), message))
    return Drafter("model", replace(spec, mtp=None, vision=None, audio=None))


def _head(
    kind: DrafterKind, data: dict[str, Any], name: str, place: str, target: ModelSpec | None
) -> Drafter:
    outer = Config(data, place)
    inner = next((part for key in _SECTIONS if (part := outer.section(key)) is not None), outer)
    b = Builder(inner, outer, read_precision(inner, outer, None), name, kind)
    vocab = inner.size("vocab_size")
    read = outer.size("target_hidden_size", default=b.hidden, because="the hidden size of the head")
    count = b.num_layers
    if count > _MOST_LAYERS:
        inner.problem("num_hidden_layers", f"a head has 1 to {_MOST_LAYERS}, got {count}")
    experts = [key for key in inner.data if "expert" in key and inner.has(key)]
    if experts:
        inner.problem(experts[0], "heads with a mixture of experts are not read")
    if target is not None and read != target.hidden_size:
        outer.problem(
            "target_hidden_size" if outer.has("target_hidden_size") else "hidden_size",
            f"reads hidden states of {read}, those of {target.name} have {target.hidden_size}",
        )
    joined = 2 * b.hidden if kind == "eagle3" else b.hidden
    attend = _attention(b)
    width = b.ffn_width
    outer.log.stop_if_wrong()
    layers = [
        layer(
            b,
            attend(index, b.hidden if index else joined),
            dense_ffn(b, f"layers.{index}.mlp", width),
        )
        for index in range(count)
    ]
    states = _states(outer) if kind == "eagle3" else 1
    # an EAGLE head joins one hidden state and the embedding of the token
    rows = states * read if kind == "eagle3" else read + b.hidden
    fusing = b.matrix("fusion of hidden states", "fc", b.hidden, rows, "replicated", role="plain")
    once: tuple[Weights, ...] = ()
    head: tuple[Weights, ...] = ()
    if kind == "eagle3":
        once = (fusing,)
        known = outer.size("draft_vocab_size", default=vocab, because="every token of the model")
        head = (b.matrix("draft head", "lm_head", known, b.hidden, "vocab", role="plain"),
                b.vector("draft norms", 2 * b.hidden))  # fmt: skip
    else:
        layers[0] = replace(layers[0], extra=(*layers[0].extra, fusing))
    outer.log.stop_if_wrong()
    spec = _spec(b, tuple(layers), head, vocab)
    return Drafter(kind, spec, once)


def _attention(b: Builder) -> Callable[[int, int], Attention]:
    """Attention of layer ``index`` over vectors of ``width``: latent where the config has the ranks of one."""
    if b.config.has("kv_lora_rank"):
        latent = Latent.read(b)
        return lambda index, width: latent_attention(
            b, f"layers.{index}.self_attn", latent, input_dim=width
        )
    heads, kv_heads, dim = b.heads, b.kv_heads(), b.head_dim()
    bias = b.config.flag("attention_bias", default=False)

    def grouped(index: int, width: int) -> Attention:
        return grouped_query(
            b, f"layers.{index}.self_attn", heads, kv_heads, dim, qkv_bias=bias, o_bias=bias, input_dim=width
        )  # fmt: skip

    return grouped


def _states(outer: Config) -> int:
    """Hidden states that are joined: as many as layers are listed, in the config or its ``eagle_config``."""
    for where in (outer.section("eagle_config"), outer):
        layers = None if where is None else where.indices(_TAPS, MAX_LAYERS)
        if layers:
            return len(layers)
    return _STATES


def _spec(
    b: Builder, layers: tuple[Layer, ...], head: tuple[Weights, ...], vocab: int
) -> ModelSpec:
    return ModelSpec(
        name=b.name,
        family=b.family,
        hidden_size=b.hidden,
        vocab_size=vocab,
        layers=layers,
        embedding=(),
        head=head,
        tied_embeddings=False,
        max_context=None,
        activation_dtype=b.precision.base.dtype,
        native_dtype=b.precision.label,
        notes=tuple(b.outer.log.notes),
        readings=tuple(b.outer.log.readings.values()),
    )
