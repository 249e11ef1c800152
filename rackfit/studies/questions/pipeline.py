"""``pipeline``: the layers in one to eight stages, a domain each: weights, KV, latency, hand-off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from costmodel.blackboard.aggregate import aggregate_pass
from costmodel.blackboard.capacity import kv_bytes_per_chip, weight_bytes_per_chip
from costmodel.blackboard.trains import stage_utilisation
from costmodel.evaluate import evaluate
from costmodel.layout.plain_layout import plain_layout
from costmodel.passes.routed import dispatch_element_bytes
from costmodel.question.instance import Instance
from costmodel.replica.serving import PipelineTime
from rackfit.figures.chart import Chart, Series
from rackfit.studies.altered import with_ratio
from rackfit.studies.base import COUNT, POSITIVE, Axes, Number, Options, Own, Row, Study, along
from rackfit.studies.board import NUMBERS, PARAMETERS, board_of

_STAGES, _BOARD = "stages", "board.stages"


def _axes(base: Mapping[str, Any]) -> list[Axes]:
    return [{_STAGES: [1, 2, 4, 8]}, {_BOARD: [1, 2, 4, 8]}]


def _answer(instance: Instance, own: Own, options: Options) -> Row:
    changed = instance if own["ratio"] is None else with_ratio(instance, float(own["ratio"]))
    if own[_BOARD] is not None:
        return _blackboard_row(changed, own)
    stages = int(own[_STAGES] or 1)
    return _evaluated_row(changed, own, stages) | hand_off(changed, own, stages)


def _evaluated_row(instance: Instance, own: Own, stages: int) -> Row:
    """Decode replicas of one stage per domain, every microbatch as large, by the evaluator."""
    chips = len(instance.cluster.domains[0].usable)
    each = int(own["sequences_per_chip"])
    layout = plain_layout(
        instance, "decode", tp=1, attention_dp=chips, pp=stages, batch=chips * each * stages
    )
    evaluation = evaluate(instance, layout)
    price = evaluation.priced.replicas[0]
    in_flight = stages if own["microbatches"] is None else float(own["microbatches"])
    busy = stage_utilisation(in_flight, stages)
    weights = [stage.memory["weights"] + stage.memory["experts"] for stage in price.stages]
    rate = float(price.service.requests_per_s) * instance.workload.decode_steps * busy
    parts = sum(sum(stage.parts.values()) for stage in price.stages)
    return {
        "chips": chips * stages,
        "batch": layout.replicas[0].shape.batch,
        "weight_bytes_per_chip": max(float(held.max()) for held in weights),
        "kv_bytes_per_chip": max(float(s.memory["kv"].max()) for s in price.stages)
        * min(1.0, in_flight / stages),
        "tpot_s": float(price.service.tpot_s),
        "stages_s": parts,
        "utilisation": busy,
        "decode_tokens_per_s_per_domain": rate / stages,
        "broken_rules": "; ".join(sorted({v.rule for v in evaluation.violations} - {"both_pools"})),
    }


def hand_off(instance: Instance, own: Own, stages: int) -> Row:
    """Scale-up time of a stage's experts over the time to hand its result on; 1 or more is free.

    *Formula:* ``layers top_k (dispatch + combine bytes) / hop bytes x scale-out / scale-up``, every
    expert remote. *Source:* Pope, blackboard lecture (2026), 0:51.
    """
    operations, cluster = instance.operations, instance.cluster
    moe = operations.moe
    if moe is None or len(cluster.domains) < 2:
        return {}
    top_k = round(moe.top_k) if own["top_k"] is None else int(own["top_k"])
    layers = own["layers_per_stage"]
    layers = len(operations.moe_layers) / stages if layers is None else float(layers)
    dispatch, combine, hop = (
        float(own[key]) if own[key] is not None else known
        for key, known in (
            ("dispatch_bytes", dispatch_element_bytes(moe, operations)),
            ("combine_bytes", operations.activation_bytes),
            ("hop_bytes", operations.activation_bytes),
        )
    )
    rack = [chip.id for chip in cluster.domains[0].usable]
    other = cluster.domains[1].usable[0].id
    inside = cluster.rate("dispatch", rack, top_k=top_k).s_per_byte * len(rack) / (len(rack) - 1)
    out = cluster.rate("send", [rack[0], other])
    return {
        "layers_per_stage": layers,
        "hand_off_ratio": layers * inside * (dispatch + combine) / (out.s_per_byte * hop),
        "scale_up_over_scale_out": out.s_per_byte * cluster.chip(rack[0]).chip.scale_up_bytes_per_s,
    }


def _blackboard_row(instance: Instance, own: Own) -> Row:
    """Totals over ``E P`` chips, and a token's way through the stages."""
    board, stages = board_of(instance, own), float(own[_BOARD])
    microbatch = own["board.microbatch"]
    batch = board.chips * own["sequences_per_chip"] if microbatch is None else float(microbatch)
    timed = aggregate_pass(board.model, board.machine, batch, board.context)
    base = float(timed.total_s("lecture")) if own["board.pass_s"] is None else own["board.pass_s"]
    hops = float(own["board.hop_s"]) * stages if stages > 1 else 0.0
    way = PipelineTime(np.asarray(base), np.asarray(base / stages), np.asarray(hops))
    in_flight = stages if own["microbatches"] is None else float(own["microbatches"])
    busy = stage_utilisation(in_flight, stages)
    period = float(way.period_s(stages))
    domain = board.hbm_bytes * board.chips
    return {
        "chips": board.chips * stages,
        "batch": batch * in_flight,
        "weight_bytes_per_chip": weight_bytes_per_chip(
            board.model.weight_bytes, board.chips, stages
        ),
        "kv_bytes_per_chip": kv_bytes_per_chip(
            batch, board.context, board.model.kv_bytes_per_token, board.chips, stages
        )
        * min(1.0, in_flight / stages),
        "tpot_s": period,
        "stages_s": base,
        "utilisation": busy,
        "decode_tokens_per_s_per_domain": stages * batch / period * busy / stages,
        "domain_hbm_bytes": domain,
        "weights_share_of_domain": board.model.weight_bytes / domain,
    }


def _chart(rows: Sequence[Row]) -> list[Chart]:
    key = _STAGES if along(rows, _STAGES) else _BOARD
    found = along(rows, key)
    held = [
        Series(name, [(row[key], row[f"{column}_bytes_per_chip"] / 1e9) for row in found])
        for name, column in (("weights", "weight"), ("KV", "kv"))
    ]
    times = [
        Series("with hops and waits", [(row[key], row["tpot_s"] * 1e3) for row in found]),
        Series("work of the stages", [(row[key], row["stages_s"] * 1e3) for row in found]),
    ]
    across = "pipeline stages, one domain each"
    return [
        Chart("What a chip holds", across, "GB per chip", held, log_x=True),
        Chart("How long a token takes", across, "ms per output token", times, log_x=True),
    ]


def _conclude(rows: Sequence[Row]) -> list[str]:
    said = []
    for key, name in ((_STAGES, ""), (_BOARD, "Blackboard: ")):
        found = along(rows, key)
        if not found:
            continue
        first, last = found[0], found[-1]
        said.append(
            f"{name}{last[key]} stages instead of {first[key]}: weights per chip from "
            f"{first['weight_bytes_per_chip'] / 1e9:.2f} to {last['weight_bytes_per_chip'] / 1e9:.2f} GB, "
            f"KV per chip from {first['kv_bytes_per_chip'] / 1e9:.2f} to "
            f"{last['kv_bytes_per_chip'] / 1e9:.2f} GB, a token takes {last['tpot_s'] * 1e3:.2f} ms "
            f"({first['tpot_s'] * 1e3:.2f} ms before), a domain makes "
            f"{last['decode_tokens_per_s_per_domain'] / first['decode_tokens_per_s_per_domain']:.3f} "
            "times the tokens."
        )
        idle = [row for row in found if row["utilisation"] < 1]
        if idle:
            listed = ", ".join(f"{row[key]}: {row['utilisation']:.0%}" for row in idle)
            said.append(
                f"{name}Too few microbatches in flight leave stages idle; busy at {listed}."
            )
        heavy = next(
            (row for row in found if row["kv_bytes_per_chip"] > row["weight_bytes_per_chip"]), None
        )
        if heavy is not None:
            stages = "stage" if heavy[key] == 1 else "stages"
            said.append(f"{name}KV outweighs the weights from {heavy[key]} {stages} on.")
        waits = last["tpot_s"] - last["stages_s"]
        if waits > 0.01 * last["tpot_s"]:
            said.append(
                f"{name}Over {last[key]} stages {waits * 1e3:.2f} ms of a token are hops and waiting for the "
                f"longest stage; the work itself takes {last['stages_s'] * 1e3:.2f} ms, and "
                f"{first['stages_s'] * 1e3:.2f} ms over {first[key]}."
            )
    ratios = [row for row in along(rows, _STAGES) if "hand_off_ratio" in row]
    if ratios:
        short = [row for row in ratios if row["hand_off_ratio"] < 1]
        least = min(ratios, key=lambda row: float(row["hand_off_ratio"]))
        said.append(
            f"Hand-off: a stage keeps its scale-up busy at least {least['hand_off_ratio']:.1f} times "
            f"as long as the hop out takes ({least['layers_per_stage']:.1f} MoE layers a stage, "
            f"{least['scale_up_over_scale_out']:.3g}:1); "
            + (
                "the hop is never the bottleneck."
                if not short
                else f"it fails at {len(short)} points."
            )
        )
    return said


STUDY = Study(
    name="pipeline",
    question="What do pipeline stages over racks buy, and what do they not?",
    default={"model": "deepseek-v3", "workload": "chat"},
    fixed={"cluster": "nvl-72@8"},
    axes=_axes,
    chart=_chart,
    conclude=_conclude,
    parameters={
        **PARAMETERS,
        _STAGES: None,
        _BOARD: None,
        "sequences_per_chip": 64,
        "microbatches": None,
        "ratio": None,
        "top_k": None,
        "layers_per_stage": None,
        "dispatch_bytes": None,
        "combine_bytes": None,
        "hop_bytes": None,
        "board.microbatch": None,
        "board.pass_s": None,
        "board.hop_s": 0.0,
    },
    numbers={
        **NUMBERS,
        **dict.fromkeys((_STAGES, "sequences_per_chip", "top_k"), COUNT),
        **dict.fromkeys(
            (
                _BOARD,
                "microbatches",
                "ratio",
                "layers_per_stage",
                "dispatch_bytes",
                "combine_bytes",
                "hop_bytes",
                "board.microbatch",
                "board.pass_s",
            ),
            POSITIVE,
        ),
        "board.hop_s": Number(0, 1e9),
    },
    answer=_answer,
    shown={
        "weight_bytes_per_chip": "weights B/chip",
        "kv_bytes_per_chip": "KV B/chip",
        "tpot_s": "TPOT s",
        "utilisation": "busy",
        "decode_tokens_per_s_per_domain": "tok/s/domain",
        "hand_off_ratio": "hand-off",
    },
)
