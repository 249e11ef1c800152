"""A replay needs replicas that take prompts and replicas that answer."""

from __future__ import annotations

import numpy as np
import pytest

from costmodel.layout.layout import Role
from costmodel.layout.plain_layout import plain_layout
from costmodel.question.instance import resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.traffic.requests import Requests
from costmodel.question.workload import Workload
from costmodel.replay.replay import replay
from topology.errors import InstanceError


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_a_layout_without_one_of_its_pools_is_refused(role: Role) -> None:
    workload = Workload(input_tokens=1000, output_tokens=200)
    asked = Scenario(model="llama-3.1-8b", cluster="nvl-2", workload=workload)
    instance = resolve_instance(asked)
    layout = plain_layout(instance, role, tp=1, batch=1)
    lengths = np.full(4, 1000), np.full(4, 200), np.zeros(4, dtype=np.int64)
    with pytest.raises(InstanceError, match="is missing"):
        replay(instance, layout, Requests(np.arange(4) / 10.0, *lengths))
