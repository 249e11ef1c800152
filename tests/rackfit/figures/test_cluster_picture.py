"""The picture of a cluster draws every chip and link, and shows what does not work."""

import re

import pytest

from rackfit.figures.cluster_picture import cluster_picture
from topology import build_cluster, load_cluster
from topology.spec import ClusterSpec


@pytest.mark.parametrize(
    ("name", "chips", "switches"),
    [("gb200-nvl72@4", 72, 18), ("tpu-v4-4x4x4", 64, 0), ("mi300x", 8, 0), ("nvl576", 576, 576)],
)
def test_every_kind_of_domain_is_drawn_once_in_full(name, chips, switches):
    page = cluster_picture(load_cluster(name))
    first = re.search(r"<svg.*?</svg>", page, re.DOTALL).group()
    assert first.count("<circle") == chips
    assert first.count("<rect") == switches
    assert page.startswith("<!doctype html>")
    assert "http" not in re.sub(r"<table>.*?</table>", "", page, flags=re.DOTALL)


def test_failed_and_taken_chips_and_narrow_links_stand_out():
    spec = {
        "name": "<b>mine</b>",
        "domains": [
            {
                "fabric": {"kind": "torus", "shape": [3, 3], "wrap": "none",
                           "axis_bytes_per_s": ["10 GB/s", "40 GB/s"]},
                "chips": [{"chip": "tpu-v5e", "count": 9}],
            }
        ],
        "failed": ["r0g4"],
        "taken": ["r0g8"],
    }  # fmt: skip
    page = cluster_picture(build_cluster(ClusterSpec.model_validate(spec), spec["name"]))
    assert "<b>mine" not in page
    assert "r0g4 tpu-v5e failed" in page
    assert "r0g8 tpu-v5e taken" in page
    strokes = set(re.findall(r'stroke="(#[0-9a-f]{6})"', page))
    assert len(strokes) == 2
    assert page.count("<path") == 12 - 4
