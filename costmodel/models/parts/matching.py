"""Which modules a quantiser left alone: exact names, parts of names, globs and regular expressions."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import translate

#: A pattern longer than this, or with more open-ended repeats, is refused: it may never finish.
MAX_PATTERN = 200
MAX_REPEATS = 3

_NESTED_REPEAT = re.compile(r"\)[*+{]|[*+}][*+{]")
_WRAPPERS = ("language_model.model.", "language_model.", "model.language_model.")


class PatternError(ValueError):
    """A pattern that cannot be used safely."""


class Patterns:
    """A set of module patterns.

    A plain name matches a module when its dotted parts appear in a row among the module's parts,
    so ``gate`` matches ``mlp.gate`` and never ``mlp.gate_proj``. ``*`` and ``?`` are globs that
    cover a module and all inside it; ``re:`` starts a regular expression matched from the start, as llm-compressor does.
    """

    def __init__(self, entries: Iterable[str]):
        self._plain: set[str] = set()
        self._compiled: list[re.Pattern[str]] = []
        self._globs: list[re.Pattern[str]] = []
        for entry in entries:
            self._add(entry)
        self._known: dict[str, bool] = {}
        self._given = bool(self._plain or self._globs or self._compiled)

    @property
    def unused(self) -> bool:
        """Whether there are patterns and none has matched a module so far."""
        return self._given and not any(self._known.values())

    def _add(self, entry: str) -> None:
        if len(entry) > MAX_PATTERN:
            raise PatternError(f"a pattern of {len(entry)} characters")
        if entry.startswith("re:"):
            self._compiled.append(_compile(entry[3:]))
        elif any(mark in entry for mark in "*?["):
            self._globs.append(_compile(translate(_unwrapped(entry))))
        elif entry:
            self._plain.add(_unwrapped(entry).strip("."))

    def match(self, module: str) -> bool:
        """Whether any pattern covers ``module``, a dotted name starting with ``model.``."""
        if not self._given:
            return False
        if module not in self._known:
            self._known[module] = self._match(module)
        return self._known[module]

    def _match(self, module: str) -> bool:
        return any(self._match_one(name) for name in _also_known_as(module))

    def _match_one(self, module: str) -> bool:
        parts = module.split(".")
        for first in range(len(parts)):
            for last in range(first + 1, len(parts) + 1):
                if ".".join(parts[first:last]) in self._plain:
                    return True
        inside = [".".join(parts[:last]) for last in range(1, len(parts) + 1)]
        if any(pattern.match(name) for pattern in self._globs for name in inside):
            return True
        names = (module, f"language_model.{module}")
        return any(pattern.match(name) for pattern in self._compiled for name in names)


#: One name here stands for what others store apart or together.
_SYNONYMS = {
    "up_proj": ("gate_proj", "gate_up_proj", "w1", "w3"),
    "down_proj": ("w2",),
    "q_proj": ("qkv_proj",),
    "k_proj": ("qkv_proj",),
    "v_proj": ("qkv_proj",),
}


def _also_known_as(module: str) -> list[str]:
    owner, _, last = module.rpartition(".")
    names = [module, *(f"{owner}.{other}" for other in _SYNONYMS.get(last, ()))]
    short = [name.replace(".self_attn", ".attn").replace(".mlp", ".ffn") for name in names]
    return list(dict.fromkeys(names + short))


def _compile(pattern: str) -> re.Pattern[str]:
    repeats = len(re.findall(r"(?<!\\)[*+]|\{\d*,\}", pattern))
    if repeats > MAX_REPEATS or _NESTED_REPEAT.search(pattern):
        raise PatternError(f"the pattern {pattern[:60]!r} repeats too often to be safe")
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        raise PatternError(f"{pattern[:60]!r} is not a regular expression") from None


def _unwrapped(entry: str) -> str:
    for wrapper in _WRAPPERS:
        if entry.startswith(wrapper):
            inner = entry[len(wrapper) :]
            return inner if inner.startswith(("model.", "lm_head")) else f"model.{inner}"
    return entry
