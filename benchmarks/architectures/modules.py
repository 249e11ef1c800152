"""Shapes of every matrix of packaged configs, from the classes of ``transformers`` on the meta device.

    python modules.py PACKAGED.json.gz OUT.json.gz

The first is a file of configs; the second gets, for every config whose class there is, each parameter's
name with the layers that have it by shape. Written for a test that counts bytes without Rackfit's reader.
"""

from __future__ import annotations

import gc
import gzip
import json
import re
import sys
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText
from transformers.models.auto.configuration_auto import CONFIG_MAPPING


def shapes(config: dict[str, Any]) -> dict[str, dict[str, list[int]]]:
    """Layers by shape by parameter name (``N`` for the layer's number; -1 where there is no layer)."""
    plain = {key: value for key, value in config.items() if key != "quantization_config"}
    for inner in ("text_config",):
        if isinstance(plain.get(inner), dict):
            plain[inner] = {k: v for k, v in plain[inner].items() if k != "quantization_config"}
    kind, named = (
        config["model_type"],
        getattr(transformers, (config.get("architectures") or [""])[0], None),
    )
    # a type of a file's own, whose architecture the library has under another type
    known = kind in CONFIG_MAPPING or named is None
    made = (CONFIG_MAPPING[kind] if known else named.config_class).from_dict(plain)
    model = None
    for auto in (AutoModelForCausalLM, AutoModelForImageTextToText):
        try:
            with torch.device("meta"):
                model = auto.from_config(made)
            break
        except (ValueError, AttributeError) as error:
            last = error
    if model is None:
        raise last
    found: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for name, value in model.named_parameters():
        layer = re.search(r"layers\.(\d+)\.", name)
        pattern = name if layer is None else name.replace(f"layers.{layer[1]}.", "layers.N.", 1)
        found[pattern]["x".join(map(str, value.shape))].append(int(layer[1]) if layer else -1)
    del model
    gc.collect()
    return found


def main() -> None:
    """Read, build, write."""
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    packaged = json.loads(gzip.decompress(Path(sys.argv[1]).read_bytes()))["configs"]
    found: dict[str, Any] = {}
    for name, entry in packaged.items():
        config = entry["config"]
        nested = config.get("text_config") or {}
        if not (
            "beside" in entry
            or config.get("quantization_config")
            or nested.get("quantization_config")
        ):
            continue
        try:
            found[name] = shapes(config)
            print(name, len(found[name]), file=sys.stderr, flush=True)
        except Exception as error:
            print(name, f"{type(error).__name__}: {str(error)[:150]}", file=sys.stderr, flush=True)
        document = {"transformers": transformers.__version__, "shapes": found}
        Path(sys.argv[2]).write_bytes(gzip.compress(json.dumps(document).encode(), mtime=0))


if __name__ == "__main__":
    main()
