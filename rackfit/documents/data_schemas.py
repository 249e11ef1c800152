"""JSON Schemas of the data files that people write: chips, tiers, clusters, workloads, traffic, models, profiles.

Made from what reads them, so that a new topology, network or family is in them by itself.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, TypeAdapter

from costmodel.flow.question import FlowQuestion
from costmodel.models.config import MAX_EXPERTS, MAX_LAYERS, MAX_SIZE
from costmodel.models.registry import by_architecture, by_model_type
from costmodel.money.offers import PricedOffer
from costmodel.plan.question import PlanQuestion
from costmodel.question.profile import Profile
from costmodel.question.traffic.load import Traffic
from costmodel.question.workload import Workload
from topology.builders.base import builders
from topology.chip import Chip
from topology.scaleout.base import network_kinds
from topology.spec import ClusterSpec
from topology.tier import Tier

Schema = dict[str, Any]


def chip_schema() -> Schema:
    """Schema of ``instances/chips/*.yaml``."""
    schema = Chip.model_json_schema()
    rates = schema["properties"]["flops_per_s"]
    rate = rates.pop("additionalProperties")
    rates |= {
        "properties": dict.fromkeys(("bf16", "fp8", "fp4", "int8"), rate),
        "required": ["bf16"],
        "additionalProperties": False,
    }
    tiers = schema["properties"]["tiers"]
    tiers["items"] = {"anyOf": [{"type": "string"}, tiers["items"]]}  # by name, or in place
    return schema


def tier_schema() -> Schema:
    """Schema of ``instances/tiers/*.yaml``."""
    return Tier.model_json_schema()


def cluster_schema() -> Schema:
    """Schema of ``instances/clusters/*.yaml``, with the options of every fabric and network."""
    schema = ClusterSpec.model_json_schema()
    definitions = schema["$defs"]
    fabrics = _by_kind({kind: spec for kind, (spec, _) in builders().items()}, definitions)
    networks = _by_kind(network_kinds(), definitions)
    definitions["DomainSpec"]["properties"]["fabric"] = fabrics
    schema["properties"]["scale_out"] = {"anyOf": [networks, {"type": "null"}], "default": None}
    return schema


def _by_kind(models: dict[str, type[Any]], definitions: Schema) -> Schema:
    """One of several option models, told apart by ``kind``, which a file must say."""
    references = []
    for kind in sorted(models):
        model: type[BaseModel] = models[kind]
        options = model.model_json_schema()
        definitions |= options.pop("$defs", {})
        options["properties"]["kind"] = {"const": kind}
        options["required"] = sorted({"kind", *options.get("required", [])})
        definitions[model.__name__] = options
        references.append({"$ref": f"#/$defs/{model.__name__}"})
    return {"oneOf": references}


def workload_schema() -> Schema:
    """Schema of ``instances/workloads/*.yaml``."""
    return Workload.model_json_schema()


def traffic_schema() -> Schema:
    """Schema of ``instances/traffic/*.yaml``."""
    return Traffic.model_json_schema()


def flow_schema() -> Schema:
    """Schema of ``instances/flows/*.yaml``."""
    return FlowQuestion.model_json_schema()


def plan_schema() -> Schema:
    """Schema of ``instances/plans/*.yaml``."""
    return PlanQuestion.model_json_schema()


def profile_schema() -> Schema:
    """Schema of ``instances/profiles/*.json``."""
    return Profile.model_json_schema()


def price_schema() -> Schema:
    """Schema of ``instances/prices/*.yaml``: chips that are bought or rented, tokens of an API."""
    return TypeAdapter(PricedOffer).json_schema()


def model_schema() -> Schema:
    """Schema of a Hugging Face ``config.json``: what every family reads, and within which limits.

    A config has keys that only its family knows, so others are allowed; ``rackfit model`` says how
    each was read.
    """
    size = {"type": ["integer", "null"], "minimum": 1, "maximum": MAX_SIZE}
    count = {"type": ["integer", "null"], "minimum": 0}
    sizes = (
        "hidden_size", "vocab_size", "intermediate_size", "num_attention_heads",
        "num_key_value_heads", "head_dim", "kv_lora_rank", "q_lora_rank", "qk_nope_head_dim",
        "qk_rope_head_dim", "v_head_dim",
    )  # fmt: skip
    experts = ("num_experts", "num_local_experts", "n_routed_experts", "num_experts_per_tok")
    return {
        "title": "Model",
        "description": "A Hugging Face config.json. `rackfit model config.json` shows how it is read.",
        "type": "object",
        "properties": {
            "model_type": {"type": "string", "examples": sorted(by_model_type())},
            "architectures": {
                "type": ["array", "null"],
                "items": {"type": "string", "examples": sorted(by_architecture())},
            },
            **dict.fromkeys(sizes, size),
            "num_hidden_layers": {**size, "maximum": MAX_LAYERS},
            **{name: {**count, "maximum": MAX_EXPERTS} for name in experts},
            "n_shared_experts": count,
            "num_nextn_predict_layers": count,
            "tie_word_embeddings": {"type": "boolean"},
            "torch_dtype": {"type": ["string", "null"]},
            "quantization_config": {"type": ["object", "null"]},
        },
        "anyOf": [{"required": ["model_type"]}, {"required": ["architectures"]}],
    }
