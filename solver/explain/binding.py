"""Which limits a layout uses up. Reads a verified layout, solves nothing."""

from __future__ import annotations

from dataclasses import dataclass

from costmodel.findings import hbm_fill
from costmodel.question.instance import Instance
from solver.answer import SearchResult

#: a limit of which so much is used binds
BINDS_AT = 0.97


@dataclass(frozen=True)
class Use:
    """How much of one limit a layout uses: ``used`` of ``limit``, in ``unit``."""

    key: str
    title: str
    unit: str
    used: float
    limit: float

    @property
    def share(self) -> float:
        """Used part, 1 where nothing is left."""
        return self.used / self.limit

    @property
    def binds(self) -> bool:
        """Whether nearly nothing of the limit is left."""
        return self.share >= BINDS_AT

    def as_dict(self) -> dict[str, object]:
        """Plain data."""
        return {
            "limit": self.key,
            "unit": self.unit,
            "used": self.used,
            "of": self.limit,
            "share": self.share,
            "binds": self.binds,
        }


def uses_of(instance: Instance, found: SearchResult) -> list[Use]:
    """Every limit of the instance and how much of it the layout uses, fullest first."""
    evaluation, slo = found.evaluation, instance.slo
    priced = list(zip(found.layout.replicas, evaluation.priced.replicas, strict=True))
    uses = [
        Use("chips", "chips", "chips", evaluation.chips_used, len(instance.cluster.usable)),
        Use(
            "hbm", "HBM of the fullest chip", "share",
            max(hbm_fill(instance, replica, price) for replica, price in priced), 1.0,
        ),
    ]  # fmt: skip
    if slo.tpot is not None:
        uses.append(Use("tpot", "TPOT", "s", evaluation.tpot_s or 0.0, slo.tpot))
    if slo.ttft is not None:
        uses.append(Use("ttft", "TTFT", "s", evaluation.ttft_s or 0.0, slo.ttft))
    if instance.scenario.rate is not None:
        most = evaluation.priced.requests_per_s
        uses.append(Use("rate", "request rate", "requests/s", instance.scenario.rate, most))
    held = [max(r.rank_sequences()) for r, _ in priced if r.role != "prefill"]
    if held:
        most = instance.limits.max_sequences_per_rank
        uses.append(Use("batch", "sequences per attention rank", "sequences", max(held), most))
    return sorted(uses, key=lambda use: -use.share)
