"""Studies are found by file name; two of one name are refused."""

from __future__ import annotations

import pkgutil
from dataclasses import replace

import pytest

from rackfit.studies import questions
from rackfit.studies.registry import collect, find_study, studies
from topology.errors import InstanceError


def test_every_file_is_a_study() -> None:
    files = {module.name.replace("_", "-") for module in pkgutil.iter_modules(questions.__path__)}
    assert set(studies()) == files
    assert {"compare", "grid"} <= files


def test_two_of_one_name_are_refused() -> None:
    study = find_study("compare")
    with pytest.raises(ValueError, match=r"two studies are called 'compare'; one is in other\.py"):
        collect([("compare", study), ("other", study)])


def test_a_name_that_is_not_the_files_is_refused() -> None:
    with pytest.raises(ValueError, match=r"compare\.py is called 'another'"):
        collect([("compare", replace(find_study("compare"), name="another"))])


def test_unknown_study_says_what_exists() -> None:
    with pytest.raises(InstanceError, match="did you mean compare"):
        find_study("compair")
