"""Profiles: the few physical parameters that turn peak hardware rates into achieved ones.

``physics`` is the roofline itself: every efficiency 1, every overhead 0 (narrow slices of
experts are read slower under it, too). ``calibrated`` rests on measured serving runs. A profile is a small JSON file in ``instances/profiles`` or the user's own.
"""

from __future__ import annotations

from collections.abc import Collection
from math import inf, log
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from costmodel.question.profile_parts import FirstToken, HeldOut, HostTime
from topology import Chip
from topology.catalogue import checked, read_data, resolve
from topology.errors import InstanceError, Problem
from topology.names import Name, Prose
from topology.quantity import Bytes, Seconds

Positive = Annotated[float, Field(gt=0)]
Fraction = Annotated[float, Field(gt=0, le=1)]
Combination = Literal["per_op", "lecture", "book"]
#: behind the name of a profile: of no engine alone
COMMON = "common"
#: what bytes of HBM are moved for
Stream = Literal["weights", "kv", "experts", "activations"]


class Efficiency(BaseModel):
    """Achieved fractions and fixed costs on one chip.

    A matrix product runs at ``compute[dtype]`` of the dense peak, HBM streams at ``hbm`` of its bandwidth, a collective's
    bytes move at ``all_reduce`` or ``all_to_all`` of the links' rate. ``kv`` and ``experts`` replace ``hbm`` for reads of the
    context and of routed experts, ``activations`` for what is written between products and read again (not counted where it is
    not given: caches hold it); weights in a format that the chip must widen first are read at ``unpacking`` of that rate and
    multiplied at ``widened`` of ``compute[dtype]`` of the wider one. Grouped products of routed experts multiply at ``grouped``
    of ``compute[dtype]`` where few tokens meet in an expert, at all of it where many do
    (:func:`costmodel.passes.routed.full_tiles`). Attention takes the exponentials of its scores at ``softmax`` of the chip's rate,
    before or after their products (not counted where it is not given: products hide them).

    ``best``: of an efficiency that no run of the chip stands behind, what the quickest products reach on the chips that were fitted
    (:meth:`on`).

    ``layer_overhead_s`` is paid by each layer, ``kernel_overhead_s`` by each kernel of it (launch, ramp and drain),
    ``sync_overhead_s`` by each layer whose attention is tensor parallel, ``step_overhead_s`` by each pass (scheduler).
    ``moe_overhead_s`` is paid by each layer with routed experts (routing, grouped kernels), beside it ``widened_moe_overhead_s``
    where the chip must widen their weights and ``unfused_moe_overhead_s`` where the engine has no kernels on this chip that
    join routing, products and activation. ``sequence_overhead_s`` is paid by each sequence of an attention rank that a pass
    samples on a stage of eight chips or more (what their processes tell each other of it), ``log2(chips) / 3`` of it on fewer.

    ``quantise_overhead_s`` is paid for every activation quantised at run time (inputs of products whose scales are per block).
    ``exchange_overhead_s`` is what a layer waits whose experts are exchanged between several attention ranks (packing, the
    slowest rank) once messages are large. ``reduce_ramp_s`` is what an all-reduce over eight chips waits once its message is too
    large for one-shot kernels, ``log2(chips) / 3`` of it over others; of both a rank with ``m`` bytes pays ``m / (m + 1 MiB)``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    compute: dict[str, Fraction] = Field(default_factory=dict)
    best: dict[str, Fraction] = Field(default_factory=dict)
    hbm: Fraction = 1.0
    kv: Fraction | None = None
    experts: Fraction | None = None
    activations: Fraction | None = None
    softmax: Fraction | None = None
    unpacking: Fraction = 1.0
    widened: Fraction = 1.0
    grouped: Fraction = 1.0
    all_reduce: Fraction = 1.0
    all_to_all: Fraction = 1.0
    layer_overhead_s: Seconds = 0.0
    kernel_overhead_s: Seconds = 0.0
    sync_overhead_s: Seconds = 0.0
    moe_overhead_s: Seconds = 0.0
    widened_moe_overhead_s: Seconds = 0.0
    unfused_moe_overhead_s: Seconds = 0.0
    step_overhead_s: Seconds = 0.0
    sequence_overhead_s: Seconds = 0.0
    quantise_overhead_s: Seconds = 0.0
    exchange_overhead_s: Seconds = 0.0
    reduce_ramp_s: Seconds = 0.0
    #: 1 where a pass's finitely many tokens fall unevenly on chips, 0 where they fall as expected
    routing_noise: Annotated[float, Field(ge=0, le=10)] = 0.0
    #: HBM that the engine, graphs and communication buffers take on each chip
    runtime_bytes: Bytes = 0.0
    provenance: Literal["measured", "derived", "assumed"] = "derived"

    def stream(self, kind: Stream) -> float:
        """Fraction of HBM bandwidth at which weights, the context or routed experts are read."""
        if kind == "activations":
            return inf if self.activations is None else self.activations
        found = {"kv": self.kv, "experts": self.experts}.get(kind)
        return self.hbm if found is None else found

    def on(self, chip: Chip) -> Efficiency:
        """The same on a chip whose quickest products were measured; a share that is not given stays the peak.

        No product is quicker than those. Where ``best`` is known, products reach as much of the chip's as of fitted chips' quickest.
        """
        most = chip.efficiency.sustained
        if not most:
            return self

        def share(dtype: str, own: float) -> float:
            if dtype not in most:
                return own
            beside = most[dtype] / self.best[dtype] if dtype in self.best else 1.0
            return min(own * min(beside, 1.0), most[dtype])

        compute = {dtype: share(dtype, own) for dtype, own in self.compute.items()}
        return self.model_copy(update={"compute": compute, "best": {}})

    def slower(self, factor: float) -> Efficiency:
        """One with which every time is so many times as long, as far as no fraction of a peak exceeds 1."""
        rates = ("hbm", "kv", "experts", "activations", "softmax", "all_reduce", "all_to_all")
        given = {name: own for name in rates if (own := getattr(self, name)) is not None}
        slow: dict[str, object] = {name: min(1.0, own / factor) for name, own in given.items()}
        slow["compute"] = {dtype: min(1.0, own / factor) for dtype, own in self.compute.items()}
        times = (name for name in type(self).model_fields if name.endswith("_s"))
        return self.model_copy(update=slow | {name: getattr(self, name) * factor for name in times})

    def arithmetic(self, dtype: str) -> float:
        """Fraction of the peak for a dtype; one without its own (int4) multiplies as bf16."""
        return self.compute.get(dtype, self.compute.get("bf16", 1.0))


class EngineConstants(BaseModel):
    """Efficiencies of one engine: by chip, and for chips it was not measured on."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    default: Efficiency
    chips: dict[str, Efficiency] = Field(default_factory=dict)


class Profile(BaseModel):
    """One named set of efficiencies, with what it rests on."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name
    description: Prose
    combination: Combination = "per_op"
    default: Efficiency
    chips: dict[str, Efficiency] = Field(default_factory=dict)
    #: the same by engine; ``default`` and ``chips`` are the mean over engines
    engines: dict[str, EngineConstants] = Field(default_factory=dict)
    #: times over those that ``default`` gives, of chips that no fit saw and of which runs were published
    paces: dict[str, Positive] = Field(default_factory=dict)
    #: TTFT under load by engine, and by mode (``aggregated``, ``disaggregated``) for other engines
    first_token: dict[str, FirstToken] = Field(default_factory=dict)
    #: seconds for each kernel of a pass under releases ("trtllm 1.2.3") whose host launches them one by one
    launches: dict[str, Seconds] = Field(default_factory=dict)
    #: releases of engines that prefill first whose measured requests of one length come one by one, not in waves
    scattered: tuple[str, ...] = ()
    #: by engine: what its server takes before a request joins the queue (a replay adds it)
    host: dict[str, HostTime] = Field(default_factory=dict)
    #: relative errors of held-out TPOT at the quantiles 0.05, 0.5 and 0.95; empty where not known
    interval: tuple[float, ...] = ()
    #: quantiles of held-out errors, from which figures get intervals; ``None``: not cross-validated
    held_out: HeldOut | None = None
    fitted_on: Prose = ""
    error: Prose = ""
    sources: tuple[Prose, ...] = ()

    def for_chip(self, chip: str) -> Efficiency:
        """Efficiency of a chip, or the pooled values where it has none of its own, at its pace where that is known."""
        if chip in self.chips or chip not in self.paces:
            return self.chips.get(chip, self.default)
        return _at_pace(self.default, self.paces[chip])

    def shifts(self, chips: Collection[str]) -> list[float]:
        """Logarithms of what times on chips that no fit saw may be longer by beside errors of the fit; none for no chip.

        Where nothing is known of one they may be off as those were of which runs were published, else as these are at
        their pace.
        """
        if not chips or self.held_out is None:
            return []
        known = all(one in self.paces for one in chips)
        return [
            log(ratio / (self.paces.get(chip, 1.0) if known else 1.0))
            for chip, ratio in self.held_out.unlike.items()
        ]

    def host_of(self, engine: str) -> HostTime:
        """What an engine's server takes before a request joins the queue; nothing where that is not known."""
        return self.host.get(engine, HostTime())

    def routed_as(self, expert_load: str) -> Profile:
        """The profile; where an even load is asked for, every pass's tokens fall on the chips as expected."""
        if expert_load != "uniform":
            return self

        def quiet(one: Efficiency) -> Efficiency:
            return one.model_copy(update={"routing_noise": 0.0})

        def quiet_chips(chips: dict[str, Efficiency]) -> dict[str, Efficiency]:
            return {chip: quiet(one) for chip, one in chips.items()}

        engines = {
            name: EngineConstants(default=quiet(own.default), chips=quiet_chips(own.chips))
            for name, own in self.engines.items()
        }
        quieted = {
            "default": quiet(self.default),
            "chips": quiet_chips(self.chips),
            "engines": engines,
        }
        return self.model_copy(update=quieted)

    @property
    def common(self) -> Profile:
        """The profile for all engines alike, whichever the question names."""
        return self.model_copy(update={"engines": {}})

    def of_engine(self, engine: str) -> Profile:
        """The profile of one engine; itself where the engine has none of its own."""
        found = self.engines.get(engine)
        if found is None:
            return self
        return self.model_copy(
            update={
                "name": f"{self.name}:{engine}",
                "default": found.default,
                "chips": found.chips,
                "engines": {},
            }
        )


#: efficiencies at a pace, beside those they are made of, which keep their identities as long as they are held here
_paced: dict[tuple[int, float], tuple[Efficiency, Efficiency]] = {}
_MOST_PACED = 256


def _at_pace(common: Efficiency, factor: float) -> Efficiency:
    """The same object for the same two, as rates of a chip are known by it."""
    key = (id(common), factor)
    found = _paced.get(key)  # another thread may clear them
    if found is None:
        if len(_paced) >= _MOST_PACED:
            _paced.clear()
        found = _paced[key] = (common, common.slower(factor))
    return found[1]


def load_profile(name_or_path: str) -> Profile:
    """Read a shipped profile or a file; ``NAME:ENGINE`` is one engine's, ``NAME:common`` that of all. Raises ``InstanceError``."""
    name, colon, engine = name_or_path.rpartition(":")
    if not colon or "/" in engine or "\\" in engine:
        name, engine = name_or_path, ""
    path = resolve(name, "profiles", (".json", ".yaml"))
    with checked(str(path.name)):
        profile = Profile.model_validate(read_data(path))
    if not engine:
        return profile
    if engine == COMMON:
        return profile.common
    if engine not in profile.engines:
        known = ", ".join(sorted(profile.engines)) or "none"
        raise InstanceError(Problem("profile", f"{name} has no engine {engine!r}; known: {known}"))
    return profile.of_engine(engine)
