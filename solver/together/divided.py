"""What a search for several models answers, and how far that is from its bound."""

from __future__ import annotations

from dataclasses import dataclass

from costmodel.layout.layout import Layout
from costmodel.together.judge import Judged
from costmodel.together.question import Models
from solver.answer import ForTraffic, SearchResult
from solver.verify import ROUNDING, usd_per_m_output


@dataclass(frozen=True)
class Divided:
    """Layouts of all models with the judge's word on them, and what is proven.

    ``bound``: dollars per hour that no division of the chips costs less than; where the whole cluster is paid, the
    factor of all rates that none exceeds. ``alone``: the answer of each model on the whole cluster. ``replayed``: of each
    model what replays said of its layout, where the models have traffic.
    """

    models: Models
    layouts: tuple[Layout, ...]
    judged: Judged
    bound: float
    target: float
    alone: tuple[SearchResult, ...]
    seed: int
    wall_s: float
    replayed: tuple[ForTraffic, ...] = ()

    @property
    def gap(self) -> float:
        """Money over the bound, or the bound over the headroom, less 1."""
        return gap_of(self.models, self.judged, self.bound)

    @property
    def status(self) -> str:
        """``optimal`` (the gap asked for is proven) or ``feasible``."""
        return "optimal" if self.gap <= max(self.target, ROUNDING) else "feasible"

    def bound_alone_usd_per_hour(self, model: int) -> float:
        """What a model alone on the cluster costs at least, dollars per hour."""
        return money_alone(self.models, model, self.alone[model])


def money_alone(models: Models, model: int, answer: SearchResult) -> float:
    """What a model alone on the cluster costs at least, dollars per hour."""
    instance = models.instances[model]
    per_rate = answer.certificate.bound_usd_per_m_output_tokens / usd_per_m_output(instance)
    return per_rate * models.rates[model] * models.asked.prices.chip_price_factor


def gap_of(models: Models, judged: Judged, bound: float) -> float:
    """Of an answer to a bound: on the money, or on the factor of all rates where the whole cluster is paid."""
    found = bound / judged.headroom if models.whole else judged.usd_per_hour / bound
    return max(0.0, found - 1.0)
