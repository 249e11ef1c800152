"""Smoke: every catalogue model gets a verified layout on a cluster that can hold it."""

from __future__ import annotations

import json
import sys

import pytest

from costmodel.models import load_model
from costmodel.models.summary import summarise
from rackfit.cli.app import main
from topology.catalogue import catalogue_names

#: Clusters with the bytes of weights they are used for; weights should leave room for KV.
CLUSTERS = (("hgx-h200@1", 0.5e12), ("gb200-nvl72@1", 6e12))


def _cluster_for(name: str) -> str:
    weights = summarise(load_model(name)).weight_bytes
    return next(cluster for cluster, most in CLUSTERS if weights < most)


@pytest.mark.slow
@pytest.mark.parametrize("name", catalogue_names("models", (".json",)))
def test_catalogue_model_solves(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (
        "rackfit", "solve", "--model", name, "--cluster", _cluster_for(name), "--input-tokens",
        "1000", "--output-tokens", "200", "--time-limit", "60", "--workers", "1", "--json",
    )  # fmt: skip
    monkeypatch.setattr(sys, "argv", list(words))
    with pytest.raises(SystemExit) as stop:
        main()
    document = json.loads(capsys.readouterr().out)
    assert not stop.value.code
    assert document["status"] in ("optimal", "feasible", "time_limit")
    assert document["evaluation"]["output_tokens_per_s"] > 0
    assert document["layout"]["replicas"]
