"""Conditions of scripts that known variables decide, and arithmetic on them."""

from __future__ import annotations

import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from rackfit.importers.scripts.follow import followed
from tests.rackfit.importers.test_wrapped import found
from topology.errors import InstanceError

#: written anew after scripts of InferenceX (benchmarks/single_node): attention ranks, tensor shards or both
CHOSEN = """if [ "${DP_ATTENTION}" = "true" ]; then
  PARALLEL_ARGS="--tensor-parallel-size=1 --data-parallel-size=$TP --enable-expert-parallel"
elif [ "$EP_SIZE" -gt 1 ]; then
  PARALLEL_ARGS="--tensor-parallel-size=$TP --enable-expert-parallel"
else
  PARALLEL_ARGS="--tensor-parallel-size=$TP"
fi
if [[ -n "$CONC" ]]; then
    if (( CONC * 2 > 100 )); then
        SEQS=$((CONC * 2))
    else
        SEQS=100
    fi
fi
vllm serve $MODEL $PARALLEL_ARGS --max-num-seqs "$SEQS" &
"""


@pytest.mark.parametrize(
    ("given", "sizes"),
    [
        ("DP_ATTENTION=true\nEP_SIZE=8\nTP=8\nCONC=64\n", (1, 8, False, 128 * 8)),
        ("DP_ATTENTION=false\nEP_SIZE=8\nTP=8\nCONC=64\n", (8, 1, False, 128)),
        ("DP_ATTENTION=false\nEP_SIZE=1\nTP=4\nCONC=4\n", (4, 1, True, 100)),
    ],
)
def test_branches_that_variables_decide(
    given: str, sizes: tuple[int, int, bool, int], tmp_path: Path
) -> None:
    (one,) = found("vllm", "run.sh", given + CHOSEN, tmp_path)
    assert (one.tp, one.attention_dp, one.sharded_experts, one.batch) == sizes
    assert not [note for note in one.notes if "condition" in note]


def test_branches_that_nothing_decides_stay_open(tmp_path: Path) -> None:
    """One width is not guessed where another size is known."""
    with pytest.raises(InstanceError, match=r"gives no size .* what \$PARALLEL_ARGS stands for"):
        found("vllm", "run.sh", "EP_SIZE=8\nTP=8\nCONC=64\n" + CHOSEN, tmp_path)


def test_a_server_in_a_branch_that_does_not_run_is_none(tmp_path: Path) -> None:
    text = 'if [ "$ROLE" == prefill ]; then\n  vllm serve m -tp 2\nelse\n  vllm serve m -tp 4\nfi\n'
    assert [one.tp for one in found("vllm", "run.sh", "ROLE=decode\n" + text, tmp_path)] == [4]
    assert [one.tp for one in found("vllm", "run.sh", text, tmp_path)] == [2, 4]
    with_function = f"start() {{\n  TP=2\n  if [ 1 -eq 1 ]; then\n    TP=4\n  fi\n}}\nvllm serve m -tp $TP\n{text}"
    with pytest.raises(InstanceError, match=r"\$TP, which the file"):
        found("vllm", "run.sh", with_function, tmp_path)


@pytest.mark.parametrize(
    "text",
    ["if [ a" + " " * 10**5 + "b", "if (( " + "1 " * 10**6, "cat > x <<E\n${" + "a" * 10**6 + "\nE", "> " * 10**5, "tee" + " " * 10**6],
)  # fmt: skip
def test_long_lines_are_read_in_no_time(text: str, tmp_path: Path) -> None:
    """Patterns that look again from every place of a line would take hours."""
    with suppress(InstanceError):
        found("vllm", "run.sh", f"{text}\nvllm serve m -tp 2 --config x\n", tmp_path)


TESTS = [
    '[ "$A" = "x" ]', '[ "$A" != "x" ]', '[[ $A == x ]]', '[[ "$N" -gt 3 ]]', "[ $N -le 3 ]", '[ -z "$A" ]', '[ -n "$A" ]',
    "(( N * 2 >= 14 ))", "(( N == 8 ))", "[[ $A == y ]]", '[ -z "$E" ]', "(( N / 2 < 4 ))", "[[ $A == x* ]]", "[ a = a ] && [ b = c ]",
    '[[ "$A" == "x*" ]]', "! [ a = b ]", "[ $N -gt 3 -a $A = y ]", "[[ ( $A = y || $N -eq 7 ) && -n $A ]]", "[ $A ]", "[[ $E ]]",
]  # fmt: skip


def branch(test: str, known: dict[str, str]) -> tuple[str, bool]:
    """The branch that is taken, and whether it is open that there are two."""
    done = followed(f"if {test}; then serve yes; else serve no; fi", "s", known)
    return done.found[0].words[1], any(one.open for one in done.found)


@pytest.mark.parametrize("test", TESTS)
def test_tests_are_decided_as_bash_decides_them(test: str) -> None:
    real = subprocess.run(["bash", "-c", f"A=x; N=7; E=''; {test}"], check=False).returncode == 0
    assert branch(test, {"A": "x", "N": "7", "E": ""}) == ("yes" if real else "no", False)


@pytest.mark.parametrize(
    "test",
    ["[ -d x ]", '[ "$U" = "x" ]', "(( U > 3 ))", "grep -q x y", "[ a = a ] && [ -f c ]", "(( N > ))", "[[ $A =~ x+ ]]",
     '[ -n "$U" ]', "[ $# -gt 1 ]"],
)  # fmt: skip
def test_tests_of_other_things_stay_open(test: str) -> None:
    assert branch(test, {"A": "x", "N": "7"})[1]


def number(text: str, known: dict[str, str]) -> str:
    """What stands for a sum in a command."""
    (one,) = followed(f"serve $(({text}))", "s", known).found
    return one.words[1]


@pytest.mark.parametrize(
    "text",
    ["2 * 3 + 4 / 2", "N - 10", "N % 4 * 2", "$N * ${N} + 1", "-N" , "N > 6 ? N * 2 : 0", "N*3/2 < 2 ? 1 : N", "7 / 2 * 2", "0 - 7 / 2",
     "2 ** 3", "(1 + 2) * 3", "9" * 12, "-7 / 2", "-7 % 3", "!N || N > 2 && 1", "E + 1", "N <= 7", "1, 2"],
)  # fmt: skip
def test_arithmetic_is_that_of_bash(text: str) -> None:
    told = subprocess.run(
        ["bash", "-c", f"N=7; E=; echo $(({text}))"], check=True, capture_output=True, text=True
    ).stdout.strip()
    assert number(text, {"N": "7", "E": ""}) == told


@pytest.mark.parametrize(
    "text", ["1 / 0", "7 % 0", "U + 1", "1 2", "010", "2 ** 99", "9" * 40, "x y", "1 +"]
)
def test_other_arithmetic_stays_open(text: str) -> None:
    assert number(text, {}) == f"$(({text}))"
