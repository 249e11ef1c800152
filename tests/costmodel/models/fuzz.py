"""Feeds damaged configs to the reader. Run as a script: ``python fuzz.py NUM``, prints JSON.

An input is a real config with up to six damaged keys, arbitrary JSON, or arbitrary bytes. The only
allowed outcomes are a model and ``InstanceError``.
"""

from __future__ import annotations

import json
import resource
import sys
import time
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
]
#: Every key of every config, so that keys wander between architectures.
KEYS = sorted({key for text in TEXTS for key in json.loads(text)})
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 300),
    st.integers(),
    st.sampled_from([2**22, 2**31, 10**30, 10**400, 1e308, float("inf"), float("nan"), 0.5]),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(["full_attention", "bfloat16", "llama", "M*-E", "re:(a+)+$", "0,1,2", "auto"]),
)
JUNK = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.lists(SCALARS, min_size=30, max_size=100),
        st.dictionaries(st.one_of(st.sampled_from(KEYS), st.text(max_size=8)), inner, max_size=5),
    ),
    max_leaves=12,
)
DAMAGE = st.lists(
    st.tuples(st.integers(0, 10**6), st.sampled_from(["set", "delete", "move", "add"]), JUNK),
    min_size=1,
    max_size=6,
)
INPUTS = st.one_of(
    st.tuples(st.sampled_from(TEXTS), DAMAGE),
    st.tuples(st.sampled_from(TEXTS), DAMAGE),
    st.tuples(st.sampled_from(TEXTS), DAMAGE),
    JUNK,
    st.binary(max_size=200),
)


def _owners(data: dict[str, Any]) -> list[tuple[dict[str, Any], str]]:
    found = []
    for key, value in data.items():
        found.append((data, key))
        if isinstance(value, dict):
            found += _owners(value)
    return found


def _damaged(text: bytes, damage: list[tuple[int, str, Any]]) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(text)
    for number, what, junk in damage:
        places = _owners(data)
        if not places:
            break
        owner, key = places[number % len(places)]
        if what == "set":
            owner[key] = junk
        elif what == "delete":
            del owner[key]
        elif what == "move":
            owner[KEYS[number % len(KEYS)]] = owner.pop(key)
        else:
            owner[KEYS[number % len(KEYS)]] = junk
    return data


def read_any(item: object) -> str:
    """Read one input; the outcome is ``model`` or ``refused``, anything else is raised."""
    try:
        if isinstance(item, bytes):
            data = parse_object(item, "fuzz")
        elif isinstance(item, tuple):
            data = parse_object(json.dumps(_damaged(*item)).encode(), "fuzz")
        else:
            data = parse_object(json.dumps(item).encode(), "fuzz")
        spec = read_model(data, "fuzz", "fuzz")
    except InstanceError as error:
        return "refused" if str(error) else "refused without a word"
    json.dumps(as_json(spec), allow_nan=False)
    return "model"


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
    @given(INPUTS)
    def one(item: object) -> None:
        start = time.perf_counter()
        outcomes[read_any(item)] += 1
        outcomes["inputs"] += 1
        outcomes["slowest_s"] = max(outcomes["slowest_s"], time.perf_counter() - start)

    one()
    outcomes["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return outcomes


if __name__ == "__main__":
    print(json.dumps(run(int(sys.argv[1]))))
