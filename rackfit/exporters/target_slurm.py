"""``slurm``: a task map and a job script: one step per server, one task per launcher, as engines start them."""

from __future__ import annotations

import csv
import io
from collections import Counter

from rackfit.exporters.launch.deployment import Deployment
from rackfit.exporters.unlimited import approximate, limits
from rackfit.quoting import host_label, shell_word

__all__ = ["COLUMNS", "NAME", "SUMMARY", "approximate", "limits", "notes", "render", "rows"]

NAME = "slurm"
LAUNCHES = True
SUMMARY = "Slurm task map and job script: a step per server, a task per launcher"
#: the rack comes last: it is the one that may hold a comma, which ``task.sh`` then leaves alone; devices and chips
#: are separated by spaces
COLUMNS = ("task", "host", "gpus", "chips", "server", "role", "stage", "rank", "ranks", "rack")

#: by vendor, where its runtime numbers chips as a host does
_DEVICES = {
    "NVIDIA": "CUDA_VISIBLE_DEVICES",
    "AMD": "HIP_VISIBLE_DEVICES",
    "Huawei": "ASCEND_RT_VISIBLE_DEVICES",
    "Google": "TPU_VISIBLE_CHIPS",
}


def notes(deployment: Deployment) -> list[str]:
    """How the files are used."""
    found = [
        *deployment.host_notes,
        "sbatch job.sbatch COMMAND runs COMMAND once per launcher (equal shares of a server's chips, each on one "
        "host) with RACKFIT_* variables set; each server is a step, and so an MPI world, of its own",
        "the scripts of an engine's export need none of this: docs/exports.md has the srun that starts them",
    ]
    if not _devices(deployment):
        found.append(
            "COMMAND has to keep to the devices of RACKFIT_GPUS: no variable is known that hides the others"
        )
    if _gpus_per_node(deployment) is None:
        found.append(
            "hosts have unlike numbers of devices: the job asks for whole hosts (--exclusive) and for no number"
        )
    return found


def rows(deployment: Deployment) -> list[tuple[str, ...]]:
    """One row per task, server by server."""
    found: list[tuple[str, ...]] = []
    for server in deployment.servers:
        width = server.replica.shape.chips_per_stage
        for launcher in server.launchers:
            stage = launcher.rank * len(launcher.places) // width
            found.append(
                (
                    str(len(found)), launcher.host, " ".join(map(str, launcher.gpus)), " ".join(launcher.chips),
                    server.name, server.role, str(stage), str(launcher.rank), str(launcher.count),
                    launcher.places[0].rack,
                )
            )  # fmt: skip
    return found


def render(deployment: Deployment) -> dict[str, str]:
    """``tasks.csv``, ``steps/SERVER.txt`` (hosts of its tasks), ``job.sbatch`` and ``task.sh``."""
    table = rows(deployment)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(table)
    steps = {
        f"steps/{server.name}.txt": "".join(f"{one.host}\n" for one in server.launchers)
        for server in deployment.servers
    }
    return {
        "tasks.csv": text.getvalue(),
        "job.sbatch": _job(deployment, [row[1] for row in table]),
        "task.sh": _TASK
        + "".join(f"export {name}=$RACKFIT_GPUS\n" for name in _devices(deployment))
        + _RUN,
        **steps,
    }


def _devices(deployment: Deployment) -> list[str]:
    """Variables that give a process its chips: of every vendor in use, or none where one has none."""
    cluster = deployment.instance.cluster
    vendors = {
        cluster.chip(place.chip).chip.vendor
        for server in deployment.servers
        for place in server.places
    }
    return sorted(_DEVICES[vendor] for vendor in vendors) if vendors <= _DEVICES.keys() else []


def _gpus_per_node(deployment: Deployment) -> int | None:
    """Devices of every used host, ``None`` where they differ."""
    used = set(deployment.used_hosts)
    count = Counter(place.host for place in deployment.hosts.places.values())
    sizes = {count[host] for host in used}
    return sizes.pop() if len(sizes) == 1 else None


def _job(deployment: Deployment, hosts: list[str]) -> str:
    name = f"rackfit-{host_label(deployment.instance.model.name)}"
    nodes, most = list(dict.fromkeys(hosts)), max(Counter(hosts).values())
    gpus = _gpus_per_node(deployment)
    lines = [
        "#!/usr/bin/env bash",
        f"#SBATCH --job-name={name}",
        f"#SBATCH --nodelist={shell_word(','.join(nodes))}",
        f"#SBATCH --nodes={len(nodes)}",
        f"#SBATCH --ntasks={len(hosts)}",
        *([] if gpus is None else [f"#SBATCH --gpus-per-node={gpus}"]),
        "#SBATCH --exclusive",
        "#SBATCH --mem=0",
        "set -euo pipefail",
        ': "${1:?usage: sbatch job.sbatch COMMAND, in the folder of this file}"',
        'cd "$SLURM_SUBMIT_DIR"',
        f"cpus=$((${{SLURM_CPUS_ON_NODE:-{most}}} / {most}))",
        _STEP,
    ]
    first = 0
    for server in deployment.servers:
        own = [launcher.host for launcher in server.launchers]
        lines.append(f'step {server.name} {first} {len(own)} {len(set(own))} "$@"')
        first += len(own)
    return "\n".join([*lines, _END])


#: srun takes neither its tasks' CPUs nor its nodes from a job's script
_STEP = """step() { # server, first task, tasks, hosts, command
  SLURM_HOSTFILE=$PWD/steps/$1.txt RACKFIT_FIRST=$2 srun --overlap --mem=0 --distribution=arbitrary \\
    --ntasks="$3" --nodes="$4" --cpus-per-task="$cpus" ./task.sh "${@:5}" &
}"""
_END = """# the first server that ends takes the job along
status=0
wait -n || status=$?
exit "$status"
"""

_TASK = """#!/usr/bin/env bash
# Sets what tasks.csv says of this task, then runs the command given.
set -euo pipefail
line=$(sed -n "$((RACKFIT_FIRST + SLURM_PROCID + 2))p" tasks.csv)
IFS=, read -r _ host gpus chips server role stage rank ranks rack <<<"$line"
if [[ $rack == '"'*'"' ]]; then
  rack=${rack#'"'} rack=${rack%'"'} rack=${rack//'""'/'"'}
fi
export RACKFIT_HOST=$host RACKFIT_CHIPS=${chips// /,} RACKFIT_RACK=$rack RACKFIT_SERVER=$server
export RACKFIT_ROLE=$role RACKFIT_STAGE=$stage RACKFIT_RANK=$rank RACKFIT_RANKS=$ranks
export RACKFIT_GPUS=${gpus// /,}
"""
_RUN = 'exec "$@"\n'
