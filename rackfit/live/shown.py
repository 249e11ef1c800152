"""What a running server says of itself: its engine, version, model and options, and its latencies so far.

Sources: vLLM 0.33 ``/version``, ``/v1/models``, ``/metrics`` and, in its development mode,
``/server_info`` (vllm/entrypoints/serve); SGLang 0.5.23 ``/server_info`` and, with ``--enable-metrics``,
``/metrics`` (sglang/srt/entrypoints/http_server.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rackfit.live.exposition import Sample, mean, samples
from rackfit.live.site import Site

#: where vLLM's configuration has another name than the option
_VLLM_NAMES = {"--kv-cache-dtype": "cache_config.cache_dtype"}
#: labels of vLLM's ``cache_config_info`` that are options
_CACHE_LABELS = {"--kv-cache-dtype": "cache_dtype", "--gpu-memory-utilization": "gpu_memory_utilization"}  # fmt: skip
#: vLLM counts a request's mean once, SGLang each token
_HISTOGRAMS = {
    "vllm": {"ttft_s": "time_to_first_token_seconds", "tpot_s": "request_time_per_output_token_seconds"},
    "sglang": {"ttft_s": "time_to_first_token_seconds", "tpot_s": "inter_token_latency_seconds"},
}  # fmt: skip


@dataclass(frozen=True)
class Shown:
    """A server's own words. ``hidden``: how to start it so that it says the rest, where it says little.

    ``means``: mean seconds and count since its start, of ``ttft_s`` and ``tpot_s``. ``kv_tokens``: what the KV cache
    of the fullest attention rank has room for.
    """

    engine: str
    version: str
    model: str | None
    options: dict[str, Any]
    hidden: str = ""
    means: dict[str, tuple[float, int]] = field(default_factory=dict)
    kv_tokens: int | None = None


def shown_by(site: Site) -> Shown:
    """Ask a server. Raises ``InstanceError`` where it does not answer or is neither vLLM nor SGLang."""
    version = site.data("/version")
    metrics = samples(site.text("/metrics") or "")
    if version is not None and any(name.startswith("vllm:") for name in metrics):
        return _vllm(site, str(version.get("version")), metrics)
    info = site.data("/server_info") or site.data("/get_server_info")
    if info is not None and "tp_size" in info and "version" in info:
        return _sglang(info, metrics)
    raise site.problem(
        "is no vLLM or SGLang server: /version with vllm: metrics, or /server_info, is not there"
    )


def _vllm(site: Site, version: str, metrics: Mapping[str, list[Sample]]) -> Shown:
    models = (site.data("/v1/models") or {}).get("data")
    first = models[0] if isinstance(models, list) and models and isinstance(models[0], dict) else {}
    options: dict[str, Any] = {}
    if first.get("max_model_len") is not None:
        options["--max-model-len"] = first["max_model_len"]
    rooms = []
    for sample in metrics.get("vllm:cache_config_info", ()):
        room = sample.labels.get("kv_cache_size_tokens", "")
        rooms += [int(room)] if room.isdecimal() else []
        options |= {
            name: sample.labels[label]
            for name, label in _CACHE_LABELS.items()
            if label in sample.labels
        }
    running = metrics.get("vllm:num_requests_running", ())
    ranks = {sample.labels.get("engine") for sample in running}
    if ranks:
        options["--data-parallel-size"] = len(ranks)
    info = site.data("/server_info?config_format=json") or {}
    config = info.get("vllm_config")
    hidden = "VLLM_SERVER_DEV_MODE=1 at its start lets it show the rest"
    if isinstance(config, dict):
        options, hidden = options | _configured(config), ""
    return Shown("vllm", version, _text(first.get("id")), options, hidden, _means(metrics, "vllm"),
                 min(rooms, default=None))  # fmt: skip


def _sglang(info: dict[str, Any], metrics: Mapping[str, list[Sample]]) -> Shown:
    options = {f"--{name.replace('_', '-')}": value for name, value in info.items()}
    ranks = info.get("attn_dp_size") or 1
    if ranks == 1 and info.get("enable_dp_attention"):  # the older spelling
        ranks = info.get("dp_size") or 1
    chunk = info.get("chunked_prefill_size")
    if type(ranks) is int and type(chunk) is int and chunk > 0:  # shown for one attention rank
        options["--chunked-prefill-size"] = chunk * ranks
    room = info.get("max_total_num_tokens")
    return Shown("sglang", str(info["version"]), _text(info.get("served_model_name")), options,
                 means=_means(metrics, "sglang"), kv_tokens=room if type(room) is int else None)  # fmt: skip


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _means(metrics: Mapping[str, list[Sample]], engine: str) -> dict[str, tuple[float, int]]:
    found = {
        name: mean(metrics, f"{engine}:{histogram}")
        for name, histogram in _HISTOGRAMS[engine].items()
    }
    return {name: one for name, one in found.items() if one is not None}


def _configured(config: Mapping[str, Any]) -> dict[str, Any]:
    """Options by name out of vLLM's nested configuration.

    ``--max-num-seqs`` is ``scheduler_config.max_num_seqs``, ``--eplb-config`` is
    ``parallel_config.eplb_config``: the first of that name in the order of the configuration.
    """
    leaves: dict[str, Any] = {}
    for path, value in _walk(config, "", 0):
        leaves[path] = value
        leaves.setdefault(path.rpartition(".")[2], value)
    found = {f"--{name.replace('_', '-')}": value for name, value in leaves.items()}
    return found | {name: leaves[path] for name, path in _VLLM_NAMES.items() if path in leaves}


def _walk(config: Mapping[str, Any], before: str, depth: int) -> Iterator[tuple[str, Any]]:
    for name, value in config.items():
        path = f"{before}{name}"
        yield path, value
        if isinstance(value, dict) and depth < 4:
            yield from _walk(value, f"{path}.", depth + 1)
