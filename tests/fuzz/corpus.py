"""One good file of every kind that a command reads."""

from __future__ import annotations

import gzip
import json
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

import listings
import numpy as np
import results
import yaml
from commands import CLUSTER, MODEL

from costmodel.question.instance import resolve_instance
from costmodel.question.scenario import Scenario
from rackfit.documents.result import SCHEMA_VERSION, layout_dict
from rackfit.exporters.export import export_layout
from rackfit.importers.deployment import build_layout
from rackfit.importers.servers import FoundServer
from topology.catalogue import data_dir, read_data


def _layout(role_sizes: tuple[tuple[str, int], ...]) -> dict[str, object]:
    asked = Scenario(model=MODEL, cluster=CLUSTER, workload="chat")
    instance = resolve_instance(asked)
    servers = [FoundServer("x", role, 1, chips, 1, batch=32) for role, chips in role_sizes]
    layout = build_layout(instance, servers).layout
    return {
        "schema_version": SCHEMA_VERSION, "status": "feasible",
        "instance": instance.describe(), "layout": layout_dict(layout),
    }  # fmt: skip


def _torch(path: Path, counts: np.ndarray) -> None:
    size = "(" + "".join(f"I{side}\n" for side in counts.shape) + "t"
    stride = "(" + "".join(f"I{step // 8}\n" for step in counts.strides) + "t"
    storage = f"(S'storage'\nctorch\nLongStorage\nS'0'\nS'cpu'\nI{counts.size}\ntQ"
    tensor = f"ctorch._utils\n_rebuild_tensor_v2\n({storage}I0\n{size}{stride}I0\ntR"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x/data.pkl", f"(dS'logical_count'\n{tensor}s.")
        archive.writestr("x/data/0", counts.tobytes())


def write_corpus(folder: Path) -> None:
    """Write every good file into ``folder``."""
    workload = read_data(data_dir("workloads") / "chat.yaml")
    files: dict[str, object] = {
        "workload.yaml": workload,
        "scenario.yaml": {"name": "q", "model": MODEL, "cluster": CLUSTER, "workload": workload,
                          "slo": {"ttft": "2 s", "tpot": "50 ms"}, "rate": 2.0, "failed": ["r0g3"],
                          "prices": {"chip_price_factor": 1.5}, "limits": {"max_pipeline_stages": 2}},
        "tier.yaml": read_data(data_dir("tiers") / "ddr5-pcie5.yaml"),
        "profile.json": read_data(data_dir("profiles") / "physics.json"),
        "config.json": read_data(data_dir("models") / f"{MODEL}.json"),
        "layout.json": _layout((("mixed", 8),)),
        "pools.json": _layout((("prefill", 4), ("decode", 4))),
        "traffic.yaml": {"title": "t", "arrivals": {"process": "gamma", "cv": 2.0, "rate": 2.0},
                         "lengths": {"input": {"p50": 500, "p90": 900, "p99": 1200},
                                     "output": {"mean": 50, "std": 20}}},
    }  # fmt: skip
    files["timed.yaml"] = {
        "title": "t",
        "trace": "trace.csv",
        "components": "components.csv",
        "spread_s": "1 s",
    }
    files["day.yaml"] = {
        "day": {"hours": "hours.csv", "copies": 2, "shift": "9 s", "longest": 1500},
        "lengths": {"input": {"p25": 300, "p75": 600}, "output": {"mean": 20, "std": 9}},
    }
    (folder / "hours.csv").write_text(
        "requests,input_tokens,output_tokens,known_prefix\n7,400,20,0.2\n5,300,30,0.4\n"
    )
    files["load.json"] = {"runs": list(_load_runs())}
    files["scenario.json"] = files["scenario.yaml"]
    chip = read_data(data_dir("chips") / "h100.yaml")
    files["chip.yaml"] = {**chip, "tiers": ["tier.yaml"]}
    cluster = read_data(data_dir("clusters") / f"{CLUSTER}.yaml")
    domain = {**cluster["domains"][0], "chips": [{"chip": "chip.yaml", "count": 4}], "count": 2}
    files["cluster.yaml"] = {**cluster, "name": "mine", "domains": [domain], "failed": ["r1g2.nic"]}
    torus = read_data(data_dir("clusters") / "tpu-v5e.yaml")
    files["torus.yaml"] = {**torus, "name": "torus"}
    files["flow.yaml"] = read_data(data_dir("flows") / "helix-quality10.yaml")
    files["plan.yaml"] = {
        "name": "p",
        "spare": 1,
        "usd_per_kwh": [0.1, 0.2],
        "power_cap": "40 kW",
        "load_extra": "1 min",
        "least_hours": 1,
        "models": [
            {
                "model": MODEL,
                "workload": workload,
                "slo": {"tpot": "50 ms"},
                "requests_per_s": [2, 4.5],
            },
            {"model": "llama-3.1-8b", "name": "small", "rates": "rates.csv"},
        ],
        "units": [
            {
                "cluster": CLUSTER,
                "count": 4,
                "reserved": [0, 3],
                "on_demand_usd_per_hour": ["20 USD/h", 9],
            }
        ],
    }
    files["ranges.json"] = {str(node): [6 * node, 6 * node + 5] for node in range(10)}
    rng = np.random.default_rng(0)
    counts = rng.integers(1, 1000, (3, 64))
    files["loads.json"] = {"logical_count": counts[None].tolist()}
    files["running.json"] = {"physical_to_logical": [[*range(64), *range(8)]] * 3}
    for name, data in files.items():
        text = json.dumps(data) if name.endswith(".json") else yaml.safe_dump(data)
        (folder / name).write_text(text)
    np.save(folder / "loads.npy", counts)
    np.savez_compressed(folder / "loads.npz", a=counts, b=counts + 1)
    np.savez_compressed(folder / "tokens.npz", a=rng.random((400, 3, 64)).argsort(axis=2)[..., :4])
    np.savetxt(folder / "loads.csv", counts, fmt="%d", delimiter=",")
    _torch(folder / "loads.pt", counts[None])
    (folder / "hosts.txt").write_text("node-a.example # first\n")
    rows = gzip.decompress((data_dir("measured") / "silicon.csv.gz").read_bytes()).splitlines()
    (folder / "fitted.csv").write_bytes(b"\n".join(rows[:9]) + b"\n")
    rows = rows[:4]
    (folder / "measured.csv").write_bytes(b"\n".join(rows) + b"\n")
    (folder / "measured.csv.gz").write_bytes(gzip.compress(b"\n".join(rows) + b"\n"))
    trace = "# block_tokens: 256\nt_s,input_tokens,output_tokens,session,hash_ids\n" + "".join(
        f"{t / 3:.2f},{600 + t},{20 + t},{t % 3},1 2 {t}\n" for t in range(20)
    )  # fmt: skip
    (folder / "trace.csv").write_text(trace)
    (folder / "trace.csv.gz").write_bytes(gzip.compress(trace.encode()))
    (folder / "trace.jsonl").write_text(
        "".join(
            json.dumps(
                {
                    "timestamp": 300 * t,
                    "input_length": 600 + t,
                    "output_length": 20 + t,
                    "hash_ids": [1, t],
                }
            )
            + "\n"
            for t in range(20)
        )
    )
    (folder / "rates.csv").write_text("t_s,requests_per_s\n0,3\n1800,5.5\n3600,2\n5400,1\n")
    (folder / "components.csv").write_text(
        "hash_id,tokens\n" + "".join(f"{block},{200 + block}\n" for block in range(20))
    )
    listings.write(folder)
    results.write(folder)
    _engine_files(folder)


def _load_runs() -> Iterator[dict[str, object]]:
    """Load tests of every kind that is replayed: drawn, in stages, closed and recorded."""
    server = {
        "hf_model_id": "Qwen/Qwen3-30B-A3B",
        "chip": "h100",
        "gpus": 8,
        "tp": 8,
        "engine": "vllm",
    }
    lengths = {"system_prompt_tokens": 64, "question_tokens": 200, "output_tokens": 20}
    seen = {"ttft_ms": {"mean": 30.0, "p99": 50.0}, "e2e_ms": {"mean": 300.0}}
    opened = {**server, **seen, "loop": "open", "profile": lengths, "duration_s": 4.0}
    yield {**opened, "id": "drawn", "requested_rate": 2.0}
    yield {**opened, "id": "stages", "stage": -1, "stage_rates": [1.0, 2.0]}
    yield {**server, **seen, "id": "closed", "loop": "closed", "concurrency": 2, "n_requests": 6, "prompt_len": {"mean": 300},
           "output_len": {"mean": 20}, "server_args": {"prefix_caching": False, "max_num_seqs": 16}}  # fmt: skip
    yield {**server, **seen, "id": "recorded", "loop": "open",
           "requests": {"t_s": [0.0, 0.5], "input_tokens": [100, 200], "output_tokens": [10, 20]}}  # fmt: skip


def _engine_files(folder: Path) -> None:
    from rackfit.documents.result import read_result

    instance, layout, _ = read_result(folder / "pools.json")
    for target in ("sglang", "vllm", "trtllm"):
        exported = export_layout(instance, layout, target, allow_approximate=True)
        for name, text in exported.files.items():
            path = folder / target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    for target in ("sglang", "vllm", "trtllm"):
        shutil.copy(folder / target / "commands.sh", folder / f"{target}.sh")
        for path in (folder / target).iterdir():
            if path.suffix in (".yaml", ".json"):
                shutil.copy(path, folder / path.name)
    engine = next((folder / "trtllm").glob("engine-decode*.yaml"))
    shutil.copy(engine, folder / "engine.yaml")
