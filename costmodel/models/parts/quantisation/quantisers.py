"""Quantisation methods by name: fp8, mxfp4, compressed-tensors, GPTQ, AWQ, fbgemm, ModelOpt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from costmodel.models.config import Config
from costmodel.models.parts.quantisation.beside_weights import kv_scheme, modelopt_kv, note_sparsity
from costmodel.models.parts.quantisation.formats import (
    FP8_BLOCK,
    FP8_CHANNEL,
    FP8_TENSOR,
    MXFP4,
    MXFP8,
    NVFP4,
    Format,
    grouped_int,
)
from costmodel.models.parts.quantisation.matching import PatternError, Patterns
from costmodel.models.parts.quantisation.precision import Precision, base_format
from costmodel.models.read_log import shown

#: Most groups of different precision that are believed.
MAX_GROUPS = 16


def _names(section: Config, *keys: str) -> list[str]:
    """Module names or patterns under the first present key; none is recorded as such."""
    key, value = section.find(keys)
    if value is None:
        section.log.note(
            f"assumed: {section.path}{key} not given: every matrix but embeddings, head, norms and "
            "routers is quantised"
        )
        return []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        section.problem(key, f"expected a list of module names, got {shown(value)}")
        return []
    return value


def _fp8(section: Config, base: Format) -> Precision:
    section.ignore("activation_scheme", "fmt", "activation_dtype")
    excluded = Patterns(_names(section, "modules_to_not_convert", "ignored_layers"))
    linear = _fp8_blocks(section)
    if linear is None:
        section.log.note(
            "assumed: quantization_config.weight_block_size not given: one fp32 scale per matrix"
        )
        return Precision(base, ((None, FP8_TENSOR),), label=FP8_TENSOR.label, excluded=excluded)
    scale = section.choice(
        "scale_fmt", allowed=("ue8m0", "float", "fp32"), default="float", because="fp32 scales"
    )
    label = f"{linear.label} ({'power-of-two' if scale == 'ue8m0' else 'fp32'} scales)"
    return Precision(base, ((None, linear),), label=label, excluded=excluded)


def _fp8_blocks(section: Config) -> Format | None:
    """FP8 with a scale per block of ``weight_block_size``, where the settings have blocks."""
    block = section.sizes("weight_block_size", 2, low=1, high=2**16)
    if block is None:
        return None
    size = (block[0], block[1])
    label = f"fp8, scale per {size[0]}x{size[1]} block"
    return Format("fp8", label, 8, size, FP8_BLOCK.scale_bytes)


def _mxfp4(section: Config, base: Format) -> Precision:
    excluded = Patterns(_names(section, "modules_to_not_convert"))
    return Precision(base, ((None, MXFP4),), label=MXFP4.label, excluded=excluded)


def _mxfp8(section: Config, base: Format) -> Precision:
    excluded = Patterns(_names(section, "modules_to_not_convert", "ignored_layers"))
    section.ignore("activation_scheme", "fmt", "scale_fmt", "weight_block_size")
    return Precision(base, ((None, MXFP8),), label=MXFP8.label, excluded=excluded)


#: GPTQ settings of the conversion and of kernels.
_NO_EFFECT = """
    batch_size block_name_to_quantize cache_block_outputs dataset exllama_config
    max_input_length model_seqlen module_name_preceding_first_block pad_token_id tokenizer
    use_cuda_fp16 use_exllama disable_exllama
""".split()  # noqa: SIM905


def _grouped(section: Config, base: Format) -> Precision:
    bits = section.size("bits", "w_bit", low=2, high=8)
    group = section.size("group_size", "q_group_size", low=-1, high=2**16)
    section.ignore(*_NO_EFFECT)
    section.ignore(
        "desc_act", "sym", "damp_percent", "true_sequential", "static_groups", "version", "backend",
        "do_fuse", "checkpoint_format", "meta", "quantizer", "lm_head", "model_name_or_path",
    )  # fmt: skip
    zero_points = section.flag("zero_point", default=True, because="GPTQ and AWQ store zero points")
    held = 8 if bits > 4 else 4
    if bits != held:
        section.log.note(f"assumed: weights of {bits} bits are held and read as {held} bits each")
    linear = grouped_int(held, max(group, 0), zero_points)
    excluded = Patterns(_names(section, "modules_to_not_convert"))
    return Precision(base, ((None, linear),), label=linear.label, excluded=excluded)


def _fbgemm(section: Config, base: Format) -> Precision:
    section.ignore("activation_scale_ub")
    excluded = Patterns(_names(section, "modules_to_not_convert"))
    return Precision(base, ((None, FP8_CHANNEL),), label=FP8_CHANNEL.label, excluded=excluded)


def _compressed(section: Config, base: Format) -> Precision:
    section.ignore("format", "quantization_status", "global_compression_ratio", "version")
    section.ignore("transform_config", "quant_algo", "producer")
    note_sparsity(section)
    excluded = Patterns(_names(section, "ignore"))
    groups = section.section("config_groups")
    if groups is None:
        raise section.fail("config_groups", "is missing")
    rules: list[tuple[Patterns | None, Format]] = []
    for key in list(groups.data)[:MAX_GROUPS]:
        group = groups.section(key)
        if group is None:
            continue
        group.ignore("input_activations", "output_activations", "format")
        targets = _names(group, "targets")
        everything = not targets or "Linear" in targets
        rules.append((None if everything else Patterns(targets), _group_format(group)))
    if not rules:
        raise section.fail("config_groups", "has no group")
    return Precision(
        base, tuple(rules), label="; ".join(dict.fromkeys(rule[1].label for rule in rules)),
        kv_dtype=kv_scheme(section), excluded=excluded,
    )  # fmt: skip


def _group_format(group: Config) -> Format:
    weights = group.section("weights")
    if weights is None:
        raise group.fail("weights", "is missing")
    bits = weights.size("num_bits", low=2, high=16)
    kind = weights.choice("type", allowed=("int", "float"))
    strategy = weights.choice(
        "strategy", allowed=("tensor", "channel", "group", "block", "tensor_group")
    )
    symmetric = weights.flag("symmetric", default=True, because="symmetric")
    weights.ignore(*weights.data)
    size = 0
    if strategy in ("group", "tensor_group"):
        size = weights.size("group_size", low=1, high=2**16)
    if kind == "float" and bits == 4:
        return NVFP4 if size == 16 else MXFP4
    if kind == "int":
        return grouped_int(8 if bits > 4 else 4, size, not symmetric)
    if strategy == "block":
        block = weights.sizes("block_structure", 2, low=1, high=2**16) or [128, 128]
        return Format(
            "fp8", f"fp8, scale per {block[0]}x{block[1]} block", 8, (block[0], block[1]), 4
        )
    if strategy == "group":
        return MXFP8
    return FP8_CHANNEL if strategy == "channel" else FP8_TENSOR


_MODELOPT = {
    "NVFP4": NVFP4,
    "W4A16_NVFP4": NVFP4,
    "NVFP4_AWQ": NVFP4,
    "FP8": FP8_TENSOR,
    "FP8_PB_WO": FP8_BLOCK,
    "FP8_PER_CHANNEL_PER_TOKEN": FP8_CHANNEL,
    "MXFP8": MXFP8,
    "MXFP4": MXFP4,
    "W4A8_MXFP4_FP8": MXFP4,
    "W4A16_AWQ": grouped_int(4, 128, True),
    "INT4_AWQ": grouped_int(4, 128, True),
}


def modelopt(section: Config, base: Format) -> Precision:
    """ModelOpt: one algorithm for all matrices, or (MIXED_PRECISION) one per listed module."""
    if not section.has("quant_algo") and section.has("config_groups"):
        return _compressed(section, base)
    section.ignore("producer", "config_groups", "group_size", "has_zero_point", "pre_quant_scale")
    section.ignore("weights", "input_activations", "version")
    algorithm = section.choice("quant_algo", allowed=(*_MODELOPT, "MIXED_PRECISION"))
    kv_dtype = modelopt_kv(section)
    excluded = Patterns(_names(section, "exclude_modules", "ignore"))
    rules: tuple[tuple[Patterns | None, Format], ...]
    if algorithm == "MIXED_PRECISION":
        rules = _listed_layers(section)
    else:
        section.ignore("quantized_layers")
        rules = ((None, _MODELOPT[algorithm]),)
    return Precision(
        base, rules, label=f"{'; '.join(rule[1].label for rule in rules)} (ModelOpt {algorithm})",
        kv_dtype=kv_dtype, excluded=excluded,
    )  # fmt: skip


def _listed_layers(section: Config) -> tuple[tuple[Patterns | None, Format], ...]:
    layers = section.section("quantized_layers")
    if layers is None:
        raise section.fail("quantized_layers", "is missing, though quant_algo is MIXED_PRECISION")
    modules: dict[str, list[str]] = {}
    for name, entry in layers.data.items():
        layers.ignore(name)
        algorithm = entry.get("quant_algo") if isinstance(entry, dict) else None
        if not isinstance(algorithm, str) or algorithm not in _MODELOPT:
            raise layers.fail(name, f"quant_algo must be one of {', '.join(_MODELOPT)}")
        modules.setdefault(algorithm, []).append(name)
    return tuple((Patterns(names), _MODELOPT[algorithm]) for algorithm, names in modules.items())


#: Reader of each ``quant_method``.
METHODS: dict[str, Callable[[Config, Format], Precision]] = {
    "fp8": _fp8,
    "mxfp4": _mxfp4,
    "mxfp8": _mxfp8,
    "compressed-tensors": _compressed,
    "gptq": _grouped,
    "awq": _grouped,
    "fbgemm_fp8": _fbgemm,
    "modelopt": modelopt,
    "modelopt_fp4": modelopt,
}


def read_precision(config: Config, outer: Config, beside: Config | None) -> Precision:
    """The native precision of a checkpoint. ``beside`` is the content of hf_quant_config.json.

    That file wins over the config's ``quantization_config``: converted repositories may keep the
    original's, or have none. Settings of both kinds at once (an algorithm of ModelOpt and blocks of
    FP8) say that the conversion left the other matrices in the blocks they had.
    """
    base = base_format(config, outer)
    section = config.section("quantization_config") or outer.section("quantization_config")
    if section is None and beside is None:
        config.log.note(
            "assumed: no quantization_config, and no hf_quant_config.json beside the config: "
            f"weights are {base.label}"
        )
        return Precision(base=base, label=base.label)
    converted = beside if beside is not None else section
    assert converted is not None
    before = None
    if section is not None and section.data.get("quant_method") == "fp8":
        before = _fp8_blocks(section) if section.has("quant_algo") else None
    if beside is not None:
        beside.ignore("producer")
        if section is not None:
            section.ignore(*section.data)
            beside.log.note("hf_quant_config.json decides the precision, not quantization_config")
        found = _guarded(modelopt, beside.section("quantization") or beside, base)
    elif before is not None:
        converted.ignore("quant_method", "activation_scheme", "fmt", "moe_quant_algo")
        found = _guarded(modelopt, converted, base)
    else:
        method = converted.choice("quant_method", allowed=METHODS)
        return _guarded(METHODS[method], converted, base)
    if before is not None:
        found = replace(found, before=before, label=f"{found.label}; the rest {before.label}")
    return found


def _guarded(
    read: Callable[[Config, Format], Precision], section: Config, base: Format
) -> Precision:
    try:
        return read(section, base)
    except PatternError as error:
        raise section.fail("", f"lists modules in a way that cannot be used: {error}") from None
