"""A scenario file to start from: every key with what it means and its default."""

from __future__ import annotations

from typing import Any

from costmodel.question.engine_files import engine_names, engine_problems
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from rackfit.documents.schema import FOLDER
from rackfit.quoting import yaml_scalar
from topology.catalogue import checked
from topology.tier import TIER_KINDS


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
    """The commented YAML text; the scenario is valid as it stands and with every commented key put in.

    Raises ``InstanceError`` for names and values that no scenario accepts.
    """
    data: dict[str, Any] = {
        "name": name,
        "model": model,
        "cluster": cluster,
        "workload": {"input_tokens": input_tokens, "output_tokens": output_tokens},
        "slo": {"ttft": ttft, "tpot": tpot},
    }
    with checked(name):
        plain = Scenario.model_validate(data)
    instance = resolve_instance(plain)
    waiting, beside_hbm = _kv_keys(instance)
    limits, prices = plain.limits, plain.prices
    plain_patches = instance.workload.image_patches
    return f"""# yaml-language-server: $schema={(FOLDER / "scenario.schema.json").as_uri()}
# One question for Rackfit: rackfit solve THIS_FILE --out layout.json

name: {yaml_scalar(name)}
# description: ""      # a sentence on what is asked

# A catalogue name (rackfit catalogue models) or the path of a Hugging Face config.json.
model: {yaml_scalar(model)}

# A catalogue name (rackfit catalogue clusters), NAME@N for N racks or nodes, or a file.
cluster: {yaml_scalar(cluster)}

# A catalogue name (rackfit catalogue workloads), or the request itself:
workload:
  input_tokens: {input_tokens}    # the whole prompt
  output_tokens: {output_tokens}   # the whole answer
  # cached_tokens: {max(0, input_tokens // 2)}     # of the prompt, already in the KV cache
{waiting}  # prompts_together: 1  # requests that start at the same time, as those of a load generator may
  # images: 0          # of a request, for models that read them; image_patches: how many each has
  # image_patches: {plain_patches}
  # audio_frames: 0    # of sound that a request brings, for models that hear
  # expert_load: skewed  # or uniform, or a file of recorded expert counts
  # expert_load_seed: 0  # of the generator of skewed loads
  # spread:              # means where lengths differ; rackfit solve --traffic works them out of requests

# Latency targets; leave one out for no target.
slo:
  ttft: {yaml_scalar(ttft)}   # to the first token, for a request that just missed a pass
  tpot: {yaml_scalar(tpot)}  # per further token
  # of_replays: false    # true: percentiles that replays met; evaluate does not hold a steady state to them

# weight_dtype: fp8    # bf16, fp16, fp8, int8, fp4 or int4; default: as the checkpoint
# kv_dtype: fp8        # default: bf16
# pay: {plain.pay}           # whole: every healthy chip is paid; used: chips in replicas only
# rate: 100            # requests/s to serve at least cost, instead of filling the cluster
{_engine_line(instance)}
# layer_slots: {plain.layer_slots}    # spare expert slots of the layers; also rows, any: unlike numbers, without an engine
# granularity: chip    # any chips, or a name of the cluster's file: tray, slice
# (choices, here or as rackfit solve --choose chunk=4096/8192,kv_dtype=fp8/bf16, leave options to the search)
# within_measured: false  # true: only roles, widths and batches that somebody measured on these chips
# profile: {plain.profile}  # calibrated efficiencies, physics (all 1), or a file
# adapters: {{count: 8, bytes: 150 MB}}   # LoRA adapters that every replica holds
# failed: []           # what is out of service, such as [r0g3, r1]
# taken: []            # chips that others use
# chip: {{hbm_bytes_per_s: +20%}}  # what if: other figures of every chip, absolute or by so much
# scale_out: {{oversubscription: 2}}  # what if: other options of the network between domains
# domain_size: null    # what if: so many chips in a switched domain, as many in all
# apart: false         # true: attention and routed experts may have chips of their own; only: always
# two_batch_overlap: {str(plain.two_batch_overlap).lower()}  # passes in two halves, without an engine
{beside_hbm}# prices:
#   chip_price_factor: {prices.chip_price_factor:g}   # times the catalogue's price
#   power_overhead: {prices.power_overhead:g}    # host, network and cooling
# limits:
#   prefill_chunk_tokens: {limits.prefill_chunk_tokens}     # prompt tokens of one pass and rank
#   prompt_order: {limits.prompt_order}     # or shortest: the router holds prompts back, long ones most
#   max_pipeline_stages: {limits.max_pipeline_stages}
#   mixed_stages: {str(limits.mixed_stages).lower()}             # mixed replicas in pipeline stages
#   max_domains_per_replica: null   # a number; by default 8, or more where the weights need more
#   max_sequences_per_rank: {limits.max_sequences_per_rank}
"""


def _engine_line(instance: Instance) -> str:
    """The engine's key with those that serve the model on these chips."""
    chips = {placed.chip.name: placed.chip for placed in instance.cluster.usable}.values()
    serving = [
        name for name in engine_names() if not engine_problems(name, "same", instance.model, chips)
    ]
    if not serving:
        return "# (no engine whose data Rackfit has serves this model on these chips)"
    others = "".join(f", {name}" for name in serving[1:])
    return f"# engine: {serving[0]}       # only layouts that it runs as they are{'; also' + others[1:] if others else ''}"


def _kv_keys(instance: Instance) -> tuple[str, str]:
    """Lines of the workload and of the scenario on KV that waits or lies beside HBM, and on drafts."""
    drafts = (
        "# speculative:         # the model's MTP module drafts tokens; leave out for none\n"
        "#   draft_tokens: 1    # per pass\n"
        "#   acceptance: 0.85   # probability that a draft is right, if those before it were; or one for each: [0.9, 0.8]\n"
        if instance.model.mtp is not None
        else ""
    )
    waiting = (
        "  # hold_s: 5 min       # how long the cached tokens wait; without it they are there at no cost\n"
        "  # return_rate: 0.5    # share of requests that go on after that\n"
    )
    kinds = [k for k in TIER_KINDS if any(p.chip.tier(k) for p in instance.cluster.chips)]
    tiers = f"# kv_tiers: [{', '.join(kinds)}]  # tiers beside HBM that KV may use\n"
    return waiting if instance.workload.input_tokens > 1 else "", drafts + (tiers if kinds else "")
