"""Which server a URL stands for, what was exported to it, and how both are put beside each other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from costmodel.question.instance import resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.workload import Workload
from rackfit.exporters.launch.options import option_table
from rackfit.importers.deployment import build_layout
from rackfit.importers.servers import FoundServer
from rackfit.live.expected import Expected, expected_servers, matched
from rackfit.live.shown import Shown
from rackfit.live.verdict import Checked, Report, compare

TABLE = option_table("vllm@0.33")
FIRST = Expected("decode-0", "decode", "node0", 20000, "m", {})
SECOND = replace(FIRST, name="decode-1", host="node1")
THIRD = replace(FIRST, name="prefill-0", host="node1", port=20400)


def names(words: list[str], *servers: Expected) -> list[str | None]:
    return [one and one.name for _, one in matched(words, servers, 1.0, None)]


def test_a_url_is_a_server_by_host_and_port_then_by_port_then_a_router() -> None:
    servers = (FIRST, SECOND, THIRD)
    words = ["http://NODE1:20000", "http://10.0.0.7:20400", "http://front:8000", "http://node0:20000"]  # fmt: skip
    assert names(words, *servers) == ["decode-1", "prefill-0", None, "decode-0"]
    # with one of two servers of a port named, the port is the other's
    words = ["decode-0=http://x:1", "http://10.0.0.7:20000"]
    assert names(words, *servers) == ["decode-0", "decode-1"]
    assert names(["http://anywhere:7"], FIRST) == ["decode-0"]


def layout_of(model: str, engine: str, server: FoundServer, cluster: str = "hgx-h200@2"):  # type: ignore[no-untyped-def]
    workload = Workload(input_tokens=400, output_tokens=50)
    scenario = {"model": model, "cluster": cluster, "workload": workload, "engine": engine}
    instance = resolve_instance(Scenario.model_validate(scenario))
    return instance, build_layout(instance, [server]).layout


@pytest.mark.parametrize(("role", "tokens"), [("prefill", 400), ("decode", 450), ("mixed", 450)])
@pytest.mark.parametrize("engine", ["vllm@0.32", "sglang@0.5.21"])
def test_a_server_of_several_processes_is_expected_once(
    engine: str, role: str, tokens: int
) -> None:
    """Sixteen chips on two hosts: its first process says all; KV is that of one rank's four sequences."""
    found = FoundServer("x", role, tp=1, attention_dp=16, pp=1, batch=64)  # type: ignore[arg-type]
    instance, layout = layout_of("qwen3-30b-a3b", engine, found)
    table, (server,) = expected_servers(instance, layout, engine.partition("@")[0])
    assert str(table.data["version"]).startswith(engine.partition("@")[2])
    assert server.kv_tokens == 4 * tokens
    places = {"--port", "--host", "--node-rank", "--data-parallel-address", "--dist-init-addr"}
    assert not places & server.options.keys()
    assert all(table.canonical(name) == name for name in server.options)


def test_layers_that_keep_unlike_numbers_of_tokens_have_no_one_room() -> None:
    found = FoundServer("x", "mixed", tp=8, attention_dp=1, pp=1, batch=4)
    instance, layout = layout_of("gpt-oss-120b", "vllm", found)
    _, (server,) = expected_servers(instance, layout, "vllm")
    assert server.kv_tokens is None


@pytest.mark.parametrize(
    ("exported", "runs", "same"),
    [
        ("0.33.0", "0.33.0", True),
        ("0.33", "0.33.0", True),
        ("0.33", "0.33+cpu", True),
        ("0.33", "0.33rc1", True),
        ("0.33", "0.3", False),
        ("0.3", "0.33.0", False),
    ],
)
def test_a_release_is_one_of_its_version(exported: str, runs: str, same: bool) -> None:
    table = replace(TABLE, data=TABLE.data | {"version": exported})
    found = compare(table, FIRST, Shown("vllm", runs, "m", {}), "http://a")
    assert (not found.differences) == same


@pytest.mark.parametrize(
    ("exported", "runs", "said"),
    [
        ("bfloat16", "torch.bfloat16", None),
        ("half", "torch.float16", None),
        (0.92, "0.92", None),
        (True, "true", None),
        ({"method": "mtp"}, {"method": "mtp", "model": "m"}, None),
        ({"method": "mtp"}, {"method": "eagle"}, "--dtype method: exported mtp, runs eagle"),
        ("a", "b" * 300, f"--dtype: exported a, runs {'b' * 200}..."),
    ],
)
def test_values_are_compared_by_what_they_mean(
    exported: object, runs: object, said: str | None
) -> None:
    wanted = replace(FIRST, options={"--dtype": exported})
    found = compare(TABLE, wanted, Shown("vllm", "0.33.0", "m", {"--dtype": runs}), "http://a")
    assert [str(one) for one in found.differences] == ([] if said is None else [said])


def test_an_alias_shows_an_option_and_another_engine_shows_none() -> None:
    wanted = replace(FIRST, options={"--tensor-parallel-size": 8, "--max-num-seqs": 4})
    shown = Shown("vllm", "0.33.0", "m", {"-tp": 8, "--max-num-seqs": 4})
    aliases = TABLE.options["--tensor-parallel-size"]["aliases"]
    assert "-tp" in aliases
    assert len(compare(TABLE, wanted, shown, "http://a").compared) == 2
    other = compare(TABLE, wanted, replace(shown, engine="sglang", version="0.5.23"), "http://a")
    assert [one.what for one in other.differences] == ["engine"]
    assert other.compared == ()


def checked(count: int) -> Checked:
    """A server that measured a TPOT of 2 s over ``count`` requests."""
    return Checked("a", "http://a", (), (), (), "", {"tpot_s": (2.0, count)})


def test_few_requests_since_the_start_are_no_measurement() -> None:
    few, enough = (Report((checked(count),), 2, None, 1.0, 1.0) for count in (19, 20))
    assert few.as_dict()["as_fast"] is None
    assert enough.as_dict()["as_fast"] is False
    assert not few.slow
    assert "as fast as promised" not in few.lines()
    assert "1 of the layout's 2 servers were asked" in few.lines()


def test_a_report_on_no_server_says_nothing_of_what_runs() -> None:
    assert Report((), 1, None, 1.0, 1.0).lines() == ["0 of the layout's 1 servers were asked"]
