"""Which modules a quantiser left alone: exact names, parts of names, globs and regular expressions."""

from __future__ import annotations

import re
from collections.abc import Iterable
from time import perf_counter

#: A pattern longer than this, or with more open-ended repeats, is refused: it may never finish.
MAX_PATTERN = 400
MAX_REPEATS = 3
#: More globs or regular expressions than this are refused; plain names may be many.
MAX_PATTERNS = 1024
#: Matching a model's modules takes milliseconds; a list that needs longer than this is refused.
MAX_MATCHING_S = 10.0

_NESTED_REPEAT = re.compile(r"\)[*+{]|[*+}][*+{]")
_WRAPPERS = ("language_model.model.", "language_model.", "model.language_model.")


class PatternError(ValueError):
    """A pattern that cannot be used safely."""


class Patterns:
    """A set of module patterns.

    A plain name matches a module when its dotted parts appear in a row among the module's parts,
    so ``gate`` matches ``mlp.gate`` and never ``mlp.gate_proj``. ``*`` and ``?`` are globs that
    cover a module and all inside it; ``re:`` starts a regular expression matched from the start, as
    llm-compressor does.
    """

    def __init__(self, entries: Iterable[str]):
        self._plain: set[str] = set()
        globs: dict[str, None] = {}
        expressions: dict[str, None] = {}
        for entry in entries:
            if len(entry) > MAX_PATTERN:
                raise PatternError(f"a pattern of {len(entry)} characters")
            if entry.startswith("re:"):
                expressions[entry[3:]] = None
            elif any(mark in entry for mark in "*?["):
                globs[_glob(_unwrapped(entry))] = None
            elif entry:
                self._plain.add(_unwrapped(entry).strip("."))
        if len(globs) + len(expressions) > MAX_PATTERNS:
            raise PatternError(f"{len(globs) + len(expressions)} patterns")
        self._compiled = [_compile(expression) for expression in expressions]
        if globs:
            self._compiled.append(re.compile(f"(?:{'|'.join(globs)})(?:\\..*)?\\Z"))
        self._lengths = sorted({name.count(".") + 1 for name in self._plain})
        self._known: dict[str, bool] = {}
        self._given = bool(self._plain or self._compiled)
        self._spent_s = 0.0

    @property
    def unused(self) -> bool:
        """Whether there are patterns and none has matched a module so far."""
        return self._given and not any(self._known.values())

    def match(self, module: str) -> bool:
        """Whether any pattern covers ``module``, a dotted name starting with ``model.``."""
        if not self._given:
            return False
        if module not in self._known:
            start = perf_counter()
            self._known[module] = any(self._match(name) for name in _also_known_as(module))
            self._spent_s += perf_counter() - start
            if self._spent_s > MAX_MATCHING_S:
                raise PatternError("matching them takes too long")
        return self._known[module]

    def _match(self, module: str) -> bool:
        parts = module.split(".")
        for length in self._lengths:
            for first in range(len(parts) - length + 1):
                if ".".join(parts[first : first + length]) in self._plain:
                    return True
        names = (module, f"language_model.{module}")
        return any(pattern.match(name) for pattern in self._compiled for name in names)


#: One name here stands for what others store apart or together.
_SYNONYMS = {
    "up_proj": ("gate_proj", "gate_up_proj", "w1", "w3"),
    "down_proj": ("w2",),
    "q_proj": ("qkv_proj", "query_key_value"),
    "k_proj": ("qkv_proj", "query_key_value"),
    "v_proj": ("qkv_proj", "query_key_value"),
    "o_proj": ("dense",),
    "in_proj_qkv": ("in_proj_qkvz",),
    "in_proj_z": ("in_proj_qkvz",),
}


def _also_known_as(module: str) -> list[str]:
    owner, _, last = module.rpartition(".")
    names = [module, *(f"{owner}.{other}" for other in _SYNONYMS.get(last, ()))]
    short = [name.replace(".self_attn", ".attn").replace(".mlp", ".ffn") for name in names]
    return list(dict.fromkeys(names + short))


def _glob(entry: str) -> str:
    """A glob as a regular expression; brackets stand for themselves."""
    if entry.count("*") > MAX_REPEATS:
        raise PatternError(f"the pattern {entry[:60]!r} repeats too often to be safe")
    return re.escape(entry).replace(r"\*", ".*").replace(r"\?", ".")


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
