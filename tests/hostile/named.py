"""Questions whose names are hostile: a model's folder, a cluster, a rack and a chip's basis called as one likes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import yaml

from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.workload import Slo, Workload
from rackfit.importers.deployment import build_layout
from rackfit.importers.servers import FoundServer
from topology.catalogue import data_dir, read_data

#: programs that launch files start; a stub notes that it ran and does nothing
STUBS = ("python3", "vllm", "trtllm-serve", "mpirun", "srun", "trtllm-llmapi-launch")
#: names that can be printed, each of which means something to a shell, a page, a graph or a console
PRINTABLE = (
    "$(touch pwned)", "`touch pwned`", "a; touch pwned #", "'; touch pwned; '", '"; touch pwned; "',
    "| touch pwned", "<script>document.title='pwned'</script>", "\"><img src=x onerror=alert(1)>",
    "]]><svg onload=alert(1)>", "&lt;b&gt;&amp;", "[/]", "[bold red]x[/bold red]", "[link=x]y",
    "!!python/object/apply:os.system [touch pwned]", "&anchor *anchor", "- a: b", "{{7*7}}", "%n%s%d",
    "..", "-rf", "--nodelist=x", "a,b,c", "x\\", "日本語 ラック", "é̂", "🚀", "#SBATCH --wait", "# rackfit: count=9",
    "a" * 200,
)  # fmt: skip
#: names that no line can hold
UNPRINTABLE = (
    "a\nb", "a\rb", "a\tb", "\x1b[2Ja", "\x9b31m", "a\0b", "a\u2028b", "a\u202eb", "a\x7fb", "\ufeffa", "\u200ba",
    "\udc80a", "a" * 201, "",
)  # fmt: skip


def write_question(folder: Path, model: str, cluster: str, rack: str, basis: str) -> Scenario:
    """Files with these names in ``folder`` and the scenario that asks about them."""
    home = folder / "models" / model.replace("/", "_")
    home.mkdir(parents=True)
    shutil.copy(data_dir("models") / "qwen3-30b-a3b.json", home / "config.json")
    chip = {**read_data(data_dir("chips") / "h100.yaml"), "name": "h100", "price_basis": basis}
    (folder / "chip.yaml").write_text(yaml.safe_dump(chip))
    data = read_data(data_dir("clusters") / "hgx-h100.yaml")
    domain = {**data["domains"][0], "rack": rack, "chips": [{"chip": "chip.yaml", "count": 8}]}
    data |= {"name": cluster, "domains": [domain, domain]}
    (folder / "cluster.yaml").write_text(yaml.safe_dump(data))
    return Scenario(
        model=str(home),
        cluster=str(folder / "cluster.yaml"),
        workload=Workload(input_tokens=1000, output_tokens=200),
        slo=Slo(),
    )


def named_instance(folder: Path, model: str, cluster: str, rack: str, basis: str) -> Instance:
    """The instance of :func:`write_question`."""
    return resolve_instance(write_question(folder, model, cluster, rack, basis))


def two_pools(instance: Instance) -> Layout:
    """Prefill on one node, decoding on the other."""
    servers = [
        FoundServer("x", role, tp=1, attention_dp=8, pp=1, batch=64)
        for role in ("prefill", "decode")
    ]
    return build_layout(instance, servers).layout


def run_scripts(folder: Path) -> list[str]:
    """Run every script under ``folder`` with stubs for all programs; the stubs' calls.

    Fails where a script leaves a file called ``pwned``.
    """
    stubs, log = folder.with_name(f"{folder.name}-stubs"), folder.with_name(f"{folder.name}-calls")
    stubs.mkdir()
    for name in STUBS:
        path = stubs / name
        path.write_text('#!/bin/bash\nprintf "%s\\n" "${0##*/} $*" >>"$CALLS"\n')
        path.chmod(0o755)
    log.write_text("")
    scripts = sorted(p for p in folder.rglob("*") if p.suffix in (".sh", ".sbatch"))
    for script in scripts:
        subprocess.run(
            ["/bin/bash", str(script), "true"],
            cwd=folder,
            env={
                "PATH": f"{stubs}:/usr/bin:/bin",
                "CALLS": str(log),
                "SLURM_SUBMIT_DIR": str(folder),
                "SLURM_PROCID": "0",
                "RACKFIT_FIRST": "0",
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=60,
        )
    assert not [path for path in folder.parent.rglob("*pwned*") if path.name == "pwned"]
    return log.read_text().splitlines()
