"""``rackfit check`` against servers that answer as engines do."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from rackfit.documents.result import Result
from rackfit.exporters.launch.options import option_table
from rackfit.live.expected import Expected
from rackfit.live.shown import Shown, shown_by
from rackfit.live.site import Site
from rackfit.live.timing import Timed
from rackfit.live.verdict import Report, compare
from tests.rackfit.live.fake_engine import Engine, Sglang, Vllm, serving
from tests.rackfit.live.layouts import Run, document, sglang, vllm

CASES: list[tuple[Callable[[], tuple[Result, str, str]], type[Engine]]] = [
    (vllm, Vllm),
    (sglang, Sglang),
]


@pytest.mark.parametrize(("case", "engine"), CASES, ids=["vllm", "sglang"])
def test_what_runs_as_exported_is_said_to(
    case: Callable[[], tuple[Result, str, str]], engine: type[Engine], run: Run, tmp_path: Path
) -> None:
    result, name, line = case()
    fake = engine(line)
    with serving(fake) as url:
        code, out, err = run(document(result, tmp_path), f"{name}={url}", "--requests", 0, "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["as_exported"] is True
    assert found["servers"][0]["differences"] == []
    compared = set(found["servers"][0]["compared"])
    assert not {"--port", "--host", "--served-model-name"} & compared
    assert len(compared) >= 8
    assert found["servers"][0]["not_shown"] == []


@pytest.mark.parametrize(
    ("case", "engine", "option", "value"),
    [
        (vllm, Vllm, "--max-num-seqs", "3"),
        (vllm, Vllm, "--gpu-memory-utilization", "0.5"),
        (vllm, Vllm, "--kv-cache-dtype", "fp8"),
        (vllm, Vllm, "--max-model-len", "123"),
        (vllm, Vllm, "--tensor-parallel-size", "7"),
        (sglang, Sglang, "--max-running-requests", "3"),
        (sglang, Sglang, "--mem-fraction-static", "0.5"),
        (sglang, Sglang, "--kv-cache-dtype", "fp8_e4m3"),
        (sglang, Sglang, "--tp-size", "7"),
    ],
)
def test_one_changed_flag_is_named_alone(
    case: Callable[[], tuple[Result, str, str]],
    engine: type[Engine],
    option: str,
    value: str,
    run: Run,
    tmp_path: Path,
) -> None:
    result, name, line = case()
    before = re.search(rf"{option} (\S+)", line)
    assert before is not None
    fake = engine(line.replace(before[0], f"{option} {value}"))
    with serving(fake) as url:
        code, out, _ = run(document(result, tmp_path), f"{name}={url}", "--requests", 0)
    assert code == 1
    lines = out.splitlines()
    assert f"  {option}: exported {before[1]}, runs {value}" in lines
    assert sum(": exported " in one for one in lines) == 1
    assert lines[-1] == "what runs differs from what was exported"


def test_a_production_vllm_shows_some_and_the_rest_is_listed(run: Run, tmp_path: Path) -> None:
    result, name, line = vllm()
    with serving(Vllm(line, dev=False)) as url:
        code, out, _ = run(document(result, tmp_path), f"{name}={url}", "--requests", 0)
    assert code == 0
    assert "not shown by the server: --" in out
    assert "--tensor-parallel-size" in out
    assert "VLLM_SERVER_DEV_MODE=1" in out


def test_another_engine_version_or_model_is_a_difference(run: Run, tmp_path: Path) -> None:
    result, name, line = vllm()
    other = Vllm(line.replace(f"--served-model-name {result.instance.model.name}", "--served-model-name x"))  # fmt: skip
    other.version = "0.31.2"
    with serving(other) as url, serving(Sglang(sglang()[2])) as wrong:
        path = document(result, tmp_path)
        _, out, _ = run(path, f"{name}={url}", "--requests", 0)
        code, engine, _ = run(path, f"{name}={wrong}", "--requests", 0)
    assert "  engine: exported vllm 0.33.0, runs vllm 0.31.2" in out
    assert f"  model: exported {result.instance.model.name}, runs x" in out
    assert code == 1
    assert "  engine: exported vllm 0.33.0, runs sglang 0.5.23" in engine


def test_a_cache_without_room_for_the_full_batch_is_named(run: Run, tmp_path: Path) -> None:
    result, name, line = vllm()
    found = re.search(r"--max-num-seqs (\d+)", line)
    assert found is not None
    # 400 tokens in and 50 out; a prefill server hands its KV on
    needed = int(found[1]) * (400 if name.startswith("prefill") else 450)
    path = document(result, tmp_path)
    fake = Vllm(line)
    for room, wanted in ((needed, 0), (needed - 1, 1)):
        fake.kv_tokens = room
        with serving(fake) as url:
            code, out, _ = run(path, f"{name}={url}", "--requests", 0)
        assert code == wanted
        words = f"  KV cache: exported {needed:,} tokens, runs room for {room:,}"
        assert (words in out.splitlines()) == bool(wanted)


def test_what_is_left_to_the_engine_is_not_compared() -> None:
    table = option_table("vllm@0.33")
    wanted = Expected("mixed-0", "mixed", "a", 1, "m", {"--dtype": "auto", "--max-num-seqs": 4})
    said = Shown("vllm", "0.33.0", "m", {"--dtype": "torch.bfloat16", "--max-num-seqs": 4})
    found = compare(table, wanted, said, "http://a")
    assert (found.compared, found.differences) == (("--max-num-seqs",), ())


@pytest.mark.parametrize("ranks", ["--attn-dp-size 4", "--enable-dp-attention --dp-size 4"])
def test_sglang_shows_the_chunk_of_one_attention_rank(ranks: str) -> None:
    line = f"sglang serve --model-path m --tp-size 8 {ranks} --chunked-prefill-size 8192"
    with serving(Sglang(line)) as url:
        assert shown_by(Site(url)).options["--chunked-prefill-size"] == 8192


def test_requests_are_timed_at_the_router_with_the_workloads_prompt(
    run: Run, tmp_path: Path
) -> None:
    result, name, line = vllm()
    server, router = Vllm(line), Vllm(line)
    with serving(server) as url, serving(router) as front:
        words = (f"{name}={url}", f"router={front}", "--requests", 3, "--json")
        _, out, _ = run(document(result, tmp_path), *words)
    found = json.loads(out)["timed"]
    assert (found["requests"], found["input_tokens"], found["output_tokens"]) == (3, 400, 50)
    assert [len(body["prompt"]) for body in router.prompts] == [400] * 4  # one to warm up
    assert len({tuple(body["prompt"]) for body in router.prompts}) == 4
    assert router.asked == ["/v1/completions"] * 4
    assert server.prompts == []
    assert found["ttft_s"] > 0


def test_a_server_slower_than_promised_since_its_start_is_named(run: Run, tmp_path: Path) -> None:
    result, name, line = vllm()
    promised = result.evaluation.tpot_s
    assert promised is not None
    path = document(result, tmp_path)
    for factor, wanted in ((0.5, 0), (2.0, 1)):
        with serving(Vllm(line, mean_s=factor * promised)) as url:
            code, out, _ = run(path, f"{name}={url}", "--requests", 0)
        assert code == wanted
        assert (f"slower than promised: {name} since its start: TPOT" in out) == bool(wanted)
        assert ("as fast as promised" in out.splitlines()) == (not wanted)


@pytest.mark.parametrize(
    ("ttft_s", "tpot_s", "slower"),
    [(0.9, 0.009, []), (1.1, 0.009, ["TTFT"]), (0.9, 0.011, ["TPOT"]), (1.1, 0.011, ["TTFT", "TPOT"])],
)  # fmt: skip
def test_what_was_timed_is_beside_what_was_promised(
    ttft_s: float, tpot_s: float, slower: list[str]
) -> None:
    measured = Timed("http://a", 4, 400, 50, ttft_s, tpot_s)
    found = Report((), 1, measured, promised_ttft_s=1.0, promised_tpot_s=0.01)
    assert [line.split(": ")[1].split()[0] for line in found.slow] == slower
    assert ("as fast as promised" in found.lines()) == (not slower)
    assert found.as_dict()["as_fast"] is (not slower)
