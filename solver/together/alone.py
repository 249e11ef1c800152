"""Every model alone on the whole cluster: what it costs at least, why it does not fit, and shapes that were placed."""

from __future__ import annotations

from collections.abc import Callable

from costmodel.together.question import Models
from solver.answer import Progress, SearchResult
from solver.clock import Clock
from solver.explain.explain import of_one_of_several
from solver.rounds import Search
from solver.search import searched
from topology.errors import NoFeasibleLayout, NoLayoutInTime

OnProgress = Callable[[Progress], None]


class Alone:
    """Every model alone on the whole cluster."""

    def __init__(
        self,
        models: Models,
        clock: Clock,
        gap: float,
        seed: int,
        workers: int,
        on_progress: OnProgress | None,
    ):
        self.models, self.clock, self.gap, self.seed = models, clock, gap, seed
        self.workers, self.on_progress = workers, on_progress
        self.answers: list[SearchResult] = []
        self.searches: list[Search] = []
        reasons: list[tuple[str, NoFeasibleLayout]] = []
        for name, instance in zip(models.names, models.instances, strict=True):
            try:
                answer, search, _ = searched(
                    instance, clock, gap, seed, self.telling(name), lambda _: None, workers
                )
            except NoFeasibleLayout as error:
                reasons.append((name, error))
                continue
            except NoLayoutInTime as error:
                raise NoLayoutInTime(f"{name}: {error}") from None
            assert search is not None
            self.answers.append(answer)
            self.searches.append(search)
        if reasons:
            raise NoFeasibleLayout(
                "\n".join(f"{name}: {of_one_of_several(str(error))}" for name, error in reasons),
                proven=any(error.proven for _, error in reasons),
            )

    def telling(self, name: str) -> OnProgress | None:
        """Progress of one model's search under its name."""
        return told_under(name, self.on_progress)


def told_under(name: str, tell: OnProgress | None) -> OnProgress | None:
    """Progress of one model's search under its name; its money is not that of all."""
    if tell is None:
        return None
    return lambda one: tell(Progress(one.elapsed_s, None, None, None, f"{name}: {one.doing}"))
