"""The runs that a probe may propose: workers of the top layouts, at their batches and below."""

from __future__ import annotations

from typing import Any

from costmodel.layout.layout import Layout
from costmodel.measured.rows import Group, MeasuredRow
from costmodel.measured.runs import Run, sequences_that_fit, worker_rates
from costmodel.measured.systems import resolve_instance_like
from costmodel.question.instance import Instance
from costmodel.question.workload import Workload

#: tokens of a short answer and of a short prompt
_SHORT, _SHORT_PROMPT = 16, 64
#: shares of a layout's batch that are worth measuring
_SHARES = (1.0, 0.25, 0.0625)


def candidate_runs(instance: Instance, layouts: list[Layout]) -> list[Run]:
    """One worker of every width of the layouts, at its batch and below: on the question's requests, on their prompts
    with short answers, of which prefill takes most of the time, and on short prompts with their answers, of which it takes none."""
    found: dict[tuple[Group, int, float, float], Run] = {}
    asked = [instance]
    workload = instance.workload.model_copy(update={"spread": None})
    if workload.output_tokens > _SHORT:
        asked.append(_of_lengths(instance, workload, {"output_tokens": _SHORT}))
    if workload.input_tokens > _SHORT_PROMPT:
        short = {"input_tokens": _SHORT_PROMPT, "images": 0.0, "audio_frames": 0}
        asked.append(_of_lengths(instance, workload.first_time(), short))
    for question in asked:
        for layout in layouts:
            for replica in layout.replicas:
                shape = replica.shape
                group = Group(shape.tp, shape.attention_dp, shape.pp, 1, shape.ep)
                for share in _SHARES:
                    users = max(1, round(share * shape.batch))
                    lengths = question.workload.new_tokens, question.workload.output_tokens
                    key = (group, users, *lengths)
                    run = None if key in found else _run(question, group, users, len(found))
                    if run is not None:
                        found[key] = run
    return list(found.values())


def _of_lengths(instance: Instance, workload: Workload, tokens: dict[str, Any]) -> Instance:
    """The question with a workload of other lengths."""
    other = workload.model_copy(update=tokens)
    return resolve_instance_like(instance, instance.scenario.model_copy(update={"workload": other}))


def _run(instance: Instance, group: Group, users: int, number: int) -> Run | None:
    """A run of one worker; ``None`` where it does not hold so many requests."""
    engine = (instance.scenario.engine or "").partition("@")[0]
    workload, chip = instance.workload, instance.cluster.usable[0].chip.name
    most = sequences_that_fit(instance, group, engine)
    if most < users:
        return None
    row = MeasuredRow(
        id=f"{number}", engine=engine, model=instance.model.name, system=chip, precision="",
        input_tokens=workload.new_tokens, output_tokens=workload.output_tokens, concurrency=users,
        decode=group, prefill=None, tpot_s=1.0, ttft_s=None, fixed_lengths=True,
    )  # fmt: skip
    return Run(row, instance, chip, worker_rates(instance, group, 0), None, most)
