"""The counts as a small file for the tests: configs, parameters and cache of every text class."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from benchmarks.architectures.compare import own_parameters

#: Keys that say nothing of a model's shape; left out to keep the file small.
_DROPPED = ("id2label", "label2id", "transformers_version", "return_dict", "output_hidden_states",
            "output_attentions", "problem_type", "_name_or_path", "chunk_size_feed_forward")  # fmt: skip


def write(counts: dict[str, Any], path: Path) -> None:
    """Write the text classes of ``counts``; same counts, same bytes."""
    classes: dict[str, Any] = {}
    for kind, entry in counts["classes"].items():
        if entry["group"] != "text":
            continue
        variants = {}
        for name, found in entry["variants"].items():
            if "total" not in found:
                variants[name] = {"error": found.get("error", "")[:120]}
                continue
            config = {key: value for key, value in found["config"].items() if key not in _DROPPED}
            variants[name] = {"config": config, "params": own_parameters(found)}
            if "cache" in found:
                variants[name]["cache"] = found["cache"]
        classes[kind] = {"class": entry["class"], "variants": variants}
    document = {
        "transformers": counts["transformers"],
        "torch": counts["torch"],
        "classes": classes,
    }
    text = json.dumps(document, separators=(",", ":")).encode()
    path.write_bytes(gzip.compress(text, mtime=0))
