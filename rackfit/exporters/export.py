"""One export: refuse what the target cannot say, or deploy the nearest thing and say its price."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costmodel.evaluate import Evaluation, evaluate
from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance
from rackfit.documents.output import write_folder, write_whole
from rackfit.documents.result import SCHEMA_VERSION
from rackfit.exporters.launch.deployment import Deployment, ExportOptions
from rackfit.exporters.launch.engine_limits import under_engine
from rackfit.exporters.launch.hosts import Hosts
from rackfit.exporters.launch.limit import Limit
from rackfit.exporters.launch.tiers import tier_limits, tier_notes
from rackfit.exporters.registry import exporter
from topology.catalogue import is_folder
from topology.errors import ExportError, InstanceError, Problem, option

#: limits of a target that are told one by one, and places that each of them names
_TOLD, _PLACES = 12, 3


@dataclass(frozen=True)
class Exported:
    """Files by relative path, what is really deployed, and what it loses against the layout."""

    target: str
    files: dict[str, str]
    layout: Layout
    wanted: Evaluation
    deployed: Evaluation
    limits: tuple[Limit, ...]
    notes: tuple[str, ...]

    @property
    def loss(self) -> float:
        """Relative rise of $ per million output tokens (0.02 = 2 % dearer)."""
        before, after = self.wanted.usd_per_m_output_tokens, self.deployed.usd_per_m_output_tokens
        return after / before - 1 if before and after else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Plain data: ``files`` by relative path, ``evaluation`` of what they deploy."""
        return {
            "schema_version": SCHEMA_VERSION,
            "target": self.target,
            "files": self.files,
            "notes": list(self.notes),
            "approximated": [
                {"place": limit.place, "message": limit.message} for limit in self.limits
            ],
            "loss": self.loss,
            "evaluation": self.deployed.as_dict(),
        }


def export_layout(
    instance: Instance,
    layout: Layout,
    target: str,
    options: ExportOptions | None = None,
    *,
    hosts: Hosts | None = None,
    allow_approximate: bool = False,
) -> Exported:
    """The files of one target for a layout.

    Raises ``ExportError`` with every limit of the target where it cannot express the layout; with
    ``allow_approximate`` only where no near layout exists either. The evaluator prices what the
    files deploy. Raises ``InstanceError`` for a layout that breaks a rule.
    """
    module = exporter(target)
    options = options or ExportOptions(model_path=f"/models/{instance.model.name}")
    hosts = hosts or Hosts(instance.cluster)
    wanted = evaluate(instance, layout)
    engine = getattr(module, "ENGINE", None)
    if engine is not None:
        instance = under_engine(instance, engine)
    if not wanted.priced.replicas:
        raise InstanceError([Problem(v.place, v.message) for v in wanted.violations])
    apart = [index for index, one in enumerate(layout.replicas) if one.apart is not None]
    if apart and target != "json":
        raise ExportError(
            f"{target} cannot express replicas[{apart[0]}]: attention and experts on chips of their own; "
            "json writes the layout as it is"
        )
    judged = wanted if engine is None else evaluate(instance, layout)
    deployment = Deployment.of(instance, layout, judged, hosts, options)
    limits = (*module.limits(deployment), *(tier_limits(target, layout) if module.LAUNCHES else ()))
    refused = [limit for limit in limits if not (limit.approximable and allow_approximate)]
    if refused:
        raise ExportError("\n".join(_refusal(target, refused, allow_approximate)))
    if limits:
        deployment = _approximated(deployment, module.approximate(instance, layout), target)
        left = module.limits(deployment)
        if left:
            raise ExportError("\n".join(_refusal(target, left, True)))
    return Exported(
        target=target,
        files=module.render(deployment),
        layout=deployment.layout,
        wanted=wanted,
        deployed=deployment.evaluation,
        limits=limits,
        notes=(
            *module.notes(deployment),
            *(tier_notes(deployment.evaluation) if module.LAUNCHES else ()),
        ),
    )


def _approximated(deployment: Deployment, layout: Layout, target: str) -> Deployment:
    evaluation = evaluate(deployment.instance, layout)
    before = {(violation.rule, violation.place) for violation in deployment.evaluation.violations}
    broken = [
        violation
        for violation in evaluation.violations
        if (violation.rule, violation.place) not in before
        and violation.rule not in ("ttft_target", "tpot_target", "rate_served")
    ]
    if broken:
        raise ExportError(
            f"what {target} would deploy breaks a rule: "
            + "; ".join(str(violation) for violation in broken[:3])
        )
    return Deployment.of(
        deployment.instance, layout, evaluation, deployment.hosts, deployment.options
    )


def by_message(limits: Sequence[Limit]) -> list[str]:
    """What a target cannot say, each once, with the first places where it is."""
    places: dict[str, list[str]] = {}
    for limit in limits:
        places.setdefault(limit.message, []).append(limit.place)
    return [
        f"{', '.join(where[:_PLACES])}{f' and {len(where) - _PLACES} more' if len(where) > _PLACES else ''}: {message}"
        for message, where in places.items()
    ]


def _refusal(target: str, limits: Sequence[Limit], asked: bool) -> list[str]:
    told = by_message(limits)
    lines = [f"{target} cannot express this layout{', nor one near it' if asked else ''}:"]
    lines += [f"  {line}" for line in told[:_TOLD]]
    if len(told) > _TOLD:
        lines.append(f"  and {len(told) - _TOLD} more")
    if all(limit.approximable for limit in limits) and not asked:
        lines.append(
            f"{option('allow-approximate')} writes the nearest it can express and tells the loss"
        )
    return lines


def write_files(files: dict[str, str], out: Path) -> None:
    """Write all files under a new folder ``out``, or none. Raises ``InstanceError``.

    ``out`` may also be the name of a file where there is one to write.
    """
    if len(files) == 1 and out.suffix and not is_folder(out):
        write_whole(next(iter(files.values())), out)
        return
    write_folder(files, out)
