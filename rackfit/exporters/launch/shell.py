"""Launch commands as text that a shell and :mod:`rackfit.importers` read back."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from costmodel.replica.held import idle_by_rank
from rackfit.exporters.launch.deployment import Deployment, Launcher, Server
from rackfit.quoting import shell_comment, shell_word


@dataclass(frozen=True)
class Command:
    """One process: where it runs, its environment and its words."""

    server: Server
    launcher: Launcher
    words: tuple[str, ...]
    environment: Mapping[str, str]

    def text(self) -> str:
        """The command on one line, every word quoted for a shell."""
        pairs = [f"{name}={shell_word(value)}" for name, value in self.environment.items()]
        return " ".join([*pairs, *(shell_word(word) for word in self.words)])


def command_file(deployment: Deployment, commands: Sequence[Command], version: str) -> str:
    """All commands, one line each, each under a comment that says where it runs."""
    instance = deployment.instance
    workload = instance.workload
    lines = [
        _comment(
            f"{instance.model.name} on {instance.cluster.name}: {workload.input_tokens} input + "
            f"{workload.output_tokens} output tokens"
        ),
        _comment(f"options checked against {version}"),
        "# one process per line, to be started on the host named above it (hosts/HOST.sh starts all of a host);",
        "# paths are relative to this folder, which every host must see",
    ]
    for command in commands:
        launcher, server = command.launcher, command.server
        lines += [
            "",
            _comment(_remark(server, launcher)),
            command.text(),
        ]
    return "\n".join(lines) + "\n"


def _remark(server: Server, launcher: Launcher) -> str:
    """What :mod:`rackfit.importers` reads of a process beside its words."""
    found = (
        f"rackfit: server={server.name} role={server.role} rank={launcher.rank}/{launcher.count} "
        f"host={launcher.host} gpus={_numbers(launcher.gpus)} chips={','.join(launcher.chips)}"
    )
    if launcher.rank:
        return found
    chips = ",".join(server.replica.chips)
    found += f" replica_chips={chips} batch={server.replica.shape.batch}"
    if server.unlike_ranks:
        found += f" sequences={_numbers(server.replica.rank_sequences())}"
    for tier, counts in idle_by_rank(server.replica).items():
        found += f" idle={tier}:{max(counts)}"
    return found


def _comment(text: str) -> str:
    return f"# {shell_comment(text)}"


def _numbers(values: Sequence[int]) -> str:
    return ",".join(str(value) for value in values)


def host_scripts(commands: Sequence[Command]) -> dict[str, str]:
    """One script per host that starts all of its processes and ends, with its status, when one of them does."""
    by_host: dict[str, list[Command]] = {}
    for command in commands:
        by_host.setdefault(command.launcher.host, []).append(command)
    files = {}
    for host, found in by_host.items():
        lines = [f"{script_head('/..')}\n{_HEAD}"]
        for command in found:
            log = shell_word(f"{command.server.name}-{command.launcher.rank}.log")
            lines += [f"{command.text()} >{log} 2>&1 &", f"logs[$!]={log}"]
        files[f"hosts/{_file_name(host)}.sh"] = "\n".join([*lines, _TAIL])
    return files


def script_head(up: str = "") -> str:
    """First lines of a script: into the folder of the export, and what the site says beside it.

    ``up``: from the script's own folder. ``site.sh`` is read before the shell becomes strict: scripts that activate an
    environment use variables that are not set.
    """
    return f"""#!/usr/bin/env bash
cd "$(dirname "$0"){up}" || exit
# site.sh, if you write one here: the engine's environment, network interfaces, secrets
# shellcheck source=/dev/null
[ ! -f site.sh ] || . ./site.sh
set -euo pipefail"""


#: NICs read and write locked memory. A server that ends takes the host's others along, and its status is the script's
_HEAD = """ulimit -l "$(ulimit -H -l)"
declare -A logs
trap 'kill "${!logs[@]}" 2>/dev/null || true; wait' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM"""
_TAIL = """status=0
wait -n || status=$?
for pid in "${!logs[@]}"; do
  kill -0 "$pid" 2>/dev/null || echo "ended with status $status: see ${logs[$pid]}; the others are stopped" >&2
done
[ "$status" -ne 0 ] || status=1
exit "$status"
"""


def start_notes(
    deployment: Deployment, option: str, then: str, hosts: Collection[str] | None = None
) -> list[str]:
    """What the files serve and how they are started; ``then``: what follows the host scripts.

    ``hosts``: those that have a script, all used ones where left out.
    """
    count = len(deployment.used_hosts if hosts is None else hosts)
    where = "on its host" if count == 1 else f"on each of {count} hosts"
    return [
        deployment.context_note(option),
        *deployment.host_notes,
        f"start: bash hosts/HOST.sh {where}{then}",
    ]


def _file_name(host: str) -> str:
    """A file's name that no other host has; ``/`` and ``:`` are written as in a URL."""
    return quote(host, safe="[]")
