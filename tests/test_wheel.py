"""The wheel holds the four packages, the data and nothing else, and works from its own files."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (found,) = out.glob("*.whl")
    return found


def test_top_levels(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info" not in name}
    assert tops == {"topology", "costmodel", "solver", "rackfit"}
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert all(f"{package}/py.typed" in names for package in tops)


def test_data_is_inside(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for kind in (
        "models",
        "chips",
        "clusters",
        "workloads",
        "scenarios",
        "profiles",
        "loads",
        "schemas",
        "flows",
        "plans",
    ):
        folder = ROOT / "instances" / kind
        shipped = {
            f"rackfit/instances/{kind}/{path.relative_to(folder).as_posix()}"
            for path in folder.rglob("*")
            if path.is_file()
        }
        assert shipped
        assert shipped <= names


def test_solves_from_the_wheel_alone(wheel: Path, tmp_path: Path) -> None:
    code = (
        "import rackfit, topology.catalogue as c; "
        "assert 'rackfit/instances' in str(c.data_dir('models')).replace(chr(92), '/'); "
        "s = rackfit.Scenario(model='llama-3.1-70b', cluster='hgx-h100', workload='chat'); "
        "r = rackfit.solve(s); print(r.status)"
    )
    zipfile.ZipFile(wheel).extractall(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "optimal"
