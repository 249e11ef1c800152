"""Mixed replicas in pipeline stages: a first token comes out of the last stage, and answers go on from there."""

from __future__ import annotations

import numpy as np
import pytest

from costmodel.evaluate import evaluate
from costmodel.layout.plain_layout import plain_layout
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.traffic.description import Arrivals, steady
from costmodel.question.workload import Workload
from costmodel.replay.replay import replay

LONG = Workload(input_tokens=4800, output_tokens=40)


def asked(engine: str | None = None) -> Instance:
    return resolve_instance(
        Scenario(model="llama-3.1-8b", cluster="rtx4090", workload=LONG, pay="used", engine=engine)
    )


@pytest.mark.parametrize("stages", [1, 2, 4])
@pytest.mark.parametrize("engine", [None, "vllm"])
def test_a_lone_answer_takes_a_pass_for_each_token(stages: int, engine: str | None) -> None:
    """Its passes began before its first token was out, by what the prompt took in the later stages."""
    instance = asked(engine)
    layout = plain_layout(instance, "mixed", tp=1, pp=stages, batch=1)
    apart = evaluate(instance, plain_layout(instance, "decode", tp=1, pp=stages, batch=1))
    rate = 0.2 * (evaluate(instance, layout).requests_per_s or 0.0)
    met = replay(instance, layout, steady(LONG, Arrivals(process="constant", rate=rate), 50, 1))
    assert apart.tpot_s is not None
    assert np.allclose(met.tpot, apart.tpot_s, rtol=0.01)


def test_stages_with_prompts_among_decoding_give_each_sequence_a_pass_of_its_own() -> None:
    """Where prompts are computed in passes that decode (vLLM), such a pass gave all groups of sequences a token in the time of one."""
    instance = asked("vllm")
    layout = plain_layout(instance, "mixed", tp=1, pp=4, batch=16)
    steady_state = evaluate(instance, layout)
    requests = steady(
        LONG, Arrivals(process="constant", rate=2.0 * (steady_state.requests_per_s or 0.0)), 400, 1
    )
    met = replay(instance, layout, requests)
    ends_s = requests.arrival_s + met.ttft + met.tpot * (LONG.output_tokens - 1)
    served = len(met.ttft) / float(np.nanmax(ends_s))
    assert served <= (steady_state.requests_per_s or 0.0) * 1.1
    assert float(np.nanmin(met.tpot)) > 0.0
