"""Drafts of a found command: which method drafts, how many tokens a pass, and whether they are priced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from costmodel.question.speculation import Speculative
from topology.names import shown


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
