"""``expert_dtype``: routed experts stored otherwise than the matrices that the settings speak of."""

from __future__ import annotations

from dataclasses import replace

from costmodel.models.config import Config
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.quantisation.formats import FP8_BLOCK, MXFP4


def with_expert_format(b: Builder, where: Config | None = None) -> Builder:
    """``expert_dtype`` fp4 stores experts as 4 bits with a power-of-two scale per 32.

    ``where`` is the object that holds the key: the text model's config unless given.
    """
    kind = (where or b.config).choice(
        "expert_dtype", allowed=("fp4", "fp8", "bf16"), default="fp8",
        because="as the other quantised matrices",
    )  # fmt: skip
    general = any(patterns is None for patterns, _ in b.precision.rules)
    if not b.precision.native or not general:
        return b  # the user, or a list of modules, says how experts are stored
    expert = {"fp4": MXFP4, "fp8": FP8_BLOCK, "bf16": b.precision.base}[kind]
    label = f"{b.precision.label}; experts {expert.label}"
    return replace(b, precision=replace(b.precision, expert=expert, label=label))
