"""What the published recipe behind a measured run set and its row does not say.

``instances/measured/recipes.csv.gz`` holds one line per run configuration and engine image. A row is matched by model,
system, engine, precision, lengths, users, date, workers and their chips; several recipes may fit, and then only
what they agree on is known. Nothing here is inferred from how long a run took.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from topology.catalogue import data_dir

Raw = Mapping[str, str]
#: KV formats as recipes write them
KV_DTYPES: dict[str, Literal["fp8", "bf16"]] = {
    "fp8": "fp8", "bf16": "bf16", "fp8_e4m3": "fp8", "auto": "bf16", "auto (not set)": "bf16",
}  # fmt: skip
#: tokens of a prefill pass by users and prompt, in whole multiples of 64
_BY_USERS = re.compile(r"ceil64\(conc\+isl\+64\)(?:, at least (\d+))?")


@dataclass(frozen=True, slots=True)
class Widths:
    """Chips of a worker, whether each is an attention rank of its own, and its expert parallelism."""

    chips: int
    attention_dp: bool
    expert_ways: int


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one pool of workers; ``None`` where no recipe says or recipes disagree.

    ``running``: sequences that one worker decodes together at most, per attention rank where the engine counts so.
    ``memory_fraction``: for weights and KV, or KV (:mod:`costmodel.measured.usable_hbm`). ``balanced``: whether a
    balancer placed the experts; ``None`` also where there is nothing to balance. ``looks_every``: decode passes from
    one look for new requests to the next. ``gathers_passes``: decode passes for which prompts are collected, unless
    ``gathers_tokens`` of them wait. ``ranks_passes``: decode passes for which prompts wait until every attention rank
    has one (see :mod:`costmodel.measured.waiting`). ``unfused_experts``: whether TensorRT-LLM runs its expert layers with other
    kernels than those of its backend TRTLLM, which joins routing, products and activation.
    """

    running: float | None = None
    memory_fraction: float | None = None
    chunk_tokens: float | None = None
    balanced: bool | None = None
    redundant_experts: int = 0
    kv: Literal["fp8", "bf16"] | None = None
    widths: Widths | None = None
    looks_every: float = 0.0
    gathers_passes: float = 0.0
    gathers_tokens: float | None = None
    ranks_passes: float = 0.0
    unfused_experts: bool | None = None


UNKNOWN = Settings()


@dataclass(frozen=True, slots=True)
class Recipe:
    """Settings of a run's decode (or only) pool and of its prefill pool."""

    decode: Settings = UNKNOWN
    prefill: Settings = UNKNOWN


def recipe_of(cells: Mapping[str, str]) -> Recipe | None:
    """The recipe of a row of a measured file, ``None`` where none fits."""
    found = _fitting(cells)
    if not found:
        return None
    if cells.get("mode", "").startswith("disagg"):
        pools = (("", "decode_"), ("prefill_", "prefill_"))
        return Recipe(*(_settings(found, cells, *pool) for pool in pools))
    return Recipe(_settings(found, cells, "", ""), UNKNOWN)


def draws_lengths(cells: Mapping[str, str]) -> bool:
    """Whether a row has model and lengths of published recipes, all of which draw lengths between 0.8 and 1 of nominal."""
    return (
        cells.get("model_path", ""),
        _whole(cells.get("isl", "")),
        _whole(cells.get("osl", "")),
    ) in _lengths()


@lru_cache(maxsize=1)
def _lengths() -> frozenset[tuple[str, int | None, int | None]]:
    return frozenset(
        (key[0], _whole(raw["isl"]), _whole(raw["osl"]))
        for key, found in _by_key().items()
        for raw in found
        if raw["isl"]
    )


def _fitting(cells: Mapping[str, str]) -> list[Raw]:
    """Recipes that the row may have run."""
    key = tuple(
        cells.get(name, "") for name in ("model_path", "system", "precision", "backend", "mode")
    )
    apart = key[4].startswith("disagg")
    found = [
        raw
        for raw in _by_key().get(key, ())
        if _same(raw["isl"], cells.get("isl", ""))
        and _same(raw["osl"], cells.get("osl", ""))
        and _within(cells.get("measured_date", ""), raw["date_from"], raw["date_to"])
        and (
            not raw["concurrencies"] or _listed(raw["concurrencies"], cells.get("concurrency", ""))
        )
        and (not raw["speculative"].startswith("mtp"))
    ]
    if apart:
        found = [
            raw for raw in found if all(_pool_fits(raw, cells, p) for p in ("prefill", "decode"))
        ]
        preferred = [
            raw for raw in found if all(_ep_fits(raw, cells, p) for p in ("prefill_", "decode_"))
        ]
    else:
        chips = _whole(cells.get("n_gpus_corrected", ""))
        found = [raw for raw in found if chips is None or _whole(raw["tp"]) in (None, chips)]
        preferred = [raw for raw in found if _ep_fits(raw, cells, "")]
    return preferred or (found if apart else [])


@lru_cache(maxsize=1)
def _by_key() -> dict[tuple[str, ...], list[Raw]]:
    found: dict[tuple[str, ...], list[Raw]] = defaultdict(list)
    path = data_dir("measured") / "recipes.csv.gz"
    with gzip.open(io.BytesIO(path.read_bytes()), "rt", encoding="utf-8") as text:
        for raw in csv.DictReader(text):
            for model in raw["model_path"].split("|"):
                key = (model, raw["system"], raw["precision"], raw["backend"], raw["mode"])
                found[key].append(raw)
    return dict(found)


def _whole(text: str) -> int | None:
    try:
        return int(float(text))
    except (ValueError, OverflowError):
        return None


def _same(recipe: str, row: str) -> bool:
    return not recipe or _whole(recipe) == _whole(row)


def _within(date: str, first: str, last: str) -> bool:
    return not date or first <= date <= last


def _listed(users: str, row: str) -> bool:
    number = _whole(row)
    return number is None or str(number) in users.split("|")


def _pool_fits(raw: Raw, cells: Mapping[str, str], pool: str) -> bool:
    """Whether workers and chips of each are the row's, however the row divides the chips."""
    workers = _whole(cells.get(f"{pool}_num_workers", ""))
    if workers is not None and _whole(raw[f"{pool}_workers"]) != workers:
        return False
    chips = (_whole(cells.get(f"{pool}_tp_size", "")) or 1) * (
        _whole(cells.get(f"{pool}_attention_dp_size", "")) or 1
    )
    return chips == 1 or _whole(raw[f"{pool}_tp"]) in (None, chips)


def _ep_fits(raw: Raw, cells: Mapping[str, str], prefix: str) -> bool:
    ways = _whole(cells.get(f"{prefix}moe_ep_size" if prefix else "moe_ep_size", "")) or 1
    return (_whole(raw[f"{prefix}ep"]) or 1) == ways


def _settings(found: Sequence[Raw], cells: Mapping[str, str], prefix: str, widths: str) -> Settings:
    """What recipes agree on of one pool; ``prefix`` of its settings' columns, ``widths`` of its sizes'."""

    def agreed(name: str) -> str:
        values = {raw[name] for raw in found}
        return values.pop() if len(values) == 1 else ""

    tp, ranks, ways = (agreed(widths + name) for name in ("tp", "dp_attention", "ep"))
    balanced = {"yes": True, "no": False}.get(agreed(f"{prefix}experts_balanced"))
    chunk = _chunk(agreed("prefill_chunk_tokens"), cells)
    ratio = _plain(agreed("batch_wait_tokens_ratio"))
    return Settings(
        running=_plain(agreed(f"{prefix}max_batch_or_running")),
        memory_fraction=_plain(agreed(f"{prefix}memory_fraction")),
        chunk_tokens=chunk,
        balanced=balanced,
        redundant_experts=_whole(agreed(f"{prefix}redundant_experts")) or 0,
        kv=KV_DTYPES.get(agreed("kv_dtype")),
        widths=Widths(int(tp), ranks == "true", _whole(ways) or 1) if tp and ranks else None,
        looks_every=_plain(agreed("recv_interval")) or 0.0,
        gathers_passes=_plain(agreed("batch_wait_iters")) or 0.0,
        gathers_tokens=None if ratio is None or chunk is None else ratio * chunk,
        ranks_passes=_plain(agreed("rank_timeout_iters")) or 0.0,
        unfused_experts=_unfused(agreed("backend"), agreed("moe_backend")),
    )


def _unfused(engine: str, backend: str) -> bool | None:
    """Whether expert layers are unfused; ``None`` where no recipe says."""
    return None if engine != "trtllm" or not backend else backend != "TRTLLM"


def _chunk(text: str, cells: Mapping[str, str]) -> float | None:
    """Tokens of a prefill pass: a plain number, or what scripts compute from users and prompt."""
    formula = _BY_USERS.fullmatch(text)
    users, prompt = (_whole(cells.get(name, "")) for name in ("concurrency", "isl"))
    if formula is None or users is None or prompt is None:
        return _plain(text)
    return float(max(-(-(users + prompt + 64) // 64) * 64, int(formula[1] or 0)))


def _plain(text: str) -> float | None:
    """A plain number, ``None`` for nothing or a formula."""
    return float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else None
