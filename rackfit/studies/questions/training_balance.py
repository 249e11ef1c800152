"""``training-balance``: how far a served model should be over-trained when money is shared evenly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from costmodel.blackboard.training import INFERENCE_FLOPS, PRETRAINING_FLOPS, balanced_tokens
from costmodel.models.summary import summarise
from costmodel.question.instance import Instance
from rackfit.figures.chart import Chart, Series
from rackfit.studies.base import Axes, Options, Own, Row, Study, solved
from topology.errors import InstanceError, Problem

_DAY_S = 86_400.0


def _axes(base: Mapping[str, Any]) -> Axes:
    return {"share": ["1:1:1", "2:1:1", "1:1:2"], "days": [30, 60, 120, 365]}


def _answer(instance: Instance, own: Own, options: Options) -> Row:
    """Shares are pre-training : RL : inference; the model is the scenario's unless given."""
    active = _number(own, "active_params", summarise(instance.model).active_params)
    rate, days = _number(own, "tokens_per_s", None), _number(own, "days", None)
    rl, waste = _number(own, "rl_flops", None), _number(own, "inefficiency", None)
    shares = _shares(str(own["share"]))
    served = rate * days * _DAY_S
    tokens = balanced_tokens(active, served, shares=shares, rl_flops=rl, inefficiency=waste)
    flops = {
        "pretraining": PRETRAINING_FLOPS * active * tokens.pretraining,
        "reinforcement": rl * active * tokens.reinforcement * waste,
        "inference": INFERENCE_FLOPS * active * tokens.inference * waste,
    }
    spent = sum(flops.values())
    return {
        "active_params": active,
        "inference_tokens": tokens.inference,
        "pretraining_tokens": tokens.pretraining,
        "reinforcement_tokens": tokens.reinforcement,
        "chinchilla_tokens": tokens.chinchilla,
        "over_training": tokens.over_training,
        **{f"{name}_cost_share": cost / spent for name, cost in flops.items()},
    }


def _number(own: Own, key: str, otherwise: float | None) -> float:
    value = own[key] if own[key] is not None else otherwise
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise InstanceError(Problem(key, f"must be a positive number, got {value!r}"))
    return float(value)


def _shares(text: str) -> tuple[float, float, float]:
    try:
        pre, rl, inference = (float(part) for part in text.split(":"))
    except ValueError:
        pre = rl = inference = 0.0
    if min(pre, rl, inference) <= 0:
        message = f"expected PRETRAINING:RL:INFERENCE, positive numbers, got {text[:40]!r}"
        raise InstanceError(Problem("share", message))
    return pre, rl, inference


def _by_share(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in solved(rows):
        found.setdefault(str(row.get("share", "1:1:1")), []).append(row)
    return found


def _chart(rows: Sequence[Row]) -> Chart:
    series = [
        Series(
            f"spent {share}",
            [(row["inference_tokens"] / 1e12, row["over_training"]) for row in line],
        )
        for share, line in _by_share(rows).items()
    ]
    return Chart(
        "Over-training of a model whose money is shared (pre-training : RL : inference)",
        "trillion tokens served in its life", "pre-training tokens, times Chinchilla's",
        series, log_x=True, log_y=True,
    )  # fmt: skip


def _conclude(rows: Sequence[Row]) -> list[str]:
    said = []
    for share, line in _by_share(rows).items():
        row = line[0]
        said.append(
            f"Money spent {share} on pre-training, RL and inference: {row['pretraining_tokens'] / row['inference_tokens']:.2f} "
            f"tokens of pre-training and {row['reinforcement_tokens'] / row['inference_tokens']:.2f} of RL for each one served."
        )
        for row in (line[0], line[-1]) if len(line) > 1 else line:
            said.append(
                f"{share}: a model of {row['active_params'] / 1e9:.3g}B active parameters that "
                f"serves {row['inference_tokens'] / 1e12:,.0f} trillion tokens is trained on "
                f"{row['pretraining_tokens'] / 1e12:,.0f} trillion, {row['over_training']:,.0f} "
                "times the training-only optimum."
            )
    return said


STUDY = Study(
    name="training-balance",
    question="How long should a model be trained that is going to be served?",
    default={"model": "deepseek-v3", "cluster": "gb200-nvl72", "workload": "chat"},
    axes=_axes,
    chart=_chart,
    conclude=_conclude,
    parameters={
        "share": "1:1:1",
        "days": 60,
        "tokens_per_s": 5e7,
        "active_params": None,
        "rl_flops": 3.0,
        "inefficiency": 3.0,
    },
    answer=_answer,
    shown={
        "inference_tokens": "served",
        "pretraining_tokens": "pre-training",
        "reinforcement_tokens": "RL",
        "over_training": "x Chinchilla",
    },
)
