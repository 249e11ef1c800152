"""What classes of transformers count, from a file that ``make architectures`` writes. Knows no reader."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("architectures.json.gz")

#: Classes left out, with the reason: they are no decoders that engines serve.
ENCODERS = frozenset(
    """
    bert bert-generation big_bird camembert data2vec-text electra ernie megatron-bert rembert roberta
    roberta-prelayernorm roc_bert roformer xlm xlm-roberta xlm-roberta-xl xlnet xmod mega qdqbert
    """.split()  # noqa: SIM905
)
HALVES_OF_ENCODER_DECODERS = frozenset(
    """
    bart bigbird_pegasus blenderbot blenderbot-small marian mbart musicgen musicgen_melody mvp pegasus
    plbart prophetnet speech_to_text_2 trocr whisper xlm-prophetnet
    """.split()  # noqa: SIM905
)
#: Classes refused by name, see costmodel/models/refused.py.
REFUSED = frozenset(["blt", "mllama", "moshi", "reformer", "transfo-xl"])
#: Classes whose count differs for a reason that is theirs; by config where not in all.
QUIRKS = {
    ("xlstm", "widened"): "version 5 keeps two tables, though tie_word_embeddings is true",
    ("longcat_flash", ""): "allocates weights for zero-compute experts, which have none",
    ("nemotron_h", "bare"): "refused: a file without its list of blocks",
    ("zamba", "widened"): "shares its block by tying: tie_word_embeddings false makes copies of it",
    (
        "zamba2",
        "widened",
    ): "shares its block by tying: tie_word_embeddings false makes copies of it",
    ("moss_transcribe_diarize", "bare"): "ties by the outer class's default, against text_config",
    ("ovis2", "default"): "version 4: the head reads 1,536 channels of 4,096, by the outer config",
    ("fuyu", "widened"): "version 4 ties by text_config, against the outer config",
    ("cpmant", ""): "version 4 ties two tables of unlike size",
}
#: Classes whose cache differs for such a reason.
CACHE_QUIRKS = {
    "cpmant": "puts 32 prompt tokens before every sequence",
    "lfm2": "version 4 makes room for convolutions in layers of attention, too",
    "deepseek_v4": "keeps a part of a compressed entry and its index in buffers",
}


@cache
def counts() -> dict[str, Any]:
    """Classes by ``model_type``, each with its variants: config, parameters, cache."""
    found: dict[str, Any] = json.loads(gzip.decompress(FILE.read_bytes()))["classes"]
    return found


def decoders() -> dict[str, Any]:
    """The classes that are neither encoders nor halves of encoder-decoders."""
    left_out = ENCODERS | HALVES_OF_ENCODER_DECODERS
    return {kind: entry for kind, entry in counts().items() if kind not in left_out}


def quirk(kind: str, variant: str, version: str = "5") -> str | None:
    """Why a class's count differs, where it has a reason of its own in that version of the library."""
    why = QUIRKS.get((kind, "")) or QUIRKS.get((kind, variant))
    old = why is not None and why.startswith("version 4") and not version.startswith("4")
    return None if old else why
