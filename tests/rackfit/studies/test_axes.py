"""What-ifs on one's own cluster give what the edited file gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from costmodel.question.instance import resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.what_if import CHIP_FIGURES
from rackfit import solve
from rackfit.studies.axes import axis_names
from rackfit.studies.grid import make_points, parse_over
from topology.catalogue import data_dir, read_data
from topology.chip import Chip
from topology.errors import InstanceError

BASE = {
    "model": "llama-3.1-8b",
    "workload": {"input_tokens": 1000, "output_tokens": 100},
    "slo": {"tpot": 0.02},
}


def written(folder: Path, name: str, chip: dict[str, Any], **cluster: Any) -> str:
    """A cluster file of two nodes of eight, its chip beside it; the path."""
    folder = folder / name
    folder.mkdir()
    own = {
        **read_data(data_dir("chips") / "h100.yaml"),
        "name": "mine",
        "nic_bytes_per_s": 40e9,
        **chip,
    }
    own["provenance"] = {**own["provenance"], **dict.fromkeys(chip, "assumed")}
    (folder / "chip.yaml").write_text(yaml.safe_dump(own))
    domain = {"fabric": {"kind": "nvswitch", "links_per_switch": [5, 4, 4, 5]}, "count": 2,
              "chips": [{"chip": "./chip.yaml", "count": 8}]}  # fmt: skip
    domain |= cluster.pop("domain", {})
    data = {
        "name": "own",
        "domains": [domain],
        "scale_out": {"kind": "leaf-spine", "oversubscription": 2.0},
        **cluster,
    }
    (folder / "cluster.yaml").write_text(yaml.safe_dump(data))
    return str(folder / "cluster.yaml")


H100 = Chip.model_validate(read_data(data_dir("chips") / "h100.yaml"))
SMALL = {"count": 4, "chips": [{"chip": "./chip.yaml", "count": 4}]}

#: axis, value, the chip's edited figures, the cluster file's edited parts
EDITS = [
    ("chip.hbm_bytes_per_s", "+20%", {"hbm_bytes_per_s": 1.2 * H100.hbm_bytes_per_s}, {}),
    ("chip.usd_per_hour", 3.0, {"usd_per_hour": 3.0}, {}),
    ("chip.flops_per_s.fp8", "-50%", {"flops_per_s": {**H100.flops_per_s, "fp8": H100.flops_per_s["fp8"] / 2}}, {}),
    ("chip.nic_bytes_per_s", "80 GB/s", {"nic_bytes_per_s": 80e9}, {}),
    ("scale_out.oversubscription", "+100%", {}, {"scale_out": {"kind": "leaf-spine", "oversubscription": 4.0}}),
    ("cluster.domain_size", 4, {}, {"domain": SMALL}),
    ("failed", "r0g3+r1g1", {}, {"failed": ["r0g3", "r1g1"]}),
    ("taken", "r0g3+r1g1", {}, {"taken": ["r0g3", "r1g1"]}),
]  # fmt: skip


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit[0])
def test_an_axis_is_the_edited_file(
    tmp_path: Path, edit: tuple[str, object, dict[str, Any], dict[str, Any]]
) -> None:
    axis, value, chip, cluster = edit
    base = {**BASE, "cluster": written(tmp_path, "plain", {})}
    (point,) = make_points(base, {axis: [value]})
    changed = resolve_instance(point.scenario).cluster
    edited = resolve_instance(
        Scenario(**{**BASE, "cluster": written(tmp_path, "edited", chip, **cluster)})
    ).cluster
    assert changed.digest == edited.digest
    assert changed.digest != resolve_instance(Scenario(**base)).cluster.digest


@pytest.mark.parametrize("edit", EDITS[:1] + EDITS[5:6], ids=lambda edit: edit[0])
def test_its_answer_is_that_of_the_edited_file(
    tmp_path: Path, edit: tuple[str, object, dict[str, Any], dict[str, Any]]
) -> None:
    axis, value, chip, cluster = edit
    (point,) = make_points({**BASE, "cluster": written(tmp_path, "plain", {})}, {axis: [value]})
    edited = Scenario(**{**BASE, "cluster": written(tmp_path, "edited", chip, **cluster)})
    mine, theirs = (solve(asked, gap=0.05, seed=0) for asked in (point.scenario, edited))
    assert mine.evaluation.usd_per_m_output_tokens == theirs.evaluation.usd_per_m_output_tokens
    assert mine.evaluation.tpot_s == theirs.evaluation.tpot_s


def test_percent_changes_what_the_scenario_says() -> None:
    base = {**BASE, "cluster": "hgx-h100", "rate": 10.0}
    points = make_points(
        base, parse_over(["slo.tpot=+50%,-50%", "rate=+20%", "workload.input_tokens=+10%"])
    )
    assert [point.scenario.slo.tpot for point in points] == pytest.approx([0.03, 0.01])
    assert points[0].scenario.rate == pytest.approx(12.0)
    workload = points[0].scenario.workload
    assert not isinstance(workload, str)
    assert workload.input_tokens == 1100


def test_another_chip_takes_the_place() -> None:
    (point,) = make_points({**BASE, "cluster": "hgx-h100"}, {"chip.name": ["h200"]})
    assert resolve_instance(point.scenario).cluster.chip_names == ("h200",)


@pytest.mark.parametrize(
    ("axis", "value", "message"),
    [
        ("chip.hbm_bandwidth", 1.0, "did you mean chip.hbm_bytes"),
        ("chip.hbm_bytes", "-100%", "nothing would be left"),
        ("chip.hbm_bytes", "3 TB/s", "expected a quantity in B"),
        ("slo.ttft", "+20%", "the scenario has no number there"),
        ("cluster.domain_size", 3, "3 does not divide 8 chips"),
        ("colour", 1, "unknown key; "),
    ],
)
def test_what_is_no_axis_or_no_value_is_refused(axis: str, value: object, message: str) -> None:
    base = {**BASE, "cluster": "hgx-h100"}
    with pytest.raises(InstanceError) as stop:
        resolve_instance(make_points(base, {axis: [value]})[0].scenario)
    assert message in str(stop.value)
    if axis not in axis_names():
        assert all(name in str(stop.value) for name in axis_names())


def test_figures_that_may_change_are_all_numbers_of_a_chip() -> None:
    numbers = {
        key for key in Chip.model_fields if key.split("_")[-1] in ("s", "bytes", "w", "hour")
    }
    assert set(CHIP_FIGURES) == numbers
