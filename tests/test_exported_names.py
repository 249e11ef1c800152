"""The public API is what ``__all__`` says, sorted, importable and documented."""

from __future__ import annotations

import rackfit


def test_names_are_sorted_and_resolve() -> None:
    assert rackfit.__all__ == sorted(rackfit.__all__)
    for name in rackfit.__all__:
        assert getattr(rackfit, name).__doc__, name


def test_contract_names_are_there() -> None:
    promised = {
        "solve", "evaluate", "place", "load_model", "load_cluster",
        "Instance", "Layout", "Evaluation", "Certificate",
    }  # fmt: skip
    assert promised <= set(rackfit.__all__)


def test_dir_and_unknown_name() -> None:
    assert set(rackfit.__all__) <= set(dir(rackfit))
    assert not hasattr(rackfit, "no_such_thing")
