"""In which format each module of a checkpoint is stored. How a config says so: quantisers.py.

What no method converts: embeddings, head, norms, biases, routers.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from costmodel.models.config import Config
from costmodel.models.parts.quantisation.formats import (
    BF16,
    BY_REQUEST,
    BY_TORCH_NAME,
    FP16,
    Format,
)
from costmodel.models.parts.quantisation.matching import Patterns
from costmodel.models.read_log import shown


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
    before: Format | None = None  #: linear matrices that a later conversion left as they were
    native: bool = True  #: False where the user asked for this precision

    def of(self, module: str, role: str, *, gated: bool = False) -> Format:
        """Format of a module; ``role`` is ``linear``, ``expert`` or ``plain``.

        What is ``plain`` (head, routers) is quantised only where a list names it. ``gated``: the
        module stands for a gate and an up projection.
        """
        left = self.base if role == "plain" or self.before is None else self.before
        if self.excluded.match(module) or not self.rules:
            return left
        if role == "expert" and self.expert is not None:
            return self.expert
        for patterns, stored in self.rules:
            if patterns is None:
                if role != "plain":
                    return stored
            elif patterns.match(module) and (role != "plain" or patterns.names(module)):
                if gated:
                    patterns.needs_both(module)
                return stored
        return left

    def doubts(self) -> list[str]:
        """What in the lists of modules does not fit this model; each is a warning."""
        found = []
        lists = [("left unquantised", self.excluded)]
        lists += [(f"stored as {stored.label}", patterns) for patterns, stored in self.rules
                  if patterns is not None]  # fmt: skip
        for what, patterns in lists:
            for problem, entries in (
                ("names no matrix of this model", patterns.unmatched()),
                ("is listed unevenly", patterns.uneven()),
            ):
                if entries:
                    more = f" and {len(entries) - 1} more" if len(entries) > 1 else ""
                    found.append(
                        f"quantisation settings: of the modules {what}, {entries[0]!r}{more} "
                        f"{problem}: the bytes below may be wrong"
                    )
        return found


def requested_precision(weight_dtype: str, native: Precision) -> Precision:
    """All attention, FFN and expert matrices in ``weight_dtype``, the rest as it is natively.

    With 16 bits the rest is in the same format, and so are activations: engines take one ``--dtype``.
    """
    wanted = BY_REQUEST[weight_dtype]
    label = f"{wanted.label} (asked for)"
    if wanted in (BF16, FP16):
        return Precision(wanted, (), label=label, kv_dtype=native.kv_dtype, native=False)
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
