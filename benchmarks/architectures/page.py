"""docs/architectures.md from files of counts: what is read of the classes of transformers. No torch.

    python -m benchmarks.architectures.page COUNTS.json [OLDER.json]

Also writes what the readers and tests take from the newest counts: defaults of configuration classes
(instances/architectures) and the tests' file of configs and counts.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.architectures import fixture
from benchmarks.architectures.compare import Row, load, rows
from tests.costmodel.models.architectures import (
    CACHE_QUIRKS,
    ENCODERS,
    HALVES_OF_ENCODER_DECODERS,
    QUIRKS,
    quirk,
)

ROOT = Path(__file__).resolve().parents[2]
_LEFT_OUT = ENCODERS | HALVES_OF_ENCODER_DECODERS
#: Defaults that say nothing of a model's shape.
_NO_SHAPE = ("_token_id", "_token_index", "_id")
_NO_SHAPE_NAMES = frozenset(
    """
    model_type transformers_version _name_or_path use_cache dtype return_dict output_hidden_states
    output_attentions base_config_key is_encoder_decoder problem_type is_decoder add_cross_attention
    chunk_size_feed_forward initializer_range scoring_func cross_attention_hidden_size
    """.split()  # noqa: SIM905
)


def defaults(counts: dict[str, Any]) -> str:
    """The table of class defaults as ``instances/architectures/class_defaults.json`` holds it."""
    kept = {
        kind: {
            key: value
            for key, value in found.items()
            if not isinstance(value, float)
            and not key.endswith(_NO_SHAPE)
            and key not in _NO_SHAPE_NAMES
        }
        for kind, found in sorted(counts["defaults"].items())
    }
    source = (
        f"transformers {counts['transformers']}, fields of its configuration classes (Apache-2.0)"
    )
    document = {
        "source": source,
        "defaults": {kind: found for kind, found in kept.items() if found},
    }
    return json.dumps(document, indent=0) + "\n"


def verdict(row: Row, version: str) -> str:
    """The row's verdict, or ``quirk`` where the class has a reason of its own to differ in that version."""
    if row.verdict in ("wrong", "refused") and quirk(row.kind, row.variant, version) is not None:
        return "quirk"
    return row.verdict


def tally(counts: dict[str, Any], found: list[Row]) -> list[str]:
    """A table of verdicts by config for one version."""
    lines = [
        f"transformers {counts['transformers']}, torch {counts['torch']}:",
        "",
        "| configs | classes built | read within 0.5 % | differ by a quirk of the class | refused by name | wrong |",
        "|---|---|---|---|---|---|",
    ]
    labels = {
        "default": "class defaults", "widened": "other widths and counts, ties flipped",
        "bare": "narrower, optional keys left out", "multimodal": "text part of multimodal classes",
    }  # fmt: skip
    for name, label in labels.items():
        group = [
            verdict(row, counts["transformers"]) for row in found
            if (row.group != "text" if name == "multimodal" else row.group == "text" and row.variant == name)
        ]  # fmt: skip
        count = Counter(group)
        built = len(group) - count["not built"]
        if built:
            lines.append(
                f"| {label} | {built} | {count['read']} | {count['quirk']} | {count['refused']} | {count['wrong']} |"
            )
    text = [row for row in found if row.group == "text" and row.verdict == "read"]
    asked = [row for row in text if not row.cache.startswith("not asked")]
    right = sum(row.cache == "right" for row in asked)
    lines += [
        "",
        f"Of {len(text)} text configs read, the class's own cache could be asked after 24 and 40 tokens "
        f"in {len(asked)}; keys and values (and whether there is a state) are right in {right}.",
        "",
    ]
    return lines


def left_out(title: str, found: list[Row]) -> list[str]:
    """A table of classes with the reason that the reader or the class gives."""
    lines = ["", f"## {title}", "", "| model type | class | reason |", "|---|---|---|"]
    for row in found:
        if row.variant == "default":
            why = " ".join(row.message.removeprefix(f"{row.kind}: ").split())[:160]
            lines.append(f"| {row.kind} | {row.name} | {why.replace('|', '/')} |")
    return lines


def page(versions: list[tuple[dict[str, Any], list[Row]]]) -> str:
    """The whole page."""
    newest, found = versions[0]
    lines = [
        "# Architectures",
        "",
        "What `rackfit model` reads of the classes that a widely used library builds, counted on torch's",
        "meta device without Rackfit. `make architectures` writes this page.",
        "",
        "Left out as encoders: " + ", ".join(sorted(ENCODERS)) + ".",
        "",
        "Left out as halves of encoder-decoders: "
        + ", ".join(sorted(HALVES_OF_ENCODER_DECODERS))
        + ".",
        "",
    ]
    for counts, rows_of in versions:
        lines += tally(counts, rows_of)
    lines += [
        "## Quirks of the classes",
        "",
        "| class | config | why the counts differ |",
        "|---|---|---|",
    ]
    lines += [f"| {kind} | {variant or 'all'} | {why} |" for (kind, variant), why in QUIRKS.items()]
    lines += [f"| {kind} | cache | {why} |" for kind, why in CACHE_QUIRKS.items()]
    lines += left_out(
        "Refused by name",
        [row for row in found if verdict(row, newest["transformers"]) == "refused"],
    )
    lines += left_out("Not built from the class's defaults",
                      [row for row in found if row.counted is None])  # fmt: skip
    lines += [
        "", f"## Classes of {newest['transformers']}", "",
        "| model type | class | read as | parameters of the class | read here | cache |",
        "|---|---|---|---|---|---|",
    ]  # fmt: skip
    for row in found:
        if row.variant == "default" and row.counted is not None:
            read = f"{row.read:,}" if row.read is not None else "refused"
            cache = row.cache.split(":")[0] if row.cache.startswith("not asked") else row.cache
            lines.append(
                f"| {row.kind} | {row.name} | {row.family or '-'} | {row.counted:,} | {read} | {cache or '-'} |"
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the page, and from the newest counts the data that it rests on."""
    files = [load(Path(name)) for name in sys.argv[1:]]
    (ROOT / "instances/architectures/class_defaults.json").write_text(defaults(files[0]))
    fixture.write(files[0], ROOT / "tests/costmodel/models/architectures.json.gz")
    versions = [
        (counts, [row for row in rows(counts) if row.kind not in _LEFT_OUT]) for counts in files
    ]
    (ROOT / "docs/architectures.md").write_text(page(versions))
    newest, found = versions[0]
    version = newest["transformers"]
    wrong = [row for row in found if row.group == "text" and verdict(row, version) == "wrong"]
    for row in wrong:
        print(f"wrong: {row.kind} {row.variant}: {row.read} for {row.counted}", file=sys.stderr)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
