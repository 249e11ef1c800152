"""Reads how a checkpoint is quantised: which format each module is stored in.

Sources: ``quantization_config`` of the config (fp8 block, mxfp4, compressed-tensors, GPTQ, AWQ,
fbgemm, ModelOpt) and the ``hf_quant_config.json`` that ModelOpt puts beside it. What is never
converted by any of them: embeddings, head, norms, biases, routers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from costmodel.models.config import Config, shown
from costmodel.models.parts.formats import (
    BF16,
    BY_REQUEST,
    BY_TORCH_NAME,
    FP8_BLOCK,
    FP8_CHANNEL,
    FP8_TENSOR,
    MXFP4,
    MXFP8,
    NVFP4,
    Format,
    grouped_int,
)
from costmodel.models.parts.matching import PatternError, Patterns


@dataclass
class Precision:
    """The format of every module of one checkpoint."""

    base: Format = BF16  #: what is not quantised
    linear: Format | None = None  #: quantised linear matrices
    expert: Format | None = None  #: routed experts, where they differ from ``linear``
    label: str = "bf16"
    kv_dtype: str | None = None  #: KV dtype the checkpoint was calibrated for
    excluded: Patterns = field(default_factory=lambda: Patterns(()))

    def of(self, module: str, role: str) -> Format:
        """Format of a module; ``role`` is ``linear``, ``expert`` or ``plain`` (never quantised)."""
        if self.linear is None or self.excluded.match(module) or role == "plain":
            return self.base
        if role == "expert" and self.expert is not None:
            return self.expert
        return self.linear

    @classmethod
    def requested(cls, weight_dtype: str, base: Format, kv_dtype: str | None) -> Precision:
        """All attention, FFN and expert matrices in ``weight_dtype``, the rest in ``base``."""
        wanted = BY_REQUEST[weight_dtype]
        linear = None if wanted is BF16 else wanted
        return cls(
            BF16 if wanted is BF16 else base,
            linear,
            label=wanted.label + " (asked for)",
            kv_dtype=kv_dtype,
        )


def read_precision(config: Config, outer: Config, beside: Config | None) -> Precision:
    """The native precision of a checkpoint. ``beside`` is the content of hf_quant_config.json."""
    base = _base_format(config, outer)
    section, where = config.section("quantization_config"), config
    if section is None and outer is not config:
        section, where = outer.section("quantization_config"), outer
    if beside is not None:
        inner = beside.section("quantization") or beside
        beside.ignore("producer")
        return _guard(inner, "exclude_modules", base, _modelopt)
    if section is None:
        where.log.note(
            f"assumed: no quantization_config, and no hf_quant_config.json beside the config: "
            f"weights are {base.label}"
        )
        return Precision(base=base, label=base.label)
    method = section.choice("quant_method", allowed=_METHODS)
    return _guard(section, "quantization_config", base, _METHODS[method])


def _guard(
    section: Config, key: str, base: Format, read: Callable[[Config, Format], Precision]
) -> Precision:
    try:
        return read(section, base)
    except PatternError as error:
        raise section.fail(key, str(error)) from None


def _base_format(config: Config, outer: Config) -> Format:
    found, place = None, config
    for where in (config, outer):
        names = ("torch_dtype", "dtype")
        where.ignore(*names)
        if found is None:
            key, found = where.find(names)
            place = where
    if found is None:
        config.log.note("assumed: torch_dtype = bfloat16 (not given)")
        return BF16
    if not isinstance(found, str) or found not in BY_TORCH_NAME:
        place.problem(key, f"expected one of {', '.join(BY_TORCH_NAME)}, got {shown(found)}")
        return BF16
    if BY_TORCH_NAME[found].dtype == "fp32":
        config.log.note("warning: torch_dtype is float32: weights are counted at 4 bytes each")
    return BY_TORCH_NAME[found]


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
    block = section.sizes("weight_block_size", 2, low=1, high=2**16)
    if block is None:
        section.log.note(
            "assumed: quantization_config.weight_block_size not given: one fp32 scale per matrix"
        )
        return Precision(base, FP8_TENSOR, label=FP8_TENSOR.label, excluded=excluded)
    size = (block[0], block[1])
    scale = section.choice(
        "scale_fmt", allowed=("ue8m0", "float", "fp32"), default="float", because="fp32 scales"
    )
    linear = Format(
        "fp8", f"fp8, scale per {size[0]}x{size[1]} block", 8, size, FP8_BLOCK.scale_bytes
    )
    label = f"{linear.label} ({'power-of-two' if scale == 'ue8m0' else 'fp32'} scales)"
    return Precision(base, linear, label=label, excluded=excluded)


def _mxfp4(section: Config, base: Format) -> Precision:
    excluded = Patterns(_names(section, "modules_to_not_convert"))
    return Precision(base, MXFP4, label=MXFP4.label, excluded=excluded)


def _mxfp8(section: Config, base: Format) -> Precision:
    excluded = Patterns(_names(section, "modules_to_not_convert", "ignored_layers"))
    section.ignore("activation_scheme", "fmt", "scale_fmt", "weight_block_size")
    return Precision(base, MXFP8, label=MXFP8.label, excluded=excluded)


def _grouped(section: Config, base: Format) -> Precision:
    bits = section.size("bits", "w_bit", low=2, high=8)
    group = section.size("group_size", "q_group_size", low=-1, high=2**16)
    section.ignore(
        "desc_act", "sym", "damp_percent", "true_sequential", "static_groups", "version", "backend",
        "do_fuse", "checkpoint_format", "meta", "quantizer", "lm_head", "model_name_or_path",
    )  # fmt: skip
    zero_points = section.flag("zero_point", default=True, because="GPTQ and AWQ store zero points")
    linear = grouped_int(8 if bits > 4 else 4, max(group, 0), zero_points)
    excluded = Patterns(_names(section, "modules_to_not_convert"))
    return Precision(base, linear, label=linear.label, excluded=excluded)


def _fbgemm(section: Config, base: Format) -> Precision:
    section.ignore("activation_scale_ub")
    excluded = Patterns(_names(section, "modules_to_not_convert"))
    return Precision(base, FP8_CHANNEL, label=FP8_CHANNEL.label, excluded=excluded)


def _compressed(section: Config, base: Format) -> Precision:
    section.ignore("format", "quantization_status", "global_compression_ratio", "version")
    section.ignore("sparsity_config", "transform_config")
    excluded = Patterns(_names(section, "ignore"))
    groups = section.section("config_groups")
    if groups is None:
        raise section.fail("config_groups", "is missing")
    formats: list[Format] = []
    for key in list(groups.data)[:16]:
        group = groups.section(key)
        if group is None:
            continue
        group.ignore("input_activations", "output_activations", "format", "targets")
        formats.append(_group_format(group))
    if not formats:
        raise section.fail("config_groups", "has no group")
    if len(set(formats)) > 1:
        section.log.note(
            "warning: config_groups has groups of different precision; the first, "
            f"{formats[0].label}, is used for all quantised matrices"
        )
    kv_dtype = None
    scheme = section.section("kv_cache_scheme")
    if scheme is not None:
        bits = scheme.size("num_bits", low=4, high=16)
        kv_dtype = {8: "fp8", 4: "fp4"}.get(bits, "bf16")
        scheme.ignore(*scheme.data)
    return Precision(base, formats[0], label=formats[0].label, kv_dtype=kv_dtype, excluded=excluded)


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


def _modelopt(section: Config, base: Format) -> Precision:
    section.ignore("quant_method", "producer", "config_groups", "group_size", "kv_cache_scheme")
    section.ignore("has_zero_point", "pre_quant_scale")
    algorithm = section.choice(
        "quant_algo", allowed=("NVFP4", "FP8", "MIXED_PRECISION", "FP8_PB_WO", "W4A8_MXFP4_FP8",
                               "MXFP8", "FP8_PER_CHANNEL_PER_TOKEN"),
    )  # fmt: skip
    linear = {
        "NVFP4": NVFP4,
        "FP8_PB_WO": FP8_BLOCK,
        "W4A8_MXFP4_FP8": MXFP4,
        "MXFP8": MXFP8,
        "FP8_PER_CHANNEL_PER_TOKEN": FP8_CHANNEL,
    }.get(algorithm, FP8_TENSOR)
    if algorithm == "MIXED_PRECISION":
        section.ignore("quantized_layers")
        section.log.note(
            "warning: quant_algo MIXED_PRECISION: routed experts are taken as nvfp4, other "
            "converted matrices as fp8"
        )
    kv_algorithm = section.choice(
        "kv_cache_quant_algo", allowed=("FP8", "NVFP4", "none"), default="none",
        because="KV cache not quantised",
    )  # fmt: skip
    excluded = Patterns(_names(section, "exclude_modules", "ignore"))
    return Precision(
        base,
        linear,
        NVFP4 if algorithm == "MIXED_PRECISION" else None,
        f"{linear.label} (ModelOpt {algorithm})",
        {"FP8": "fp8", "NVFP4": "fp4"}.get(kv_algorithm),
        excluded,
    )


_METHODS: dict[str, Callable[[Config, Format], Precision]] = {
    "fp8": _fp8,
    "mxfp4": _mxfp4,
    "mxfp8": _mxfp8,
    "compressed-tensors": _compressed,
    "gptq": _grouped,
    "awq": _grouped,
    "fbgemm_fp8": _fbgemm,
    "modelopt": _modelopt,
    "modelopt_fp4": _modelopt,
}
