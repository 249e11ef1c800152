"""Beside each other: what was exported and what runs, what was promised and what was measured."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from costmodel.evaluate import Evaluation
from rackfit.exporters.launch.options import OptionTable
from rackfit.live.expected import Expected
from rackfit.live.shown import Shown
from rackfit.live.timing import Timed

#: Output tokens or requests from which a server's own mean since its start is judged.
_ENOUGH = 20
_FORMATS = {"bf16": "bfloat16", "fp16": "float16", "half": "float16", "float": "float32"}


@dataclass(frozen=True)
class Difference:
    """One thing that runs otherwise: ``what`` (an option, the engine, the model), both values as text."""

    what: str
    exported: str
    runs: str

    def __str__(self) -> str:
        return f"{self.what}: exported {self.exported}, runs {self.runs}"


@dataclass(frozen=True)
class Checked:
    """One server: what was compared, what differs, and what it does not show."""

    server: str
    url: str
    compared: tuple[str, ...]
    differences: tuple[Difference, ...]
    not_shown: tuple[str, ...]
    hidden: str
    means: dict[str, tuple[float, int]]


def compare(table: OptionTable, expected: Expected, shown: Shown, url: str) -> Checked:
    """Every exported option beside what the server shows of it."""
    engine, version = table.engine, str(table.data["version"])
    found, compared, missing = [], [], []
    if shown.engine != engine or not _same_version(shown.version, version):
        found.append(Difference("engine", f"{engine} {version}", f"{shown.engine} {shown.version}"))
    if shown.engine == engine:
        if shown.model is not None and shown.model != expected.model:
            found.append(Difference("model", expected.model, shown.model))
        needed, room = expected.kv_tokens, shown.kv_tokens
        if needed is not None and room is not None and room < needed:
            found.append(Difference("KV cache", f"{needed:,} tokens", f"room for {room:,}"))
        for name, value in expected.options.items():
            if value == "auto":
                continue  # the engine shows what it chose
            names = (name, *table.options[name].get("aliases", ()))
            said = next((shown.options[one] for one in names if one in shown.options), None)
            if said is None:
                missing.append(name)
                continue
            compared.append(name)
            found += _differences(name, value, said)
    return Checked(
        expected.name, url, tuple(compared), tuple(found), tuple(missing), shown.hidden, shown.means
    )


def _same_version(runs: str, exported: str) -> bool:
    """Whether a release is one of the version that the file names (0.33.0 of 0.33)."""
    return runs == exported or runs.startswith((f"{exported}.", f"{exported}+", f"{exported}rc"))


def _differences(name: str, exported: Any, runs: Any) -> list[Difference]:
    if isinstance(exported, dict) and isinstance(runs, dict):
        return [
            one
            for key, value in exported.items()
            if key in runs
            for one in _differences(f"{name} {key}", value, runs[key])
        ]
    if _plain(exported) == _plain(runs):
        return []
    return [Difference(name, _written(exported), _written(runs))]


def _plain(value: Any) -> Any:
    """A value so that 0.92 is "0.92" and torch.bfloat16 is bf16."""
    if isinstance(value, bool):
        return str(value).lower()
    try:
        return float(value)
    except (TypeError, ValueError):
        text = _written(value).removeprefix("torch.").lower()
        return _FORMATS.get(text, text)


def _written(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= 200 else f"{text[:200]}..."


@dataclass(frozen=True)
class Report:
    """What was found. ``asked`` of ``servers`` were named; ``timed`` is ``None`` where nothing was sent."""

    checked: tuple[Checked, ...]
    servers: int
    timed: Timed | None
    promised_ttft_s: float
    promised_tpot_s: float

    @property
    def as_exported(self) -> bool:
        """Whether no server shows anything else than was exported."""
        return not any(one.differences for one in self.checked)

    @property
    def slow(self) -> list[str]:
        """What takes longer than promised, one line each."""
        found = []
        if self.timed is not None:
            found += self._slower("one request at a time", self.timed.ttft_s, self.timed.tpot_s)
        for one in self.checked:
            enough = {name: seconds for name, (seconds, n) in one.means.items() if n >= _ENOUGH}
            where = f"{one.server} since its start"
            found += self._slower(where, enough.get("ttft_s", 0.0), enough.get("tpot_s", 0.0))
        return found

    def _slower(self, where: str, ttft_s: float, tpot_s: float) -> list[str]:
        found = []
        if ttft_s > self.promised_ttft_s:
            found.append(f"{where}: TTFT {_s(ttft_s)}, promised at most {_s(self.promised_ttft_s)}")
        if tpot_s > self.promised_tpot_s:
            found.append(f"{where}: TPOT {_s(tpot_s)}, promised at most {_s(self.promised_tpot_s)}")
        return found

    def as_dict(self) -> dict[str, Any]:
        """The document of ``--json``."""
        return {
            "as_exported": self.as_exported,
            "as_fast": None if not self._measured else not self.slow,
            "servers": [asdict(one) for one in self.checked],
            "servers_of_the_layout": self.servers,
            "promised": {"ttft_s": self.promised_ttft_s, "tpot_s": self.promised_tpot_s},
            "timed": None if self.timed is None else asdict(self.timed),
            "slower": self.slow,
        }

    @property
    def _measured(self) -> bool:
        means = [n for one in self.checked for _, n in one.means.values()]
        return self.timed is not None or any(n >= _ENOUGH for n in means)

    def lines(self) -> list[str]:
        """The report for people: each server, what was timed, and the verdict."""
        found = []
        for one in self.checked:
            word = "differs" if one.differences else "as exported"
            found.append(
                f"{one.server} at {one.url}: {word} ({len(one.compared)} options compared)"
            )
            found += [f"  {difference}" for difference in one.differences]
            if one.not_shown:
                hint = f"; {one.hidden}" if one.hidden else ""
                found.append(f"  not shown by the server: {', '.join(one.not_shown)}{hint}")
        if self.timed is not None:
            timed = self.timed
            found.append(
                f"timed at {timed.url}: {timed.requests} requests of {timed.input_tokens:,} + "
                f"{timed.output_tokens:,} tokens, one at a time: TTFT {_s(timed.ttft_s)}, TPOT "
                f"{_s(timed.tpot_s)}; promised at the full batch: at most {_s(self.promised_ttft_s)} and "
                f"{_s(self.promised_tpot_s)}"
            )
        found += [f"slower than promised: {line}" for line in self.slow]
        asked = len(self.checked)
        if asked < self.servers:
            found.append(f"{asked} of the layout's {self.servers} servers were asked")
        if asked:
            shown = "what runs is what was exported" if self.as_exported else "what runs differs"
            found.append(shown + ("" if self.as_exported else " from what was exported"))
        if self._measured and not self.slow:
            found.append("as fast as promised")
        return found


def report(
    checked: list[Checked], servers: int, measured: Timed | None, evaluation: Evaluation
) -> Report:
    """The report on servers of a layout that was priced so."""
    assert evaluation.ttft_s is not None
    assert evaluation.tpot_s is not None
    return Report(tuple(checked), servers, measured, evaluation.ttft_s, evaluation.tpot_s)


def _s(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"
