"""Feeds damaged configs to the reader. Run as a script: ``python fuzz.py NUM``, prints JSON.

An input is a real config with up to six damaged keys, arbitrary JSON, or damaged bytes, all drawn
from a seed that hypothesis chooses (only seeds, so that its own memory stays small). The only
allowed outcomes are a model and ``InstanceError``.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from costmodel.models.files import parse_object
from costmodel.models.load import read_model
from costmodel.models.report import as_json
from topology.catalogue import catalogue_names, data_dir
from topology.errors import InstanceError

TEXTS = [
    (data_dir("models") / f"{name}.json").read_bytes()
    for name in catalogue_names("models", (".json",))
] + [
    json.dumps(entry["config"]).encode()
    for name in ("known_totals.json", "other_configs.json")
    for entry in json.loads(Path(__file__).with_name(name).read_text()).values()
]
#: Every key of every config, so that keys wander between architectures.
KEYS = sorted({key for text in TEXTS for key in json.loads(text)})
NUMBERS = [
    -3, -1, 0, 1, 2, 3, 7, 64, 255, 2**22, 2**31, 10**30, 10**400, 0.5, -0.0, 1e308, float("inf"),
    float("nan"),
]  # fmt: skip
WORDS = [
    "", "full_attention", "bfloat16", "llama", "deepseek_v3", "M*-E", "re:(a+)+$", "re:.*.*.*x",
    "0,1,2", "auto", "ümläut\u0000", "x" * 5000, "fp8", "NVFP4", "compressed-tensors",
]  # fmt: skip


def junk(random: Random, depth: int = 0) -> Any:
    """Any JSON value, mostly small."""
    kind = random.randrange(8 if depth < 4 else 5)
    if kind == 0:
        return random.choice([None, True, False])
    if kind <= 2:
        return random.choice([random.choice(NUMBERS), random.randrange(300)])
    if kind <= 4:
        return random.choice(WORDS)
    if kind == 5:
        return [junk(random, depth + 1) for _ in range(random.randrange(6))]
    if kind == 6:
        return [random.choice([0, 1, "full_attention", 4, None])] * random.randrange(130)
    return {random.choice(KEYS): junk(random, depth + 1) for _ in range(random.randrange(6))}


def _owners(data: dict[str, Any]) -> list[tuple[dict[str, Any], str]]:
    found = []
    for key, value in data.items():
        found.append((data, key))
        if isinstance(value, dict):
            found += _owners(value)
    return found


def damaged_config(random: Random) -> bytes:
    """A real config with one to six keys set, deleted, renamed or added."""
    data: dict[str, Any] = json.loads(random.choice(TEXTS))
    for _ in range(random.randrange(1, 7)):
        places = _owners(data)
        if not places:
            break
        owner, key = random.choice(places)
        what = random.randrange(4)
        if what == 0:
            owner[key] = junk(random)
        elif what == 1:
            del owner[key]
        elif what == 2:
            owner[random.choice(KEYS)] = owner.pop(key)
        else:
            owner[random.choice(KEYS)] = junk(random)
    return json.dumps(data).encode()


def damaged_bytes(random: Random) -> bytes:
    """A real config with bytes cut out or overwritten, or nothing but brackets or noise."""
    kind = random.randrange(4)
    if kind == 0:
        return random.choice([b"[", b'{"a":', b"[[],"]) * random.randrange(20_000)
    if kind == 1:
        return random.randbytes(random.randrange(200))
    text = bytearray(random.choice(TEXTS))
    for _ in range(random.randrange(1, 20)):
        place = random.randrange(len(text))
        text[place : place + random.randrange(3)] = random.randbytes(random.randrange(3))
    return bytes(text)


def read_any(seed: int) -> str:
    """Read one input; the outcome is ``model`` or ``refused``, anything else is raised."""
    random = Random(seed)
    kind = random.randrange(10)
    if kind == 0:
        content = damaged_bytes(random)
    elif kind == 1:
        content = json.dumps(junk(random)).encode()
    else:
        content = damaged_config(random)
    weight_dtype = random.choice([None, None, None, "fp4", "int8"])
    try:
        spec = read_model(parse_object(content, "fuzz"), "fuzz", "fuzz", weight_dtype=weight_dtype)
    except InstanceError as error:
        return "refused" if str(error) else "refused without a word"
    json.dumps(as_json(spec), allow_nan=False)
    return "model"


def peak_mb() -> float:
    """Peak memory of this program. ``getrusage`` also counts what its parent held when it forked."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def run(num: int) -> dict[str, float]:
    """Read ``num`` inputs; gives counts of outcomes, the slowest input and the peak memory."""
    outcomes = {"inputs": 0.0, "model": 0.0, "refused": 0.0, "slowest_s": 0.0}

    @settings(
        max_examples=num,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.integers(0, 2**63))
    def one(seed: int) -> None:
        start = time.perf_counter()
        outcomes[read_any(seed)] += 1
        outcomes["inputs"] += 1
        outcomes["slowest_s"] = max(outcomes["slowest_s"], time.perf_counter() - start)

    one()
    outcomes["peak_mb"] = peak_mb()
    return outcomes


if __name__ == "__main__":
    print(json.dumps(run(int(sys.argv[1]))))
