"""Damage: to bytes, to JSON and YAML data, to tables and command lines, to the words of a command. From a seed."""

from __future__ import annotations

import copy
import json
import re
import shlex
from collections.abc import Callable
from random import Random
from typing import Any

import yaml

NUMBERS: tuple[Any, ...] = (
    -3, -1, 0, 1, 2, 7, 64, 255, 4097, 2**31 - 1, 2**31, 2**63, 10**30, 0.5, -0.0, 1e-300, 1e308, "1e999", "nan",
    "inf", "-inf", "²", "١", "0x10", "1_000", "1:30:00", True, None,
)  # fmt: skip
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
WORDS = (
    "", " ", "x", "a\nb", "a\x00b", "\x1b[2J", "\ud800", "../../etc/passwd", "/dev/zero", "/dev/null", "/", ".", "é" * 300,
    "x" * 5000, "$(touch pwned)", "`id`", "[/]", "<script>", "{{", "%s%n", "-1", "--json", "nvl-36@3", "hgx-h100@100000",
    "gb200-nvl72@0", "tpu-v5p-4x4x4", "nvl-999999", "3 TB/s", "1 parsec", "1e400 GB", "r*g*", "[" * 200, "2001-13-01",
    "!!python/object:os.system", "*a", "&a [*a]", "<<", "null", "~", "1,2,x", "a=b,c=d", "count=²",
)  # fmt: skip


def junk(random: Random, depth: int = 0) -> Any:
    """Any plain value, mostly small."""
    kind = random.randrange(8 if depth < 3 else 5)
    if kind <= 2:
        return random.choice(NUMBERS)
    if kind <= 4:
        return random.choice(WORDS)
    if kind == 5:
        return [junk(random, depth + 1) for _ in range(random.randrange(5))]
    if kind == 6:
        return [random.choice(NUMBERS)] * random.choice((3, 3, 3, 3, 3, 3, 100, 100, 100, 20_000))
    return {random.choice(WORDS): junk(random, depth + 1) for _ in range(random.randrange(5))}


def place_in(data: Any, random: Random) -> tuple[Any, Any] | None:
    """A container within plain data and one of its keys; ``None`` where there is none."""
    found = None
    here = data
    while isinstance(here, dict | list) and here:
        owner = here
        key = (
            random.choice(list(owner)) if isinstance(owner, dict) else random.randrange(len(owner))
        )
        found, here = (owner, key), owner[key]
        if random.random() < 0.2:
            break
    return found


def nearby(value: Any, random: Random) -> Any:
    """A value as a person might have written instead, so that commands do not end at the first check."""
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, int | float):
        return random.choice((value * 2, value * 10, value / 2, value + 1, value - 1, int(value)))
    if isinstance(value, list):
        return random.choice((value[:1], value[1:], value + value[-1:], value[::-1]))
    if isinstance(value, str):
        numbers = _NUMBER.split(value)
        if len(numbers) > 1:
            return f"{numbers[0]}{random.choice((0, 1, 3, 12, 1000))}{numbers[-1]}"
        return value.upper() if random.random() < 0.5 else value[:-1]
    return value


def damaged_data(data: Any, random: Random) -> Any:
    """Plain data with one to five values replaced, removed, renamed, doubled or swapped, in place."""
    for _ in range(random.randrange(1, 6)):
        found = place_in(data, random)
        if found is None:
            return junk(random)
        owner, key = found
        what = random.randrange(8)
        if what <= 2:
            owner[key] = junk(random)
        elif what >= 6:
            owner[key] = nearby(owner[key], random)
        elif what == 3:
            del owner[key]
        elif what == 4 and isinstance(owner, dict):
            owner[str(random.choice(WORDS))] = owner.pop(key)
        else:
            other, spot = place_in(data, random) or ([None], 0)
            owner[key] = copy.deepcopy(other[spot])
    return data


def damaged_bytes(content: bytes, random: Random) -> bytes:
    """Bytes flipped, cut, doubled, or with junk put in."""
    content = bytearray(content)
    for _ in range(random.randrange(1, 5)):
        at = random.randrange(len(content) + 1)
        what = random.randrange(6)
        if what == 0 and content:
            content[at % len(content)] ^= 1 << random.randrange(8)
        elif what == 1:
            del content[at:]
        elif what == 2:
            content[at:at] = random.randbytes(random.randrange(1, 40))
        elif what == 3:
            content[at:at] = content[at : at + random.randrange(1, 2000)] * random.choice(
                (1, 2, 50)
            )
        elif what == 4:
            word = str(random.choice((*WORDS, *NUMBERS)))
            content[at:at] = word.encode("utf-8", "surrogatepass")
        else:
            del content[at : at + random.randrange(1, 200)]
    return bytes(content)


def damaged_text(content: bytes, random: Random) -> bytes:
    """Words or lines of a text replaced, removed, doubled."""
    lines = content.decode("utf-8", "replace").split("\n")
    for _ in range(random.randrange(1, 5)):
        at = random.randrange(len(lines))
        what = random.randrange(4)
        if what == 0:
            lines[at:at] = lines[at : at + 3] * random.choice((1, 1, 1, 2, 2, 2, 300))
        elif what == 1 and len(lines) > 1:
            del lines[at]
        else:
            separator = random.choice((",", " ", "=", ":"))
            words = lines[at].split(separator)
            words[random.randrange(len(words))] = str(random.choice((*WORDS, *NUMBERS)))
            lines[at] = separator.join(words)
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def _read_yaml(text: str) -> Any:
    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def _yaml_text(data: Any) -> str:
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return str(yaml.dump(data, Dumper=dumper, allow_unicode=True))


def with_flags(content: bytes, flags: tuple[str, ...], random: Random) -> bytes:
    """A launch file with one to three options of its engine more, each with any value or none."""
    lines = content.decode("utf-8", "replace").split("\n")
    for _ in range(random.randrange(1, 4)):
        commands = [number for number, line in enumerate(lines) if " --" in line]
        if not commands:
            break
        value = str(random.choice((*WORDS, *NUMBERS, 4, 8, "{}", '{"a": 1}', "[1]", "auto")))
        said = random.choice((f" {shlex.quote(value)}", f"={shlex.quote(value)}", ""))
        lines[random.choice(commands)] += f" {random.choice(flags)}{said}"
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def damaged_file(name: str, content: bytes, random: Random) -> bytes:
    """A file damaged as its ending suggests, or just its bytes."""
    ending = name.rpartition(".")[2]
    structured: dict[str, tuple[Callable[[str], Any], Callable[[Any], str]]] = {
        "json": (json.loads, json.dumps),
        "yaml": (_read_yaml, _yaml_text),
    }
    if ending in structured and random.random() < 0.7:
        read, write = structured[ending]
        try:
            text = write(damaged_data(read(content.decode()), random))
        except (TypeError, ValueError, OverflowError, yaml.YAMLError):  # junk that the format cannot hold
            return damaged_bytes(content, random)
        return text.encode("utf-8", "surrogatepass")
    if ending in ("csv", "sh", "txt", "yaml") and random.random() < 0.7:
        return damaged_text(content, random)
    return damaged_bytes(content, random)


def damaged_words(words: list[str], options: tuple[str, ...], random: Random) -> list[str]:
    """A command's words with one or two values or options replaced, removed, doubled, or added from ``options``."""
    words = list(words)
    for _ in range(random.randrange(1, 3)):
        at = random.randrange(1, len(words))
        what = random.randrange(8)
        if what >= 5:
            value = str(random.choice((*WORDS, *NUMBERS, 2, 8, 100, "out/x", "scenario.yaml")))
            words += [random.choice(options), value.replace("\0", "")][
                : random.choice((1, 2, 2, 2))
            ]
        elif what <= 2:
            # no process can be started with a NUL among its words
            words[at] = str(random.choice((*WORDS, *NUMBERS))).replace("\0", "")
        elif what == 3 and len(words) > 2:
            del words[at]
        else:
            words[at:at] = words[at : at + 2]
    return words
