"""A scenario file to start from: every key with what it means and its default."""

from __future__ import annotations

from typing import Any

import yaml

from costmodel.instance import Scenario
from rackfit.schema import FOLDER
from topology.catalogue import parse_model


def scenario_text(
    name: str,
    model: str,
    cluster: str,
    *,
    input_tokens: int = 4000,
    output_tokens: int = 1000,
    ttft: str | None = "2 s",
    tpot: str | None = "30 ms",
) -> str:
    """The commented YAML text, checked against the scenario model. Raises ``InstanceError``."""
    data: dict[str, Any] = {
        "name": name,
        "model": model,
        "cluster": cluster,
        "workload": {"input_tokens": input_tokens, "output_tokens": output_tokens},
        "slo": {"ttft": ttft, "tpot": tpot},
    }
    parse_model(Scenario, data, name)
    plain = Scenario(**data)
    limits, prices = plain.limits, plain.prices
    return f"""# yaml-language-server: $schema={(FOLDER / "scenario.schema.json").as_uri()}
# One question for Rackfit: rackfit solve THIS_FILE --out layout.json

name: {_scalar(name)}

# A catalogue name (rackfit catalogue models) or the path of a Hugging Face config.json.
model: {_scalar(model)}

# A catalogue name (rackfit catalogue clusters), NAME@N for N racks or nodes, or a file.
cluster: {_scalar(cluster)}

# A catalogue name (rackfit catalogue workloads), or the request itself:
workload:
  input_tokens: {input_tokens}    # the whole prompt
  output_tokens: {output_tokens}   # the whole answer
  # cached_tokens: {max(0, input_tokens // 2)}     # of the prompt, already in the KV cache
  # hold_s: 5 min       # instead: the cached tokens wait so long, and how many requests go on
  # return_rate: 0.5
  # expert_load: skewed  # or uniform, or a file of recorded expert counts

# Latency targets; leave one out for no target.
slo:
  ttft: {_scalar(ttft)}   # to the first token, for a request that just missed a pass
  tpot: {_scalar(tpot)}  # per further token

# weight_dtype: fp8    # bf16, fp16, fp8, int8, fp4 or int4; default: as the checkpoint
# kv_dtype: fp8        # default: bf16
# pay: {plain.pay}           # whole: every healthy chip is paid; used: chips in replicas only
# rate: 100            # requests/s to serve at least cost, instead of filling the cluster
# profile: {plain.profile}  # calibrated efficiencies, physics (all 1), or a file
# kv_tiers: [host, flash]  # tiers beside HBM that KV may use: host, flash, disk
# speculative:         # the model's MTP module drafts tokens; leave out for none
#   draft_tokens: 1    # per pass
#   acceptance: 0.85   # probability that a draft is right, if those before it were
# prices:
#   chip_price_factor: {prices.chip_price_factor:g}   # times the catalogue's price
#   power_overhead: {prices.power_overhead:g}    # host, network and cooling
# limits:
#   prefill_chunk_tokens: {limits.prefill_chunk_tokens}     # prompt tokens of one pass and rank
#   max_pipeline_stages: {limits.max_pipeline_stages}
#   max_domains_per_replica: null   # a number; by default 8, or more where the weights need more
#   max_sequences_per_rank: {limits.max_sequences_per_rank}
"""


def _scalar(value: str | None) -> str:
    """A YAML scalar, quoted where it has to be."""
    text: str = yaml.safe_dump(value, width=10_000, allow_unicode=True)
    return text.removesuffix("...\n").strip()
