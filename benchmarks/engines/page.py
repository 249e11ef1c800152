"""The table of docs/engines.md from the answers of a folder."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.engines import reading
from benchmarks.engines.choice import choices, rows
from benchmarks.engines.deployments import Deployment, deployments
from costmodel.evaluate import evaluate
from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance
from rackfit.documents.result import read_result

PAGE = Path(__file__).resolve().parents[2] / "docs" / "engines.md"
#: options and fields of exported files that name a share of the device's memory
_FRACTION = re.compile(
    r"(?:--gpu-memory-utilization |--mem-fraction-static |free_gpu_memory_fraction: )([0-9.]+)"
)
#: what a question must be proven within
_PROVEN = 0.01


def widest(instance: Instance, layout: Layout) -> str:
    """The widest expert group that generates tokens, in words; empty where no experts are spread."""
    groups = [one for one in layout.replicas if one.role != "prefill" and one.shape.ep > 1]
    if not groups:
        return ""
    chosen = max(groups, key=lambda one: one.shape.ep)
    hosts = {
        (placed.domain, placed.position // placed.chip.chips_per_host)
        for placed in (instance.cluster.chip(chip) for chip in chosen.stages[0].chips)
    }
    return f"{chosen.shape.ep} ranks on {len(hosts)} host{'s' if len(hosts) > 1 else ''}; "


def row(one: Deployment, folder: Path) -> str:
    """One line of the table."""
    instance, layout, document = read_result(folder / f"{one.name}.json")
    judged = evaluate(instance, layout)
    fill = max(
        float(stage.used_bytes[place]) / instance.cluster.chip(chip).chip.hbm_bytes
        for replica, price in zip(layout.replicas, judged.priced.replicas, strict=True)
        for own, stage in zip(replica.stages, price.stages, strict=True)
        for place, chip in enumerate(own.chips)
    )
    gap = document["certificate"]["gap"]
    cost = document["evaluation"]["usd_per_m_output_tokens"]
    cells = [
        one.model, one.cluster, one.engine, f"{one.input:,}, {one.output:,}", f"{one.before:.3f}",
        f"{cost:.3f}", f"{gap:.1%}".replace("%", " %"), f"{fill:.2f}", f"{largest_fraction(one, folder):.3g}",
        widest(instance, layout) + one.reason + ("" if gap <= _PROVEN else "; not proven within 1 %"),
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def largest_fraction(one: Deployment, folder: Path) -> float:
    """The largest share of a device's memory that an exported file names."""
    texts = (path.read_text() for path in (folder / one.name).rglob("*") if path.is_file())
    return max(float(value) for text in texts for value in _FRACTION.findall(text))


HEAD = (
    "| model | cluster | engine | tokens in, out | before | after | gap | fill | fraction | what the engine's facts "
    "change |\n|---|---|---|---|---|---|---|---|---|---|"
)


def tables(folder: Path) -> dict[str, str]:
    """Text between the markers of the page, by name."""
    done = [one for one in deployments() if (folder / f"{one.name}.json").is_file()]
    lines = [row(one, folder) for one in done]
    loose = sum("not proven" in line for line in lines)
    most = max(largest_fraction(one, folder) for one in done)
    said = (
        f"{len(done)} of {len(deployments())} questions were solved for this table, {len(done) - loose} of them proven "
        f"within 1 %. The largest memory fraction of an exported file is {most:.3g}."
    )
    found = {"twenty": "\n".join([HEAD, *lines, "", said])}
    if (folder / "any.jsonl").is_file():
        found["any"] = "\n".join(choices(rows(folder / "any.jsonl")))
    read = reading.rows(folder / "reads.jsonl")
    if read:
        found["reads"] = "\n".join(reading.summary(read))
    files = reading.rows(folder / "files.jsonl")
    if files:
        found["files"] = "\n".join(reading.files_summary(files))
    return found


def write(folder: Path) -> None:
    """Put the tables into the page."""
    text = PAGE.read_text(encoding="utf-8")
    for name, table in tables(folder).items():
        start, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        if start not in text:
            continue
        before, _, rest = text.partition(start)
        _, _, after = rest.partition(end)
        text = f"{before}{start}\n{table}\n{end}{after}"
    PAGE.write_text(text, encoding="utf-8")
