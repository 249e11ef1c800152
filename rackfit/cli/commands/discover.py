"""``rackfit discover``: a cluster file from kubectl, Slurm, driver and fabric listings."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rackfit.discovery.discover import Discovered


def register(app: typer.Typer) -> None:
    """Add ``discover`` to the command line."""
    app.command("discover", no_args_is_help=True)(discover_command)


def discover_command(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Saved output: kubectl get nodes or resourceslices, kubectl describe nodes, scontrol show node (also --json), sinfo --json, topology.conf or .yaml, "
            "nvidia-smi -q (also -x) or topo -m, amd-smi or rocm-smi (the file named like its host), ibnetdiscover, gcloud node-pools."
        ),
    ],
    out: Annotated[Path | None, typer.Option(help="Write the cluster file here.")] = None,
    name: Annotated[str, typer.Option(help="Name of the cluster; without one that of --out.")] = "",
    chip: Annotated[
        str | None,
        typer.Option(help="Chip of every host: a name of the catalogue or a chip file."),
    ] = None,
    hosts: Annotated[
        list[str] | None,
        typer.Option(help="Only hosts that this pattern matches, such as 'gpu-*'; repeat it."),
    ] = None,
    free: Annotated[bool, typer.Option("--free", help="Count chips in use as free.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="What was found on stdout.")] = False,
) -> None:
    """Make a cluster file of what operators have; broken chips become failed, chips in use taken.

    Several files add up. What no file tells is assumed and said.
    """
    from rackfit.discovery.discover import discover
    from rackfit.documents.output import check_writable, say, write_whole
    from topology.names import check_name

    for file in files:
        check_writable(out, besides=(file,))
    called = check_name(name or (out.stem if out is not None else "discovered"), "--name")
    found = discover(files, called, chip=chip, free=free, hosts=hosts or "*")
    if out is not None:
        write_whole(found.text(), out)
    if as_json:
        write_whole(json_module.dumps(_as_dict(found), indent=1, allow_nan=False) + "\n", None)
    elif out is None:
        write_whole(found.text(), None)
    for line in _lines(found):
        say(line)
    if out is not None:
        say(f"{out} written; next: rackfit solve --cluster {_word(out)} --model MODEL")


def _word(out: Path) -> str:
    from rackfit.quoting import shell_word

    return shell_word(str(out) if "/" in str(out) or out.suffix == ".yaml" else f"./{out}")


def _as_dict(found: Discovered) -> dict[str, Any]:
    return {
        "cluster": found.data,
        "chips": len(found.cluster.chips),
        "usable": len(found.cluster.usable),
        "hosts": found.hosts,
        "failed": found.failed,
        "taken": found.taken,
        "notes": found.notes,
        "assumed": found.assumed,
    }


def _lines(found: Discovered) -> list[str]:
    """What was found, for a person: of very many failures the first."""
    cluster = found.cluster
    sizes = sorted({len(domain.chips) for domain in cluster.domains})
    count = len(cluster.domains)
    lines = [
        f"{count} domain{'s' * (count > 1)} of {' or '.join(map(str, sizes))} {', '.join(cluster.chip_names)}: "
        f"{len(cluster.chips)} chips, {len(cluster.usable)} of them usable"
    ]
    for word, reasons in (("failed", found.failed), ("taken", found.taken)):
        lines += [f"{word} {place}: {reason}" for place, reason in list(reasons.items())[:20]]
        if len(reasons) > 20:
            lines.append(f"{word}: and {len(reasons) - 20} more")
    lines += found.notes[:20]
    lines += [f"assumed: {word}" for word in found.assumed[:20]]
    return lines
