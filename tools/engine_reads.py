"""The installed engine reads exported commands: parser, configuration objects, expert maps. No GPU, no weights.

    python tools/engine_reads.py READS.jsonl CONFIGS h100|h200|b200|gb200 FOLDER ..

``FOLDER`` is one export (with ``commands.sh``) for that GPU, ``CONFIGS`` holds ``NAME/config.json`` of every model. A line of
JSON is added for each command that differs by more than hosts, ports and ranks: ``parses``, ``configures``, ``maps``, ``says``.
Runs in the engine's own environment and needs nothing of Rackfit.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import shlex
import sys
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from engine_mocks import DEVICES, pretend, pretend_vllm

#: what differs between processes that are otherwise alike
_PLACES = re.compile(
    r"(--(?:port|master-port|master-addr|node-rank|dist-init-addr|base-gpu-id|disaggregation-bootstrap-port|"
    r"data-parallel-(?:address|rpc-port|start-rank)) \S+|CUDA_VISIBLE_DEVICES=\S+|VLLM_NIXL_SIDE_CHANNEL_\w+=\S+)"
)


def commands(folder: Path) -> list[tuple[str, int]]:
    """Commands that differ, and how many there are of each."""
    kinds: dict[str, list[str]] = {}
    for line in (folder / "commands.sh").read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            kinds.setdefault(_PLACES.sub("", line), []).append(line)
    return [(lines[0], len(lines)) for lines in kinds.values()]


def words_of(line: str, configs: Path) -> list[str]:
    """Words of a command; its environment is set, its model is the folder of its config."""
    words = shlex.split(line)
    for name in ("VLLM_PP_LAYER_PARTITION", "SGLANG_PP_LAYER_PARTITION", "CUDA_VISIBLE_DEVICES"):
        os.environ.pop(name, None)
    while "=" in words[0] and not words[0].startswith("-"):
        name, value = words.pop(0).split("=", 1)
        os.environ[name] = value
    at = words.index("--model-path") + 1 if "--model-path" in words else 2
    words[at] = str(configs / Path(words[at]).name)
    return words


def read_sglang(words: list[str]) -> tuple[bool, bool, dict[str, Any]]:
    """Parse and resolve SGLang's arguments; ``(parses, configures, says)``."""
    from sglang.srt.server_args import prepare_server_args

    arguments = prepare_server_args(words[3:])
    try:
        arguments.resolve_once()
        from sglang.srt.arg_groups.validation_hook import check_server_args

        check_server_args(arguments)
        found = arguments.resolved_dict()
    except AttributeError:  # versions that resolve while they parse
        found = vars(arguments)
    names = [
        "tp_size",
        "pp_size",
        "dp_size",
        "attn_dp_size",
        "ep_size",
        "moe_a2a_backend",
        "deepep_mode",
        "moe_runner_backend",
        "kv_cache_dtype",
        "mem_fraction_static",
        "max_running_requests",
        "chunked_prefill_size",
    ]
    return True, True, {name: _plain(found.get(name)) for name in names}


def read_vllm(words: list[str]) -> tuple[bool, bool, dict[str, Any]]:
    """Parse vLLM's arguments and build its configuration; ``(parses, configures, says)``."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.entrypoints.cli.serve import ServeSubcommand
    from vllm.usage.usage_lib import UsageContext
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = FlexibleArgumentParser()
    ServeSubcommand().subparser_init(parser.add_subparsers(dest="command"))
    arguments = parser.parse_args(words[1:])
    arguments.model = arguments.model_tag
    engine = AsyncEngineArgs.from_cli_args(arguments)
    engine.skip_tokenizer_init, engine.tokenizer = True, None
    config = engine.create_engine_config(
        usage_context=UsageContext.OPENAI_API_SERVER, headless=bool(arguments.headless)
    )
    parallel, says = config.parallel_config, {}
    for name in (
        "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "data_parallel_size_local",
        "enable_expert_parallel", "all2all_backend", "enable_eplb", "nnodes", "world_size",
    ):  # fmt: skip
        says[name] = _plain(getattr(parallel, name, None))
    says["gpu_memory_utilization"] = config.cache_config.gpu_memory_utilization
    says["cache_dtype"] = _plain(config.cache_config.cache_dtype)
    says["max_num_seqs"] = config.scheduler_config.max_num_seqs
    says["cudagraph_mode"] = str(config.compilation_config.cudagraph_mode)
    return True, True, says


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def read_map(words: list[str], folder: Path) -> bool | None:
    """Whether the engine's own loader fills every layer from a command's expert map; ``None`` without one."""
    if "--init-expert-location" not in words:
        return None
    from sglang.srt.arg_groups.overrides import model_config_of
    from sglang.srt.eplb import expert_location
    from sglang.srt.server_args import prepare_server_args

    words = list(words)
    at = words.index("--init-expert-location") + 1
    words[at] = str(folder / words[at])
    arguments = prepare_server_args(words[3:])
    arguments.resolve_once()
    config = model_config_of(arguments)
    try:
        from sglang.srt.server_args import set_global_server_args_for_scheduler

        set_global_server_args_for_scheduler(arguments)
    except ImportError:
        pass
    expert_location.get_device = lambda: SimpleNamespace(device="cpu")
    load = expert_location.compute_initial_expert_location_metadata
    known = inspect.signature(load).parameters
    given = {"server_args": arguments, "model_config": config, "moe_ep_rank": 0}
    found = load(**{name: value for name, value in given.items() if name in known})
    rows = found.physical_to_logical_map.tolist()
    return all(len(set(row)) == found.num_logical_experts for row in rows)


def main(words: list[str]) -> int:
    """Read every folder; exit code 1 if a command does not parse or configure."""
    out, configs, device = Path(words[0]), Path(words[1]), DEVICES[words[2]]
    folders = [Path(word) for word in words[3:]]
    pretend(device, device.per_host)
    engine = (
        "sglang" if "sglang.launch_server" in (folders[0] / "commands.sh").read_text() else "vllm"
    )
    if engine == "vllm":
        pretend_vllm(device, device.per_host)
    failed = False
    for folder in folders:
        for line, count in commands(folder):
            found: dict[str, Any] = {"folder": folder.name, "engine": engine, "processes": count}
            given = words_of(line, configs)
            try:
                call = read_sglang if engine == "sglang" else read_vllm
                found["parses"], found["configures"], found["says"] = call(given)
                found["maps"] = read_map(given, folder)
            except (Exception, SystemExit) as error:
                failed = True
                last = traceback.extract_tb(error.__traceback__)[-1]
                place = f"{last.filename.split('site-packages/')[-1]}:{last.lineno}"
                found["error"] = f"{type(error).__name__}: {str(error)[:600]} ({place})"
                found.setdefault("parses", not isinstance(error, SystemExit))
                found.setdefault("configures", False)
            with out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(found) + "\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
