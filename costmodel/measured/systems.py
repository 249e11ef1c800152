"""From a measured row's names to catalogue entries: model, precision, KV dtype, cluster.

What a row does not say is assumed here and nowhere else: whole experts on chips are loaded with the skew
that has been published, experts cut over all chips evenly; quantised TensorRT-LLM runs, FP4 checkpoints
and those that NVIDIA quantised keep their KV in FP8, others in the checkpoint's KV dtype.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from pathlib import Path

from costmodel.measured.rows import MeasuredRow
from costmodel.models import load_model
from costmodel.question.choices.options import Dtype
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.workload import Workload
from topology import load_cluster
from topology.catalogue import catalogue_names, checked, is_file
from topology.chip import chip_names
from topology.errors import InstanceError, Problem
from topology.spec import read_cluster_spec

#: endings of checkpoint names that are no part of the architecture
_ENDINGS = ("instruct", "thinking", "it", "hf", "chat", "base", "fp8", "mxfp8", "fp4", "nvfp4", "mxfp4", "int4",
            "awq", "gptq", "w4a16", "bf16", "dynamic", "kv", "w8a8", "0528", "0324", "0711", "0905", "2507", "preview", "v2")  # fmt: skip
#: released under several names with one architecture
_SAME = {
    "deepseek-v3-0324": "deepseek-v3",
    "deepseek-v3.1": "deepseek-v3",
    "deepseek-v3.1-terminus": "deepseek-v3",
    "deepseek-v3.2-exp": "deepseek-v3.2",
    "glm-4.6": "glm-4.5",
    "glm-5.1": "glm-5",
    "kimi-k2-thinking": "kimi-k2.5",
    "llama-3.3-70b": "llama-3.1-70b",
    "llama-4-maverick-17b-128e": "llama-4-maverick",
    "llama-4-scout-17b-16e": "llama-4-scout",
    "minimax-m2": "minimax-m2.7",
    "minimax-m2.1": "minimax-m2.7",
    "minimax-m2.5": "minimax-m2.7",
}
#: checkpoints whose FP4 release quantises only part of the matrices: what the public benchmarks serve since November 2025
_FP4_RELEASE = {
    "deepseek-v3": "deepseek-r1-0528-nvfp4-v2",
    "deepseek-r1": "deepseek-r1-0528-nvfp4-v2",
}
#: domains that a chip is sold in, where the name of the cluster is not that of the chip
_CLUSTERS = {
    "gb200": "gb200-nvl72", "gb300": "gb300-nvl72", "gh200": "gh200-nvl32", "rubin": "vr-nvl72",
    "ascend-910c": "cloudmatrix384", "trn2": "trn2", "trn3": "trn3-ultraserver",
}  # fmt: skip

#: prompt tokens that one pass takes of requests which start together: of 512 to 16,384 what predicts
#: left-out models best
TOGETHER_TOKENS = 1024


@dataclass(frozen=True, slots=True)
class Served:
    """Catalogue names and dtypes of what a row served, and the chip it ran on.

    ``block_scales``: its 8-bit weights have scales by block, so that inputs are quantised at run time.
    """

    model: str
    weight_dtype: Dtype | None
    kv_dtype: Dtype | None
    cluster: str
    chip: str
    block_scales: bool = False


def served(row: MeasuredRow) -> Served:
    """What a row served. Raises ``InstanceError`` for a model or system the catalogue lacks."""
    found = served_as(row.model, row.precision, row.engine, row.system)
    kv = row.decode.settings.kv or found.kv_dtype
    return replace(found, kv_dtype=kv, block_scales=row.block_scales)


@lru_cache(maxsize=4096)
def served_as(model: str, precision: str, engine: str, system: str) -> Served:
    """What a checkpoint's name and the names of its precision, engine and system stand for.

    Raises ``InstanceError`` for a model or system the catalogue lacks.
    """
    name, weight = checkpoint(model, precision)
    asked = _asked(model, precision)
    by_nvidia = engine == "trtllm" or model.lower().startswith("nvidia/")
    small = asked.startswith("fp4") or (by_nvidia and asked.startswith("fp8"))
    kv: Dtype | None = "fp8" if small else None
    chip, cluster = system_names(system)
    return Served(name, weight, kv, cluster, chip)


def checkpoint(model: str, precision: str) -> tuple[str, Dtype | None]:
    """Catalogue name of a checkpoint, and the precision of its weights where that is not the one's own.

    ``precision``: as said beside the name; empty: by the name. Raises ``InstanceError`` for a model the catalogue lacks.
    """
    name, asked = model_name(model), _asked(model, precision)
    native = load_model(name).native_dtype.lower()
    weight: Dtype | None = None
    if asked.startswith("fp4") and name in _FP4_RELEASE:
        name = _FP4_RELEASE[name]
    elif asked.startswith("fp4") and "fp4" not in native:
        weight = "fp4"
    elif asked.startswith("fp8") and "fp8" not in native and "fp4" not in native:
        weight = "fp8"
    elif asked.startswith("bf16") and native != "bf16":
        weight = "bf16"
    elif asked.startswith("int4") and "int4" not in native and "4" not in native:
        weight = "int4"
    return name, weight


def is_own(model: str) -> bool:
    """Whether a model is named by its own ``config.json`` or the folder of one, and that is here."""
    if len(model) > 4096 or "\0" in model or not ("/" in model or model.endswith(".json")):
        return False
    return is_file(Path(model)) or is_file(Path(model) / "config.json")


def _asked(model: str, precision: str) -> str:
    # folders may have any name
    lowered = "" if is_own(model) else model.lower()
    if "fp4" in precision or (not precision and "fp4" in lowered):
        return "fp4"
    return precision or ("fp8" if "fp8" in lowered else "")


def model_name(path: str) -> str:
    """Catalogue name of a checkpoint such as ``nvidia/DeepSeek-R1-NVFP4``; a model's own file as it is. Raises ``InstanceError``."""
    if is_own(path):
        return path
    known = catalogue_names("models", (".json",))
    name = path.rstrip("/").rsplit("/", 1)[-1].lower().replace("_", "-")
    tried = name.removeprefix("meta-").removeprefix("nvidia-")  # makers that put their name before
    while True:
        candidate = _SAME.get(tried, tried)
        if candidate in known:
            return candidate
        head, _, tail = tried.rpartition("-")
        if not head or (tail not in _ENDINGS and not re.fullmatch(r"v\d+(\.\d+)?|\d{4}", tail)):
            break
        tried = head
    message = f"model {path[:80]!r} is not in the catalogue, nor a config.json or the folder of one that is here"
    raise InstanceError(Problem("model_path", message))


@lru_cache(maxsize=256)
def _domain_chips(cluster: str) -> int:
    return len(load_cluster(cluster).domains[0].chips)


@lru_cache(maxsize=256)
def system_names(system: str) -> tuple[str, str]:
    """Chip and cluster of a system such as ``h200_sxm``. Raises ``InstanceError``."""
    told = re.sub(r"[_-](sxm|nvl72|hgx|oam|server)$", "", system.lower()).replace("_", "-")
    # some write the words of a name apart (rtx_pro_6000)
    chip = {name.replace("-", ""): name for name in chip_names()}.get(told.replace("-", ""), told)
    clusters = catalogue_names("clusters", (".yaml",))
    for cluster in (_CLUSTERS.get(chip, ""), f"hgx-{chip}", chip):
        if cluster in clusters:
            names = {placed.chip.name for placed in load_cluster(cluster).chips}
            if chip in names:
                return chip, cluster
    raise InstanceError(Problem("system", f"system {system[:80]!r} is not in the catalogue"))


@lru_cache(maxsize=256)
def slice_for(cluster: str, chips: int) -> str:
    """The smallest slice of a family that a worker of so many chips fits on; other clusters themselves."""
    spec, _ = read_cluster_spec(cluster)
    sold = spec.domains[0].granularity.get("slice", ()) if spec.parameter == "shape" else ()
    shapes = () if isinstance(sold, int) else [shape for shape in sold if prod(shape) >= chips]
    return "-".join((cluster, "x".join(map(str, min(shapes, key=prod))))) if shapes else cluster


@lru_cache(maxsize=256)
def _base(what: Served, count: int, profile: str, expert_load: str) -> Instance:
    name = what.cluster if count == 1 else f"{what.cluster}@{count}"
    found = resolve_instance(
        Scenario(
            model=what.model,
            cluster=name,
            weight_dtype=what.weight_dtype,
            kv_dtype=what.kv_dtype,
            workload=Workload(input_tokens=1, output_tokens=1, expert_load=expert_load),
            profile=profile,
        )
    )
    if not what.block_scales or found.model.native:
        return found
    return replace(found, model=replace(found.model, block_scales=True))


def workload_of(row: MeasuredRow) -> Workload:
    """Mean lengths of a row's requests, in whole tokens."""
    with checked("row"):
        return Workload(
            input_tokens=max(1, round(row.input_tokens)),
            output_tokens=max(1, round(row.output_tokens)),
            prompts_together=prompts_together(row),
            expert_load=expert_load_of(row),
        )


def prompts_together(row: MeasuredRow) -> int:
    """Short prompts of equal lengths are prefilled in passes of up to :data:`TOGETHER_TOKENS`."""
    if row.prefill is not None or not row.fixed_lengths:
        return 1
    return max(1, int(TOGETHER_TOKENS // row.input_tokens))


def expert_load_of(row: MeasuredRow) -> str:
    """Skewed where chips hold whole experts; cut over all chips they weigh on all alike."""
    return "skewed" if row.decode.expert_ways > 1 else "uniform"


def instance_of(row: MeasuredRow, profile: str) -> Instance:
    """The instance of a row, on as many domains as its largest worker needs."""
    workers = [group for group in (row.decode, row.prefill) if group is not None]
    what = served(row)
    what = replace(what, cluster=slice_for(what.cluster, max(group.chips for group in workers)))
    domain = _domain_chips(what.cluster)
    # one domain for each worker that is priced, more where it spans several
    count = sum(-(-group.chips // domain) for group in workers)
    base = _base(what, count, profile, expert_load_of(row))
    scenario = base.scenario.model_copy(update={"workload": workload_of(row)})
    return resolve_instance_like(base, scenario)


def resolve_instance_like(base: Instance, scenario: Scenario) -> Instance:
    """``base`` under another workload, without reading its files again."""
    workload = scenario.workload
    assert isinstance(workload, Workload)
    limit = base.model.max_context
    if limit is not None and workload.final_context > limit:
        raise InstanceError(
            Problem("isl", f"{workload.final_context} tokens; {base.model.name} supports {limit}")
        )
    found = replace(base, scenario=scenario, workload=workload)
    # the model's operations do not depend on the requests
    vars(found)["operations"] = base.operations
    return found
