"""Bytes of quantised checkpoints, counted without the reader: shapes from transformers' own classes.

``packaged_shapes.json.gz`` holds each parameter's shape and layers as the class builds it (written by
benchmarks/architectures/modules.py). What is quantised is decided here from words in the lists, in a
way of its own: by what a module is for, its layer and its last name. Two models, whose class the library
does not have, are added up by hand from the keys of their configs.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterator
from math import prod
from pathlib import Path
from typing import Any

from tests.costmodel.models.test_mutated_lists import PACKAGED

SHAPES: dict[str, Any] = json.loads(
    gzip.decompress(Path(__file__).with_name("packaged_shapes.json.gz").read_bytes())
)["shapes"]
#: Bits of an element with its share of the scales.
BITS = {
    "FP8": 8.0, "NVFP4": 4.5, "W4A16_NVFP4": 4.5, "MXFP8": 8.25, "mxfp8": 8.25, "mxfp4": 4.25,
    "fp8": 8.0, "int4": 4.5, "": 16.0,
}  # fmt: skip
_SAME = {"gate_up_proj": ("gate_proj", "up_proj", "w1", "w3"), "down_proj": ("w2", "down_proj"),
         "up_proj": ("up_proj", "w3", "gate_proj", "w1"), "gate_proj": ("gate_proj", "w1", "up_proj")}  # fmt: skip


def _role(name: str) -> str:
    """What a module is for, by words in its name."""
    low = name.lower()
    for words, role in (
        (("visual", "vision", "audio", "projector", "patch_merge", "mtp", "img"), "other"),
        (("lm_head", "embed"), "table"),
        (("norm", "conv1d", "a_log", "dt_bias", "hc_", "bias", "sinks", ".gate.", "router", "_ape",
          "compress_gate"), "vector"),
        (("indexer",), "index"),
        (("shared_expert",), "shared"),
        (("experts",), "experts"),
        (("linear_attn",), "linear"),
        (("in_proj", "out_proj"), "mamba"),
        (("attn", "q_proj", "k_proj", "v_proj", "o_proj", "attention"), "attention"),
        (("mlp", "ffn", "feed_forward", "up_proj", "down_proj"), "dense"),
    ):  # fmt: skip
        if any(word in low for word in words) or (role == "vector" and low.endswith(".gate")):
            return role
    return "other"


def _last(name: str) -> str:
    """A matrix's own name, or nothing where a name (or pattern) covers a whole module."""
    parts = [part for part in re.split(r"[.*]", name) if part and part != "weight"]
    last = parts[-1] if parts else ""
    return last if re.search(r"proj|^w[123]$|^w[qk]|^k$|ws_", last) else ""


class _Named:
    """A list of modules as (role, layer, last name); nothing stands for all."""

    def __init__(self, entries: list[str]):
        self.found: set[tuple[str, int, str]] = set()
        for entry in entries:
            text = entry.removeprefix("re:").replace("\\", "")
            layer = re.search(r"(?:layers|blocks)\.(\d+)", text)
            self.found.add((_role(text), int(layer[1]) if layer else -1, _last(text)))

    def has(self, role: str, layer: int, last: str) -> bool:
        names = {"", last, *_SAME.get(last, ())}
        # a name that covers all of attention covers its index too
        pairs = {(role, name) for name in names} | (
            {("attention", "")} if role == "index" else set()
        )
        return any((part, at, name) in self.found for at in (layer, -1) for part, name in pairs)


def _rules(entry: dict[str, Any]) -> tuple[dict[str, _Named], _Named, str]:
    """Listed modules by format, left-out modules, and the format of everything else."""
    config = entry["config"]
    nested = config.get("text_config") or {}
    own = config.get("quantization_config") or nested.get("quantization_config") or {}
    beside = entry.get("beside")
    section = (beside.get("quantization") or beside) if beside else own
    left = section.get("exclude_modules") or section.get("ignore") or section.get(
        "modules_to_not_convert") or section.get("ignored_layers") or []  # fmt: skip
    algorithm = section.get("quant_algo")
    if algorithm == "MIXED_PRECISION":
        by_format: dict[str, list[str]] = {}
        for name, what in section["quantized_layers"].items():
            by_format.setdefault(what["quant_algo"], []).append(name)
        blocks = own.get("quant_algo") and own.get("weight_block_size")
        return {k: _Named(v) for k, v in by_format.items()}, _Named([]), "fp8" if blocks else ""
    method = section.get("quant_method")
    general = algorithm or ("int4" if method == "compressed-tensors" else method)
    return {}, _Named(left), general


def counted_bytes(name: str) -> float:
    """Bytes of the text model's weights, by bits per module."""
    if name in BY_HAND:
        return sum(num * bits / 8 for num, bits in BY_HAND[name](PACKAGED[name]["config"]))
    return _from_shapes(name)


def _from_shapes(name: str) -> float:
    entry = PACKAGED[name]
    config = entry["config"]
    listed, left, general = _rules(entry)
    four_bit_experts = config.get("expert_dtype") == "fp4" and not listed
    total = 0.0
    for parameter, by_shape in SHAPES[name].items():
        role, last = _role(parameter), _last(parameter)
        if role == "other":
            continue
        for shape, layers in by_shape.items():
            num = prod(int(size) for size in shape.split("x"))
            for layer in layers:
                fmt = next((f for f, named in listed.items() if named.has(role, layer, last)), None)
                if role == "table":
                    listed_head = "lm_head" in parameter and any(
                        named.has("table", -1, "") for named in listed.values()
                    )
                    fmt = "W4A16_NVFP4" if listed_head else ""
                elif role == "vector" or "x" not in shape:
                    fmt = ""
                elif fmt is None:
                    fmt = "" if left.has(role, layer, last) else general
                if four_bit_experts and role == "experts":
                    fmt = "mxfp4"
                total += num * BITS[fmt] / 8
    return total


Parts = Iterator[tuple[float, float]]
"""Parameters and bits of each."""


def _kimi_k3(config: dict[str, Any]) -> Parts:
    """Latent experts and their projections in MXFP4; attention, shared experts and tables in BF16."""
    c = config["text_config"]
    h, linear = c["hidden_size"], c["linear_attn_config"]
    sparse = c["num_hidden_layers"] - c["first_k_dense_replace"]
    inner, width = c["routed_expert_hidden_size"], c["moe_intermediate_size"]
    heads = c["num_attention_heads"]
    yield sparse * c["num_experts"] * 3 * inner * width, 4.25
    yield sparse * 2 * h * inner, 4.25
    yield sparse * c["num_shared_experts"] * 3 * h * width, 16
    yield sparse * c["num_experts"] * h, 16
    yield c["first_k_dense_replace"] * 3 * h * c["intermediate_size"], 16
    yield len(linear["kda_layers"]) * 5 * h * linear["num_heads"] * linear["head_dim"], 16
    query = c["qk_nope_head_dim"] + c["qk_rope_head_dim"]
    latent = h * (c["q_lora_rank"] + c["kv_lora_rank"] + c["qk_rope_head_dim"])
    up = c["q_lora_rank"] * query + c["kv_lora_rank"] * (c["qk_nope_head_dim"] + c["v_head_dim"])
    out = 2 * h * c["v_head_dim"]  # output and its gate
    yield len(linear["full_attn_layers"]) * (latent + heads * (up + out)), 16
    yield 2 * c["vocab_size"] * h, 16


def _deepseek_v41(config: dict[str, Any]) -> Parts:
    """Experts in MXFP4, n-gram tables in FP8 with a scale per 32, matrices in FP8, tables in BF16."""
    c = config["text_config"]
    h, layers, heads = c["hidden_size"], c["num_hidden_layers"], c["num_attention_heads"]
    expert = 3 * h * c["moe_intermediate_size"]
    yield layers * c["n_routed_experts"] * expert, 4.25
    yield layers * c["n_shared_experts"] * expert, 8
    yield sum(c["engram_num_embeddings"]) * c["engram_head_dim"], 8.25
    wide, out = heads * c["head_dim"], c["o_groups"] * c["o_lora_rank"]
    query = c["q_lora_rank"] * (h + wide)
    yield layers * (query + h * c["head_dim"] + wide * c["o_lora_rank"] + out * h), 8
    found = (c["engram_max_ngram_size"] - 1) * c["engram_n_heads"] * c["engram_head_dim"]
    yield len(c["engram_layer_ids"]) * found * h * (c["hc_mult"] + 1), 8
    yield layers * c["n_routed_experts"] * h + 2 * c["vocab_size"] * h, 16


#: Configs whose class the library does not have.
BY_HAND: dict[str, Callable[[dict[str, Any]], Parts]] = {
    "deepseek-ai--DeepSeek-V4.1-Flash": _deepseek_v41,
    "moonshotai--Kimi-K3": _kimi_k3,
}
