"""Interrupts solves at random moments: ``python tests/hostile/interrupting.py NUM [--first SEED]``.

Each run gets SIGINT, SIGTERM or a time limit at a moment drawn from its seed, in set-up too, also on 5,000 alike and
5,000 unlike domains. It has to end within two seconds of that, with a whole file that evaluates without a violation,
or without a file; prints every run that does not, and how long they took.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random

import yaml

ROOT = Path(__file__).resolve().parents[2]
WITHIN_S = 2.0
#: model, cluster, seconds in which the moment is drawn
QUESTIONS = (
    ("deepseek-v3", "gb200-nvl72", 6.0),
    ("qwen3-30b-a3b", "hgx-h100@4", 5.0),
    ("deepseek-v3", "hgx-h100@5000", 12.0),
    ("llama-3.1-70b", "hgx-h100@5000", 12.0),
    ("deepseek-v3", "unlike.yaml", 15.0),
    ("deepseek-v3", "nvl-160@625", 15.0),
)


def write_unlike(folder: Path) -> None:
    """A cluster of 5,000 nodes no two of which are alike."""
    node = {"rack": "node", "fabric": {"kind": "nvswitch", "links_per_switch": [5, 4, 4, 5]}}
    domains = [
        {**node, "chips": [{"chip": "h100", "count": 8, "nic_bytes_per_s": 5e10 + number}]}
        for number in range(5000)
    ]
    data = {"name": "unlike", "domains": domains, "scale_out": {"kind": "rail-optimised"}}
    (folder / "unlike.yaml").write_text(yaml.safe_dump(data))


def interrupt(seed: int, folder: Path) -> tuple[str, float, str]:
    """What was done, seconds from the interruption to the end, and what is wrong (empty: nothing)."""
    random = Random(seed)
    model, cluster, within = random.choice(QUESTIONS)
    how = random.choice(("INT", "TERM", "limit"))
    after = random.uniform(0.05, within)
    out = folder / f"layout-{seed}.json"
    words = [
        sys.executable, "-m", "rackfit", "solve", "--model", model, "--cluster", cluster, "--gap", "0",
        "--ttft", "2 s", "--tpot", "50 ms", "--out", str(out),
    ]  # fmt: skip
    if how == "limit":
        words += ["--time-limit", f"{after:.3f}"]
    said = f"seed {seed}: {how} at {after:.2f} s of {model} on {cluster}"
    before = set(os.listdir(folder))
    started = time.monotonic()
    process = subprocess.Popen(
        words, cwd=folder, env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    try:
        process.wait(timeout=after)
    except subprocess.TimeoutExpired:
        if how != "limit":
            process.send_signal(getattr(signal, f"SIG{how}"))
    began = time.monotonic()
    _, errors = process.communicate(timeout=300)
    seconds = time.monotonic() - began
    if how == "limit":
        seconds = max(0.0, time.monotonic() - started - after)
    wrong = []
    if seconds > WITHIN_S:
        wrong.append(f"took {seconds:.1f} s")
    # a signal that comes before the program has taken it over ends the interpreter itself
    early = process.returncode in (-2, -15, 1, 130, 143) and after < 1.0
    if not early and ("Traceback" in errors or process.returncode not in (0, 3)):
        wrong.append(f"exit {process.returncode}: {errors[-300:]}")
    if (process.returncode == 0) != out.exists():
        wrong.append(f"exit {process.returncode}, file: {out.exists()}")
    left = set(os.listdir(folder)) - before - {out.name}
    if left:
        wrong.append(f"left {sorted(left)}")
    if out.exists():
        wrong += _reread(out)
        out.unlink()
    return f"{said}: exit {process.returncode}", seconds, "; ".join(wrong)


def _reread(path: Path) -> list[str]:
    """What is wrong with a layout that was written."""
    from costmodel.evaluate import evaluate
    from rackfit.documents.result import read_result

    instance, layout, document = read_result(path)
    evaluation = evaluate(instance, layout)
    if evaluation.violations:
        return [f"violations: {evaluation.violations[0]}"]
    if document["instance"]["digest"] != instance.digest:
        return ["another digest"]
    figure = "usd_per_m_output_tokens"
    same = json.dumps(getattr(evaluation, figure)) == json.dumps(document["evaluation"][figure])
    return [] if same else ["another cost"]


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("num", type=int, nargs="?", default=200)
    parser.add_argument("--first", type=int, default=0)
    asked = parser.parse_args()
    faults, times = 0, []
    with tempfile.TemporaryDirectory() as name:
        write_unlike(Path(name))
        for seed in range(asked.first, asked.first + asked.num):
            what, seconds, wrong = interrupt(seed, Path(name))
            times.append(seconds)
            faults += bool(wrong)
            print(f"{what}, {seconds:.2f} s{': ' + wrong if wrong else ''}", flush=True)
    times.sort()
    print(
        f"{asked.num} runs, {faults} faults; ended in {times[len(times) // 2]:.2f} s in the median, {times[-1]:.2f} s at most"
    )
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
