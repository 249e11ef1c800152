"""``amd-smi xgmi`` in all its forms: which GPUs there are, and which links of XGMI are down.

Written anew after ``xgmi`` and ``flatten_dict`` of ROCm/rocm-systems (MIT), projects/amdsmi/amdsmi_cli: three tables after each other.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.rackfit.discovery.asking import found_in, refusal

GPUS = range(4)
BUSES = [f"0000:{n}5:00.0" for n in GPUS]
Down = dict[tuple[int, int], str]


def state(a: int, b: int, down: Down) -> str:
    return "SELF" if a == b else down.get((a, b), down.get((b, a), "U"))


def table(rows: Sequence[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0])
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue() + "\n"


def metrics(a: int) -> dict[str, Any]:
    links = [
        {"gpu": b, "bdf": BUSES[b], "read": "N/A" if a == b else 1259, "write": "N/A" if a == b else 1074}
        for b in GPUS
    ]  # fmt: skip
    return {"bit_rate": 32, "max_bandwidth": 512, "link_type": "XGMI", "links": links}


def as_csv(down: Down) -> str:
    first = [
        {"gpu": a, "bdf": BUSES[a], **{f"link_metrics_{key}": value for key, value in metrics(a).items()}}
        for a in GPUS
    ]  # fmt: skip
    ports = [{"gpu": a, "bdf": BUSES[a], "link_status": ["U"] * 3 + ["X"] * 5} for a in GPUS]
    states = [
        {"gpu": f"GPU{a}", "bdf": BUSES[a], **{BUSES[b]: state(a, b, down) for b in GPUS}} for a in GPUS
    ]  # fmt: skip
    return table(first) + table(ports) + table(states)


def as_json(down: Down) -> str:
    return json.dumps({
        "xgmi_metric": [[{"gpu": a, "bdf": BUSES[a], "link_metrics": metrics(a)} for a in GPUS]],
        "link_port_status": [{"gpu": a, "bdf": BUSES[a], "link_status": ["U"] * 8} for a in GPUS],
        "link_status": [
            {"gpu": a, "bdf": BUSES[a], "link_status": [state(a, b, down) for b in GPUS]} for a in GPUS
        ],
    })  # fmt: skip


def as_text(down: Down) -> str:
    rows = (
        f"GPU{a}\t{BUSES[a]}   " + "".join(state(a, b, down).ljust(14) for b in GPUS) for a in GPUS
    )
    head = "        bdf            " + "".join(f"GPU{b}".ljust(14) for b in GPUS)
    ports = (f"GPU{a}   {BUSES[a]}  U  U  U  X  X  X  X  X" for a in GPUS)
    port_table = "\n".join(
        ("GPU LINK PORT STATUS:", "       bdf           port_num            ", *ports)
    )
    return "\n".join((port_table, "", "XGMI LINK STATUS:", head, *rows, "", "", "Legend:", "  SELF = Current GPU"))  # fmt: skip


FORMS: dict[str, Callable[[Down], str]] = {"h.csv": as_csv, "h.json": as_json, "h.txt": as_text}


@pytest.mark.parametrize("name", FORMS)
def test_links_that_are_down_have_failed(name: str, tmp_path: Path) -> None:
    """``--csv`` was refused for its ``GPU0``, and what links are down was not read in any form."""
    form = FORMS[name]
    assert not found_in(tmp_path, name, form({}), chip="mi300x").failed
    some = form({(0, 2): "D", (1, 3): "D/D", (2, 3): "U/D"})
    assert set(found_in(tmp_path, name, some, chip="mi300x").failed) == {"r0g0--r0g2", "r0g1--r0g3"}
    alone: Down = {(1, b): "D" for b in GPUS if b != 1}
    assert set(found_in(tmp_path, name, form(alone), chip="mi300x").failed) == {"r0g1"}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("word", ["D", "X", "N/A"])
def test_a_host_without_any_link_that_is_up_tells_nothing_of_links(
    name: str, word: str, tmp_path: Path
) -> None:
    """Drivers of virtual machines call all links down, or do not tell."""
    all_down: Down = {(a, b): word for a in GPUS for b in GPUS}
    found = found_in(tmp_path, name, FORMS[name](all_down), chip="mi300x")
    assert not found.failed
    assert len(found.cluster.domains[0].chips) == 4


def test_a_state_that_is_not_told_beside_others_is_asked_for(tmp_path: Path) -> None:
    said = refusal(tmp_path, "h.csv", as_csv({(0, 3): "X"}), chip="mi300x")
    assert "no link type of GPUs 0 and 3" in said


def test_a_table_of_states_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    cut = "\n".join(as_csv({}).rstrip().splitlines()[:-1])
    assert "XGMI LINK STATUS: the rows are not of the GPUs of the columns" in refusal(
        tmp_path, "h.csv", cut, chip="mi300x"
    )


def test_states_by_port_lead_nowhere(tmp_path: Path) -> None:
    """ROCm 6.4 has eight ports a GPU under the name that ROCm 7 gives states by GPU."""
    rows = [{"gpu": a, "bdf": BUSES[a], "link_status": list("UUUUDUDX")} for a in GPUS]
    text = json.dumps({"link_status": rows})
    assert not found_in(tmp_path, "h.json", text, chip="mi300x").failed
