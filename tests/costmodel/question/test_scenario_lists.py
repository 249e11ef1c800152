"""Lists that a command line gives as text."""

from __future__ import annotations

import pytest

from costmodel.question.scenario import Scenario


@pytest.mark.parametrize("text", ["r0g3+r1", "r0g3,r1", " r0g3, r1 ,", "none+r0g3+r1"])
def test_chips_are_joined_by_plus_or_commas(text: str) -> None:
    """``--failed r0g3,r1`` was refused as one name; other options of the command line take commas."""
    asked = {"model": "llama-3.1-8b", "cluster": "hgx-h100@2", "workload": "chat"}
    given = Scenario.model_validate(asked | {"failed": text, "taken": text})
    assert (given.failed, given.taken) == (("r0g3", "r1"), ("r0g3", "r1"))
