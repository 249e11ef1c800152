"""Files of measured runs as rows: tables and results of benchmark tools, with how each model was served."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, cast

from costmodel.measured.rows import ForeignFileError, MeasuredRow, Skipped, read_measured
from rackfit.measurements.bench import Bench
from rackfit.measurements.deployment import deployed_as, deployed_by
from rackfit.measurements.files import entries, result_files
from rackfit.shelf import modules
from topology.catalogue import is_file
from topology.errors import InstanceError, Problem
from topology.names import shown

#: launch commands of a run, in the folder of its results
_BESIDE = ("launch.sh", "run.sh", "commands.sh")
#: rows of a table with this id are those of the template
EXAMPLE = "example"


class Reader(Protocol):
    """A module of the shelf of readers."""

    TITLE: str

    def recognises(self, entry: dict[str, Any]) -> bool:
        """Whether a JSON object is this tool's."""
        ...

    def read(self, entry: dict[str, Any], place: str) -> list[Bench]:
        """Its runs. Raises ``InstanceError``."""
        ...


@lru_cache(maxsize=1)
def readers() -> dict[str, Reader]:
    """Every reader by the name of its file."""
    import rackfit.measurements.readers as folder

    return {name: cast(Reader, module) for name, module in modules(folder).items()}


@dataclass(frozen=True)
class Told:
    """What the user says of runs whose files do not: launch commands, chip, engine, model, seconds of warm-up."""

    launch: Path | None = None
    chip: str | None = None
    engine: str | None = None
    model: str | None = None
    warm_up_s: float = 0.0


def read_runs(
    paths: Sequence[Path], told: Told | None = None
) -> tuple[list[MeasuredRow], list[Skipped]]:
    """Rows of files and folders, and runs that cannot be compared with the reason.

    Tools write more than their result into a folder: files of a given folder that hold no runs (of no known tool, too large,
    no text) are left out with that reason. Raises ``InstanceError`` for files that are named and hold no runs, folders without
    any, files that are cut off, and runs that leave open how the model was served or contradict it.
    """
    told = told or Told()
    rows: list[MeasuredRow] = []
    skipped: list[Skipped] = []
    foreign: list[ForeignFileError] = []
    read = 0
    for path in result_files(paths):
        try:
            found, left_out = _runs(path, told)
        except ForeignFileError as error:
            if path in paths:
                raise
            foreign.append(error)
            continue
        read += 1
        rows += found
        skipped += left_out
    if foreign and not read:
        raise foreign[0]
    skipped += [Skipped(one.problems[0].place, one.problems[0].message) for one in foreign]
    return rows, skipped


def _runs(path: Path, told: Told) -> tuple[list[MeasuredRow], list[Skipped]]:
    """Rows of one file. Raises ``InstanceError``."""
    if path.name.lower().endswith((".csv", ".csv.gz")):
        return read_measured(path, lambda row, cells: _finish(row, cells, told))
    rows: list[MeasuredRow] = []
    skipped: list[Skipped] = []
    for bench in read_benches(path, told.warm_up_s):
        if bench.unusable:
            skipped.append(Skipped(bench.place, bench.unusable))
            continue
        row = _row(bench, path, told)
        if isinstance(row, Skipped):
            skipped.append(row)
        else:
            rows.append(row)
    return rows, skipped


def read_benches(path: Path, warm_up_s: float = 0.0) -> list[Bench]:
    """Every run of one result file. Raises ``InstanceError`` for a file of no tool that is known."""
    from rackfit.measurements.readers import vllm_bench

    found: list[Bench] = []
    for entry, place in entries(path):
        reader = next(
            (r for r in readers().values() if isinstance(entry, dict) and r.recognises(entry)), None
        )
        if reader is None:
            known = ", ".join(reader.TITLE for reader in readers().values())
            message = f"no result of a tool that is known; known: {known}, or a CSV"
            raise (InstanceError if found else ForeignFileError)(Problem(place, message))
        if warm_up_s > 0:
            if reader.TITLE != vllm_bench.TITLE:
                message = f"results of {reader.TITLE} hold no times of requests; cut the warm-up in the tool"
                raise InstanceError(Problem(f"{place}: --warm-up", message))
            entry = vllm_bench.after_warm_up(entry, warm_up_s, place)
        found += reader.read(entry, place)
    if not found:
        raise ForeignFileError(Problem(shown(path, 200), "holds no run"))
    return found


def tool_of(path: Path) -> str | None:
    """The tool whose result a file is, ``a CSV`` for a table; ``None`` where it is neither."""
    if path.name.lower().endswith((".csv", ".csv.gz")):
        return "a CSV"
    try:
        entry, _ = next(entries(path))
    except (InstanceError, StopIteration):
        return None
    found = (one for one in readers().values() if isinstance(entry, dict) and one.recognises(entry))
    return next((one.TITLE for one in found), None)


def _row(bench: Bench, path: Path, told: Told) -> MeasuredRow | Skipped:
    """A run as a row, or why it cannot be compared. Raises ``InstanceError`` with what is missing and which option gives it."""
    problems = []
    model, system = told.model or bench.model, bench.system or told.chip
    deployed = bench.deployed
    if deployed is None:
        launch = told.launch or next(
            (path.parent / n for n in _BESIDE if is_file(path.parent / n)), None
        )
        if launch is None:
            message = f"{bench.tool} does not say how the model was served; give --launch FILE with the engine's command, or put it beside as {_BESIDE[0]}"
            problems.append(Problem(bench.place, message))
        else:
            deployed = deployed_by(launch, told.engine)
    if model is None:
        problems.append(Problem(bench.place, f"{bench.tool} does not name the model; give --model"))
    if system is None:
        problems.append(Problem(bench.place, f"{bench.tool} does not name the chip; give --chip"))
    if problems or deployed is None or model is None or system is None:
        raise InstanceError(problems)
    if bench.engine not in (None, deployed.engine):
        message = f"{bench.tool} sent its requests to {bench.engine}, but the launch command is of {deployed.engine}; give that of {bench.engine} with --launch"
        raise InstanceError(Problem(bench.place, message))
    if deployed.unusable:
        return Skipped(bench.place, deployed.unusable)
    concurrency = bench.concurrency
    if not concurrency > 0:
        return Skipped(bench.place, f"concurrency: must be above 0, got {concurrency:g}")
    return MeasuredRow(
        id=bench.place,
        engine=deployed.engine,
        model=model,
        system=system.lower(),
        precision=(bench.precision or deployed.precision).lower(),
        input_tokens=bench.input_tokens,
        output_tokens=bench.output_tokens,
        concurrency=concurrency,
        decode=deployed.decode,
        prefill=deployed.prefill,
        tpot_s=bench.tpot_s,
        ttft_s=bench.ttft_s,
        fixed_lengths=bench.fixed_lengths,
        percentiles=tuple(sorted(bench.percentiles.items())),
    )


def _finish(row: MeasuredRow, cells: Mapping[str, str], told: Told) -> MeasuredRow:
    """A row of a table with its ``launch`` and ``gpus``. Raises ``ValueError``: the row is left out."""
    if row.id == EXAMPLE:
        raise ValueError("the example row of the template")
    if words := cells.get("launch"):
        try:
            deployed = deployed_as(words, row.engine, row.id)
        except InstanceError as error:
            raise ValueError(str(error)) from None
        if deployed.unusable:
            raise ValueError(deployed.unusable)
        precision = row.precision or deployed.precision
        row = replace(row, decode=deployed.decode, prefill=deployed.prefill, precision=precision)
    if gpus := cells.get("gpus"):
        own = [row.decode] + ([row.prefill] if row.prefill else [])
        chips = sum(group.chips * group.workers for group in own)
        if gpus != str(chips):
            raise ValueError(
                f"gpus: says {gpus[:20]}, the sizes make {chips}; tp_size is the GPUs of one attention rank, SGLang's "
                "--tp-size counts all of them: give the command in the column launch"
            )
    return row
