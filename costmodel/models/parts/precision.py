"""In which format each module of a checkpoint is stored. How a config says so: quantisers.py.

What no method converts: embeddings, head, norms, biases, routers.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from costmodel.models.config import Config, shown
from costmodel.models.parts.formats import BF16, BY_REQUEST, BY_TORCH_NAME, Format
from costmodel.models.parts.matching import Patterns


@dataclass
class Precision:
    """The format of every module of one checkpoint."""

    base: Format = BF16  #: what is not quantised
    #: first rule whose patterns match (``None`` matches all) gives a linear matrix's format
    rules: tuple[tuple[Patterns | None, Format], ...] = ()
    expert: Format | None = None  #: routed experts, where the family says they differ
    label: str = "bf16"
    kv_dtype: str | None = None  #: KV dtype the checkpoint was calibrated for
    excluded: Patterns = field(default_factory=lambda: Patterns(()))
    native: bool = True  #: False where the user asked for this precision

    def of(self, module: str, role: str) -> Format:
        """Format of a module; ``role`` is ``linear``, ``expert`` or ``plain`` (never quantised)."""
        if not self.rules or self.excluded.match(module) or role == "plain":
            return self.base
        if role == "expert" and self.expert is not None:
            return self.expert
        for patterns, stored in self.rules:
            if patterns is None or patterns.match(module):
                return stored
        return self.base

    @property
    def useless_names(self) -> bool:
        """Whether names of modules were given, but none is a module of this model."""
        given = [self.excluded, *(patterns for patterns, _ in self.rules if patterns is not None)]
        return any(patterns.unused for patterns in given)


def requested_precision(weight_dtype: str, native: Precision) -> Precision:
    """All attention, FFN and expert matrices in ``weight_dtype``, the rest as it is natively."""
    wanted = BY_REQUEST[weight_dtype]
    label = f"{wanted.label} (asked for)"
    if wanted is BF16:
        return Precision(BF16, (), label=label, kv_dtype=native.kv_dtype, native=False)
    return Precision(
        native.base, ((None, wanted),), label=label, kv_dtype=native.kv_dtype, native=False
    )


def base_format(config: Config, outer: Config) -> Format:
    """Format of what is not quantised: ``dtype`` or ``torch_dtype``, bf16 where neither is given."""
    found, place, key = None, config, "torch_dtype"
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
