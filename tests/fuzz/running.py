"""Runs commands on damaged files and damaged words, each in a process of its own that is watched.

``python tests/fuzz/running.py NUM [--processes 2] [--out FILE] [--only SEED]``. Input number ``i`` depends on
``i`` alone. Outcomes are appended to FILE as JSON lines, so that a run that was stopped goes on where it ended.
A fault is: an exit code other than 0 to 3, a traceback, more than 10 s of a processor or 1 GB, a file outside of ``out``.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from random import Random

from corpus import COMMANDS, write_corpus
from mutators import damaged_file, damaged_words

MOST_S, MOST_KB = 10.0, 1_000_000
#: seconds by the clock after which an input is killed, on a machine that does other things, too
KILLED_S = 60.0
#: what a message must not hold
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f]")


@dataclass(frozen=True)
class Outcome:
    """What one input did; ``fault`` is empty where that is as it should be."""

    seed: int
    what: str
    words: list[str]
    code: int
    seconds: float
    kb: int
    fault: str = ""


def run_input(seed: int, corpus: Path, scratch: Path) -> Outcome:
    """Make input ``seed``, run its command in a child, and say what it did."""
    random = Random(seed)
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(corpus, scratch / "in")
    work = scratch / "in"
    for name in ("out", "tmp", "home"):
        (work / name).mkdir()
    name = random.choice(sorted(COMMANDS))
    words = list(random.choice(COMMANDS[name]))
    what = name
    if random.random() < 0.25:
        words, what = damaged_words(words, random), "words"
    else:
        content = damaged_file(name, (work / name).read_bytes(), random)
        (work / name).write_bytes(content)
    before = _listing(scratch)
    child = os.fork()
    if child == 0:
        _ask(words, work)
    code, seconds, kb = _watch(child)
    said = (work / "tmp" / "stderr").read_bytes().decode("utf-8", "replace")
    fault = _fault(code, seconds, kb, said)
    strange = {
        path for path in _listing(scratch) ^ before if not path.startswith(("in/out", "in/tmp/std"))
    }
    if not fault and strange and what != "words":  # words may name another place to write to
        fault = f"wrote {sorted(strange)[:3]}"
    if not fault and [path for path in strange if "pwned" in path]:
        fault = f"wrote {sorted(strange)[:3]}"
    return Outcome(seed, what, words, code, round(seconds, 2), kb, fault)


def _fault(code: int, seconds: float, kb: int, said: str) -> str:
    if "Traceback" in said or code not in (0, 1, 2, 3):
        return f"exit {code}: {said.strip()[-1500:]}"
    if seconds > MOST_S:
        return f"{seconds:.1f} s"
    if kb > MOST_KB:
        return f"{kb} KB"
    if CONTROL.search(said):
        return f"a message of control characters: {said[:200]!r}"
    if "Warning:" in said:
        return f"a warning of a library: {said[-500:]}"
    return ""


def _ask(words: list[str], work: Path) -> None:
    """In the child: run one command, then end."""
    from rackfit.cli import app

    os.chdir(work)
    for number, name in ((1, "stdout"), (2, "stderr")):
        handle = os.open(work / "tmp" / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(handle, number)
    os.environ |= {
        "HOME": str(work / "home"),
        "XDG_CACHE_HOME": str(work / "home"),
        "TMPDIR": str(work / "tmp"),
    }
    tempfile.tempdir = None
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.argv = ["rackfit", *words]
    os.environ["RACKFIT_DEBUG"] = "1"
    code = 99
    try:
        try:
            app.main()
        except SystemExit as end:
            code = int(end.code or 0)
        except app_errors() as error:  # a message, with the traceback that was asked for
            code = app.exit_code(error)
        except BaseException:
            import traceback

            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def app_errors() -> type[Exception]:
    """Errors that Rackfit raises on purpose."""
    from topology.errors import RackfitError

    return RackfitError


def _watch(child: int) -> tuple[int, float, int]:
    """Exit code, seconds of a processor and most memory (KB) of a child; one that does not end is killed."""
    deadline = time.monotonic() + KILLED_S
    while True:
        ended, status, used = os.wait4(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, used.ru_maxrss
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            _, status, used = os.wait4(child, 0)
            return os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, used.ru_maxrss
        time.sleep(0.005)


def _listing(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def _loaded() -> None:
    """Import what the commands import, once, so that children need not."""
    import rackfit.api
    import rackfit.cli.app as app
    import rackfit.exporters.export
    import rackfit.placement.place
    import rackfit.report.report
    import rackfit.studies.run

    app.build_app()
    assert rackfit.api


def work_through(first: int, step: int, last: int, out: Path | None) -> list[Outcome]:
    """Inputs ``first``, ``first + step``, ... below ``last``; those that ``out`` knows already are left out."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _loaded()
    known = {outcome["seed"] for outcome in read(out)} if out is not None else set()
    if out is not None and out.is_file() and not out.read_bytes().endswith(b"\n"):
        with out.open("a", encoding="utf-8") as file:
            file.write("\n")  # the last line was cut off
    found = []
    with tempfile.TemporaryDirectory(prefix="rackfit-fuzz-") as folder:
        corpus = Path(folder) / "corpus"
        corpus.mkdir()
        write_corpus(corpus)
        for seed in range(first, last, step):
            if seed in known:
                continue
            outcome = run_input(seed, corpus, Path(folder) / "scratch")
            found.append(outcome)
            if out is not None:
                with out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(outcome)) + "\n")
    return found


def read(out: Path | None) -> list[dict[str, object]]:
    """Outcomes written so far; a last line that was cut off is left out."""
    if out is None or not out.is_file():
        return []
    found = []
    for line in out.read_text(encoding="utf-8").splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def summary(outcomes: list[dict[str, object]]) -> str:
    """How many inputs, by exit code; the slowest, the largest, and every fault."""
    codes = Counter(outcome["code"] for outcome in outcomes)
    lines = [f"{len(outcomes)} inputs; by exit code {dict(sorted(codes.items()))}"]  # type: ignore[type-var]
    if outcomes:
        slow = max(outcomes, key=lambda outcome: float(str(outcome["seconds"])))
        large = max(outcomes, key=lambda outcome: int(str(outcome["kb"])))
        lines.append(f"slowest {slow['seconds']} s (seed {slow['seed']}, {slow['what']})")
        lines.append(
            f"largest {int(str(large['kb'])) / 1000:.0f} MB (seed {large['seed']}, {large['what']})"
        )
    faults = [outcome for outcome in outcomes if outcome["fault"]]
    lines.append(f"{len(faults)} faults")
    lines += [f"seed {o['seed']} ({o['what']}): {str(o['fault'])[-300:]}" for o in faults[:20]]
    return "\n".join(lines)


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("num", type=int, nargs="?", default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", type=int)
    asked = parser.parse_args()
    if asked.only is not None:
        (outcome,) = work_through(asked.only, 1, asked.only + 1, None)
        print(json.dumps(asdict(outcome), indent=1))
        return
    out = asked.out or Path(tempfile.mkstemp(prefix="rackfit-fuzz-", suffix=".jsonl")[1])
    out.parent.mkdir(parents=True, exist_ok=True)
    workers = [
        get_context("spawn").Process(
            target=work_through,
            args=(asked.first + n, asked.processes, asked.first + asked.num, out),
        )
        for n in range(asked.processes)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    outcomes = read(out)
    print(f"{out}\n{summary(outcomes)}")
    sys.exit(1 if any(outcome["fault"] for outcome in outcomes) else 0)


if __name__ == "__main__":
    main()
