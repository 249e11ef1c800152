"""The options that ask a question, one type each, and the scenario that they make.

Every command that asks one (``solve``, ``explain``, ``size``, ``evaluate --from``) has these options, so that
each reads and means the same everywhere; they reach the command as one :class:`Asked`.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import typer

#: the largest seed that every random generator takes
MAX_SEED = 2**31 - 1

if TYPE_CHECKING:
    from costmodel.question.scenario import Scenario

Name = Annotated[
    str | None, typer.Argument(help="Scenario: a shipped name or a YAML or JSON file.")
]
Model = Annotated[str | None, typer.Option(help="Model: name or config.json.")]
Cluster = Annotated[str | None, typer.Option(help="Cluster: name, name@N for N domains, or file.")]
Workload = Annotated[str | None, typer.Option(help="Workload: name or file.")]
InputTokens = Annotated[int | None, typer.Option(help="Prompt tokens of a request.")]
OutputTokens = Annotated[int | None, typer.Option(help="Answer tokens of a request.")]
CachedTokens = Annotated[int | None, typer.Option(help="Prompt tokens whose KV is already there.")]
Images = Annotated[float | None, typer.Option(help="Images of a request, on average.")]
ImagePatches = Annotated[int | None, typer.Option(help="Patches encoded of an image.")]
AudioFrames = Annotated[int | None, typer.Option(help="Frames of sound encoded for a request.")]
ExpertLoad = Annotated[
    str | None, typer.Option(help="skewed, uniform, or a file of recorded counts.")
]
Ttft = Annotated[str | None, typer.Option(help="Target: time to first token, s.")]
Tpot = Annotated[str | None, typer.Option(help="Target: time per output token, s.")]
Rate = Annotated[float | None, typer.Option(help="Requests/s to serve at least cost.")]
Pay = Annotated[
    Literal["whole", "used"] | None,
    typer.Option(help="Pay for the whole cluster or for used chips."),
]
WeightDtype = Annotated[
    str | None,
    typer.Option(
        help="Weights in this precision: bf16, fp16 (the same price), fp8, fp4, int8, int4."
    ),
]
KvDtype = Annotated[str | None, typer.Option(help="KV cache in this precision.")]
DraftTokens = Annotated[
    int | None, typer.Option(help="Tokens that the model's MTP module or --draft drafts per pass.")
]
Draft = Annotated[
    str | None,
    typer.Option(help="What drafts instead: an EAGLE head or a model, by name or config.json."),
]
Acceptance = Annotated[
    str | None,
    typer.Option(help="Probability that a drafted token is right, or one for each: 0.9,0.8,0.7."),
]
Choose = Annotated[
    str | None,
    typer.Option(
        help="Leave options to the search: drafts=0..3,overlap=off/on,chunk=4096/8192,kv_dtype=fp8/bf16,"
        "weight_dtype=..,tiers=none/host."
    ),
]
Engine = Annotated[
    str | None,
    typer.Option(
        help="Only layouts that this engine runs as they are: sglang, trtllm or vllm, the newest version kept or "
        "NAME@VERSION; any: the one that serves cheapest."
    ),
]
LayerSlots = Annotated[
    Literal["same", "rows", "any"] | None,
    typer.Option(
        help="Spare expert slots of the layers: the same, or unlike numbers in whole rows of one per chip "
        "(JSON, vLLM-Ascend) or any (JSON)."
    ),
]
Granularity = Annotated[
    str | None,
    typer.Option(
        help="How chips are taken: as the cluster's file says that they are sold (tray, slice, ..), or chip: any chips."
    ),
]
Apart = Annotated[
    Literal["also", "only"] | None,
    typer.Option(
        help="Let the search put attention and routed experts of decode replicas on chips of their own: also, or only so."
    ),
]
WithinMeasured = Annotated[
    bool | None,
    typer.Option(
        "--within-measured",
        help="Only workers with a role, widths and batches that somebody measured on these chips.",
    ),
]
ProfileName = Annotated[
    str | None, typer.Option("--profile", help="physics, calibrated, or a profile file.")
]
Seed = Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Same seed, same answer.")]
TimeLimit = Annotated[
    float | None, typer.Option(help="Seconds until the search ends, from the command's start.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@dataclass(frozen=True)
class Asked:
    """What the options of a question say; ``None``: not said."""

    scenario: Name = None
    model: Model = None
    cluster: Cluster = None
    workload: Workload = None
    input_tokens: InputTokens = None
    output_tokens: OutputTokens = None
    cached_tokens: CachedTokens = None
    images: Images = None
    image_patches: ImagePatches = None
    audio_frames: AudioFrames = None
    expert_load: ExpertLoad = None
    ttft: Ttft = None
    tpot: Tpot = None
    rate: Rate = None
    pay: Pay = None
    weight_dtype: WeightDtype = None
    kv_dtype: KvDtype = None
    draft_tokens: DraftTokens = None
    acceptance: Acceptance = None
    draft: Draft = None
    choose: Choose = None
    engine: Engine = None
    layer_slots: LayerSlots = None
    granularity: Granularity = None
    apart: Apart = None
    within_measured: WithinMeasured = None
    profile: ProfileName = None

    def files(self) -> tuple[Path | None, ...]:
        """What may be a file that is read."""
        texts = (self.scenario, self.model, self.workload, self.expert_load, self.profile)
        cluster = None if self.cluster is None else self.cluster.partition("@")[0]
        return tuple(None if text is None else Path(text) for text in (*texts, cluster))

    @property
    def several(self) -> bool:
        """Whether the scenario's file asks for several models."""
        from costmodel.question.scenario import has_models
        from topology.catalogue import read_data, resolve

        named = self.scenario
        return named is not None and has_models(read_data(resolve(named, "scenarios")))

    def build(self, base: Scenario | None = None) -> Scenario:
        """The scenario that is asked, or ``base`` with what the options say instead.

        Raises ``InstanceError`` with all problems at once.
        """
        options = asdict(self)
        return build_scenario(options.pop("scenario"), base, **options)


def asking(*without: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of :class:`Asked`, but those named, in place of its parameter ``asked``."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(Asked, include_extras=True)
        options = {name: hint for name, hint in hints.items() if name not in without}
        own = dict(inspect.signature(command, eval_str=True).parameters)
        del own["asked"]

        @wraps(command)
        def run(**given: Any) -> None:
            asked = Asked(**{name: given.pop(name) for name in options})
            command(asked, **given)

        keyword = inspect.Parameter.KEYWORD_ONLY
        parameters = [
            inspect.Parameter(name, keyword, default=None, annotation=hint)
            for name, hint in options.items()
        ]
        parameters += [one.replace(kind=keyword) for one in own.values()]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        del run.__wrapped__
        return run

    return decorate


def build_scenario(name: str | None, base: Scenario | None = None, **options: Any) -> Scenario:
    """A scenario from a file, or ``base``, with whatever the options say instead; ``None`` is not said.

    An option belongs to the workload, to the targets, to the drafts or to the scenario itself, by its
    name.
    Raises ``InstanceError`` with all problems at once.
    """
    from costmodel.question import speculation, workload
    from costmodel.question.choices.options import choices_of_text
    from costmodel.question.scenario import Scenario, load_scenario, load_workload
    from topology.catalogue import checked
    from topology.errors import InstanceError, Problem

    said = {key: value for key, value in options.items() if value is not None}
    if "apart" in said:
        said["apart"] = "only" if said["apart"] == "only" else True
    if "choose" in said:
        said["choices"] = choices_of_text(said.pop("choose"))
    lengths = {key: said.pop(key) for key in workload.Workload.model_fields if key in said}
    targets = {key: said.pop(key) for key in workload.Slo.model_fields if key in said}
    drafts = {key: said.pop(key) for key in speculation.Speculative.model_fields if key in said}
    data: dict[str, Any] = {}
    if name is not None:
        refuse_others(name)
        base = load_scenario(name)
    if base is not None:
        data = base.model_dump(mode="json", exclude_none=True)
    for key, value in targets.items():
        _doubt_seconds(key, value)
    data |= said
    if drafts:
        data["speculative"] = {**data.get("speculative", {}), **drafts}
    data.setdefault("workload", "chat")
    if lengths:
        work = data["workload"]
        if isinstance(work, str):
            work = load_workload(work).model_dump(mode="json")
        changed = any(work.get(key) != value for key, value in lengths.items())
        data["workload"] = {**work, **lengths, **({"name": "custom"} if changed else {})}
    if targets:
        data["slo"] = {**data.get("slo", {}), **targets}
    missing = [key for key in ("model", "cluster") if key not in data]
    if missing:
        raise InstanceError(
            [
                Problem(f"--{key}", "is missing: give it, or a scenario that names it")
                for key in missing
            ]
        )
    if options.get("pay") == "whole" and data.get("rate") is not None:
        print(
            "rackfit: --pay whole has no effect with a rate: least is then the cost of the chips in use",
            file=sys.stderr,
        )
    with checked(name or "command line"):
        return Scenario.model_validate(data)


#: keys of files that are none of a scenario's, any of which tells the kind, and what to do with a file of it
_OTHERS = (
    ({"model_type", "architectures"}, "a model's config", "give it as --model, and a --cluster"),
    ({"layout", "evaluation"}, "a layout", "evaluate, export, replay and move take it; its question is instance.scenario"),
    ({"domains"}, "a cluster file", "give it as --cluster, and a --model"),
    ({"input_tokens", "output_tokens"}, "a workload", "give it as --workload, with --model and --cluster"),
    ({"units"}, "a plan", "rackfit plan takes it"),
)  # fmt: skip


def refuse_others(name: str) -> None:
    """Raise ``InstanceError`` where a file of another kind is given for a scenario."""
    from topology.catalogue import read_data, resolve
    from topology.errors import InstanceError, Problem

    data = read_data(resolve(name, "scenarios"))
    for keys, kind, instead in _OTHERS if isinstance(data, dict) else ():
        if keys & data.keys():
            raise InstanceError(Problem(name, f"is {kind}, not a scenario: {instead}"))


def _doubt_seconds(key: str, value: str) -> None:
    """Say what a bare number means where it was hardly meant: 40 for 40 ms."""
    from rackfit.documents.output import say

    limit = {"ttft": 100.0, "tpot": 1.0}[key]
    try:
        seconds = float(value)
    except ValueError:
        return
    if limit <= seconds < float("inf"):
        say(f"rackfit: --{key} {value} is {seconds:g} seconds; write {value}ms for milliseconds")
