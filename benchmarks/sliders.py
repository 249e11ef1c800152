"""How soon the page has something to show after a slider moved, and how much memory the server then has.

A server of its own is asked as the page asks it: one question after the other on the README's rack, each with another
target, and every fourth one left before it is answered, as by a slider that moves on. First sight is a layout and a
bound; proven is an answer within 1 % of its bound. The page waits :data:`rackfit.serve.explore.PAUSE_MS` after a move
before it asks: that is counted.

Usage: ``python -m benchmarks.sliders [--moves 100] [--questions 1000] [--seed 0]``
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from rackfit.serve.explore import PAUSE_MS

QUESTION = {"model": "deepseek-v3", "cluster": "gb200-nvl72", "workload": "chat"}
#: seconds; where the page's sliders stand around the README's targets
TTFT_S, TPOT_S = (1.0, 4.0), (0.015, 0.08)


@dataclass(frozen=True)
class Move:
    """Seconds from a move to what the page shows; of an answer that was left, to its first sight."""

    sight_s: float
    proven_s: float | None
    ended_s: float | None
    gap: float | None


def asked(address: tuple[str, int], slo: dict[str, float], leave_after_s: float | None) -> Move:
    """Ask as the page does; ``leave_after_s``: go away so long after the first sight."""
    paused = PAUSE_MS / 1e3
    start = time.perf_counter() - paused
    connection = http.client.HTTPConnection(*address)
    body = json.dumps({"scenario": {**QUESTION, "slo": slo}, "gap": 0.01})
    kinds = {"Content-Type": "application/json", "Accept": "application/x-ndjson"}
    connection.request("POST", "/api/solve", body, kinds)
    bound = layout = False
    sight = proven = gap = None
    for line in connection.getresponse():
        now, said = time.perf_counter() - start, json.loads(line)
        if "error" in said:  # that nothing fits is an answer, too
            connection.close()
            return Move(sight or now, proven or now, now, gap)
        seen = said.get("sight") or said.get("progress") or said.get("answer") or {}
        bound |= bool(seen.get("bound")) or "answer" in said or "document" in said
        layout |= "layout" in seen or "document" in said
        if sight is None and bound and layout:
            sight = now
        if proven is None and "answer" in said:
            proven, gap = now, said["answer"]["certificate"]["gap"]
        if sight is not None and leave_after_s is not None:
            time.sleep(leave_after_s)
            connection.close()
            return Move(sight, None, None, None)
        if "document" in said:
            connection.close()
            return Move(sight or now, proven or now, now, gap)
    raise AssertionError("the answer has no end")


def memory_mb(server: int) -> dict[str, float]:
    """Resident MB of a process and all that it started, and the same with shared pages counted once."""
    found = {"resident": 0.0, "proportional": 0.0}
    for process in [server, *started_by(server)]:
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            name, _, rest = line.partition(":")
            if name in ("Rss", "Pss"):
                key = "resident" if name == "Rss" else "proportional"
                found[key] += int(rest.split()[0]) * 1024 / 1e6
    return found


def started_by(process: int) -> list[int]:
    """Processes that a process started, and they."""
    own = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [each for child in map(int, own) for each in (child, *started_by(child))]


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--moves", type=int, default=100)
    parser.add_argument("--questions", type=int, default=1000, help="asked before memory is read")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    at_random = random.Random(given.seed)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start")
    command = [sys.executable, "-m", "rackfit", "serve", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            told = re.search(r"//([\d.]+):(\d+)/", server.stderr.readline())
            assert told is not None
            address = (told[1], int(told[2]))
            most = 0.0
            done: list[Move] = []
            for number in range(-1, max(given.moves, given.questions)):
                slo = {
                    "ttft": round(at_random.uniform(*TTFT_S), 3), "tpot": round(at_random.uniform(*TPOT_S), 4),
                }  # fmt: skip
                leaves = at_random.uniform(0, 0.6) if number % 4 == 3 else None
                found = asked(address, slo, leaves)
                if number < 0:
                    print(
                        f"first question, nothing known: {1e3 * found.sight_s:.0f} ms to first sight"
                    )
                else:
                    done.append(found)
                if number == given.moves - 1:
                    show(done)
                if number % 50 == 0 or number + 1 == given.questions:
                    most = max(most, memory_mb(server.pid)["resident"])
            print(
                f"{len(done)} questions: {of_all(memory_mb(server.pid))}; at most {most:.0f} MB resident"
            )
        finally:
            server.terminate()
            assert server.stderr is not None
            print(f"the server's own messages: {server.stderr.read() or 'none'}")


def of_all(memory: dict[str, float]) -> str:
    """Memory in words."""
    return ", ".join(f"{size:.0f} MB {name}" for name, size in memory.items())


def show(moves: list[Move]) -> None:
    """Print what moves took."""
    kinds = {
        "first sight (a layout and a bound)": [move.sight_s for move in moves],
        "answer proven within 1 %": [move.proven_s for move in moves if move.proven_s is not None],
        "and what stands beside it": [move.ended_s for move in moves if move.ended_s is not None],
    }
    print(f"{'ms':36} {'n':>4} {'median':>7} {'p90':>7} {'most':>7}")
    for name, times in kinds.items():
        ordered = sorted(1e3 * each for each in times)
        p90 = ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))]
        print(f"{name:36} {len(ordered):4} {median(ordered):7.0f} {p90:7.0f} {ordered[-1]:7.0f}")
    gaps = [move.gap for move in moves if move.gap is not None]
    print(f"largest gap {max(gaps):.3%}", flush=True)


if __name__ == "__main__":
    main()
