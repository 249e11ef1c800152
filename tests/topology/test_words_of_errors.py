"""What pydantic finds wrong is said in the words of all other messages."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from topology.catalogue import checked
from topology.errors import InstanceError
from topology.load import load_cluster


class Inner(BaseModel):
    a: int = 1


class Asked(BaseModel):
    least: Annotated[int, Field(ge=2)] = 2
    above: Annotated[float, Field(gt=0)] = 1.0
    most: Annotated[int, Field(le=9)] = 1
    below: Annotated[float, Field(lt=1)] = 0.5
    inner: Inner = Inner()
    inners: Annotated[tuple[Inner, ...], Field(min_length=1)] = (Inner(),)
    flag: bool = False
    text: str = ""
    many: tuple[int, ...] = ()
    choice: Literal["whole", "used"] = "whole"
    either: bool | Literal["only"] = False
    number_or_list: Annotated[int, Field(ge=1)] | tuple[int, ...] = 1
    name: Annotated[str, Field(min_length=1, max_length=9)] = "a"
    named: Annotated[dict[Annotated[str, Field(max_length=3)], int], Field(max_length=1)] = {}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"least": 1}, "least: must be at least 2, got 1"),
        ({"above": 0}, "above: must be above 0, got 0"),
        ({"most": 10}, "most: must be at most 9, got 10"),
        ({"below": 1}, "below: must be below 1, got 1"),
        ({"inner": [3]}, "inner: expected keys with values, got [3]"),
        ({"inners": []}, "inners: must name at least one, got []"),
        ({"inners": [{"a": "x"}]}, "inners[0].a: expected a whole number, got 'x'"),
        ({"flag": "perhaps"}, "flag: expected true or false, got 'perhaps'"),
        ({"text": 3}, "text: expected text, got 3"),
        ({"many": 3}, "many: expected a list, got 3"),
        ({"least": "x"}, "least: expected a whole number, got 'x'"),
        ({"least": 2.5}, "least: expected a whole number, got 2.5"),
        ({"above": "x"}, "above: expected a number, got 'x'"),
        ({"choice": "half"}, "choice: expected 'whole' or 'used', got 'half'"),
        ({"either": "x"}, "either: expected true or false or 'only', got 'x'"),
        ({"number_or_list": {}}, "number_or_list: expected a whole number or a list, got {}"),
        ({"name": ""}, "name: must not be empty, got ''"),
        ({"name": "a" * 10}, "name: must have at most 9 characters, got 'aaaaaaaaaa'"),
        ({"name": "\ud800"}, "name: expected text, got '\\ud800'"),
        ({"most": 1e308}, "most: is too large for a whole number, got 1e+308"),
        ({"named": {"a": 1, "b": 2}}, "named: must have at most 1 entries, got {'a': 1, 'b': 2}"),
        ({"named": {"aaaa": 1}}, "named.aaaa: must have at most 3 characters, got 'aaaa'"),
        (None, "expected keys with values, got nothing"),
    ],
)
def test_a_problem_has_a_value_and_what_is_accepted(given: Any, said: str) -> None:
    with pytest.raises(InstanceError) as error, checked("file"):
        Asked.model_validate(given)
    assert str(error.value) == f"file: {said}"


def test_a_chip_that_is_not_known_has_its_place(tmp_path: Any) -> None:
    node = "{chips: [{chip: h100, count: 4}, {chip: h1000, count: 4}], fabric: {kind: nvswitch, links_per_switch: [18]}}"
    file = tmp_path / "odd.yaml"
    file.write_text(f"name: odd\ndomains: [{node}]\n")
    with pytest.raises(InstanceError, match=r"odd.yaml: domains\[0\].chips\[1\]: .*'h1000'.*h100"):
        load_cluster(str(file))


def test_names_of_failed_parts_are_shown(tmp_path: Any) -> None:
    with pytest.raises(InstanceError, match="'r0g99'; chips are r0g0 to r1g7"):
        load_cluster("hgx-h100@2", failed=["r0g99"])
