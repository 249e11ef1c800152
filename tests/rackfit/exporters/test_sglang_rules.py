"""SGLang's own rules, re-implemented from its sources, on the commands written for each deployment."""

from __future__ import annotations

from collections.abc import Callable

from launch_lines import read_lines, servers, sglang_ranks

from rackfit.documents.result import Result
from rackfit.exporters.export import Exported
from rackfit.exporters.launch.hosts import Hosts
from rackfit.exporters.launch.options import option_table
from tests.rackfit.exporters.loaders import check_sglang

Export = Callable[[str], Exported]


def test_commands_pass_the_option_table(export: Export) -> None:
    table = option_table("sglang")
    lines = read_lines(export("sglang").files["commands.sh"])
    for line in lines:
        assert tuple(line.words[: len(table.program)]) == table.program
        assert table.problems(line.words[len(table.program) :], line.environment) == []
        known = (table.canonical(word) for word in line.words)
        assert not any("deprecated" in table.options[name] for name in known if name)
    assert lines


def test_every_rank_lands_on_the_chip_of_the_layout(result: Result, export: Export) -> None:
    hosts = Hosts(result.instance.cluster)
    groups = servers(read_lines(export("sglang").files["commands.sh"]))
    landed = [list(sglang_ranks(group)) for group in groups.values()]
    wanted = [
        [(hosts.of(chip).host, hosts.of(chip).gpu) for chip in replica.chips]
        for replica in result.layout.replicas
    ]
    assert landed == wanted


def test_sizes_divide_as_sglang_asks(result: Result, export: Export) -> None:
    moe = result.instance.operations.moe
    exported = export("sglang")
    for replica, group in zip(
        result.layout.replicas, servers(read_lines(exported.files["commands.sh"])).values(),
        strict=True,
    ):  # fmt: skip
        line = group[0]
        tp, pp = line.number("--tp-size"), line.number("--pp-size")
        assert tp * pp == len(replica.chips)
        assert ("--attn-dp-size" in line.words) == (replica.shape.attention_dp > 1)
        if replica.shape.attention_dp > 1:
            assert line.number("--attn-dp-size") == replica.shape.attention_dp
        assert line.number("--ep-size") == (tp if moe else 1)
        assert line.number("--max-running-requests") == replica.shape.batch
        assert (line.value("--disaggregation-mode") if replica.role != "mixed" else "mixed") == (
            replica.role
        )
        if pp > 1:
            layers = [int(n) for n in line.environment["SGLANG_PP_LAYER_PARTITION"].split(",")]
            assert len(layers) == pp
            assert sum(layers) == len(result.instance.model.layers)
        if "--init-expert-location" in line.words:
            assert moe is not None
            spare = line.number("--ep-num-redundant-experts")
            problems = check_sglang(
                exported.files[line.value("--init-expert-location")],
                num_layers=len(result.instance.model.layers),
                num_experts=moe.num_experts,
                spare=spare,
                chips=tp,
            )
            assert problems == []


def test_no_two_processes_share_a_port_or_a_device(export: Export) -> None:
    lines = read_lines(export("sglang").files["commands.sh"])
    ports = [(line.said["host"], line.value("--port")) for line in lines]
    devices = [(line.said["host"], gpu) for line in lines for gpu in line.said["gpus"].split(",")]
    assert len(set(ports)) == len(ports)
    assert len(set(devices)) == len(devices)


def uneven_slots(result: Result) -> bool:
    """Whether some stage's chips differ in expert slots, which the engines do not know."""
    return any(
        len(set(stage.slots())) > 1
        for replica in result.layout.replicas
        for stage in replica.stages
    )


def test_layout_is_expressed_or_the_loss_is_stated(result: Result, export: Export) -> None:
    exported = export("sglang")
    uneven = uneven_slots(result)
    assert all("expert slots per chip" in limit.message for limit in exported.limits)
    assert bool(exported.limits) == uneven
    assert (exported.loss > 0.0) == uneven


def test_router_names_every_server(result: Result, export: Export) -> None:
    files = export("sglang").files
    routers = [text for name, text in files.items() if name.startswith("router")]
    assert sum(text.count("http://") for text in routers) == len(result.layout.replicas)
