"""Runs commands on damaged files and damaged words, in processes that are watched.

``python tests/fuzz/running.py NUM [--processes 2] [--out FILE] [--only SEED]``. Input number ``i`` depends on
``i`` alone. Outcomes are appended to FILE as JSON lines, so that a run that was stopped goes on where it ended.
A fault is: an exit code other than 0 to 3, a traceback, a library's warning, more than 10 s of a processor or 1 GB;
whatever is written outside of ``out``, started or connected to; files of a command that was refused; a document
that is no JSON.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import re
import resource
import sys
import tempfile
from collections import Counter
from dataclasses import asdict, dataclass, replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from pkgutil import walk_packages
from random import Random

import typer.main
from child import Asker
from commands import COMMANDS, SLOW
from corpus import write_corpus
from mutators import damaged_file, damaged_words, with_flags
from watching import Scratch, listing

import costmodel
import rackfit
import solver
import topology
from costmodel.question.engine_files import engine_data
from rackfit.cli.app import build_app

#: launch files and their engines
ENGINE_FILES = {f"{engine}.sh": engine for engine in ("sglang", "trtllm", "vllm")}
MOST_S, MOST_KB = 10.0, 1_000_000
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


def run_input(seed: int, scratch: Scratch, asker: Asker) -> Outcome:
    """Make input ``seed``, run its command, and say what it did; a fault is looked at once more, alone."""
    found = _run_input(seed, scratch, asker)
    if not found.fault:
        return found
    asker.end()
    again = _run_input(seed, scratch, asker)
    asker.end()
    return again if again.fault else replace(found, fault=f"not alone: {found.fault}")


def _run_input(seed: int, scratch: Scratch, asker: Asker) -> Outcome:
    random = Random(seed)
    work = scratch.work
    before = scratch.tidy()
    names = sorted(COMMANDS)
    (name,) = random.choices(names, [0.1 if one in SLOW else 1.0 for one in names])
    words = list(random.choice(COMMANDS[name]))
    what = name
    if random.random() < 0.25:
        words, what = damaged_words(words, options_of(words[0]), random), "words"
    else:
        content = damaged_file(name, (work / name).read_bytes(), random)
        if name in ENGINE_FILES and random.random() < 0.5:
            flags = engine_flags(ENGINE_FILES[name])
            content = with_flags((work / name).read_bytes(), flags, random)
        (work / name).write_bytes(content)
        before = listing(scratch.folder)
    # words may name another place to write to, but none above the scratch folder
    own = (
        (scratch.folder.parent,) if what == "words" else (work / "out", work / "tmp", work / "home")
    )
    code, seconds, kb = asker.ask(words, own)
    said = (work / "tmp" / "stderr").read_bytes().decode("utf-8", "replace")
    fault = _fault(code, seconds, kb, said) or _half_written(words, what, code, work)
    touched = (work / "tmp" / "touched").read_text(encoding="utf-8", errors="replace")
    strange = {
        path for path, _ in listing(scratch.folder).items() ^ before.items()
        if not path.startswith(("in/out", *(f"in/tmp/{own}" for own in ("std", "touched"))))
    }  # fmt: skip
    if what == "words":
        strange = {path for path in strange if path.rpartition("/")[2] == "pwned"}
    if not fault and (touched or strange):
        fault = f"touched {touched[:500]} {sorted(strange)[:3]}"
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


def _half_written(words: list[str], what: str, code: int, work: Path) -> str:
    """What is wrong with the outputs: files of a refused command, a document that is no JSON."""
    left = [str(path) for path in (work / "out").rglob("*") if path.is_file()]
    if code == 2 and left and what != "words":
        return f"refused, and wrote {left[:3]}"
    if code != 0 or "--json" not in words or what == "words":
        return ""
    try:
        json.loads((work / "tmp" / "stdout").read_text(encoding="utf-8"), parse_constant=_no_number)
    except ValueError as error:
        return f"not JSON: {error}"
    return ""


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number")


@cache
def options_of(command: str) -> tuple[str, ...]:
    """Every option of a command."""
    found = typer.main.get_command(build_app(command)).commands[command]  # type: ignore[attr-defined]
    return tuple(
        sorted(option for param in found.params for option in param.opts if option[0] == "-")
    )


@cache
def engine_flags(engine: str) -> tuple[str, ...]:
    """Every option that a version of an engine has, as far as kept."""
    return tuple(sorted(engine_data(engine)["arguments"]))


def load_all() -> None:
    """Import all modules, once, so that children need not."""
    for package in (rackfit, solver, costmodel, topology):
        for module in walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)


def work_through(first: int, step: int, last: int, out: Path | None) -> list[Outcome]:
    """Inputs ``first``, ``first + step``, ... below ``last``; those that ``out`` knows already are left out."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    load_all()
    gc.freeze()  # what all children share is not looked through again
    known = {outcome["seed"] for outcome in read(out)} if out is not None else set()
    if out is not None and out.is_file() and not out.read_bytes().endswith(b"\n"):
        with out.open("a", encoding="utf-8") as file:
            file.write("\n")  # the last line was cut off
    found = []
    with tempfile.TemporaryDirectory(prefix="rackfit-fuzz-") as folder:
        corpus = Path(folder) / "corpus"
        corpus.mkdir()
        write_corpus(corpus)
        scratch = Scratch(corpus, Path(folder) / "scratch")
        asker = Asker(scratch.work)
        for seed in range(first, last, step):
            if seed in known:
                continue
            outcome = run_input(seed, scratch, asker)
            found.append(outcome)
            if out is not None:
                with out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(outcome)) + "\n")
        asker.end()
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
