"""vLLM's CPU build starts what was exported: servers of both phases, a prefill and decode pair, one changed flag.

    python -m benchmarks.engines.dry_start FOLDER PYTHON [CASE ..]

``PYTHON`` is that of an environment with the CPU build and vllm-router. Models are random and small; times say
nothing of an accelerator. Ports 20000, 20400 and 8000 must be free. ``make dry-start`` makes the environment.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from costmodel.question.instance import resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.workload import Workload
from rackfit.exporters.export import export_layout, write_files
from rackfit.exporters.launch.deployment import ExportOptions
from rackfit.exporters.launch.hosts import Hosts
from rackfit.importers.deployment import import_deployment
from rackfit.live.expected import expected_servers
from rackfit.live.shown import shown_by
from rackfit.live.site import Site
from rackfit.live.timing import timed
from rackfit.live.verdict import compare, report
from topology.errors import InstanceError

TOOL = Path(__file__).resolve().parents[2] / "tools" / "tiny_model.py"
ENGINE = "vllm@0.32"  # the newest CPU build
#: seconds until a server answers: it compiles, and machines are shared
_PATIENCE_S = 1800.0
#: seconds that a server may take for one answer: vLLM lists its packages in /server_info, minutes on a busy machine
_ANSWER_S = 600.0
_BOTH = "vllm serve m --max-num-seqs 8 --max-num-batched-tokens 512\n"
_PAIR = (
    "# rackfit: role=prefill chips=r0g0\nvllm serve m --max-num-seqs 2 --max-num-batched-tokens 512\n"
    "# rackfit: role=decode chips=r0g1\nvllm serve m --max-num-seqs 8\n"
)
_STAGES = _PAIR.replace("chips=r0g0", "chips=r0g0,r0g2").replace("serve m", "serve m -pp 2", 1)


@dataclass(frozen=True)
class Case:
    """Commands of a layout, the kind of its model, and a change of what is started (old, new)."""

    kind: str
    commands: str
    change: tuple[str, str] = ("", "")
    chips: int = 1


CASES = {
    "mixed-moe": Case("moe", _BOTH),
    "mixed-dense": Case("dense", _BOTH),
    "pair-moe": Case("moe", _PAIR, chips=2),
    "pair-dense": Case("dense", _PAIR, chips=2),
    "pair-stages": Case("dense", _STAGES, chips=3),
    "changed": Case("moe", _BOTH, ("--max-num-seqs 8", "--max-num-seqs 4")),
    "pair-changed": Case("dense", _PAIR, ("--max-num-seqs 8", "--max-num-seqs 4"), chips=2),
}


def start(case: Case, folder: Path, python: str) -> list[str]:
    """Export, start, ask for an answer, check, stop. What was said, last whether it was as wanted."""
    folder.mkdir(parents=True, exist_ok=True)
    model, cluster, run = folder.parent / case.kind, folder / "cluster.yaml", folder / "run.sh"
    if not model.is_dir():
        subprocess.run([python, str(TOOL), case.kind, str(model)], check=True)
    cluster.write_text(
        f"name: cpu\ntitle: stands for {case.chips} accelerators\n"
        f"domains: [{{fabric: {{kind: nvswitch, links_per_switch: [5, 4, 4, 5]}}, chips: [{{chip: h100, count: {case.chips}}}]}}]\n"
        "scale_out: {kind: rail-optimised}\nprovenance: {domains: assumed, scale_out: assumed}\n"
    )
    run.write_text(case.commands)
    workload = Workload(input_tokens=256, output_tokens=32)
    instance = resolve_instance(
        Scenario(model=str(model / "config.json"), cluster=str(cluster), workload=workload, engine=ENGINE)
    )  # fmt: skip
    layout = import_deployment(instance, "vllm", run).layout
    exported = export_layout(
        instance, layout, "vllm", ExportOptions(str(model)), hosts=Hosts(instance.cluster, None, ["127.0.0.1"])
    )  # fmt: skip
    files = {name: text.replace(*case.change) for name, text in exported.files.items()}
    shutil.rmtree(folder / "launch", ignore_errors=True)
    write_files(files, folder / "launch")
    table, servers = expected_servers(instance, layout, "vllm")
    sites = [Site(f"http://127.0.0.1:{one.port}", _ANSWER_S) for one in servers]
    router = Site("http://127.0.0.1:8000", _ANSWER_S) if "router.sh" in files else None
    environment = os.environ | {
        "PATH": f"{Path(python).absolute().parent}:{os.environ['PATH']}", "VLLM_TARGET_DEVICE": "cpu",
        "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_SERVER_DEV_MODE": "1", "HF_HUB_OFFLINE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_NO_USAGE_STATS": "1",
    }  # fmt: skip
    started: list[subprocess.Popen[bytes]] = []
    try:
        started.append(_started(folder / "launch/hosts/127.0.0.1.sh", environment))
        for site in sites:
            _wait(site, started[-1])
        if router is not None:
            started.append(_started(folder / "launch/router.sh", environment))
            _wait(router, started[-1])
        measured = timed(router or sites[0], servers[0].model, instance, 1)
        checked = [
            compare(table, server, shown_by(site), site.url)
            for server, site in zip(servers, sites, strict=True)
        ]
    finally:
        for process in reversed(started):
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
    found = report(checked, len(servers), measured, exported.deployed)
    as_wanted = found.as_exported == (case.change == ("", ""))
    return [*found.lines(), "as wanted" if as_wanted else "NOT AS WANTED"]


def _started(script: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["bash", str(script)], env=environment, start_new_session=True)


def _wait(site: Site, process: subprocess.Popen[bytes]) -> None:
    """Until a server says that it is well."""
    end = time.monotonic() + _PATIENCE_S
    while True:
        try:
            if site.text("/health") is not None:
                return
        except InstanceError as error:
            if process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"{site.url} does not start: {error}") from None
        time.sleep(1.0)


def main(words: list[str]) -> int:
    """The command line."""
    if len(words) < 2 or not set(words[2:]) <= CASES.keys():
        print(__doc__, file=sys.stderr)
        return 2
    bad = False
    for name in words[2:] or CASES:
        lines = start(CASES[name], Path(words[0]).resolve() / name, words[1])
        print("\n".join([f"{name}:", *(f"  {line}" for line in lines)]), flush=True)
        bad |= lines[-1] != "as wanted"
    return int(bad)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
