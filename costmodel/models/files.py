"""Finds and reads the JSON files of a model: the config and the quantisation notes beside it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from topology.catalogue import resolve
from topology.errors import InstanceError, Problem

#: A file larger than this is refused before it is parsed; lists of quantised modules reach 3.1 MB.
MAX_CONFIG_BYTES = 10 * 2**20
#: Objects and lists nested deeper than this are refused; real configs need six levels.
MAX_DEPTH = 32


def find_config(name_or_path: str, kind: str = "models") -> Path:
    """Path of a catalogue entry of ``kind``, of a config file, or of the ``config.json`` in a folder."""
    text = str(name_or_path)
    if "\0" not in text and len(text) <= 4096:
        try:
            path = Path(text)
            if text and path.is_dir():
                inside = path / "config.json"
                if inside.is_file():
                    return inside
                if "/" in text:
                    raise InstanceError(Problem(text, "the folder has no config.json"))
        except OSError as error:
            if "/" in text or text.endswith(".json"):
                raise InstanceError(
                    Problem(text[:80], error.strerror or "cannot be read")
                ) from None
    return resolve(text, kind, (".json",))


def read_object(path: Path, *, limit: int = MAX_CONFIG_BYTES) -> dict[str, Any]:
    """The JSON object in a file. Raises ``InstanceError`` for anything else, with its place."""
    try:
        size = path.stat().st_size
        if size > limit:
            raise InstanceError(Problem(str(path), f"{size} bytes; at most {limit} are read"))
        content = path.read_bytes()
    except OSError as error:
        raise InstanceError(Problem(str(path), error.strerror or "cannot be read")) from None
    return parse_object(content, str(path), limit=limit)


def parse_object(content: bytes, place: str, *, limit: int = MAX_CONFIG_BYTES) -> dict[str, Any]:
    """Parse the bytes of a JSON object; duplicate keys, deep nesting and other values are refused."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
            raise InstanceError(Problem(place, f"the key {twice[:60]!r} is given twice"))
        return found

    if len(content) > limit:
        raise InstanceError(Problem(place, f"{len(content)} bytes; at most {limit} are read"))
    try:
        data = json.loads(content.decode("utf-8-sig"), object_pairs_hook=unique)
    except UnicodeDecodeError as error:
        raise InstanceError(Problem(place, f"not UTF-8 text (byte {error.start})")) from None
    except json.JSONDecodeError as error:
        where = f"{place}:{error.lineno}:{error.colno}"
        raise InstanceError(Problem(where, f"not JSON: {error.msg}")) from None
    except RecursionError:
        raise InstanceError(Problem(place, "nested too deeply")) from None
    except ValueError as error:
        raise InstanceError(Problem(place, f"not usable JSON: {str(error)[:120]}")) from None
    if not isinstance(data, dict):
        raise InstanceError(
            Problem(place, f"expected a JSON object at the top, got {type(data).__name__}")
        )
    _check_depth(data, place)
    return data


def _check_depth(data: dict[str, Any], place: str) -> None:
    level: list[Any] = [data]
    for _ in range(MAX_DEPTH):
        inner: list[Any] = []
        for item in level:
            values = item.values() if isinstance(item, dict) else item
            inner.extend(value for value in values if isinstance(value, dict | list))
        if not inner:
            return
        level = inner
    raise InstanceError(Problem(place, f"nested deeper than {MAX_DEPTH} levels"))
