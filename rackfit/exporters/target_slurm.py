"""``slurm``: a host list and task map, one task per chip, and a job script that uses them."""

from __future__ import annotations

import csv
import io

from rackfit.exporters.deployment import Deployment
from rackfit.exporters.unlimited import approximate, limits
from rackfit.quoting import host_label, shell_word

__all__ = ["COLUMNS", "NAME", "SUMMARY", "approximate", "limits", "notes", "render", "rows"]

NAME = "slurm"
LAUNCHES = True
SUMMARY = "Slurm host list, task map and job script, one task per chip"
#: the rack comes last: it is the one that may hold a comma, which ``task.sh`` then leaves alone
COLUMNS = ("task", "host", "gpu", "chip", "server", "role", "stage", "rank", "ranks", "rack")


def notes(deployment: Deployment) -> list[str]:
    """How the files are used."""
    return [
        *deployment.host_notes,
        "sbatch job.sbatch COMMAND runs COMMAND once per chip with RACKFIT_* variables set",
    ]


def rows(deployment: Deployment) -> list[tuple[str, ...]]:
    """One row per task, in the order of the host list."""
    found: list[tuple[str, ...]] = []
    for server in deployment.servers:
        ranks = len(server.places)
        width = server.replica.shape.chips_per_stage
        for rank, place in enumerate(server.places):
            found.append(
                (
                    str(len(found)), place.host, str(place.gpu), place.chip, server.name,
                    server.role, str(rank // width), str(rank), str(ranks), place.rack,
                )
            )  # fmt: skip
    return found


def render(deployment: Deployment) -> dict[str, str]:
    """``hostlist.txt``, ``tasks.csv``, ``job.sbatch`` and ``task.sh``."""
    table = rows(deployment)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(table)
    hosts = [row[1] for row in table]
    return {
        "hostlist.txt": "\n".join(hosts) + "\n",
        "tasks.csv": text.getvalue(),
        "job.sbatch": _job(deployment, list(dict.fromkeys(hosts)), len(table)),
        "task.sh": _TASK,
    }


def _job(deployment: Deployment, hosts: list[str], tasks: int) -> str:
    name = f"rackfit-{host_label(deployment.instance.model.name)}"
    lines = [
        "#!/usr/bin/env bash",
        f"#SBATCH --job-name={name}",
        f"#SBATCH --nodelist={shell_word(','.join(hosts))}",
        f"#SBATCH --nodes={len(hosts)}",
        f"#SBATCH --ntasks={tasks}",
        "#SBATCH --exclusive",
        "set -euo pipefail",
        'cd "$SLURM_SUBMIT_DIR"',
        "export SLURM_HOSTFILE=$PWD/hostlist.txt",
        f'srun --distribution=arbitrary --ntasks={tasks} ./task.sh "$@"',
    ]
    return "\n".join(lines) + "\n"


_TASK = """#!/usr/bin/env bash
# Sets what tasks.csv says of this task, then runs the command given.
set -euo pipefail
line=$(sed -n "$((SLURM_PROCID + 2))p" tasks.csv)
IFS=, read -r _ host gpu chip server role stage rank ranks rack <<<"$line"
if [[ $rack == '"'*'"' ]]; then
  rack=${rack#'"'} rack=${rack%'"'} rack=${rack//'""'/'"'}
fi
export RACKFIT_HOST=$host RACKFIT_CHIP=$chip RACKFIT_RACK=$rack RACKFIT_SERVER=$server
export RACKFIT_ROLE=$role RACKFIT_STAGE=$stage RACKFIT_RANK=$rank RACKFIT_RANKS=$ranks
export CUDA_VISIBLE_DEVICES=$gpu
exec "$@"
"""
