"""Text of YAML and JSON as plain data, every bound looked at before the work: bytes, depth, elements, aliases.

A key given twice, a number that is none (NaN, Infinity) and data that refers to itself are refused. Knows
nothing of what is read.
"""

from __future__ import annotations

import codecs
import json
import re
import stat
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from topology.errors import InstanceError, Problem
from topology.names import shown

#: A file larger than this is refused before it is read.
MAX_FILE_BYTES = 128 * 2**20
#: The same of YAML, which is written by hand.
MAX_YAML_BYTES = 16 * 2**20
#: Commas and opening brackets of a JSON text, a little more than its elements.
MAX_JSON_ELEMENTS = 3_000_000
#: Values of a YAML text, those of aliases counted wherever they stand; the shipped files have some hundreds.
MAX_YAML_ELEMENTS = 250_000
#: Lists and mappings inside each other.
MAX_DEPTH = 64
_TOO_DEEP = f"nested deeper than {MAX_DEPTH} levels"

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
#: YAML reads 1:59:59 to the base of 60, which takes long for long ones
_LONG_NUMBER = re.compile(r"[-+0-9._:eE]{200,}")
_SPACE = re.compile(r"[ \t\n\r]*")


def read_bytes(path: Path, most: int = MAX_FILE_BYTES) -> bytes:
    """Bytes of an ordinary file of at most ``most``. Raises ``InstanceError``."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise InstanceError(Problem(shown(path), "is not an ordinary file"))
        if found.st_size > most:
            message = f"{found.st_size:,} bytes; at most {most:,} are read"
            raise InstanceError(Problem(shown(path), message))
        with path.open("rb") as file:
            content = file.read(most + 1)  # it may be growing
    except OSError as error:
        raise InstanceError(Problem(shown(path), error.strerror or "cannot be read")) from None
    except ValueError:
        raise InstanceError(Problem(shown(path), "not a usable path")) from None
    if len(content) > most:
        raise InstanceError(Problem(shown(path), f"more than {most:,} bytes"))
    return content


def read_text(path: Path, most: int = MAX_FILE_BYTES) -> str:
    """As :func:`read_bytes`, as UTF-8 text without its byte order mark."""
    data = read_bytes(path, most)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        more = ": it is UTF-16, as PowerShell writes by itself; save it as UTF-8" if wide else ""
        message = f"not UTF-8 text (byte {error.start}){more}"
        raise InstanceError(Problem(shown(path), message)) from None


def parse_json(text: str, place: str, *, python: bool = False) -> Any:
    """The data of a JSON text. Raises ``InstanceError`` with line and column.

    ``python``: NaN and Infinity are read too, which Python's writers of JSON leave in it.
    """
    with _mistakes_of_json(text, place):
        return json.loads(
            text, object_pairs_hook=_unique, parse_constant=float if python else _no_number
        )


def parse_json_values(text: str, place: str, start: int = 0) -> list[Any]:
    """The values that follow each other from ``start`` on, as JSON lines and joined files have them.

    Raises ``InstanceError`` with line and column.
    """
    decoder = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_number)
    values = []
    with _mistakes_of_json(text, place):
        while (start := _past_space(text, start)) < len(text):
            value, start = decoder.raw_decode(text, start)
            values.append(value)
    return values


def _past_space(text: str, start: int) -> int:
    found = _SPACE.match(text, start)
    return found.end() if found else start


@contextmanager
def _mistakes_of_json(text: str, place: str) -> Iterator[None]:
    """The bound on elements before, what the decoder raises as ``InstanceError`` after."""
    elements = text.count(",") + text.count("[") + text.count("{")
    if elements > MAX_JSON_ELEMENTS:
        message = f"{elements:,} elements; at most {MAX_JSON_ELEMENTS:,} are read"
        raise InstanceError(Problem(place, message))
    try:
        yield
    except json.JSONDecodeError as error:
        where = f"{place}:{error.lineno}:{error.colno}"
        raise InstanceError(Problem(where, f"not JSON: {error.msg}")) from None
    except RecursionError:
        raise InstanceError(Problem(place, "nested too deeply")) from None
    except ValueError as error:
        # Python's own words name a setting of Python
        long = "integer string conversion" in str(error)
        message = (
            f"a number has more than {sys.get_int_max_str_digits():,} digits"
            if long
            else str(error)
        )
        raise InstanceError(Problem(place, message)) from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the key {shown(twice, 60)} is given twice")
    return found


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is not a number of JSON")


def parse_yaml(text: str, place: str) -> Any:
    """The data of a YAML text of one document, by the safe loader. Raises ``InstanceError`` with its place."""
    return _parsed(text, place, _one)


def parse_yaml_documents(text: str, place: str) -> list[Any]:
    """The data of each document of a YAML text. Raises ``InstanceError`` with its place."""
    found: list[Any] = _parsed(text, place, _all)
    return found


def _one(loader: Any, place: str) -> Any:
    node = loader.get_single_node()
    if node is None:
        return None
    _check_node(node, place)
    return loader.construct_document(node)


def _all(loader: Any, place: str) -> list[Any]:
    found = []
    while loader.check_node():
        node = loader.get_node()
        _check_node(node, place)
        found.append(loader.construct_document(node))
    return found


def _parsed(text: str, place: str, build: Callable[[Any, str], Any]) -> Any:
    try:
        _check_events(text, place)
        loader = _LOADER(text)
        try:
            return build(loader, place)
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        reason = str(getattr(error, "problem", None) or getattr(error, "reason", "cannot be read"))
        mark = getattr(error, "problem_mark", None)
        # libyaml of PyYAML 6.0.4 stops at a depth of its own, and reads ahead of the events that are counted here
        deep = "nesting depth" in reason
        message = _TOO_DEEP if deep else f"not YAML: {shown(reason, 200)}"
        raise InstanceError(Problem(_place(place, mark), message)) from None
    except RecursionError:
        raise InstanceError(Problem(place, "nested too deeply")) from None
    except (ValueError, OverflowError, TypeError) as error:  # a date of month 13, a number too long
        raise InstanceError(Problem(place, f"not YAML: {shown(error, 200)}")) from None


def _check_events(text: str, place: str) -> None:
    """Depth and number of values, before anything is built of them."""
    depth = values = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.ScalarEvent | yaml.AliasEvent):
            values += 1
            plain = isinstance(event, yaml.ScalarEvent) and not event.style
            if plain and _LONG_NUMBER.fullmatch(str(getattr(event, "value", ""))):
                where = _place(place, event.start_mark)
                raise InstanceError(Problem(where, "a number of too many digits"))
        elif isinstance(event, yaml.CollectionStartEvent):
            values, depth = values + 1, depth + 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
            raise InstanceError(Problem(_place(place, event.start_mark), _TOO_DEEP))
        if values > MAX_YAML_ELEMENTS:
            raise InstanceError(Problem(place, f"more than {MAX_YAML_ELEMENTS:,} values"))


def _check_node(node: yaml.Node, place: str) -> None:
    """Refuse keys given twice, data inside itself, and aliases that stand for too many values."""
    sizes: dict[int, int] = {}
    open_nodes: set[int] = set()

    def size(node: yaml.Node) -> int:
        if isinstance(node, yaml.ScalarNode):
            return 1
        if id(node) in open_nodes:
            raise InstanceError(Problem(_place(place, node.start_mark), "holds itself"))
        if id(node) not in sizes:
            open_nodes.add(id(node))
            if isinstance(node, yaml.MappingNode):
                _check_keys(node, place)
            inside = (
                (part for pair in node.value for part in pair)
                if isinstance(node, yaml.MappingNode)
                else node.value
            )
            sizes[id(node)] = 1 + sum(size(part) for part in inside)
            open_nodes.discard(id(node))
        return sizes[id(node)]

    total = size(node)
    if total > MAX_YAML_ELEMENTS:
        message = f"its aliases stand for {total:,} values; at most {MAX_YAML_ELEMENTS:,} are read"
        raise InstanceError(Problem(place, message))


def _check_keys(node: yaml.MappingNode, place: str) -> None:
    keys = [(key.tag, key.value) for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
    if len(set(keys)) == len(keys):
        return
    twice = Counter(keys).most_common(1)[0][0]
    mark = [key.start_mark for key, _ in node.value if (key.tag, key.value) == twice][1]
    raise InstanceError(
        Problem(_place(place, mark), f"the key {shown(twice[1], 60)} is given twice")
    )


def _place(place: str, mark: Any) -> str:
    return place if mark is None else f"{place}:{mark.line + 1}:{mark.column + 1}"
