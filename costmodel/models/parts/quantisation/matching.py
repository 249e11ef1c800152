"""Which modules a list of a quantiser names: exact names, parts of names, globs and expressions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from time import perf_counter

from costmodel.models.parts.quantisation.module_names import (
    GATED_PAIRS,
    bodies,
    canonical,
    is_no_matrix,
    spellings,
    wrapped,
)

#: A pattern longer than this, or with more open-ended repeats, is refused: it may never finish.
MAX_PATTERN = 400
MAX_REPEATS = 3
#: More globs or regular expressions than this are refused; plain names may be many.
MAX_PATTERNS = 1024
#: Matching a model's modules takes milliseconds; a list that needs longer than this is refused.
MAX_MATCHING_S = 10.0

_NESTED_REPEAT = re.compile(r"\)[*+{]|[*+}][*+{]")


class PatternError(ValueError):
    """A pattern that cannot be used safely."""


class Patterns:
    """A set of module patterns.

    A plain name matches a module when its dotted parts appear in a row among the module's parts,
    so ``gate`` matches ``mlp.gate`` and never ``mlp.gate_proj``. ``*`` and ``?`` are globs that
    cover a module and all inside it; ``re:`` starts a regular expression matched from the start, as
    llm-compressor does. Names are compared in one spelling (:mod:`module_names`).
    """

    def __init__(self, entries: Iterable[str]):
        #: canonical plain names: how often each is listed (experts share one), one of them as written
        self._plain: Counter[str] = Counter()
        self._as_written: dict[str, str] = {}
        globs: dict[str, str] = {}
        expressions: dict[str, None] = {}
        for entry in entries:
            if len(entry) > MAX_PATTERN:
                raise PatternError(f"a pattern of {len(entry)} characters")
            if entry.startswith("re:"):
                expressions[entry[3:]] = None
            elif any(mark in entry for mark in "*?["):
                globs.setdefault(_glob(canonical(entry)), entry)
            elif entry:
                name = canonical(entry)
                self._plain[name] += 1
                self._as_written.setdefault(name, entry)
        if len(globs) + len(expressions) > MAX_PATTERNS:
            raise PatternError(f"{len(globs) + len(expressions)} patterns")
        self._globs = [(re.compile(f"{text}(?:\\..*)?\\Z"), entry) for text, entry in globs.items()]
        self._expressions = [(_compile(text), f"re:{text}") for text in expressions]
        self._any_glob = re.compile(f"(?:{'|'.join(globs)})(?:\\..*)?\\Z") if globs else None
        self._lengths = sorted({name.count(".") + 1 for name in self._plain})
        self._known: dict[str, bool] = {}
        self._hit: set[str] = set()
        self._halves: dict[str, None] = {}
        self._spent_s = 0.0

    def match(self, module: str) -> bool:
        """Whether any pattern covers ``module``, a dotted name of the readers."""
        if module not in self._known:
            start = perf_counter()
            named = self.names(module)
            self._known[module] = named or any(self._matches(name) for name in spellings(module))
            self._spent_s += perf_counter() - start
            if self._spent_s > MAX_MATCHING_S:
                raise PatternError("matching them takes too long")
        return self._known[module]

    def names(self, module: str) -> bool:
        """Whether a plain name covers ``module``; every name that does counts as used."""
        found = [hit for name in spellings(module) for hit in self._rows(name)]
        self._hit.update(found)
        return bool(found)

    def _rows(self, module: str) -> list[str]:
        parts = module.split(".")
        found = []
        for length in self._lengths:
            for first in range(len(parts) - length + 1):
                row = ".".join(parts[first : first + length])
                if row in self._plain:
                    found.append(row)
        return found

    def _matches(self, module: str) -> bool:
        if self._any_glob and any(self._any_glob.match(text) for text in bodies(module)):
            return True
        return bool(self._expressions) and any(
            pattern.match(text) for text in wrapped(module) for pattern, _ in self._expressions
        )

    def needs_both(self, module: str) -> None:
        """Remember where a gated FFN's gate is listed without its up projection, or the reverse."""
        owner = canonical(module).rpartition(".")[0]
        for pair in GATED_PAIRS:
            listed = [f"{owner}.{last}" for last in pair if self._plain.get(f"{owner}.{last}")]
            if len(listed) == 1 or len({self._plain[name] for name in listed}) > 1:
                self._halves[self._as_written[listed[0]]] = None

    # -- what was listed in vain -----------------------------------------------------------------

    def unmatched(self) -> list[str]:
        """Entries that name no matrix of this model, but not vectors, towers or drafts."""
        names = [name for module in self._known for name in spellings(module)]
        found = [entry for name, entry in self._as_written.items()
                 if name not in self._hit and not is_no_matrix(entry)]  # fmt: skip
        for patterns, texts in ((self._globs, bodies), (self._expressions, wrapped)):
            for pattern, entry in patterns:
                if not is_no_matrix(entry) and not any(
                    pattern.match(text) for name in names for text in texts(name)
                ):
                    found.append(entry)
        return found

    def uneven(self) -> list[str]:
        """Experts of which fewer are listed than of others, and gates listed without their twin."""
        stars = {name: num for name, num in self._plain.items() if "*" in name.split(".")}
        usual = max(stars.values(), default=0)
        few = [self._as_written[name] for name, num in stars.items() if num != usual]
        return [*few, *self._halves]


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
