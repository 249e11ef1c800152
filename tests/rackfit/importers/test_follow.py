"""Scripts are followed as bash runs them: functions, loops, cases and lists; what stays open is named."""

from __future__ import annotations

import subprocess
from pathlib import Path
from random import Random

import pytest

from rackfit.importers.scripts.follow import followed
from tests.rackfit.importers.random_scripts import script
from tests.rackfit.importers.test_wrapped import found
from topology.errors import InstanceError

#: commands called ``serve`` print their words, whatever is done with their output
_SERVE = "exec 3>&1 1>/dev/null\nserve() { { printf '%s\\x1f' \"$@\"; printf '\\x1e'; } >&3; }\n"


def run(text: str) -> list[tuple[str, ...]]:
    """What bash starts."""
    done = subprocess.run(
        ["bash", "-c", _SERVE + text], check=False, capture_output=True, text=True, timeout=20
    )
    return [tuple(one.split("\x1f")[:-1]) for one in done.stdout.split("\x1e")[:-1]]


def read(text: str) -> list[tuple[str, ...]]:
    """What is read of the same."""
    return [
        one.words[1:]
        for one in followed(text, "s", {}).found
        if one.words[0] == "serve" and not one.open
    ]


@pytest.mark.parametrize("seed", range(80))
def test_random_scripts_start_what_bash_starts(seed: int) -> None:
    text = script(Random(seed))
    assert read(text) == run(text)


@pytest.mark.slow
def test_many_random_scripts_start_what_bash_starts() -> None:
    for seed in range(80, 2000):
        text = script(Random(seed))
        assert read(text) == run(text), text


#: of each script what it sets and starts, and tensor parallel sizes of its servers
CHOSEN = {
    "TP=8\nX=1\nif [ \"$X\" = 1 ]; then TP=4; fi\nvllm serve m -tp $TP\n": [4],
    "TP=8\nX=1\n[ \"$X\" = 1 ] && TP=4\nvllm serve m -tp $TP\n": [4],
    "X=a\ncase $X in\na)\nTP=4\n;;\nb)\nTP=8\n;;\nesac\nvllm serve m -tp $TP\n": [4],
    "for i in 0 1 2 3; do\n  CUDA_VISIBLE_DEVICES=$i vllm serve m -tp 1 --port $((8000 + i)) &\ndone\n": [1] * 4,
    "start() {\n  vllm serve m -tp $1 &\n}\nstart 2\nstart 4\n": [2, 4],
    "start() {\n  local tp=${1:-8}\n  vllm serve m -tp $tp\n}\n[ -n \"$MODEL\" ] || MODEL=m\nstart\n": [8],
    "while [[ $# -gt 0 ]]; do\n  case $1 in\n  --tp) TP=$2; shift 2;;\n  esac\ndone\nTP=2\nvllm serve m -tp $TP\n": [2],
    "run() { vllm serve m -tp 2; }\ntrap 'kill 0' EXIT\nsrun run\n": [2],
    "for attempt in 1 2 3; do\n  vllm serve m -tp 2 && break\ndone\n": [2],
    "CMD=(vllm serve m -tp 2)\nwrite_down log \"${CMD[@]}\"\n\"${CMD[@]}\" > log 2>&1 &\n": [2],
    "TP=4; DP=2\nvllm serve m -tp $TP -dp $DP & vllm serve m -tp 2\n": [4, 2],
    "sh -c 'vllm serve m \"$@\"' name -tp 2\n": [2],
    "sh -c 'vllm serve m -tp 2 $@'\n": [2],
    "> vllm serve m -tp 2\n": [2],
    "$ vllm serve m \\\r\n  -tp 2\r\n": [2],
    "vllm serve m \\  \n  -tp 2\n": [2],
    "vllm serve <the quantized weights> -tp 2\n": [2],
    "S=1\nfor ((n = 2; n <= 2000; n++)); do\n  S+=,$n\n  ALL=$S\ndone\nvllm serve m -tp 2 --served-model-name $ALL\n": [2],
    "export TP=2\nbash -c 'vllm serve m -tp $TP'\n": [2],
}  # fmt: skip


@pytest.mark.parametrize("text", CHOSEN)
def test_sizes_are_those_that_the_script_chooses(text: str, tmp_path: Path) -> None:
    assert [one.tp for one in found("vllm", "run.sh", text, tmp_path)] == CHOSEN[text]


@pytest.mark.parametrize(
    "begin", ["kubectl apply -f - <<EOF", "cat > d.yaml <<EOF", "cat <<EOF | kubectl apply -f -"]
)
def test_a_manifest_in_a_script_is_read_as_one(begin: str, tmp_path: Path) -> None:
    """After AI-Hypercomputer/tpu-recipes (Apache-2.0), inference guides: variables of the script stand in it."""
    text = f"""export TP=4
{begin}
apiVersion: apps/v1
kind: Deployment
metadata: {{name: vllm}}
spec:
  replicas: 3
  template:
    spec:
      containers:
        - name: server
          image: vllm/vllm-openai
          command: [vllm, serve]
          args: [org/m, --tensor-parallel-size, "$TP"]
EOF
"""
    (one,) = found("vllm", "run.sh", text, tmp_path)
    assert (one.tp, one.copies, one.model) == (4, 3, "org/m")
    with pytest.raises(
        InstanceError, match=r"run.sh:2: .*: --tensor-parallel-size: is \$TP, which the file"
    ):
        found("vllm", "run.sh", text.replace("export TP=4", ":"), tmp_path)


def test_options_in_a_variable_are_split_as_a_shell_splits_them(tmp_path: Path) -> None:
    """Also where it begins with a space, as scripts of InferenceX set it."""
    (one,) = found(
        "vllm",
        "run.sh",
        "EP=' --enable-expert-parallel'\nARGS='-tp 8'\nARGS+=$EP\nvllm serve m $ARGS $NOTHING_SET\n",
        tmp_path,
    )
    assert (one.tp, one.sharded_experts) == (8, False)
    (one,) = found(
        "sglang",
        "run.sh",
        "export SGLANG_PP_LAYER_PARTITION=10,22\nsglang serve --pp-size 2 --model-path m\n",
        tmp_path,
    )
    assert one.layers == (10, 22)


def test_of_a_json_value_the_keys_that_are_known_count(tmp_path: Path) -> None:
    text = 'vllm serve m -tp 2 --speculative-config \'{"method": "eagle3", "model": "\'$DRAFT\'", "num_speculative_tokens": 3}\'\n'
    (one,) = found("vllm", "run.sh", text, tmp_path)
    assert one.drafts is not None
    assert (one.drafts.method, one.drafts.tokens) == ("eagle3", 3)
    assert one.notes == (
        "run.sh:1: left out, as only the shell knows their values: --speculative-config (model)",
    )
    printed = 'CONFIG=$(printf \'{"method": "eagle3", "model": "%s", "num_speculative_tokens": %d}\' "$(dirname "$M")/x" 3)\n'
    (one,) = found(
        "vllm", "run.sh", f'{printed}vllm serve m -tp 2 --speculative-config "$CONFIG"\n', tmp_path
    )
    assert one.drafts is not None
    assert one.drafts.tokens == 3
    (one,) = found("vllm", "run.sh", text.replace("3}", "'$N'}"), tmp_path)
    assert one.drafts is None
    assert "--speculative-config" in one.notes[0]


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("if [ -f x ]; then\nvllm serve m -tp 2\nfi\n", "run.sh:2: starts under a condition that the file does not decide"),
        ("for host in $HOSTS; do\nvllm serve m -tp 2\ndone\n", "run.sh:2: starts in a loop whose rounds the file does not tell"),
        ("while true; do\nvllm serve m -tp 2\nsleep 5\ndone\n", "run.sh:2: starts in a loop whose rounds the file does not tell"),
        ("for ((;;)); do\nvllm serve m -tp 2\ndone\n", "run.sh:2: starts in a loop whose rounds the file does not tell"),
        ("until [ 1 = 2 ]; do\nvllm serve m -tp 2\ndone\n", "run.sh:2: starts in a loop whose rounds the file does not tell"),
        ("start() {\nvllm serve m -tp 2\n}\n", "run.sh:2: starts in a function that the file does not call"),
        ("TP=2\nwhile [[ $# -gt 0 ]]; do TP=$1; shift; done\nvllm serve m -tp $TP\n", "run.sh:3: set under a condition and taken as set: TP"),
        ("if [ -f x ]; then\nTP=2\nfi\nARGS=\"-tp $TP\"\nvllm serve m $ARGS\n", "run.sh:5: set under a condition and taken as set: TP"),
    ],
)  # fmt: skip
def test_what_stays_open_is_named(text: str, note: str, tmp_path: Path) -> None:
    (one,) = found("vllm", "run.sh", text, tmp_path)
    assert one.tp == 2
    assert note in one.notes


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("case $X in\na)\nTP=4\n;;\nb)\nTP=8\n;;\nesac\nvllm serve m -tp $TP\n", r"-tp: is \$TP, which the file"),
        ("TP=8\n[ -f x ] && TP=4\nvllm serve m -tp $TP\n", r"-tp: is \$TP, which the file"),
        ("vllm serve $SERVER_ARGS\n", r"gives no size .* what \$SERVER_ARGS stands for"),
        ("python -m vllm.entrypoints.openai.api_server $(json2args \"$server\")\n", r"gives no size .* what \$\(json2args"),
        ("TP=8\nread TP\nvllm serve m -tp ${TP:-4}\n", r"-tp: is \$TP, which the file"),
        ("TP=$(nvidia-smi -L | wc -l)\nvllm serve m -tp ${TP:-4}\n", r"-tp: is \$\(nvidia-smi -L \| wc -l\), which"),
        ("TP=3\nif [ $TP -eq 3 ]; then\n  echo no\n  exit 1\nfi\nvllm serve m -tp $TP\n", "run.sh:4: the script ends here, before it starts a server"),
        ("f() { f; f; f; }\nf\nvllm serve m\n", "more than 50,000 commands in its loops and functions"),
        ("A=aaaaaaaaaa\nfor i in {1..40}; do A=$A$A; done\nvllm serve m\n", "run.sh:2: its words grow without end"),
        ("X=" + "${a:-" * 500 + "}" * 500 + "\nvllm serve m -tp $X\n", "run.sh:1: its words grow without end, or stand too deep"),
        ("vllm serve " + '"$(' * 3000 + "\n", "run.sh:1: not a shell command"),
        ("vllm serve m A=(" + "A=(" * 3000 + "\n", "run.sh:1: not a shell command"),
        ("".join(f"f{n}() {{ {'if true; then ' * 50} f{n + 1}; {'fi; ' * 50} }}\n" for n in range(12)) + "f0\nvllm serve m\n",
         "run.sh: branches, loops and functions too deep in each other"),
        ("f() { echo ${1:-$(f $(f $1))}; }\nexit\nvllm serve m\n", "run.sh:2: the script ends here"),
        ("for ((i = 0; i < 100000; i++)); do :; done\nvllm serve m\n", "more than 50,000 commands in its loops and functions"),
        ("if true; then\n" * 80 + "vllm serve m\n", "more than 60 branches, loops and brackets in each other"),
        ("vllm serve 'm\n", "run.sh:1: not a shell command: a quote or a bracket of it is not closed"),
    ],
)  # fmt: skip
def test_what_the_script_does_not_tell_is_refused(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(InstanceError, match=said):
        found("vllm", "run.sh", text, tmp_path)
