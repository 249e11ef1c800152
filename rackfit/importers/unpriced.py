"""What a found command does that its price may leave out: drafts, the format of weights, options that change times."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from costmodel.question.scenario import Scenario
from costmodel.question.speculation import Speculative
from topology.names import shown

#: options that are set, each with what it does
Options = tuple[tuple[str, str], ...]
#: what options do, as the importers of engines name it
CONTEXT = "contexts are divided over chips"
OFFLOAD = "weights lie in host memory"
TURNS = "two halves of a batch take turns"
GRAPHS = "no CUDA graphs"
KV = "KV in host memory"
ADAPTERS = "adapters"
#: what no run can be compared under: the cost model has no such placement
_FOREIGN = (CONTEXT, OFFLOAD)
#: methods of engines that take a head or model beside the one that is served; eagle may be that or its own module
_BESIDE = ("eagle", "eagle3", "draft_model", "standalone", "draft_target")
_EITHER = "eagle"
#: formats that engines turn weights into, or say that a checkpoint has, by their names
_WEIGHTS = {
    "fp8": ("fp8", "ptpc_fp8", "modelopt_fp8", "mxfp8", "fbgemm_fp8", "w8a8_fp8"),
    "fp4": ("nvfp4_online", "modelopt_fp4", "petit_nvfp4", "mxfp4", "quark_mxfp4"),
    "int4": ("awq", "awq_marlin", "gptq", "gptq_marlin", "moe_wna16", "w4afp8"),
}
#: formats that names of checkpoints end in
_NAMED = {
    "fp8": "fp8", "mxfp8": "fp8", "nvfp4": "fp4", "mxfp4": "fp4", "fp4": "fp4",
    "awq": "int4", "gptq": "int4", "int4": "int4", "w4a16": "int4",
}  # fmt: skip


def options_of(known: Mapping[str, str], values: dict[str, Any]) -> Options:
    """Options that are set, with what they do; ``known``: those of an engine that change what a command costs."""
    return tuple(
        (name, what) for name, what in known.items() if _set(values.get(name), size=what is CONTEXT)
    )


def left_out(found: Options, asked: Scenario) -> list[str]:
    """Those that a question does not price, in words."""
    priced = {
        what
        for what, told in (
            (TURNS, asked.two_batch_overlap),
            (KV, bool(asked.kv_tiers)),
            (ADAPTERS, asked.adapters is not None),
        )
        if told
    }
    return [f"{name} ({what})" for name, what in found if what not in priced]


def foreign(found: Options) -> str:
    """The first of them under which a run cannot be compared; empty: none."""
    return next((f"{name} ({what})" for name, what in found if what in _FOREIGN), "")


def weight_format(quantization: object, model: object) -> str | None:
    """Weights as Rackfit calls them, by the option or by the name of what is served; ``None`` where neither says a format."""
    if quantization is None and isinstance(model, str):
        words = re.split(r"[-_.]", model.rstrip("/").rpartition("/")[2].lower())
        return next((own for word, own in _NAMED.items() if word in words), None)
    return next((own for own, names in _WEIGHTS.items() if quantization in names), None)


def _set(value: object, *, size: bool) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value is True
    return value > int(size)


@dataclass(frozen=True)
class Drafts:
    """Speculative decoding as a command asks for it; ``tokens``: drafts of a pass, ``None`` where it does not say."""

    method: str
    tokens: int | None

    @property
    def beside(self) -> bool | None:
        """Whether a head or model beside the one that is served drafts, or its own module; ``None`` for other methods."""
        if self.method in _BESIDE:
            return True
        own = self.method in ("mtp", "nextn") or self.method.endswith("_mtp")
        return False if own else None

    @property
    def words(self) -> str:
        """``mtp, 1 token per pass``."""
        if self.tokens is None:
            return self.method
        return f"{self.method}, {self.tokens} token{'s' * (self.tokens != 1)} per pass"


def drafts_of(method: object, tokens: object, otherwise: str = "drafts") -> Drafts:
    """Drafts by what a command says of them; ``otherwise``: the method where it names none."""
    named = (
        shown(method, 40).lower().replace("-", "_")
        if isinstance(method, str) and method
        else otherwise
    )
    return Drafts(named, tokens if type(tokens) is int and tokens > 0 else None)


def remark(place: str, found: Drafts | None, priced: Speculative | None) -> tuple[str, ...]:
    """What is priced otherwise than it runs; nothing where they agree."""
    asked = 0 if priced is None else priced.draft_tokens
    if found is None:
        said = f"{place}: drafts nothing there; priced with {asked} drafts a pass, as the question says"
        return (said,) if asked else ()
    if not asked:
        return (
            f"{place}: decodes with drafts there ({found.words}); priced without. The key speculative of a scenario "
            "(draft_tokens, acceptance) prices those of a model's own MTP module, with draft those of a head or model beside it",
        )
    draft, here = None if priced is None else priced.draft, list[str]()
    if found.method != _EITHER and found.beside is not (draft is not None):
        own = "the model's own MTP module" if draft is None else shown(draft, 60)
        here.append(f"{own} drafts")
    if found.tokens not in (None, asked):
        here.append(f"priced with {asked}")
    said = f"{place}: {found.words} there; {', '.join(here)}, as the question says"
    return (said,) if here else ()
