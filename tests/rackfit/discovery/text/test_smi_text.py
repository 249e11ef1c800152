"""``nvidia-smi -q`` as text tells what its XML tells, whatever stands around it."""

from __future__ import annotations

import textwrap
from pathlib import Path

import listings
import pytest

from tests.rackfit.discovery.asking import found_in, refusal, sizes
from tests.rackfit.discovery.text import smi_samples as smi

FAILED = {
    "r0g1": "h: needs a reset",
    "r0g4": "h: lost",
    "r0g7": "h: NVLink bandwidth: Degraded",
}
TAKEN = {"r0g2": "h: in use", "r0g5": "h: split by MIG"}


def test_each_gpu_is_what_its_lines_say(tmp_path: Path) -> None:
    found = found_in(tmp_path, "h.txt", smi.mixed())
    assert sizes(found) == [8]
    assert (found.failed, found.taken) == (FAILED, TAKEN)
    assert found.notes[:3] == [
        "h GPU 0: power limit 500 W of 700 W; its speed is taken as without",
        "h GPU 3: rows of its memory wait for a reset to be remapped",
        "h GPU 6: the hardware slows its clocks down",
    ]
    assert found.data["domains"][0]["chips"] == [{"chip": "h100", "count": 8}]


@pytest.mark.parametrize(
    "around",
    [
        lambda log: f"$ nvidia-smi -q\n{log}\n$ uname -a\nLinux h 6.8.0 : x\n    Product Name : x\n",
        lambda log: f"## Environment\n```\n{log}```\nThe server hangs : always.\n",
        lambda log: textwrap.indent(log, "    ") + "\n\n```python\n",
        lambda log: log.replace("\n", "\r\n"),
        lambda log: log.replace("\n    Retired", "\n\n\n    Retired"),
        lambda log: log.replace(
            "GPU 00000000:15:00.0",
            "Unable to determine the device handle for GPU 0000:99:00.0: Unknown Error\nGPU 00000000:15:00.0",
        ),
    ],
)  # fmt: skip
def test_what_stands_around_the_log_changes_nothing(around: object, tmp_path: Path) -> None:
    text = around(smi.mixed())  # type: ignore[operator]
    found = found_in(tmp_path, "h.txt", text)
    assert (sizes(found), found.failed, found.taken) == ([8], FAILED, TAKEN)


def test_rows_that_wait_for_a_reset_are_a_remark(tmp_path: Path) -> None:
    found = found_in(tmp_path, "h.txt", smi.remapped())
    assert (sizes(found), found.failed, found.taken) == ([8], {}, {})
    assert any("GPU 0: rows of its memory wait" in note for note in found.notes)


def test_rows_that_could_not_be_remapped_fail_the_gpu(tmp_path: Path) -> None:
    found = found_in(tmp_path, "h.txt", smi.log(smi.gpu(failure="Yes"), smi.gpu(bus=2)))
    assert found.failed == {"r0g0": "h: rows of its memory could not be remapped"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (smi.fabric(("Summary", "Unhealthy"), ("Bandwidth", "Full")), "health: Unhealthy"),
        (smi.fabric(("Summary", "Unhealthy"), ("Route Recovery in progress", "True")), "a route recovers"),
        (smi.fabric(("Access Timeout Recovery", "True")), "recovers from a time-out"),
        (smi.fabric(("Incorrect Configuration", "Insufficient Nvlinks")), "incorrect configuration: Insufficient Nvlinks"),
        (smi.fabric(status="Insufficient Resources"), "Insufficient Resources"),
        (smi.fabric(("Summary", "Healthy"), ("Bandwidth", "Full"), ("Route Unhealthy", "False")), None),
    ],
)  # fmt: skip
def test_a_fabric_that_is_unwell_fails_its_gpu(
    text: str, reason: str | None, tmp_path: Path
) -> None:
    found = found_in(tmp_path, "h.txt", text)
    assert found.failed == ({"r0": f"h: NVLink fabric: {reason}"} if reason else {})


def test_the_clique_is_the_scale_up_domain(tmp_path: Path) -> None:
    for host in ("a", "b"):
        told = (("State", "Completed"), ("Status", "Success"), ("CliqueId", "4026"), ("ClusterUUID", "9c6f5af3-53bf"))  # fmt: skip
        gpus = [smi.gpu("NVIDIA GB200", 189471, bus=bus, fabric=told) for bus in range(4)]
        (tmp_path / f"{host}.txt").write_text(smi.log(*gpus))
    from rackfit.discovery.discover import discover

    assert sizes(discover([tmp_path / "a.txt", tmp_path / "b.txt"])) == [8]


def test_parts_of_a_gpu_are_no_gpus(tmp_path: Path) -> None:
    found = found_in(tmp_path, "h.txt", smi.split(), chip="a100")
    assert (sizes(found), found.taken) == ([1], {"r0g0": "h: split by MIG"})


def test_a_matrix_in_the_same_file_tells_the_links(tmp_path: Path) -> None:
    both = smi.log(*(smi.gpu(bus=bus) for bus in range(8))) + listings.smi_topo(lost=5)
    found = found_in(tmp_path, "h.txt", both)
    assert set(found.failed) == {"r0g5--r0sw1"}
    assert found.data["domains"][0]["chips"] == [{"chip": "h100", "count": 8}]


def test_a_part_of_a_log_beside_a_matrix_is_left_to_the_matrix(tmp_path: Path) -> None:
    part = f"{smi.HEAD.format(8)}GPU 00000000:10:00.0\n    Temperature\n        GPU Current Temp : 25 C\n"
    found = found_in(tmp_path, "h.txt", part + listings.smi_topo(lost=5), chip="h100")
    assert set(found.failed) == {"r0g5--r0sw1"}


def test_gpus_that_are_attached_and_not_told_have_failed(tmp_path: Path) -> None:
    found = found_in(tmp_path, "h.txt", smi.log(smi.gpu(), attached=2))
    assert found.failed == {"r0g1": "h: attached, but not in the log"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (smi.mixed()[:-900], "GPU 7: no Processes; the log seems cut off"),
        (smi.log(smi.gpu()) * 2, "another log begins in line "),
        (smi.log(attached=0), "0 GPUs attached, none in the log"),
        (smi.HEAD.replace("Attached GPUs", "Absent"), "no number of attached GPUs"),
        (smi.log("GPU 00000000:10:00.0\n    Temperature\n        GPU Current Temp : 25 C\n"), "not a part (-d)"),
        (smi.log(smi.gpu(), smi.gpu("NVIDIA A100-SXM4-80GB")), "several kinds of GPU in one host"),
    ],
)  # fmt: skip
def test_what_is_no_whole_log_is_refused(text: str, said: str, tmp_path: Path) -> None:
    assert said in refusal(tmp_path, "h.txt", text)
