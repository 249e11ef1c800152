"""One measured run as a row of numbers, and the reader that names every row it cannot use.

Columns: ``id backend model_path system mode isl osl concurrency silicon_ttft_ms silicon_tpot_ms`` and the sizes of the parallel
groups. Where present, ``mean_isl`` and ``mean_osl`` replace the nominal lengths (random lengths between 0.8 and 1 of nominal
average 0.9), ``n_gpus_corrected`` the product of the group sizes, and ``suspect_unlabelled_mtp`` leaves a row out.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from costmodel.measured.cells import number, positive, size
from costmodel.measured.recipes import (
    KV_DTYPES,
    UNKNOWN,
    Recipe,
    Settings,
    draws_lengths,
    recipe_of,
)
from topology.errors import InstanceError, Problem
from topology.reading import read_bytes

#: A measured file larger than this (unpacked) is refused.
MAX_BYTES = 64 * 2**20

FLAGGED = "flagged: seems to mix runs with and without speculative decoding"

#: mean of lengths drawn between 0.8 and 1 of nominal
DRAWN = 0.9
#: least of such lengths over nominal
LEAST_DRAWN = 0.8

#: columns of percentiles, in ms
PERCENTILE = re.compile(r"(?:ttft|tpot|itl|e2e)_p\d{1,2}_ms")

#: columns that say how weights are quantised, such as ``fp8_block``
_QUANTISED = ("gemm_quant_mode", "moe_quant_mode")

REQUIRED = ("backend", "model_path", "system", "isl", "osl", "silicon_tpot_ms")


@dataclass(frozen=True, slots=True)
class Group:
    """One engine instance (worker): its sizes, and how many such workers there are.

    ``expert_ways``: among how many chips whole experts are divided; 1: each is cut over all. ``settings``: of its recipe.
    """

    tp: int
    attention_dp: int
    pp: int
    workers: int
    expert_ways: int = 1
    settings: Settings = UNKNOWN

    @property
    def chips(self) -> int:
        """Chips of one worker."""
        return self.tp * self.attention_dp * self.pp


@dataclass(frozen=True, slots=True)
class MeasuredRow:
    """A run: who served what, on what, for how many users, and what they saw (seconds).

    ``decode`` is the group that decodes (and prefills too where ``prefill`` is ``None``);
    ``concurrency`` counts requests in the system, waiting ones included. ``precision`` is the weights' as written (empty:
    the checkpoint's own); ``block_scales``: its 8-bit weights are said to have scales by block. ``fixed_lengths``: all
    requests are as long as nominal; ``scattered``: and yet are known to come one by one. ``percentiles``: what was measured
    beside the means, such as ``ttft_p99_s``. ``release``: engine and its version, empty where the row names none.
    """

    id: str
    engine: str
    model: str
    system: str
    precision: str
    input_tokens: float
    output_tokens: float
    concurrency: float
    decode: Group
    prefill: Group | None
    tpot_s: float
    ttft_s: float | None
    fixed_lengths: bool
    percentiles: tuple[tuple[str, float], ...] = ()
    release: str = ""
    block_scales: bool = False
    scattered: bool = False

    @property
    def mode(self) -> Literal["aggregated", "disaggregated"]:
        """Whether one pool does both phases."""
        return "aggregated" if self.prefill is None else "disaggregated"


@dataclass(frozen=True, slots=True)
class Skipped:
    """A row that is not scored, and why."""

    id: str
    reason: str


class ForeignFileError(InstanceError):
    """A file that holds no measured runs, or is too large or no text to hold them."""


def read_measured(
    path: str | Path,
    finish: Callable[[MeasuredRow, Mapping[str, str]], MeasuredRow] | None = None,
) -> tuple[list[MeasuredRow], list[Skipped]]:
    """Rows of a CSV file (or ``.csv.gz``). Raises ``InstanceError`` for a file that is no such table.

    ``finish`` adds to a row what other columns of it say; it may raise ``ValueError`` with the reason why the
    row is left out.
    """
    text = _read_text(Path(path))
    table = csv.DictReader(io.StringIO(text))
    try:
        names = [name.strip() for name in table.fieldnames or []]
    except csv.Error as error:
        raise ForeignFileError(Problem(f"{path}:1", f"not CSV: {error}")) from None
    missing = [name for name in REQUIRED if name not in names]
    if missing:
        found = ", ".join(names[:40]) or "none"
        raise ForeignFileError(
            Problem(str(path), f"columns missing: {', '.join(missing)}; found: {found}")
        )
    rows: list[MeasuredRow] = []
    skipped: list[Skipped] = []
    seen: set[str] = set()
    try:
        for line, raw in enumerate(table, start=2):
            cells = {str(k).strip(): v.strip() for k, v in raw.items() if k and isinstance(v, str)}
            name = cells.get("id") or f"line {line}"
            if name in seen:
                name = f"{name} (line {line})"
            seen.add(name)
            try:
                row = _row(name, cells)
                rows.append(row if finish is None else finish(row, cells))
            except ValueError as error:
                skipped.append(Skipped(name, str(error)))
    except csv.Error as error:
        raise InstanceError(Problem(f"{path}:{table.line_num}", f"not CSV: {error}")) from None
    return rows, skipped


def _read_text(path: Path) -> str:
    try:
        data = read_bytes(path, MAX_BYTES)
        if path.suffix == ".gz":
            with gzip.open(io.BytesIO(data)) as stream:
                data = stream.read(MAX_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error) or "cannot be read"
        raise InstanceError(Problem(str(path), reason)) from None
    except InstanceError as error:
        raise ForeignFileError(error.problems) from None
    if len(data) > MAX_BYTES:
        raise ForeignFileError(Problem(str(path), f"more than {MAX_BYTES} bytes"))
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ForeignFileError(Problem(str(path), f"not UTF-8 text (byte {error.start})")) from None


def _row(name: str, cells: Mapping[str, str]) -> MeasuredRow:
    if cells.get("suspect_unlabelled_mtp", "").lower() in ("true", "1", "yes"):
        raise ValueError(FLAGGED)
    engine, model, system = (cells.get(key, "") for key in ("backend", "model_path", "system"))
    for key, value in (("backend", engine), ("model_path", model), ("system", system)):
        if not value:
            raise ValueError(f"{key}: is missing")
    disaggregated = cells.get("mode", "agg").lower().startswith("disagg")
    ttft = number(cells, "silicon_ttft_ms")
    if ttft is not None and ttft <= 0:
        raise ValueError(f"silicon_ttft_ms: must be above 0, got {ttft:g}")
    dp = size(cells, "attention_dp_size")
    concurrency = number(cells, "concurrency")
    if concurrency is None:
        batch = number(cells, "batch_size")
        if batch is None:
            raise ValueError("concurrency: is missing")
        concurrency = batch * dp
    if concurrency <= 0:
        raise ValueError(f"concurrency: must be above 0, got {concurrency:g}")
    prefill = None
    if disaggregated:
        for part in ("decode", "prefill"):
            if number(cells, f"{part}_num_workers") is None:
                raise ValueError(f"{part}_num_workers: is missing, so batches are not known")
        decode, prefill = (_worker(cells, part) for part in ("decode", "prefill"))
    else:
        decode = _aggregated(cells, concurrency)
    recipe = recipe_of(cells) or Recipe()
    nominal = positive(cells, "isl"), positive(cells, "osl")
    mean = positive(cells, "mean_isl", "isl"), positive(cells, "mean_osl", "osl")
    if mean == nominal and draws_lengths(cells):
        mean = DRAWN * nominal[0], DRAWN * nominal[1]
    decode = _as_set(decode, recipe.decode)
    if told := cells.get("kv_dtype", "").lower():
        if told not in KV_DTYPES:
            raise ValueError(f"kv_dtype: {told[:40]!r} is unknown; known: {', '.join(KV_DTYPES)}")
        decode = replace(decode, settings=replace(decode.settings, kv=KV_DTYPES[told]))
    prefill = None if prefill is None else _as_set(prefill, recipe.prefill)
    return MeasuredRow(
        id=name,
        engine=engine.lower(),
        model=model,
        system=system.lower(),
        precision=(cells.get("precision") or cells.get("gemm_quant_mode") or "").lower(),
        input_tokens=mean[0],
        output_tokens=mean[1],
        concurrency=concurrency,
        decode=decode,
        prefill=prefill,
        tpot_s=positive(cells, "silicon_tpot_ms") / 1e3,
        ttft_s=None if ttft is None else ttft / 1e3,
        fixed_lengths=mean == nominal,
        percentiles=_percentiles(cells),
        release=f"{engine.lower()} {version}" if (version := cells.get("backend_version")) else "",
        block_scales=any(cells.get(name, "").endswith("_block") for name in _QUANTISED),
    )


def _percentiles(cells: Mapping[str, str]) -> tuple[tuple[str, float], ...]:
    """Columns such as ``ttft_p99_ms``, in seconds."""
    found = []
    for name in cells:
        if PERCENTILE.fullmatch(name) and (value := number(cells, name)) is not None:
            found.append((name.removesuffix("_ms") + "_s", value / 1e3))
    return tuple(found)


def _as_set(group: Group, settings: Settings) -> Group:
    """A group as its recipe has it: exports divide the chips of a worker otherwise than the engine did."""
    widths = settings.widths
    if widths is None or widths.chips != group.chips or group.pp > 1:
        return replace(group, settings=settings)
    ranks = widths.chips if widths.attention_dp else 1
    return Group(widths.chips // ranks, ranks, 1, group.workers, widths.expert_ways, settings)


def _aggregated(cells: Mapping[str, str], concurrency: float) -> Group:
    """The group of a worker that does both phases, by what the exports leave to be inferred."""
    tp, dp, pp = (size(cells, key) for key in ("tp_size", "attention_dp_size", "pp_size"))
    experts = size(cells, "moe_tp_size") * size(cells, "moe_ep_size")
    # where sizes multiply (attention times experts), the corrected count is the truth
    chips = size(cells, "n_gpus_corrected", tp * dp * pp)
    if dp > chips:  # exports multiply attention ranks by expert ranks
        dp = chips // pp
    workers = 1
    # experts lie on all chips of a worker; what attention does not shard are ranks
    if not number(cells, "attention_dp_size") and experts * pp > chips and experts % tp == 0:
        chips, dp = experts * pp, experts // tp
    if size(cells, "attention_dp_size") == 1:
        # the batch is one rank's or one worker's, the concurrency everybody's
        batch = number(cells, "batch_size")
        if batch and concurrency > batch and concurrency % batch == 0:
            share = int(concurrency // batch)
            if experts > 1 and share * pp == chips:
                dp = share
            elif dp == 1:
                workers = share
    if chips % (dp * pp):
        raise ValueError(f"{chips} GPUs do not divide into {dp} ranks and {pp} stages")
    ways = min(size(cells, "moe_ep_size"), chips // pp)
    return Group(chips // (dp * pp), dp, pp, workers, ways)


def _worker(cells: Mapping[str, str], part: str) -> Group:
    return Group(
        size(cells, f"{part}_tp_size"),
        size(cells, f"{part}_attention_dp_size"),
        size(cells, f"{part}_pp_size"),
        size(cells, f"{part}_num_workers"),
        size(cells, f"{part}_moe_ep_size"),
    )
