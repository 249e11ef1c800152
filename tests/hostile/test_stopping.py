"""Signals and time limits end a command within two seconds, in set-up too, with a whole file or none."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path

import pytest

from rackfit import stopping
from rackfit.cli import app, interrupts
from rackfit.cli.interrupts import GRACE_S, Stop
from rackfit.documents.output import write_whole
from topology import load_cluster
from topology.errors import NoLayoutInTime

ROOT = Path(__file__).resolve().parents[2]
#: a program that sends itself a signal once the work has begun, in a place that never looks at a clock
DRIVER = """
import os, signal, sys, threading, time
import rackfit.api, rackfit.cli.app
def stuck(*_, **__):
    threading.Timer({after}, os.kill, (os.getpid(), {number})).start()
    x = 0
    while True:
        x += 1
{patch}
sys.argv = ["rackfit", *sys.argv[1:]]
signal.signal(signal.SIGINT, signal.default_int_handler)
rackfit.cli.app.main()
"""
QUESTION = ("--model", "llama-3.1-8b", "--cluster", "hgx-h100")


def drive(
    tmp_path: Path, patch: str, *words: str, number: int = signal.SIGINT, after: float = 0.1
) -> tuple[int, float, str]:
    """Exit code, seconds from the signal to the end, and messages of a command that is stuck."""
    code = DRIVER.format(patch=patch, number=int(number), after=after)
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert "Traceback" not in done.stderr
    return done.returncode, time.monotonic() - started, done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("where", ["rackfit.api.make_instance", "rackfit.api.search"])
def test_a_signal_ends_work_that_looks_at_no_clock(where: str, number: int, tmp_path: Path) -> None:
    out = ("--out", "layout.json")
    code, _, said = drive(tmp_path, f"{where} = stuck", "solve", *QUESTION, *out, number=number)
    assert code == 3
    assert said == "rackfit: stopped before the first verified layout\n"
    assert list(tmp_path.iterdir()) == []


def test_a_time_limit_ends_set_up(tmp_path: Path) -> None:
    patch = "rackfit.api.make_instance = stuck"
    words = ("solve", *QUESTION, "--time-limit", "0.5", "--out", "layout.json")
    code, _, said = drive(tmp_path, patch, *words, after=60)
    assert code == 3
    assert said == "rackfit: the time limit came before the first verified layout\n"
    assert list(tmp_path.iterdir()) == []


def test_a_signal_keeps_the_layout_found_before(tmp_path: Path) -> None:
    patch = "import solver.search\nsolver.search.with_runner_up = stuck"
    words = ("solve", *QUESTION, "--out", "layout.json")
    code, _, said = drive(tmp_path, patch, *words, number=signal.SIGTERM)
    assert code == 0
    assert said.startswith("layout written to layout.json")
    document = json.loads((tmp_path / "layout.json").read_text())
    assert document["evaluation"]["violations"] == []
    assert 0 <= document["certificate"]["gap"] < 1


def test_a_time_limit_counts_from_the_start_of_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stopping.began[:] = [time.perf_counter() - 100]
    with pytest.raises(NoLayoutInTime):
        Stop[int]("it", 50).run(lambda: 1, print)
    seen: list[bool] = []
    monkeypatch.setattr(app, "run", lambda: seen.append(bool(stopping.began)) or 0)
    with pytest.raises(SystemExit):
        app.main()
    assert seen == [True]
    assert stopping.began == []
    assert not Stop[int]("it", 50).late


def test_writing_that_does_not_end_leaves_no_draft(tmp_path: Path) -> None:
    patch = "import rackfit.documents.output as o\no.os.chmod = stuck"
    words = ("solve", *QUESTION, "--out", "layout.json")
    code, _, said = drive(tmp_path, patch, *words)
    assert code == 3
    assert said == "rackfit: stopped before the answer was complete\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_other_commands_end_as_a_shell_has_it(number: int, code: int, tmp_path: Path) -> None:
    patch = (
        "import costmodel.models as m\nimport rackfit.cli.commands.model as c\nc.load_model = stuck"
    )
    assert drive(tmp_path, patch, "model", "llama-3.1-8b", number=number)[0] == code


def test_work_in_time_is_answered_and_its_errors_are_raised() -> None:
    got: list[int] = []
    Stop[int]("it").run(lambda: 7, got.append)
    assert got == [7]
    with pytest.raises(ZeroDivisionError):
        Stop[float]("it").run(lambda: 1 / 0, print)
    assert stopping._listeners == []


def test_work_is_asked_first_and_left_then() -> None:
    class Clock:
        stopped = threading.Event()

        def stop(self) -> None:
            self.stopped.set()

    got: list[str] = []
    stop: Stop[str] = Stop("it", 0.05)
    stop.clock = Clock()

    def obeys() -> str:
        assert Clock.stopped.wait(10)
        return "by itself"

    stop.run(obeys, got.append)
    deaf, started = threading.Event(), time.monotonic()
    left: Stop[str] = Stop("it", 0.05)
    left.kept = lambda: "kept"
    left.run(lambda: str(deaf.wait(60)), got.append)
    assert got == ["by itself", "kept"]
    with pytest.raises(NoLayoutInTime, match="the time limit came before it"):
        Stop[str]("it", 0.05).run(lambda: str(deaf.wait(60)), got.append)
    deaf.set()
    assert time.monotonic() - started < 60 > GRACE_S


def test_a_signal_while_the_program_ends_changes_nothing() -> None:
    code = (
        "import atexit, os, signal; from rackfit import stopping\n"
        "atexit.register(lambda: os.kill(os.getpid(), signal.SIGTERM))\n"
        "stopping.watch(); print('done')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_drafts_are_known_while_they_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[set[Path]] = []
    monkeypatch.setattr("os.chmod", lambda *_: seen.append(set(stopping.drafts)))
    write_whole("x", tmp_path / "a")
    assert len(seen[0]) == 1
    assert not stopping.drafts
    assert os.listdir(tmp_path) == ["a"]


def test_domains_alike_are_made_once() -> None:
    cluster = load_cluster("hgx-h100@50", failed=("r3g1",))
    found = {id(domain.signature) for domain in cluster.domains}
    assert len(found) == 2
    assert len({domain.signature for domain in cluster.domains}) == 2


def test_hand_overs_are_asked_for_by_kind_of_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    from solver.shapes.nearest import nearest_other
    from solver.shapes.pools import pool_classes

    counts = {}
    for domains in (20, 200):
        cluster = load_cluster(f"hgx-h100@{domains}")
        (pool_class,) = pool_classes(cluster)
        asked: list[object] = []
        network = type(cluster.network)
        plain = network.unit
        monkeypatch.setattr(
            network, "unit", lambda self, d, p=plain, a=asked: (a.append(d), p(self, d))[1]
        )
        assert nearest_other(cluster, pool_class) is not None
        monkeypatch.setattr(network, "unit", plain)
        counts[domains] = len(asked)
    assert counts[200] < 12 * counts[20]


def test_what_holds_of_all_kinds_of_domains_is_asked_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from costmodel.question.instance import resolve_instance
    from costmodel.question.scenario import Scenario
    from solver.shapes import shapes
    from solver.shapes.pools import pool_classes

    node = {"rack": "node", "fabric": {"kind": "nvswitch", "links_per_switch": [5, 4, 4, 5]}}
    domains = [
        {**node, "chips": [{"chip": "h100", "count": 8, "nic_bytes_per_s": 5e10 + number}]}
        for number in range(6)
    ]
    data = {"name": "unlike", "domains": domains, "scale_out": {"kind": "rail-optimised"}}
    (tmp_path / "unlike.json").write_text(json.dumps(data))
    question = {"model": "llama-3.1-8b", "cluster": str(tmp_path / "unlike.json")}
    instance = resolve_instance(Scenario.model_validate({**question, "workload": "chat"}))
    classes = pool_classes(instance.cluster)
    assert len(classes) == 6
    plain, asked = shapes.most_domains, []
    monkeypatch.setattr(shapes, "most_domains", lambda *words: (asked.append(1), plain(*words))[1])
    assert len(shapes.enumerate_shapes(instance, classes)) > 0
    assert len(asked) == 1


_AFTER_A_SEARCH = """
import os, signal, time
import numpy as np
from solver.experts.fillers import hot_chips
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background inherits that it is ignored
share = np.linspace(1.0, 3.0, 16)
assert hot_chips(share / share.sum(), 4, 4, 0.4, seed=0) is not None
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(30)
except KeyboardInterrupt:
    print("taken")
"""


def test_a_search_for_experts_leaves_ctrl_c_to_the_program() -> None:
    """CP-SAT otherwise takes the signal, on the wrong thread, and ends the program without a word."""
    done = subprocess.run(
        [sys.executable, "-c", _AFTER_A_SEARCH], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "taken\n"), done.stderr


def test_every_solver_leaves_signals_alone() -> None:
    """There is one place that makes solvers."""
    packages = ("topology", "costmodel", "solver", "rackfit")
    makers = [
        path.relative_to(ROOT).as_posix()
        for package in packages
        for path in (ROOT / package).rglob("*.py")
        if "CpSolver()" in path.read_text(encoding="utf-8")
    ]
    assert makers == ["solver/clock.py"]


def test_work_that_is_left_in_a_callback_says_nothing() -> None:
    """Where the error falls into a weak reference's callback, Python only reports it."""
    said: list[sys.UnraisableHookArgs] = []
    before = sys.unraisablehook
    sys.unraisablehook = said.append
    try:
        interrupts._break_off(threading.Thread())
        quiet = sys.unraisablehook
        assert quiet is not said.append
        interrupts._break_off(threading.Thread())
        assert sys.unraisablehook is quiet  # once is enough

        class Item:
            pass

        for error in (interrupts._Left, ValueError):

            def callback(_: object, raised: type[BaseException] = error) -> None:
                raise raised

            item = Item()
            kept = weakref.ref(item, callback)
            del item
            assert kept() is None
        assert [one.exc_type for one in said] == [ValueError]
    finally:
        sys.unraisablehook = before
