"""``rackfit export``: launch files and manifests from a layout."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rackfit import exporters
from rackfit.wording import amount, counted
from topology.quantity import per_cent

if TYPE_CHECKING:
    from rackfit.exporters.export import Exported


#: Names of the targets by their files, so that ``--help`` need not load them.
TARGETS = tuple(
    sorted(
        path.stem.removeprefix("target_").replace("_", "-")
        for path in Path(exporters.__path__[0]).glob("target_*.py")
    )
)


def register(app: typer.Typer) -> None:
    """Add ``export`` to the command line."""
    app.command("export")(export_command)


def export_command(
    layout: Annotated[Path, typer.Argument(help="A JSON document written by rackfit solve.")],
    *,
    to: Annotated[
        str,
        typer.Option(
            "--to", help=f"{', '.join(TARGETS)}: what each is, `rackfit catalogue exporters` says."
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="New folder (or file, where there is one to write).")
    ] = None,
    model_path: Annotated[
        str | None, typer.Option(help="Where the weights lie on every host.")
    ] = None,
    draft_path: Annotated[
        str | None, typer.Option(help="Where the weights of a draft model lie on every host.")
    ] = None,
    gpus_per_host: Annotated[
        int | None, typer.Option(help="Accelerators of one host (default: published).")
    ] = None,
    hosts: Annotated[
        Path | None, typer.Option(help="Host names, one per line, rack by rack.")
    ] = None,
    image: Annotated[str | None, typer.Option(help="Container image (dynamo).")] = None,
    namespace: Annotated[str | None, typer.Option(help="Kubernetes namespace (dynamo).")] = None,
    topology_profile: Annotated[
        str | None, typer.Option(help="Name of the ClusterTopology resource (dynamo).")
    ] = None,
    weights_claim: Annotated[
        str | None, typer.Option(help="Volume claim that holds the weights (dynamo).")
    ] = None,
    rdma_resource: Annotated[
        str | None, typer.Option(help="What the cluster calls an RDMA NIC; '' for none (dynamo).")
    ] = None,
    allow_approximate: Annotated[
        bool,
        typer.Option(
            "--allow-approximate", help="Deploy the nearest the target can say; print the loss."
        ),
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print files, notes and loss as one JSON document.")
    ] = False,
) -> None:
    """Write the files that deploy a layout. Refuses (exit code 2) what the target cannot express."""
    import json as json_module
    from dataclasses import replace

    from rackfit.documents.output import check_writable, say, write_whole
    from rackfit.documents.result import read_result
    from rackfit.exporters.export import by_message, export_layout, write_files
    from rackfit.exporters.launch.deployment import ExportOptions
    from rackfit.exporters.launch.hosts import Hosts, read_host_names
    from rackfit.exporters.registry import exporter
    from rackfit.live.expected import ENGINES as CHECKED
    from rackfit.quoting import shell_word
    from topology.errors import InstanceError, Problem, option

    exporter(to)
    if json and out is not None:
        raise InstanceError(Problem(option("json"), f"prints the files; leave {option('out')} out"))
    if out is not None and os.path.isfile(out):
        check_writable(out, besides=(layout, hosts))
    instance, decision, _ = read_result(layout)
    plain = ExportOptions(model_path=model_path or f"/models/{instance.model.name}")
    options = replace(
        plain,
        draft_path=draft_path or plain.draft_path,
        image=image or plain.image,
        namespace=namespace or plain.namespace,
        topology_profile=topology_profile or plain.topology_profile,
        weights_claim=weights_claim or plain.weights_claim,
        rdma_resource=plain.rdma_resource if rdma_resource is None else rdma_resource,
    )
    names = read_host_names(hosts) if hosts is not None else None
    exported = export_layout(
        instance,
        decision,
        to,
        options,
        hosts=Hosts(instance.cluster, gpus_per_host, names),
        allow_approximate=allow_approximate,
    )
    if json:
        write_whole(json_module.dumps(exported.as_dict(), indent=1, allow_nan=False) + "\n", None)
        return
    if out is None and len(exported.files) > 1:
        raise InstanceError(
            Problem(option("out"), f"{to} writes {len(exported.files)} files; name a new folder")
        )
    if out is not None:
        write_files(exported.files, out)
    for line in by_message(exported.limits):
        say(f"approximated: {line}")
    if exported.limits or exported.loss:
        say(loss_text(exported))
    for note in exported.notes:
        say(f"note: {note}")
    if out is None:
        write_whole(next(iter(exported.files.values())), None)
        return
    say(f"{counted(len(exported.files), 'file')} written to {out}")
    if to in CHECKED:
        say(
            f"nothing was started yet; once the servers run: rackfit check {shell_word(str(layout))} URL.. says "
            "whether they run what was exported, as fast as promised"
        )


def loss_text(exported: Exported) -> str:
    """What the approximation costs."""
    before = exported.wanted.usd_per_m_output_tokens or 0.0
    after = exported.deployed.usd_per_m_output_tokens or 0.0
    lines = [
        f"deployed: ${amount(after)} per million output tokens, {per_cent(exported.loss, 2, signed=True)} against "
        f"${amount(before)}"
    ]
    lines += [f"deployed: {violation}" for violation in exported.deployed.violations[:5]]
    return "\n".join(lines)
