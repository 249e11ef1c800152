"""The public API is what ``__all__`` says, sorted, importable and documented."""

from __future__ import annotations

import subprocess
import sys

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


def modules_of(program: str) -> list[str]:
    """Words that a program in a Python of its own prints."""
    run = [sys.executable, "-c", program]
    return subprocess.run(run, capture_output=True, text=True, check=True).stdout.split()


ASKED = """rackfit.solve(rackfit.Scenario(
    model='llama-3.1-8b', cluster='hgx-h100', workload='chat', slo={'tpot': 0.02}
)); """
PRODUCT = "sorted(m for m in sys.modules if m.split('.')[0] in ('costmodel', 'solver', 'topology'))"


def test_a_question_loads_no_module_of_the_product_that_the_import_has_not() -> None:
    before, after = (
        modules_of(f"import sys, rackfit; {ask}print(*{PRODUCT})") for ask in ("", ASKED)
    )
    assert len(before) > 100
    assert after == before


def test_the_command_loads_what_it_needs_only() -> None:
    for started in ("/usr/bin/rackfit", "-m"):
        program = f"import sys; sys.argv[:] = [{started!r}]; import rackfit; print(*{PRODUCT})"
        assert modules_of(program) == []
