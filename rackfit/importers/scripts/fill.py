"""Variables that others than a shell put into words: ``$(NAME)`` of Kubernetes, ``${NAME:-default}`` of Compose and units."""

from __future__ import annotations

import re
from collections.abc import Mapping

_NAMED = re.compile(r"\$\((\w+)\)|\$\{(\w+)\}|\$(\w+)|\$\{(\w+):?[-=]([^${}]*)\}")


def fill(word: str, environment: Mapping[str, str]) -> str:
    """A word with the variables that are known put in, and defaults where a word gives one."""

    def one(found: re.Match[str]) -> str:
        if found[4] is not None:
            return environment.get(found[4]) or found[5]
        return environment.get(next(filter(None, found.groups())), found[0])

    return _NAMED.sub(one, word)


def fill_bracketed(word: str, environment: Mapping[str, str]) -> str:
    """A word with ``$(NAME)`` put in, as Kubernetes does before a shell sees it."""
    return re.sub(r"\$\((\w+)\)", lambda found: environment.get(found[1], found[0]), word)
