"""One spelling for the names of modules, whatever wraps the text model and whoever wrote the list.

``model.language_model.layers.3.feed_forward.experts.17.w1`` and ``backbone.layers.3.mlp.experts.0.w1``
both become ``layers.3.mlp.experts.*.w1``: what stands before the layers is dropped where it is the
text model, parts of the same meaning get one name, and experts lose their numbers.
"""

from __future__ import annotations

#: What text models are wrapped in.
_TRUNKS = (
    "model", "language_model", "backbone", "transformer", "decoder", "thinker", "text_model",
    "llm", "module", "base_model", "lm", "gpt_neox",
)  # fmt: skip
#: Parts that mean the same.
_SAME = {
    "attn": "self_attn",
    "attention": "self_attn",
    "self_attention": "self_attn",
    "ffn": "mlp",
    "feed_forward": "mlp",
    "block_sparse_moe": "mlp",
    "shared_expert": "shared_experts",
    "embeddings": "embed_tokens",
    "wte": "embed_tokens",
    "word_embeddings": "embed_tokens",
}
#: One name of the readers stands for what checkpoints store apart or together.
_SYNONYMS = {
    "up_proj": ("gate_proj", "gate_up_proj", "w1", "w3"),
    "down_proj": ("w2",),
    "q_proj": ("qkv_proj", "query_key_value", "fused_qkvbfg_a_proj"),
    "k_proj": ("qkv_proj", "query_key_value", "fused_qkvbfg_a_proj"),
    "v_proj": ("qkv_proj", "query_key_value", "fused_qkvbfg_a_proj"),
    "o_proj": ("dense",),
    "in_proj_qkv": ("in_proj_qkvz",),
    "in_proj_z": ("in_proj_qkvz",),
    "in_proj_ba": ("in_proj_b", "in_proj_a"),
    "kv_a_proj_with_mqa": ("fused_qkv_a_proj_with_mqa",),
    "q_a_proj": ("fused_qkv_a_proj_with_mqa",),
}
#: A gated FFN has both of each pair or neither.
GATED_PAIRS = (("gate_proj", "up_proj"), ("w1", "w3"))
#: Names (or parts of names) of what is no matrix of the text model: vectors, tables, towers, drafts.
_NO_MATRIX = (
    "norm", "conv1d", "a_log", "dt_bias", "bias", "embed", "visual", "vision", "image", "audio",
    "projector", "patch_merge", "mapping_proj", "hyper_connection", "hc_attn", "hc_ffn", "hc_head",
    "attn_mha", "attn_mqa", "rotary", "sinks", "mtp", "eagle", "talker", "code2wav", "position",
    "lora", "scale", "indexers_proj", "_ape",
)  # fmt: skip


def canonical(name: str) -> str:
    """The one spelling of a module's name, or of the fixed beginning of a pattern."""
    parts = name.strip(".").split(".")
    while len(parts) > 1 and parts[0] in _TRUNKS:
        parts = parts[1:]
    if len(parts) > 1 and parts[0] in ("h", "blocks", "layer") and _number(parts[1]):
        parts[0] = "layers"
    parts = [_SAME.get(part, part) for part in parts]
    if len(parts) == 1 and parts[0] in ("head", "output", "embed_out"):
        parts = ["lm_head"]
    for index in range(1, len(parts)):
        if parts[index - 1] == "experts" and _number(parts[index]):
            parts[index] = "*"
    return ".".join(parts)


def spellings(module: str) -> tuple[str, ...]:
    """The canonical names under which a list may know a module of this model."""
    name = canonical(module)
    owner, dot, last = name.rpartition(".")
    return (name, *(f"{owner}{dot}{other}" for other in _SYNONYMS.get(last, ())))


def bodies(name: str) -> tuple[str, ...]:
    """A canonical name with an expert's number, in the spellings that globs and expressions meet."""
    first = name.replace(".*", ".0")
    short = first.replace(".self_attn", ".attn").replace(".mlp", ".ffn")
    sparse = first.replace(".mlp", ".block_sparse_moe")
    found = dict.fromkeys((first, short, sparse))
    return (*found, *(f"model.{body}" for body in found))


def wrapped(name: str) -> tuple[str, ...]:
    """A canonical name as files write it, for expressions that are matched from the start."""
    wraps = ("", "language_model.", "backbone.", "transformer.", "model.language_model.")
    return tuple(f"{wrap}{body}" for body in bodies(name) for wrap in wraps)


def is_no_matrix(name: str) -> bool:
    """Whether a name in a list is of something that no quantiser converts or no text model has."""
    low = name.lower()
    return any(word in low for word in _NO_MATRIX) or low.rpartition(".")[2] in (
        "d",
        "gate",
        "router",
    )


def _number(part: str) -> bool:
    return part.isascii() and part.isdigit()
