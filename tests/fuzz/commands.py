"""The commands that read each file of the corpus."""

from __future__ import annotations

#: a question that is small enough to be asked a thousand times
MODEL, CLUSTER = "qwen3-30b-a3b", "hgx-h100"
ASKED = ("--model", MODEL, "--cluster", CLUSTER)
SHORT = ("--time-limit", "1.5")
PLACE = ("--gpus", "8", "--slots", "72", "--fast", "--time-limit", "1", "--workers", "1")
#: listings of operators, and what else has to be said of them
LISTINGS: dict[str, tuple[str, ...]] = {
    "nodes.json": (), "racks.json": (), "tpus.json": (), "slices.json": (), "scontrol.txt": (), "node-pools.json": (), "slurm.json": (), "amd-1.json": (), "amd-2.txt": (), "amd-3.txt": (), "smi-1.txt": (), "described.txt": (),
    "amd-4.csv": (), "amd-5.csv": (), "links-1.txt": (), "query-1.csv": (), "dump.json": (),
    "blocks.conf": ("--chip", "gb200"), "topology.conf": ("scontrol.txt",), "topology.yaml": ("--chip", "gb200"),
    "gpu-1.xml": (), "gpu-1.txt": ("--chip", "h100"), "ibnet.out": ("nodes.json",),
}  # fmt: skip
#: results of benchmark tools
RESULTS = (
    "vllm-run.json", "sglang-run.jsonl", "aiperf-run.json", "genai-run.json", "guidellm-run.json", "stage-run.json",
    "agg-run.json", "own-runs.csv",
)  # fmt: skip

#: files whose commands take a second each, asked a tenth as often as others
SLOW = ("fitted.csv", "load.json")

#: what reads each file; ``out`` is a folder of its own for each run
COMMANDS: dict[str, tuple[tuple[str, ...], ...]] = {
    "scenario.yaml": (
        ("solve", "scenario.yaml", *SHORT, "--out", "out/a.json"),
        ("explain", "scenario.yaml", *SHORT, "--json"),
        ("study", "grid", "scenario.yaml", "--over", "slo.tpot=0.05", *SHORT, "--fresh", "--out", "out/s"),
    ),
    "scenario.json": (
        ("solve", "scenario.json", *SHORT, "--json"),
        ("probe", "scenario.json", "--engine", "vllm", *SHORT, "--json"),
    ),
    "workload.yaml": (
        ("size", "--model", MODEL, "--buy", CLUSTER, "--workload", "workload.yaml", "--rate", "2", *SHORT, "--json"),
        ("new", "out/n.yaml", "--model", MODEL, "--cluster", CLUSTER),
        ("solve", *ASKED, "--workload", "workload.yaml", *SHORT, "--json"),
    ),
    "tier.yaml": (
        ("solve", "--model", MODEL, "--cluster", "cluster.yaml", *SHORT, "--json"),
        ("collective", "all-reduce", "--cluster", "cluster.yaml", "--bytes", "1 MB"),
    ),
    "chip.yaml": (
        ("solve", "--model", MODEL, "--cluster", "cluster.yaml", *SHORT, "--report", "out/r.html"),
        ("collective", "all-to-all", "--cluster", "cluster.yaml", "--bytes", "1 MB", "--json"),
        ("size", "--model", MODEL, "--buy", "cluster.yaml", "--rate", "2", *SHORT),
    ),
    "cluster.yaml": (
        ("solve", "--model", MODEL, "--cluster", "cluster.yaml", *SHORT, "--out", "out/a.json"),
        ("collective", "all-gather", "--cluster", "cluster.yaml@2", "--bytes", "1 MB", "--json"),
        ("catalogue", "clusters", "--picture", "cluster.yaml", "--out", "out/c.html"),
    ),
    "torus.yaml": (("collective", "all-to-all", "--cluster", "torus.yaml", "--bytes", "1 MB", "--json"),),
    "flow.yaml": (("flow", "flow.yaml", *SHORT, "--json"), ("flow", "flow.yaml", *SHORT, "--out", "out/f.json")),
    "plan.yaml": (("plan", "plan.yaml", *SHORT, "--out", "out/p"), ("plan", "plan.yaml", *SHORT, "--json")),
    "rates.csv": (("plan", "plan.yaml", *SHORT, "--spare", "0", "--report", "out/p.html"),),
    "ranges.json": (("flow", "flow.yaml", "--placement", "ranges.json", *SHORT),),
    "profile.json": (("solve", *ASKED, "--profile", "profile.json", *SHORT, "--json"),),
    "config.json": (
        ("model", "config.json"),
        ("model", "config.json", "--json"),
        ("solve", "--model", "./config.json", "--cluster", CLUSTER, *SHORT, "--json"),
    ),
    "layout.json": (
        ("evaluate", "layout.json"),
        ("evaluate", "layout.json", "--json"),
        ("report", "layout.json", "--out", "out/r.html", "--svg", "out/f"),
        ("diff", "layout.json", "pools.json", "--json"),
        ("move", "layout.json", "--failed", "r0g3", *SHORT, "--json"),
        ("replay", "layout.json", "--rate", "1", "--duration", "5", "--json"),
        *(("export", "layout.json", "--to", to, "--out", "out/e", "--allow-approximate") for to in
          ("sglang", "vllm", "trtllm", "vllm-ascend", "dynamo", "slurm", "json", "dot", "graphml")),
    ),
    "pools.json": (
        ("move", "layout.json", "pools.json", "--weights-from", "peers", "--out", "out/a.json"),
        ("export", "pools.json", "--to", "sglang", "--out", "out/e"),
        ("replay", "pools.json", "--traffic", "trace.csv", "--report", "out/r.html"),
    ),
    "loads.json": (("place", "loads.json", *PLACE),),
    "loads.npy": (("place", "loads.npy", *PLACE, "--format", "sglang", "--out", "out/p.json"),),
    "loads.npz": (("place", "loads.npz", *PLACE, "--format", "trtllm"),),
    "loads.csv": (("place", "loads.csv", *PLACE, "--format", "vllm"),),
    "loads.pt": (("place", "loads.pt", *PLACE),),
    "tokens.npz": (("place", "loads.npy", *PLACE, "--gpus-per-node", "4", "--coactivation", "tokens.npz"),),
    "running.json": (("place", "loads.npy", *PLACE, "--current", "running.json", "--max-moves", "5"),),
    "hosts.txt": (("export", "layout.json", "--to", "slurm", "--hosts", "hosts.txt", "--out", "out/e"),),
    "measured.csv": (("validate", "measured.csv", "--json"), ("validate", "measured.csv", "--plot", "out/p.svg")),
    "measured.csv.gz": (("validate", "measured.csv.gz"),),
    "trace.csv": (("replay", "layout.json", "--traffic", "trace.csv", "--out", "out/r.csv"),),
    "trace.jsonl": (("replay", "layout.json", "--traffic", "trace.jsonl", "--json"),),
    "trace.csv.gz": (("replay", "layout.json", "--traffic", "trace.csv.gz", "--rate", "3", "--json"),),
    "timed.yaml": (("replay", "layout.json", "--traffic", "timed.yaml", "--json"),),
    "components.csv": (("replay", "layout.json", "--traffic", "timed.yaml", "--routing", "prefix-aware"),),
    "day.yaml": (("replay", "layout.json", "--traffic", "day.yaml", "--json"),),
    "hours.csv": (("replay", "layout.json", "--traffic", "day.yaml", "--duration", "4000"),),
    "load.json": (("validate", "--load", "load.json", "--json"), ("validate", "--load", "load.json")),
    "fitted.csv": (("calibrate", "fitted.csv", "--out", "out/p.json"),),
    "traffic.yaml": (("replay", "layout.json", "--traffic", "traffic.yaml", "--duration", "5", "--json"),),
    **{name: (("validate", name, "--chip", "h100", "--model", "llama-3.1-8b", "--json"),) for name in RESULTS},
    "launch.sh": (("validate", "sglang-run.jsonl", "--chip", "h100"),),
    **{name: (("discover", name, *words, "--out", "out/c.yaml"), ("discover", name, *words, "--json"))
       for name, words in LISTINGS.items()},
    "sglang.sh": (("evaluate", "sglang.sh", "--from", "sglang", *ASKED, "--out", "out/a.json"),),
    "vllm.sh": (("evaluate", "vllm.sh", "--from", "vllm", *ASKED, "--json"),),
    "trtllm.sh": (("evaluate", "trtllm.sh", "--from", "trtllm", *ASKED),),
    "engine.yaml": (("evaluate", "engine.yaml", "--from", "trtllm", *ASKED, "--json"),),
}  # fmt: skip
