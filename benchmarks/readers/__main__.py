"""Run each tool against the endpoint, read its files, say what was read beside what was sent.

    python -m benchmarks.readers FOLDER [--fail-every N] [TOOL==VERSION[=ENVIRONMENT] ..]

Environments are made under FOLDER unless one is named. ``read.jsonl`` keeps a line for each run, ``python -m
benchmarks.readers page FOLDER`` writes the table of docs/your-measurements.md from it. ``make readers`` does both.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.readers.endpoint import MODEL, Log, serve
from benchmarks.readers.tokenizer import write_tokenizer
from benchmarks.readers.tools import TOOLS, Run, Tool
from rackfit.measurements.rows import Told, read_benches, read_runs
from topology.errors import InstanceError

PAGE = Path(__file__).resolve().parents[2] / "docs" / "your-measurements.md"
#: seconds that a tool may take
_PATIENCE_S = 1500


def environment(folder: Path, tool: Tool, version: str) -> Path:
    """A virtual environment with the tool; made once."""
    home = folder / f"venv-{tool.name}-{version}"
    if not (home / "bin" / "pip").exists():
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    done = home / ".installed"
    if not done.exists():
        words = [str(home / "bin" / "pip"), "install", "--quiet", *tool.requirements(version)]
        subprocess.run(words, check=True)
        done.touch()
    return home


def once(folder: Path, tool: Tool, version: str, home: Path, fail_every: int) -> dict[str, Any]:
    """One run of one tool; its row."""
    out = folder / f"{tool.name}-{version}{'-failing' if fail_every else ''}"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    server, log = serve(fail_every=fail_every)
    url = f"http://127.0.0.1:{server.server_address[1]}"
    run = Run(
        (home / "bin").absolute(),
        url,
        write_tokenizer(folder / "tokenizer").absolute(),
        out.absolute(),
    )
    quiet = {
        "DO_NOT_TRACK": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "PATH": f"{run.bin}:{os.environ['PATH']}",
    }
    row: dict[str, Any] = {"tool": tool.name, "version": version, "fail_every": fail_every}
    try:
        with (out / "said.txt").open("w") as said:
            done = subprocess.run(
                tool.words(run, version), env=os.environ | quiet, stdout=said, stderr=said, cwd=out, check=False,
                timeout=_PATIENCE_S, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        row["exit"] = done.returncode
    except subprocess.TimeoutExpired:
        row["exit"] = "timeout"
    finally:
        server.shutdown()
    return row | _sent(log) | _read(sorted(out.glob(tool.results)), out, tool)


def _sent(log: Log) -> dict[str, Any]:
    """What the endpoint sent: its most frequent lengths, mean times."""
    if not log.sent:
        return {"sent": 0, "failed": log.failed}
    outputs = statistics.mode(one.outputs for one in log.sent)
    counted = [one for one in log.sent if one.outputs == outputs]
    return {
        "sent": len(counted),
        "failed": log.failed,
        "input": statistics.mean(one.inputs for one in counted),
        "output": outputs,
        "ttft_s": statistics.mean(one.first_s for one in counted),
        "tpot_s": statistics.mean(one.rest_s for one in counted) / max(1, outputs - 1),
    }


def _read(files: list[Path], out: Path, tool: Tool) -> dict[str, Any]:
    """What Rackfit reads: the run, and the row of a calibration."""
    if not files:
        return {"error": "no result was written"}
    launch = f"vllm serve {MODEL} --tensor-parallel-size 2 --max-num-seqs 64\n"
    if tool.name == "sglang":  # it asks its own engine
        launch = f"python -m sglang.launch_server --model-path {MODEL} --tp-size 2\n"
    (out / "launch.sh").write_text(launch)
    try:
        (bench,) = read_benches(files[0])
        rows, skipped = read_runs([out], Told(launch=out / "launch.sh", chip="h100", model=MODEL))
    except (InstanceError, ValueError) as error:
        return {"file": files[0].name, "error": str(error).replace(f"{out}/", "")}
    return {
        "file": files[0].name,
        "read": {
            "title": bench.tool, "model": bench.model, "input": bench.input_tokens, "output": bench.output_tokens,
            "requests": bench.requests, "streams": bench.streams, "concurrency": bench.concurrency,
            "ttft_s": bench.ttft_s, "tpot_s": bench.tpot_s, "e2e_s": bench.e2e_s, "fixed": bench.fixed_lengths,
            "percentiles": sorted(bench.percentiles), "unusable": bench.unusable,
        },
        "rows": len(rows),
        "skipped": [one.reason for one in skipped if "requests failed" in one.reason],
    }  # fmt: skip


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Lines of the table: tool, version, what was read; times as read over as sent."""
    lines = [
        "| tool | version | file | model | tokens in, out | in flight | TTFT read / sent | TPOT read / sent | failed requests |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    lost = {(row["tool"], row["version"]): row for row in rows if row["fail_every"]}
    for row in rows:
        if row["fail_every"]:
            continue
        read = row.get("read")
        if read is None:
            lines.append(
                f"| {row['tool']} | {row['version']} | - | {row.get('error', '')} | | | | | |"
            )
            continue
        failing = lost.get((row["tool"], row["version"]), {}).get("skipped")
        cells = [
            row["tool"], row["version"], f"`{_short(row['file'])}`", "named" if read["model"] == MODEL else "not named",
            f"{read['input']:.4g}, {read['output']:.4g}", f"{read['concurrency']:.3g}",
            *(f"{read[key] / row[key]:.2f}" for key in ("ttft_s", "tpot_s")),
            "-" if failing is None else "; ".join(failing) or "not seen",
        ]  # fmt: skip
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return lines


def _short(file: str) -> str:
    """Names with the model and the time in them, without both."""
    return file if len(file) < 40 else f"{file[:12]}..{Path(file).suffix}"


def page(folder: Path) -> None:
    """Put the table into the page."""
    rows = [json.loads(line) for line in (folder / "read.jsonl").read_text().splitlines()]
    latest = {(row["tool"], row["version"], bool(row["fail_every"])): row for row in rows}
    text = PAGE.read_text(encoding="utf-8")
    start, end = "<!-- tools -->", "<!-- /tools -->"
    before, _, rest = text.partition(start)
    _, _, after = rest.partition(end)
    known = [(tool.name, version) for tool in TOOLS for version in tool.versions]
    ordered = sorted(latest.values(), key=lambda row: known.index((row["tool"], row["version"])))
    body = "\n".join(table(ordered))
    PAGE.write_text(f"{before}{start}\n{body}\n{end}{after}", encoding="utf-8")


def main(words: list[str]) -> int:
    """The command line."""
    if words[:1] == ["page"]:
        page(Path(words[1]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--fail-every", type=int, default=0)
    parser.add_argument("wanted", nargs="*")
    given = parser.parse_intermixed_args(words)
    known = {
        f"{tool.name}=={version}": (tool, version) for tool in TOOLS for version in tool.versions
    }
    given.folder.mkdir(parents=True, exist_ok=True)
    bad = False
    for name in given.wanted or known:
        name, _, home = name.partition("=/")
        tool, version = known[name]
        row: dict[str, Any] = {
            "tool": tool.name,
            "version": version,
            "fail_every": given.fail_every,
        }
        try:
            place = Path(f"/{home}") if home else environment(given.folder, tool, version)
            row = once(given.folder, tool, version, place, given.fail_every)
        except subprocess.CalledProcessError:
            row["error"] = "not installed: this Python or platform has no package of it"
        with (given.folder / "read.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)
        bad |= "error" in row
    return int(bad)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
