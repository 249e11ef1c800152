"""How one question walks through the files: few are entered, calls seldom go in circles and never up."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import networkx as nx

ROOT = Path(__file__).resolve().parent.parent
ORDER = ("topology", "costmodel", "solver", "rackfit")
RULE = re.compile(r"(costmodel|solver)/rules/[a-z]\w*\.py")
#: files entered beside those of rules, and calls between files that reach each other again
MOST_ENTERED, MOST_CIRCLING = 128, 20

#: prints ``{file: [files it calls]}`` of one solve; a file is entered where any code of it runs
TRACED = """
import json, sys, threading
import rackfit

root = sys.argv[1]
rooms = tuple(f"{root}/{name}/" for name in ("topology", "costmodel", "solver", "rackfit"))
calls = {}

def note(frame, event, arg):
    here = frame.f_code.co_filename
    if event != "call" or not here.startswith(rooms):
        return
    calls.setdefault(here, set())
    caller = frame.f_back
    while caller is not None and not caller.f_code.co_filename.startswith(rooms):
        caller = caller.f_back
    if caller is not None and caller.f_code.co_filename != here:
        calls.setdefault(caller.f_code.co_filename, set()).add(here)

threading.setprofile(note)
sys.setprofile(note)
rackfit.solve("deepseek-v3-gb200-nvl72")
sys.setprofile(None)
threading.setprofile(None)
print(json.dumps({a[len(root) + 1:]: [b[len(root) + 1:] for b in to] for a, to in calls.items()}))
"""


def test_a_question_takes_a_short_way() -> None:
    run = [sys.executable, "-c", TRACED, str(ROOT)]
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=True)
    walk: nx.DiGraph[str] = nx.DiGraph(json.loads(done.stdout))
    room_of = {
        file: number
        for number, room in enumerate(nx.strongly_connected_components(walk))
        for file in room
    }
    circling = [(a, b) for a, b in walk.edges if room_of[a] == room_of[b]]
    floor = {file: ORDER.index(file.split("/")[0]) for file in walk}
    assert [(a, b) for a, b in walk.edges if floor[a] < floor[b]] == []
    assert len(circling) <= MOST_CIRCLING, circling
    beside = [file for file in walk if not RULE.fullmatch(file)]
    assert 100 < len(beside) <= MOST_ENTERED, sorted(beside)
