"""What a found command does that its price may leave out: drafts, the format of weights, options that change times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from costmodel.question.speculation import Speculative
from topology.names import shown

#: what each option does, by engine; sizes matter above 1
_CONTEXT = "contexts are divided over chips"
_OFFLOAD = "weights lie in host memory"
_TURNS = "two halves of a batch take turns"
_OPTIONS = {
    "vllm": {
        "--enforce-eager": "no CUDA graphs",
        "--cpu-offload-gb": _OFFLOAD,
        "--decode-context-parallel-size": _CONTEXT,
        "--prefill-context-parallel-size": _CONTEXT,
        "--enable-dbo": _TURNS,
        "--kv-offloading-size": "KV in host memory",
        "--enable-lora": "adapters",
    },
    "sglang": {
        "--disable-cuda-graph": "no CUDA graphs",
        "--cpu-offload-gb": _OFFLOAD,
        "--attn-cp-size": _CONTEXT,
        "--enable-two-batch-overlap": _TURNS,
        "--enable-hierarchical-cache": "KV in host memory",
        "--enable-lora": "adapters",
    },
    "trtllm": {"context_parallel_size": _CONTEXT, "enable_lora": "adapters"},
}
#: what no run can be compared under: the cost model has no such placement
_FOREIGN = (_CONTEXT, _OFFLOAD)
#: formats that engines turn weights into, or say that a checkpoint has, by their names
_WEIGHTS = {
    "fp8": ("fp8", "ptpc_fp8", "modelopt_fp8", "mxfp8", "fbgemm_fp8", "w8a8_fp8"),
    "fp4": ("nvfp4_online", "modelopt_fp4", "petit_nvfp4", "mxfp4", "quark_mxfp4"),
    "int4": ("awq", "awq_marlin", "gptq", "gptq_marlin", "moe_wna16", "w4afp8"),
}


def options_of(engine: str, values: dict[str, Any]) -> tuple[str, ...]:
    """Options that are set and that no price has, each with what it does."""
    return tuple(
        f"{name} ({what})"
        for name, what in _OPTIONS[engine].items()
        if _set(values.get(name), size=what is _CONTEXT)
    )


def left_out(named: tuple[str, ...], *, overlapped: bool) -> tuple[str, ...]:
    """Those of such options that a question leaves out; ``overlapped``: it prices two half batches that take turns."""
    return tuple(one for one in named if not (overlapped and _TURNS in one))


def foreign(named: tuple[str, ...]) -> str:
    """The first of such options under which a run cannot be compared; empty: none."""
    return next((one for one in named if one.partition("(")[2][:-1] in _FOREIGN), "")


def weight_format(quantization: object) -> str | None:
    """Weights as Rackfit calls them; ``None`` where the option is left out or its name says no format."""
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
    def words(self) -> str:
        """``mtp, 1 token per pass``."""
        if self.tokens is None:
            return self.method
        return f"{self.method}, {self.tokens} token{'s' * (self.tokens != 1)} per pass"


def of_vllm(config: dict[str, Any]) -> Drafts | None:
    """Those of ``--speculative-config``."""
    if not config:
        return None
    return Drafts(
        _named(config.get("method"), "draft model"), _count(config.get("num_speculative_tokens"))
    )


def of_sglang(values: dict[str, Any]) -> Drafts | None:
    """Those of ``--speculative-algorithm``; the verified tokens are one more than those of a chain of drafts."""
    if "--speculative-algorithm" not in values:
        return None
    steps = _count(values.get("--speculative-num-steps"))
    verified = _count(values.get("--speculative-num-draft-tokens"))
    tokens = steps if steps is not None else None if verified is None else max(1, verified - 1)
    return Drafts(_named(values["--speculative-algorithm"], "drafts"), tokens)


def of_trtllm(config: dict[str, Any]) -> Drafts | None:
    """Those of ``speculative_config``."""
    if not config:
        return None
    tokens = _count(config.get("max_draft_len", config.get("num_nextn_predict_layers")))
    return Drafts(_named(config.get("decoding_type"), "drafts"), tokens)


def remark(place: str, found: Drafts | None, priced: Speculative | None) -> tuple[str, ...]:
    """What is priced otherwise than it runs; nothing where they agree."""
    asked = 0 if priced is None else priced.draft_tokens
    if found is None:
        said = f"{place}: drafts nothing there; priced with {asked} drafts a pass, as the question says"
        return (said,) if asked else ()
    if not asked:
        return (
            f"{place}: decodes with drafts there ({found.words}); priced without. The key speculative of a scenario "
            "(draft_tokens, acceptance) prices those of a model's own MTP module",
        )
    if found.tokens in (None, asked):
        return ()
    return (f"{place}: {found.words} there; priced with {asked}, as the question says",)


def _named(value: object, otherwise: str) -> str:
    return shown(value, 40).lower() if isinstance(value, str) and value else otherwise


def _count(value: object) -> int | None:
    return value if type(value) is int and value > 0 else None
