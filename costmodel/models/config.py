"""A ``config.json`` that remembers how it was read. Knows no architecture.

Every key a family asks for is recorded with its value and where that came from: the config, or a
default with its reason. A default that is used becomes a note, a key that nobody asked for and that
is not known to be without effect becomes a note too, so nothing is assumed or left out in silence.
A wrong or missing key becomes a :class:`Problem`; reading goes on with a stand-in so that one run
names all problems.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from costmodel.models.read_log import ReadLog, counted, is_inert, missing, shown
from topology.errors import InstanceError, Problem

T = TypeVar("T", int, bool, str)
#: Where a value comes from that the file does not give.
CLASS_DEFAULT = "default of the configuration class"
#: Largest width, rank or count that is believed; vocabularies of today are below 2**19.
MAX_SIZE = 2**22
#: Widths of released models are multiples of this; others are noted as suspicious.
WIDTH_MULTIPLE = 8
#: Endings of the keys that are such widths.
_WIDTHS = ("hidden_size", "intermediate_size", "head_dim", "_rank", "d_model", "latent_size")
#: Most layers that are believed; the deepest released model has a few hundred.
MAX_LAYERS = 2048
#: Most routed experts of one layer that are believed.
MAX_EXPERTS = 2**14


class Config:
    """One JSON object of a config, read key by key. ``None`` counts as absent."""

    def __init__(
        self, data: Mapping[str, Any], file: str, log: ReadLog | None = None, path: str = ""
    ):
        self.data = data
        self.file = file
        self.log = log if log is not None else ReadLog()
        self.path = path
        #: What the configuration class has for keys that a file may leave out; see registry.py.
        self.class_defaults: Mapping[str, object] = {}
        self.within: Config | None = None  #: the object that this one is a section of
        self._touched: set[str] = set()
        self._sections: dict[str, Config] = {}

    def problem(self, key: str, message: str) -> None:
        """Record that ``key`` is wrong."""
        self.log.problems.append(Problem(f"{self.file}: {self.path}{key}", message))

    def fail(self, key: str, message: str) -> InstanceError:
        """Record that ``key`` is wrong and give the error that names all problems so far."""
        self.problem(key, message)
        return InstanceError(dict.fromkeys(self.log.problems))

    def _assume(self, key: str, value: object, because: str) -> None:
        self.log.read(self.path + key, str(value), because)
        self.log.note(f"assumed: {self.path}{key} = {value} ({because})")

    def has(self, key: str) -> bool:
        """Whether ``key`` is there and not null. Does not count as reading it."""
        return self.data.get(key) is not None

    def ignore(self, *keys: str) -> None:
        """Mark keys as understood and without effect on what is counted."""
        self._touched.update(keys)

    def find(self, names: Sequence[str]) -> tuple[str, Any]:
        """First present name of several aliases with its value; aliases that disagree are a problem."""
        self._touched.update(names)
        found = [(name, self.data[name]) for name in names if self.has(name)]
        if not found:
            return names[0], None
        for name, value in found[1:]:
            if value != found[0][1]:
                self.problem(
                    name,
                    f"is {shown(value)}, but {found[0][0]}, which means the same, "
                    f"is {shown(found[0][1])}",
                )
        return found[0]

    # -- reading ---------------------------------------------------------------------------------

    def size(
        self,
        *names: str,
        default: int | None = None,
        because: str = "",
        low: int = 1,
        high: int = MAX_SIZE,
    ) -> int:
        """An integer from ``low`` to ``high``. Without a ``default`` the key is required."""
        key, value = self.find(names)
        if value is None:
            own = self.class_default(names, int)
            if own is not None:
                default, because = own, CLASS_DEFAULT
            if default is None:
                self.problem(key, missing(names))
                return max(low, 1)
            self._assume(key, default, because or "family default")
            return default
        return self._checked(key, value, low, high)

    def class_default(self, names: Sequence[str], kind: type[T]) -> T | None:
        """What the configuration class says where the file is silent on all of ``names``."""
        for name in names:
            found = self.class_defaults.get(name)
            if type(found) is kind and name not in self.data:
                return found
        return None

    def optional_size(
        self, *names: str, because: str, low: int = 1, high: int = MAX_SIZE
    ) -> int | None:
        """An integer, or ``None`` where the key is absent or null; ``because`` says what that means."""
        key, value = self.find(names)
        if value is None:
            own = self.class_default(names, int)
            if own is not None:
                self._assume(key, own, CLASS_DEFAULT)
                return own
            self._absent(key, because)
            return None
        return self._checked(key, value, low, high)

    def _absent(self, key: str, because: str) -> None:
        given = "null" if key in self.data else "not given"
        self.log.read(self.path + key, given, because)
        self.log.note(f"assumed: {self.path}{key} {given} ({because})")

    def _checked(self, key: str, value: object, low: int, high: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            self.problem(key, f"expected an integer from {low} to {high}, got {shown(value)}")
            return max(low, 1)
        if not low <= value <= high:
            self.problem(key, f"must be from {low} to {high}, got {shown(value)}")
            return max(low, 1)
        if key.endswith(_WIDTHS) and value % WIDTH_MULTIPLE:
            self.log.note(
                f"warning: {self.path}{key} = {value} is not a multiple of {WIDTH_MULTIPLE}, "
                "unlike any released model's: a typing mistake?"
            )
        self.log.read(self.path + key, str(value), "config")
        return value

    def flag(self, *names: str, default: bool | None = None, because: str = "") -> bool:
        """A boolean. Without a ``default`` the key is required."""
        key, value = self.find(names)
        if value is None:
            own = self.class_default(names, bool)
            if own is not None:
                default, because = own, CLASS_DEFAULT
            if default is None:
                self.problem(key, missing(names))
                return False
            self._assume(key, default, because or "family default")
            return default
        if not isinstance(value, bool):
            self.problem(key, f"expected true or false, got {shown(value)}")
            return False
        self.log.read(self.path + key, str(value), "config")
        return value

    def number(
        self, *names: str, default: float | None = None, because: str = "", high: float = 2.0**16
    ) -> float:
        """A positive number up to ``high``. Without a ``default`` the key is required."""
        key, value = self.find(names)
        if value is None:
            if default is None:
                self.problem(key, missing(names))
                return 1.0
            self._assume(key, default, because or "family default")
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= high:
            self.problem(key, f"expected a number above 0, at most {high:g}, got {shown(value)}")
            return 1.0
        self.log.read(self.path + key, str(value), "config")
        return float(value)

    def choice(
        self, *names: str, allowed: Iterable[str], default: str | None = None, because: str = ""
    ) -> str:
        """One of a few strings. Without a ``default`` the key is required."""
        known = tuple(allowed)
        key, value = self.find(names)
        if value is None:
            own = self.class_default(names, str)
            if own in known:
                default, because = own, CLASS_DEFAULT
            if default is None:
                self.problem(key, missing(names))
                return known[0]
            self._assume(key, default, because or "family default")
            return default
        if not isinstance(value, str) or value not in known:
            self.problem(key, f"expected one of {', '.join(known)}, got {shown(value)}")
            return known[0]
        self.log.read(self.path + key, value, "config")
        return value

    def strings(self, key: str, allowed: Iterable[str], length: int) -> list[str] | None:
        """A list of one known string per layer, or ``None`` where the key is absent.

        A list longer than ``length`` is cut with a note: the tail describes MTP modules.
        """
        known = set(allowed)
        values = self._list(key, length)
        if values is None:
            return None
        for index, value in enumerate(values):
            if not isinstance(value, str) or value not in known:
                raise self.fail(
                    f"{key}[{index}]",
                    f"expected one of {', '.join(sorted(known))}, got {shown(value)}",
                )
        return [str(value) for value in values]

    def sizes(self, key: str, length: int, low: int = 0, high: int = MAX_SIZE) -> list[int] | None:
        """A list of one integer per layer, or ``None`` where the key is absent. Cut as in strings."""
        values = self._list(key, length)
        if values is None:
            return None
        for index, value in enumerate(values):
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise self.fail(
                    f"{key}[{index}]",
                    f"expected an integer from {low} to {high}, got {shown(value)}",
                )
        return [int(value) for value in values]

    def indices(self, key: str, limit: int, first: int = 0) -> list[int] | None:
        """Layer numbers as a list or a comma-separated string, counted from ``first``; no order."""
        self._touched.add(key)
        value = self.data.get(key)
        if value is None:
            return None
        if isinstance(value, str) and len(value) <= 16 * limit:
            parts = [part.strip() for part in value.split(",") if part.strip()]
            value = [int(part) if part.isascii() and part.isdigit() else part for part in parts]
        if not isinstance(value, list) or len(value) > limit:
            raise self.fail(key, f"expected at most {limit} layer numbers, got {shown(value)}")
        for item in value:
            if isinstance(item, bool) or not isinstance(item, int):
                raise self.fail(key, f"expected layer numbers, got {shown(item)}")
            if not first <= item < first + limit:
                raise self.fail(
                    key, f"layer {shown(item)} is not from {first} to {first + limit - 1}"
                )
        self.log.read(self.path + key, f"{len(value)} layers", "config")
        return [item - first for item in value]

    def _list(self, key: str, length: int) -> list[Any] | None:
        self._touched.add(key)
        value = self.data.get(key)
        if value is None:
            return None
        if not isinstance(value, list):
            raise self.fail(key, f"expected a list with one entry per layer, got {shown(value)}")
        if not length <= len(value) <= MAX_LAYERS:
            raise self.fail(key, f"has {len(value)} entries for {length} layers")
        if len(value) > length:
            self.log.note(
                f"{self.path}{key} has {len(value)} entries for {length} layers: "
                "the tail is taken to describe MTP modules"
            )
        self.log.read(self.path + key, counted(value[:length]), "config")
        return value[:length]

    def section(self, key: str) -> Config | None:
        """A nested object as its own config, or ``None`` where the key is absent."""
        if key in self._sections:
            return self._sections[key]
        self._touched.add(key)
        value = self.data.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.fail(key, f"expected an object, got {shown(value)}")
        found = self._sections[key] = Config(value, self.file, self.log, f"{self.path}{key}.")
        found.within = self
        return found

    def not_understood(self) -> list[tuple[str, Any]]:
        """Keys that were neither asked for nor known to have no effect, with their values."""
        keys = [
            (self.path + key, value)
            for key, value in self.data.items()
            if key not in self._touched and value is not None and not is_inert(key)
        ]
        for section in self._sections.values():
            keys.extend(section.not_understood())
        return keys
