"""``rackfit place``: recorded expert counts in, a placement file with its bound out."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from rackfit.cli import question


class PlaceFormat(StrEnum):
    """Formats that ``--format`` takes."""

    json = "json"
    sglang = "sglang"
    trtllm = "trtllm"
    vllm = "vllm"


class DispatchRule(StrEnum):
    """How the engine splits an expert's tokens over its replicas."""

    even = "even"
    sglang_static = "sglang-static"
    lp = "lp"


class Objective(StrEnum):
    """What several recorded windows are for."""

    sum = "sum"
    mean = "mean"
    worst = "worst"


class LayerSlots(StrEnum):
    """How the slots are shared among the layers."""

    same = "same"
    rows = "rows"
    any = "any"


def register(app: typer.Typer) -> None:
    """Add ``place`` to the command line."""
    app.command("place")(place_command)


def place_command(
    loads: Annotated[
        list[str],
        typer.Argument(help="Recorded expert counts, one file or several, or a shipped name."),
    ],
    *,
    gpus: Annotated[int, typer.Option(help="GPUs that share the experts of a layer.")],
    slots: Annotated[
        int, typer.Option(help="Expert slots of a layer on all GPUs, spare ones included.")
    ],
    gpus_per_node: Annotated[int | None, typer.Option(help="GPUs of a node or rack.")] = None,
    groups: Annotated[int, typer.Option(help="Router groups (n_group).")] = 1,
    top_groups: Annotated[int, typer.Option(help="Groups a token may use (topk_group).")] = 1,
    top_k: Annotated[
        int | None,
        typer.Option(
            help="Experts per token, for cross-node copies (default: what the recording says, or 8)."
        ),
    ] = None,
    coactivation: Annotated[
        Path | None,
        typer.Option(help="Experts that tokens use together: pair counts, or experts by token."),
    ] = None,
    dispatch: Annotated[
        DispatchRule, typer.Option(help="The engine's dispatch.")
    ] = DispatchRule.even,
    copy_cost: Annotated[
        float, typer.Option(help="Cost of a remote copy per token, in balanced layer times.")
    ] = 0.2,
    objective: Annotated[
        Objective, typer.Option(help="Several windows: add them up, or place for all at once.")
    ] = Objective.mean,
    leave_out: Annotated[
        list[str] | None,
        typer.Option(help="A recording that the placement is judged on, not made for; repeat it."),
    ] = None,
    current: Annotated[
        Path | None, typer.Option(help="Running placement to start from (JSON or SGLang file).")
    ] = None,
    max_moves: Annotated[
        int | None, typer.Option(help="Most experts written into slots, with --current.")
    ] = None,
    max_bytes: Annotated[
        str | None, typer.Option(help="Most weights copied instead, such as '2 GB'.")
    ] = None,
    expert_bytes: Annotated[
        str | None,
        typer.Option(help="Weights of one expert of one layer, such as '44 MB', for --max-bytes."),
    ] = None,
    layer_slots: Annotated[
        LayerSlots,
        typer.Option(
            help="Slots of the layers: --slots each (same), or on average, in whole rows of one per "
            "GPU (JSON, vLLM-Ascend) or any numbers (JSON)."
        ),
    ] = LayerSlots.same,
    dense_layers: Annotated[
        int | None, typer.Option(help="Leading all-zero rows that are dense layers.")
    ] = None,
    fast: Annotated[
        bool, typer.Option("--fast", help="A construction and a short descent.")
    ] = False,
    time_limit: Annotated[float | None, typer.Option(help="Seconds to search at most.")] = None,
    workers: Annotated[int, typer.Option(help="Layers worked on at once; 0 for one per core.")] = 0,
    seed: question.Seed = 0,
    format: Annotated[PlaceFormat, typer.Option(help="What to write.")] = PlaceFormat.json,
    out: Annotated[Path | None, typer.Option(help="Write here, not to stdout.")] = None,
    curve: Annotated[
        Path | None, typer.Option(help="Write balance against copies to other nodes here, as SVG.")
    ] = None,
) -> None:
    """Place each layer's experts on GPUs so that the busiest GPU has least to do, with a bound."""
    from importlib import import_module

    import numpy as np

    from costmodel.experts.expert_load import joined_loads, read_loads
    from rackfit.documents.output import check_writable, say, write_whole
    from rackfit.figures.placement_curve import check_curve, check_curve_path, curve_svg
    from rackfit.placement.alike import balance_before
    from rackfit.placement.checks import blind_to_nodes, check_together
    from rackfit.placement.files import loads_path, read_placement, told_of
    from rackfit.placement.left_out import without
    from rackfit.placement.place import place
    from solver.experts.request import PlaceOptions

    check_layer_slots(layer_slots, format)
    check_curve_path(curve)
    check_writable(out, curve, besides=(*map(Path, loads), coactivation, current))
    options = PlaceOptions(
        gpus=gpus,
        slots=slots,
        gpus_per_node=gpus_per_node,
        groups=groups,
        top_groups=top_groups,
        top_k=top_k,
        dispatch=dispatch.value,
        objective=objective.value,
        copy_cost=copy_cost,
        max_moves=max_moves,
        max_bytes=read_bytes(max_bytes, "--max-bytes"),
        expert_bytes=read_bytes(expert_bytes, "--expert-bytes"),
        effort="fast" if fast else "good",
        time_limit_s=time_limit,
        workers=workers or os.cpu_count() or 1,
        seed=seed,
        layer_slots=layer_slots.value,
    )
    recorded = joined_loads(
        [read_loads(loads_path(own), dense_layers=dense_layers) for own in loads]
    )
    for line in told_of(recorded):
        say(line)
    kept = without(recorded, leave_out)[0] if leave_out else recorded
    if coactivation is not None:
        check_together(kept, options, current is not None)
    if blind_to_nodes(kept, options, current is not None):
        say(
            f"{len(kept.windows)} windows are placed for balance alone: copies to other nodes are counted, and "
            "not avoided; --objective sum weighs both"
        )
    if curve is not None:
        check_curve(kept, options, current is not None, coactivation is not None)
    running = None if current is None else read_placement(current, recorded)
    placed = place(recorded, options, running, coactivation, leave_out or ())
    if format is PlaceFormat.json:
        import json

        text = json.dumps(placed.document()) + "\n"
    else:
        exporter = import_module(f"rackfit.exporters.placements.{format.value}")
        text = exporter.render(placed.table)
        say(exporter.hint(placed.table))
    if placed.compared is not None:
        say(placed.compared.text())
    for one in placed.left_out:
        say(one.text())
    if curve is not None:
        write_whole(curve_svg(placed), curve)
    write_whole(text, out)
    if out is not None:
        before = balance_before(kept, options, running)
        was = "as engines start" if running is None else "in the running placement"
        after = float(np.mean(placed.imbalance))
        say(f"busiest chip over the mean, mean of layers: {before:.3f} {was}, {after:.3f} in {out}")


#: what a format lets layers have, beside equally many slots
HOLDS = {
    PlaceFormat.json: (LayerSlots.rows, LayerSlots.any),
    PlaceFormat.vllm: (LayerSlots.rows,),
    PlaceFormat.sglang: (),
    PlaceFormat.trtllm: (),
}


def check_layer_slots(asked: LayerSlots, format: PlaceFormat) -> None:
    """Raise ``InstanceError`` where a format cannot hold what is asked."""
    from topology.errors import InstanceError, Problem

    if asked is LayerSlots.same or asked in HOLDS[format]:
        return
    holding = ", ".join(f"--format {own.value}" for own, held in HOLDS.items() if asked in held)
    held = ", ".join(["same", *(own.value for own in HOLDS[format])])
    message = f"{asked.value}: --format {format.value} holds {held}; {asked.value} needs {holding}"
    raise InstanceError(Problem("--layer-slots", message))


def read_bytes(text: str | None, option: str) -> float | None:
    """Bytes of ``text`` such as ``2 GB``. Raises ``InstanceError``."""
    from topology.errors import InstanceError, Problem
    from topology.quantity import parse_quantity

    try:
        return None if text is None else parse_quantity(text, "B")
    except ValueError as error:
        raise InstanceError(Problem(option, str(error))) from None
