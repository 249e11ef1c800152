"""What an importer finds: servers by their sizes, before they have chips."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from costmodel.layout.layout import KvTier, Role
from costmodel.question.instance import Instance
from rackfit.importers.unpriced import Drafts, Options, left_out, remark
from topology.errors import InstanceError, Problem
from topology.names import brief
from topology.spec import MAX_CHIPS

#: Expert of each slot by layer of the model; ``None``: as the engine starts.
Rows = dict[int, tuple[int, ...]]
Split = Literal["larger first", "larger last but one"]
#: Sizes of a server and the largest believed.
_SIZES = {
    "tp": 100_000, "attention_dp": 100_000, "pp": 10_000, "copies": 100_000, "spare": 100_000,
    "slots": 100_000, "batch": 1_000_000_000, "prefill_tokens": 1_000_000_000, "longest": 1_000_000_000,
}  # fmt: skip
#: Those that a file may leave open.
_OPEN = ("slots", "batch", "prefill_tokens", "longest")
#: Keys of a remark. An export writes all but ``count``; ``chips`` are there those of one process.
REMARKS = (
    "count", "role", "chips", "replica_chips", "server", "rank", "host", "gpus", "batch", "sequences",
    "idle",
)  # fmt: skip


#: how formats of KV begin as engines call them, and as Rackfit does
_KV_FORMATS = {
    "fp8": "fp8", "mxfp8": "fp8", "bf16": "bf16", "bfloat16": "bf16", "float16": "fp16", "nvfp4": "fp4",
    "fp4_": "fp4", "int8": "int8", "int4": "int4",
}  # fmt: skip
#: formats of 16 bits cost the same
_HALVES = {"bf16", "fp16"}


@dataclass(frozen=True)
class FoundServer:
    """One server: sizes as Rackfit counts them.

    ``spare`` counts expert slots of a layer beyond one per expert; ``slots`` all of them, where known.
    ``batch``: sequences (or prompts of a pass) over all ranks and microbatches; ``None`` where the
    files do not say, the largest that fits is then taken. ``experts``: placement by model layer;
    ``balanced``: the engine moves experts by itself. ``chips``: where a remark names them;
    ``sequences`` of each attention rank, over all microbatches, where a remark says that they are unlike (an
    engine takes one limit for all ranks). ``idle``: the tier in which waiting conversations are kept and how many
    of each rank, where a remark says so. ``sharded_experts``: the engine cuts every expert instead of spreading whole ones. ``kv_dtype``: as the engine calls it.
    ``drafts``: its speculative decoding; ``weights``: what the engine turns weights into; ``memory_fraction`` of HBM as the engine counts it;
    ``longest``: tokens of a request with its answer that it takes at most; ``model``: what it loads, by name or path;
    ``unpriced``: options that change costs, with what they do. ``notes`` name what of its command is not understood.
    """

    place: str
    role: Role
    tp: int
    attention_dp: int
    pp: int
    spare: int = 0
    slots: int | None = None
    batch: int | None = None
    prefill_tokens: int | None = None
    layers: tuple[int, ...] | None = None
    split: Split = "larger first"
    experts: Rows | None = None
    balanced: bool = False
    chips: tuple[str, ...] | None = None
    copies: int = 1
    sequences: tuple[int, ...] | None = None
    idle: tuple[KvTier, int] | None = None
    sharded_experts: bool = False
    kv_dtype: str | None = None
    drafts: Drafts | None = None
    weights: str | None = None
    memory_fraction: float | None = None
    longest: int | None = None
    model: str | None = None
    unpriced: Options = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise ``InstanceError`` for a size that is no whole number or that nobody has."""
        for name, most in _SIZES.items():
            value = getattr(self, name)
            if value is not None or name not in _OPEN:
                whole(value, name, self.place, int(name != "spare"), most)
        for count in self.layers or ():
            whole(count, "layers of a stage", self.place, 1, 10_000)
        share = self.memory_fraction
        if share is not None and (
            isinstance(share, bool) or not (isinstance(share, int | float) and 0 < share <= 1)
        ):
            message = f"expected a share of memory above 0 and up to 1, got {brief(share)}"
            raise InstanceError(Problem(self.place, message))
        if not isinstance(self.model, str | None):
            raise InstanceError(Problem(self.place, f"expected a model, got {brief(self.model)}"))
        if not isinstance(self.kv_dtype, str | None):
            message = f"expected a format of the KV cache, got {brief(self.kv_dtype)}"
            raise InstanceError(Problem(self.place, message))
        if self.width * self.pp > MAX_CHIPS:
            message = f"{self.width * self.pp:,} chips; at most {MAX_CHIPS:,} are built"
            raise InstanceError(Problem(self.place, message))

    @property
    def kv_format(self) -> str | None:
        """KV precision as Rackfit calls it; ``None`` where the engine decides, or Rackfit has none such."""
        named = self.kv_dtype or ""
        return next((own for word, own in _KV_FORMATS.items() if named.startswith(word)), None)

    def otherwise(self, instance: Instance) -> tuple[str, ...]:
        """What runs otherwise than the question prices it: formats of KV and weights, drafts, other options."""
        said = list[str]()
        # prefill decodes nothing that drafts could speed
        if self.role != "prefill" or self.drafts is not None:
            said += remark(self.place, self.drafts, instance.speculative)
        kv, weights = instance.model.kv_dtype, instance.model.native_dtype
        for what, there, here, option in (
            ("KV is", self.kv_format, kv, "--kv-dtype"),
            ("weights are", self.weights, weights, "--weight-dtype"),
        ):
            if there is not None and there not in here.lower() and not {there, here} <= _HALVES:
                said.append(
                    f"{self.place}: {what} {there} there and {here} here; {option} {there} prices what runs"
                )
        if self.kv_dtype not in (None, "auto") and self.kv_format is None:
            said.append(
                f"{self.place}: KV is {brief(self.kv_dtype)} there, which has no price, and {kv} here"
            )
        asked = instance.workload.longest
        if self.longest is not None and self.longest < asked:
            said.append(
                f"{self.place}: refuses requests of more than {self.longest:,} tokens; the longest here has {asked:,}"
            )
        if named := left_out(self.unpriced, instance.scenario):
            said.append(f"{self.place}: not priced: {', '.join(named)}")
        return tuple(said)

    @property
    def width(self) -> int:
        """Chips of a stage."""
        return self.tp * self.attention_dp


def role_of(text: str | None, place: str) -> Role:
    """A role by its name; ``None`` and ``null`` serve prompts and answers alike."""
    if text in (None, "null", "mixed", "both", "kv_both"):
        return "mixed"
    if text in ("prefill", "kv_producer"):
        return "prefill"
    if text in ("decode", "kv_consumer"):
        return "decode"
    raise InstanceError(Problem(place, f"unknown role {str(text)[:40]!r}"))


def whole(value: object, what: str, place: str, least: int = 1, most: int = 1_000_000_000) -> int:
    """``value`` if it is a whole number in its limits. Raises ``InstanceError``."""
    if type(value) is not int or not least <= value <= most:
        message = f"{what}: expected a whole number from {least} to {most:,}, got {brief(value)}"
        raise InstanceError(Problem(place, message))
    return value


def switch(value: object, what: str, place: str) -> bool:
    """Whether a key of a file is set; left out, it is not. Raises ``InstanceError`` for what is no yes or no."""
    if value is not None and type(value) is not bool:
        message = f"{what}: expected true or false, got {brief(value)}"
        raise InstanceError(Problem(place, message))
    return bool(value)


def section(value: object, what: str, place: str) -> dict[str, Any]:
    """A mapping of a file, empty where it is left out. Raises ``InstanceError`` for anything else."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        message = f"{what}: expected a mapping, got {brief(value)}"
        raise InstanceError(Problem(place, message))
    return value


def stage_layers(value: object, what: str, place: str) -> tuple[int, ...] | None:
    """Layers of each stage, as text with commas or as a list; ``None`` where left out. ``InstanceError``."""
    if not value:
        return None
    try:
        if isinstance(value, str):
            return tuple(int(count) for count in value.split(","))
        if isinstance(value, list):
            return tuple(whole(count, what, place) for count in value)
    except ValueError:
        pass
    raise InstanceError(Problem(place, f"{what}: expected layers by stage, got {brief(value)}"))


@dataclass(frozen=True)
class Remarked:
    """What a remark adds to a command: its server's chips, how many alike, unlike ranks' sequences, idle KV."""

    chips: tuple[str, ...] | None = None
    copies: int = 1
    sequences: tuple[int, ...] | None = None
    idle: tuple[KvTier, int] | None = None


def from_remarks(remarks: dict[str, str], place: str) -> Remarked:
    """What a remark says. Raises ``InstanceError``."""
    unknown = [key for key in remarks if key not in REMARKS]
    if unknown:
        message = f"unknown remark {unknown[0][:40]!r}; known: {', '.join(REMARKS)}"
        raise InstanceError(Problem(place, message))
    named = remarks.get("replica_chips", remarks.get("chips"))
    (copies,) = _numbers(remarks.get("count", "1"), 1, "count", place)
    unlike = remarks.get("sequences")
    return Remarked(
        chips=tuple(named.split(",")) if named is not None else None,
        copies=copies,
        sequences=None if unlike is None else _numbers(unlike, None, "sequences", place, 0),
        idle=None if "idle" not in remarks else _idle(remarks["idle"], place),
    )


def _idle(text: str, place: str) -> tuple[KvTier, int]:
    """Tier and conversations of a rank, of ``hbm:12``."""
    name, _, count = text.partition(":")
    tier = next((known for known in get_args(KvTier) if known == name), None)
    if tier is None:
        message = f"idle {text[:40]!r}: expected TIER:CONVERSATIONS, TIER one of "
        raise InstanceError(Problem(place, message + ", ".join(get_args(KvTier))))
    (conversations,) = _numbers(count, 1, "idle", place)
    return tier, conversations


def _numbers(text: str, many: int | None, what: str, place: str, least: int = 1) -> tuple[int, ...]:
    words = text.split(",")
    if (many is not None and len(words) != many) or not all(
        word.isascii() and word.isdecimal() and len(word) < 10 for word in words
    ):
        raise InstanceError(Problem(place, f"{what} {text[:20]!r} is no whole number"))
    most = _SIZES["copies" if what == "count" else "batch"]
    return tuple(whole(int(word), what, place, least, most) for word in words)
