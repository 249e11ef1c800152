"""What is worked out once and kept changes no figure, and nothing kept outlives what it was read from."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from costmodel.evaluate import Evaluation, evaluate
from costmodel.layout.layout import KvShare, Layout
from costmodel.layout.plain_layout import plain_layout
from costmodel.layout.slot_table import slot_table
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario


def asked(**changes: object) -> Instance:
    question = {"model": "deepseek-v3", "cluster": "gb200-nvl72", "workload": "chat"}
    return resolve_instance(Scenario.model_validate(question | changes))


def figures(found: Evaluation) -> object:
    return found.as_dict(), [price.service for price in found.priced.replicas]


@pytest.mark.parametrize(
    "changes", [{}, {"speculative": {"draft_tokens": 2, "acceptance": 0.7}}, {"model": "dbrx"}]
)
def test_figures_do_not_depend_on_what_was_priced_before(changes: dict[str, object]) -> None:
    known = asked(**changes)
    # more batches than are kept, widths and depths in turn
    layouts = [
        plain_layout(known, "decode", tp=tp, attention_dp=8, pp=pp, batch=batch)
        for batch in range(40, 400, 40)
        for tp, pp in ((1, 2), (2, 1), (4, 2))
    ]
    first = [figures(evaluate(known, layout)) for layout in layouts]
    again = [figures(evaluate(known, layout)) for layout in reversed(layouts)][::-1]
    assert again == first
    for place in (0, len(layouts) // 2, len(layouts) - 1):
        read = Layout.model_validate(layouts[place].model_dump())
        assert figures(evaluate(asked(**changes), read)) == first[place]


def test_kept_arrays_are_bounded() -> None:
    instance = asked()
    for batch in range(8, 800, 8):
        evaluate(instance, plain_layout(instance, "decode", tp=1, attention_dp=8, batch=batch))
    assert 0 < len(instance._reached) <= 16


def test_another_question_keeps_nothing_of_this_one() -> None:
    instance = asked()
    layout = plain_layout(instance, "decode", tp=2, attention_dp=8, batch=64)
    evaluate(instance, layout)
    longer = instance.workload.model_copy(
        update={"input_tokens": 3 * instance.workload.input_tokens}
    )
    changed = dataclasses.replace(instance, workload=longer)
    assert changed.request_kv_bytes > 2 * instance.request_kv_bytes
    kv = [
        evaluate(one, layout).priced.replicas[0].stages[0].memory["kv"]
        for one in (instance, changed)
    ]
    assert np.all(kv[1] > kv[0])


def test_copies_of_a_replica_read_their_fields_anew() -> None:
    replica = plain_layout(asked(), "decode", tp=2, attention_dp=4, pp=2, batch=64).replicas[0]
    assert replica.rank_sequences() == [16] * 4
    assert len(replica.chips) == 16
    assert replica.idle_kv == ()
    first = replica.kv[0]
    waiting = KvShare(chip=first.chip, tier="host", idle=True, sequences=3)
    changed = replica.model_copy(
        update={"stages": replica.stages[:1], "kv": (*replica.kv[:2], waiting)}
    )
    assert changed.rank_sequences() == [16, 16, 0, 0]
    assert len(changed.chips) == 8
    assert changed.idle_kv == (waiting,)
    assert replica.model_copy() == replica


def test_slots_of_some_layers() -> None:
    experts = np.array([[0, 1, 2, 1], [2, 2, 0, 1], [0, 0, 0, 1]])
    table = slot_table((3, 5, 8), experts)
    assert table.of_layers((3, 5, 8)) is table
    assert table.of_layers((5, 6)) is None
    part = table.of_layers((5, 8))
    assert part is not None
    assert part.holds(3)
    assert part.experts.tolist() == experts[1:].tolist()
    assert not part.complete
    whole = table.of_layers((3, 5))
    assert whole is not None
    assert whole.complete
    # expert 2 of layer 5 lies in its slots 0 and 1, expert 0 of layer 8 in its slots 0 to 2
    assert part.copied.tolist() == [2, 3]
    assert part.copied_slots.tolist() == [0, 1, 4, 5, 6]
    assert slot_table((0,), np.array([[-1, 0]])).copies is None
