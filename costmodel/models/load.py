"""From a name or path to a :class:`ModelSpec`: chooses the family and sees that nothing is silent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from costmodel.models.config import Config
from costmodel.models.files import find_config, read_object
from costmodel.models.generic import GENERIC, shapes_something
from costmodel.models.image import read_audio_tower, read_image_tower
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.quantisation.formats import BY_REQUEST, ELEMENT_BYTES
from costmodel.models.parts.quantisation.matching import PatternError
from costmodel.models.parts.quantisation.precision import requested_precision
from costmodel.models.parts.quantisation.quantisers import read_precision
from costmodel.models.published_size import compared, published_bytes
from costmodel.models.read_log import shown
from costmodel.models.refused import refuse_by_class, refuse_by_kind
from costmodel.models.registry import Family, by_architecture, by_model_type, class_defaults
from costmodel.models.spec import ModelSpec
from costmodel.models.summary import summarise
from topology.errors import InstanceError, Problem
from topology.names import check_name

#: Where ModelOpt writes the quantisation that config.json may not mention.
QUANTISATION_FILE = "hf_quant_config.json"
#: A model with more parameters than this is taken for a mistake.
MAX_PARAMS = 10**14
#: Objects of a multimodal config that hold the text model.
TEXT_SECTIONS = ("thinker_config", "text_config", "llm_config", "language_config")


#: Types that transformers builds with Llama's class, though code of their own exists elsewhere.
_CLASS_OF_LLAMA = ("internlm3",)


def load_model(
    name_or_path: str | Path, *, weight_dtype: str | None = None, kv_dtype: str | None = None
) -> ModelSpec:
    """Read a catalogue model, a ``config.json`` or the folder of one.

    ``weight_dtype`` (bf16, fp16, fp8, fp4, int8, int4) replaces the native precision of attention, FFN and
    expert matrices; ``kv_dtype`` replaces the checkpoint's KV dtype (bf16 where it names none).
    Raises ``InstanceError`` naming every key that is wrong, missing or not understood.
    """
    path = find_config(str(name_or_path))
    beside = path.with_name(QUANTISATION_FILE)
    extra = None
    if path.name != QUANTISATION_FILE and beside.is_file():
        extra = read_object(beside)
    folder = path.resolve().parent.name
    name = folder if path.name == "config.json" and folder else path.stem
    spec = read_model(
        read_object(path),
        check_name(name, f"{shown(path.name)}: model"),
        str(path),
        beside=extra,
        weight_dtype=weight_dtype,
        kv_dtype=kv_dtype,
    )
    size = published_bytes(path) if path.name == "config.json" and spec.native else None
    return spec if size is None else replace(spec, notes=(compared(spec, size), *spec.notes))


def read_model(
    data: Mapping[str, Any],
    name: str,
    place: str,
    *,
    beside: Mapping[str, Any] | None = None,
    weight_dtype: str | None = None,
    kv_dtype: str | None = None,
) -> ModelSpec:
    """As :func:`load_model`, from a parsed config; ``beside`` is a parsed hf_quant_config.json."""
    _check_dtype("weight_dtype", weight_dtype, BY_REQUEST)
    _check_dtype("kv_dtype", kv_dtype, ELEMENT_BYTES)
    outer = Config(data, place)
    config = _text_config(outer)
    refuse_by_kind(config, outer)
    refuse_by_class(config, outer, by_architecture())
    family = _choose(config, outer)
    config.class_defaults = {
        **class_defaults(config.data.get("model_type")),
        **family.class_defaults,
    }
    if outer is not config:
        outer.class_defaults = class_defaults(outer.data.get("model_type"))
    other = None if beside is None else Config(beside, f"{place} ({QUANTISATION_FILE})", outer.log)
    precision = read_precision(config, outer, other)
    if weight_dtype is not None:
        precision = requested_precision(weight_dtype, precision)
    try:
        spec = family.read(Builder(config, outer, precision, name, family.name))
    except PatternError as error:
        raise outer.fail("quantization_config", f"lists modules in a bad way: {error}") from None
    for doubt in precision.doubts():
        outer.log.note(f"warning: {doubt}")
    total = summarise(spec).total_params
    if total > MAX_PARAMS:
        outer.problem("", f"{total:.3g} parameters are more than the {MAX_PARAMS:.0e} believed")
    multimodal = config is not outer or {"vision_config", "audio_config"} & outer.data.keys()
    vision = read_image_tower(outer, spec.hidden_size) if multimodal else None
    audio = read_audio_tower(outer, spec.hidden_size) if multimodal else None
    for key, value in outer.not_understood():
        if family is GENERIC and shapes_something(value):
            outer.problem(
                key, f"is not understood ({shown(value)}), and the architecture is unknown"
            )
        elif shapes_something(value) and not isinstance(value, str):
            outer.log.note(f"warning: {key} = {shown(value)} is not understood and was not used")
        else:
            outer.log.note(f"not used: {key} = {shown(value)}, which is not understood")
    outer.log.stop_if_wrong()
    if kv_dtype is None and spec.kv_dtype != "bf16":
        outer.log.note(f"KV cache counted in {spec.kv_dtype}, as the checkpoint's settings say")
    if (kv_dtype or spec.kv_dtype) == "fp8" and _is_sparse_latent(spec):
        outer.log.note(
            "engines store sparse latent attention in fp8 with scales and bf16 positions: 656 "
            "bytes per token and layer, where 576 are counted here"
        )
    return replace(
        spec,
        kv_dtype=kv_dtype or spec.kv_dtype,
        vision=vision,
        own_code="auto_map" in outer.data and not (config.class_defaults or outer.class_defaults),
        audio=audio,
        notes=(*outer.log.notes, *spec.notes),
        readings=tuple(outer.log.readings.values()),
    )


def _text_config(outer: Config) -> Config:
    """The innermost text model: ``text_config``, or one inside a thinker's config."""
    config = outer
    for key in TEXT_SECTIONS:
        config.ignore("model_type")
        config = config.section(key) or config
    return config


def _is_sparse_latent(spec: ModelSpec) -> bool:
    return any(
        getattr(part, "kind", "").startswith("dsa")
        for layer in spec.layers
        for part in layer.sublayers
    )


def _check_dtype(what: str, value: str | None, allowed: Mapping[str, object]) -> None:
    if value is not None and value not in allowed:
        raise InstanceError(
            Problem(what, f"expected one of {', '.join(allowed)}, got {shown(value)}")
        )


def _choose(config: Config, outer: Config) -> Family:
    """The family of a config by ``model_type`` and ``architectures``, which must not disagree."""
    types, architectures = by_model_type(), by_architecture()
    found: dict[str, Family] = {}
    for where in (config, outer):
        kind = where.data.get("model_type")
        where.ignore("model_type")
        if isinstance(kind, str) and kind in types:
            found.setdefault(f"model_type {kind}", types[kind])
        elif kind is not None and where is config:
            config.log.note(f"model_type {shown(kind)} is not a known text model")
        elif kind is None and where is config:
            config.log.note("assumed: model_type not given, the architecture's name decides")
        names = where.data.get("architectures")
        for item in names[:4] if isinstance(names, list) else []:
            if isinstance(item, str) and item in architectures:
                found.setdefault(f"architecture {item}", architectures[item])
    llama = found.get("architecture LlamaForCausalLM")
    if llama is not None and config.data.get("model_type") in _CLASS_OF_LLAMA:
        return llama
    if len({family.name for family in found.values()}) > 1:
        raise config.fail(
            "model_type",
            "contradicts architectures: "
            + ", ".join(f"{label} is family {family.name}" for label, family in found.items()),
        )
    return next(iter(found.values())) if found else GENERIC
