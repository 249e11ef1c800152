"""300 combinations of hostile names through every exporter, the report and a study: nothing runs, all can be read."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from named import PRINTABLE, UNPRINTABLE, run_scripts, two_pools, write_question
from test_names import check_exports, check_page

from costmodel.evaluate import evaluate
from costmodel.question.instance import Instance, resolve_instance
from rackfit.exporters.export import export_layout, write_files
from rackfit.exporters.launch.deployment import ExportOptions
from rackfit.exporters.launch.hosts import Hosts
from rackfit.exporters.registry import exporters
from rackfit.report.report import report_page
from rackfit.studies.run import study
from topology.errors import InstanceError

COMBINATIONS = 300
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser, where there is one; the pages are read by a parser in any case."""
    sys.path.append(str(Path(__file__).parents[1] / "rackfit" / "figures"))
    from browser import PROGRAM, Browser

    if PROGRAM is None or importlib.util.find_spec("playwright") is None:
        yield None
        return
    with Browser(PROGRAM) as shown:
        yield shown


def _drawn(random: Random) -> dict[str, str]:
    names = PRINTABLE if random.random() < 0.9 else PRINTABLE + UNPRINTABLE
    return {
        key: random.choice(names) for key in ("cluster", "rack", "basis", "title", "image", "path")
    }


def _asked(folder: Path, drawn: dict[str, str], model: str) -> Instance:
    scenario = write_question(folder, model, drawn["cluster"], drawn["rack"][:150], drawn["basis"])
    data = yaml.safe_load((folder / "cluster.yaml").read_text())
    data |= {"title": drawn["title"], "notes": [drawn["title"]], "sources": [drawn["basis"]]}
    (folder / "cluster.yaml").write_text(yaml.safe_dump(data))
    named = scenario.model_copy(
        update={"name": drawn["title"] or "q", "description": drawn["basis"]}
    )
    return resolve_instance(type(scenario).model_validate(named.model_dump(mode="json")))


def _check_browser(browser: Any, page: Path) -> None:
    view = browser.show(page, 1280, "light", picture=False)
    assert view.logged == []
    assert view.title != "pwned"
    assert [url for url in view.requested if not url.startswith(("file:", "data:"))] == []


@pytest.mark.parametrize("seed", range(COMBINATIONS))
def test_nothing_runs_and_all_can_be_read(seed: int, tmp_path: Path, browser: Any) -> None:
    random = Random(seed)
    drawn = _drawn(random)
    model = random.choice(PRINTABLE).replace("/", "_").strip(".") or "m"
    options = {"model_path": f"/models/{drawn['path']}", "image": drawn["image"] or "i"}
    refusal = ""
    try:
        instance = _asked(tmp_path, drawn, model)
        chosen = ExportOptions(**options)
    except (InstanceError, ValueError) as error:  # the scenario's own name is refused by its type
        refusal = str(error)
    if refusal:
        assert [name for name in (*drawn.values(), model) if name in UNPRINTABLE]
        assert all(line.isprintable() for line in refusal.splitlines())
        return
    layout = two_pools(instance)
    found = {}
    for target in exporters():
        exported = export_layout(instance, layout, target, chosen, allow_approximate=True)
        write_files(exported.files, tmp_path / "exports" / target)
        run_scripts(tmp_path / "exports" / target)
        found[target] = exported.files
    words = found["dynamo"]["deployment.yaml"]
    assert chosen.model_path in yaml.safe_dump(
        list(yaml.safe_load_all(words)), width=10**6, allow_unicode=True
    ) or ("'" in chosen.model_path or '"' in chosen.model_path or "\\" in chosen.model_path)
    plain = {**found, "dynamo": _with_model(found["dynamo"], chosen.model_path, model)}
    check_exports(plain, model, drawn["rack"][:150], Hosts(instance.cluster).names[0])
    page = tmp_path / "report.html"
    page.write_text(report_page(instance, layout, evaluate(instance, layout), {}), encoding="utf-8")
    check_page(page.read_text(encoding="utf-8"), (drawn["cluster"], model))
    asked = instance.scenario.model_dump(mode="json", exclude_none=True) | {"model": "llama-3.1-8b"}
    result = study("grid", asked, over={"slo.tpot": [0.05]})
    result.write(tmp_path / "study")
    text = (tmp_path / "study" / "grid.html").read_text(encoding="utf-8")
    check_page(text, (drawn["cluster"],))
    (row,) = json.loads(result.text())["rows"]
    assert row["cluster_name"] == drawn["cluster"]
    if browser is not None:
        _check_browser(browser, page)
        _check_browser(browser, tmp_path / "study" / "grid.html")


def _with_model(files: dict[str, str], path: str, model: str) -> dict[str, str]:
    """The manifest with the path of the model that :func:`check_exports` looks for."""
    documents = list(yaml.safe_load_all(files["deployment.yaml"]))
    for service in documents[-1]["spec"]["services"].values():
        words = service["extraPodSpec"]["mainContainer"].get("args", [])
        words[:] = [f"/models/{model}" if word == path else word for word in words]
    return {"deployment.yaml": yaml.safe_dump_all(documents, sort_keys=False)}
