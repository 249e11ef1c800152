"""Questions for one engine, servers of a size, and what is written and priced of them."""

from __future__ import annotations

from launch_lines import Line, read_lines

from costmodel.evaluate import evaluate
from costmodel.question.instance import Instance, resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.workload import Workload
from rackfit.exporters.export import export_layout
from rackfit.importers.deployment import build_layout
from rackfit.importers.servers import FoundServer


def asked(model: str, cluster: str, engine: str, **more: object) -> Instance:
    """A question for one engine."""
    workload = Workload(input_tokens=4000, output_tokens=1000)
    data = {"model": model, "cluster": cluster, "workload": workload, "engine": engine, **more}
    return resolve_instance(Scenario.model_validate(data))


def lines_of(instance: Instance, server: FoundServer, target: str) -> list[Line]:
    """The commands of one server, in order."""
    layout = build_layout(instance, [server]).layout
    return read_lines(export_layout(instance, layout, target).files["commands.sh"])


def ranks(role: str, dp: int, *, tp: int = 1, batch: int = 64) -> FoundServer:
    return FoundServer("x", role, tp=tp, attention_dp=dp, pp=1, batch=batch)


def parts(instance: Instance, server: FoundServer) -> dict[str, float]:
    """Seconds by part of one server's passes."""
    layout = build_layout(instance, [server]).layout
    return evaluate(instance, layout).priced.replicas[0].stages[0].parts
