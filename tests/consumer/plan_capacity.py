"""A program that uses Rackfit as a library: checked with ``mypy --strict`` and run on the installed wheel.

It touches every name of the public API, so that a type that is lost on the way into the wheel shows.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import assert_type

import rackfit


def cheapest(model: str, clusters: list[str]) -> tuple[str, float]:
    """The cluster on which the model is cheapest, and $ per million output tokens there."""
    found: dict[str, float] = {}
    for cluster in clusters:
        scenario = rackfit.Scenario(
            model=model,
            cluster=cluster,
            workload=rackfit.Workload(input_tokens=1000, output_tokens=200),
            slo=rackfit.Slo(ttft=1.0, tpot=0.05),
            prices=rackfit.Prices(power_overhead=1.2),
            limits=rackfit.Limits(max_pipeline_stages=2),
        )
        try:
            result = rackfit.solve(scenario, workers=1, on_progress=watch)
        except rackfit.NoFeasibleLayout as why:
            print(f"{cluster}: {why}")
            continue
        except (rackfit.NoLayoutInTime, rackfit.VerificationError) as error:
            raise SystemExit(str(error)) from error
        cost = result.evaluation.usd_per_m_output_tokens
        assert_type(cost, float | None)
        assert cost is not None
        found[cluster] = cost
    best = min(found, key=lambda name: found[name])
    return best, found[best]


def watch(progress: rackfit.Progress) -> None:
    """Called after each round of a search."""
    assert progress.elapsed_s >= 0


def deploy(result: rackfit.Result, folder: Path) -> rackfit.Running:
    """Write launch commands and read them back as a running deployment."""
    exported = rackfit.export_layout(
        result.instance, result.layout, "sglang", allow_approximate=True
    )
    assert_type(exported, rackfit.Exported)
    commands = folder / "commands.sh"
    commands.write_text(exported.files["commands.sh"])
    return rackfit.evaluate_running(result.instance.scenario, "sglang", commands)


def main() -> None:
    """Ask, check, place, study, export and import; raises where something is not as promised."""
    assert_type(rackfit.load_model("llama-3.1-8b"), rackfit.ModelSpec)
    assert_type(rackfit.load_cluster("hgx-h100@2"), rackfit.Cluster)

    best, cost = cheapest("llama-3.1-8b", ["hgx-h100", "hgx-h200"])
    print(best, f"{cost:.4f}")

    scenario = rackfit.load_scenario("deepseek-v3-gb200-nvl72").model_copy(
        update={"model": "llama-3.1-8b", "cluster": "hgx-h100"}
    )
    instance = rackfit.resolve_instance(scenario)
    assert_type(instance, rackfit.Instance)
    result = rackfit.solve(instance, workers=1)
    layout: rackfit.Layout = result.layout
    certificate: rackfit.Certificate = result.certificate
    again: rackfit.Evaluation = rackfit.evaluate(instance, layout)
    assert again.feasible
    assert certificate.gap <= 0.01

    with tempfile.TemporaryDirectory() as folder:
        running = deploy(result, Path(folder))
    assert running.evaluation.chips_used == again.chips_used

    placed = rackfit.place("olmoe-1b-7b", rackfit.PlaceOptions(gpus=8, slots=72, effort="fast"))
    assert_type(placed, rackfit.Placed)
    assert float(placed.gap.max()) >= 0

    table = rackfit.study(
        "grid",
        {"model": "llama-3.1-8b", "cluster": "hgx-h100", "workload": "chat"},
        over={"slo.tpot": [0.03, 0.05]},
    )
    assert_type(table, rackfit.StudyResult)
    assert not table.failed

    several = rackfit.load_together("llama-8b-and-70b-h200")
    assert_type(several, rackfit.Together)
    shared = rackfit.solve_together(several, gap=0.05)
    assert_type(shared, rackfit.Divided)
    assert len(shared.layouts) == len(several.models)

    try:
        rackfit.load_model("no-such-model")
    except rackfit.InstanceError as error:
        assert_type(error.problems, tuple[rackfit.Problem, ...])
    else:
        raise AssertionError("an unknown name is bad input")
    for kind in (rackfit.InstanceError, rackfit.ExportError, rackfit.NoFeasibleLayout):
        assert issubclass(kind, rackfit.RackfitError)

    frames = [
        rackfit.replicas_frame(result), rackfit.chips_frame(result),
        rackfit.trajectory_frame(result), rackfit.study_frame(table),
    ]  # fmt: skip
    assert all(len(frame) for frame in frames)
    print("done")


if __name__ == "__main__":
    main()
