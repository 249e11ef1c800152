"""The options of a question about traffic: requests over time, percentiles, the peak, a loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from costmodel.question.scenario import Scenario
    from costmodel.question.workload import Slo
    from solver.traffic.asked import Asked

#: options of commands that take traffic
Traffic = Annotated[
    str | None,
    typer.Option(
        help="Requests over time: a name, trace (CSV, JSONL) or YAML; --rate rescales them."
    ),
]
TtftP99 = Annotated[
    str | None,
    typer.Option(help="With --traffic or --rate: 99th percentile of TTFT, s (else --ttft)."),
]
TpotP99 = Annotated[
    str | None,
    typer.Option(help="With --traffic or --rate: 99th percentile of TPOT, s (else --tpot)."),
]
Goodput = Annotated[
    float | None,
    typer.Option(help="Share of requests that meets both targets, with --traffic or --rate."),
]


@dataclass(frozen=True)
class Percentiles:
    """The options as they were given."""

    traffic: str | None
    ttft_p99: str | None
    tpot_p99: str | None
    goodput: float | None
    peak: float
    spare: str
    prefixes: Literal["off", "hbm", "host", "any"] = "off"

    def read(self, scenario: Scenario, seed: int) -> Asked | None:
        """What is asked; ``None`` where no option is about traffic. Raises ``InstanceError`` with everything wrong.

        Without ``--traffic``, requests of the question's own lengths come at random at its rate.
        """
        from costmodel.question.instance import resolve_instance
        from costmodel.question.traffic.load import at_random, load_traffic, over_time
        from costmodel.replay.targets import Targets
        from costmodel.together.question import MOST_SPARE
        from solver.traffic.asked import Asked
        from topology.errors import InstanceError, Problem, either, option

        given = self._given()
        if self.traffic is None and not given:
            return None
        if self.traffic is None and (scenario.rate is None or "prefixes" in given):
            message = f"needs {option('traffic')}"
            if "prefixes" not in given and option("rate"):
                message += f", or {option('rate')} for requests of the question's lengths that come at random"
            raise InstanceError([Problem(option(name), message) for name in given])
        problems = []
        if self.goodput is not None and not 0 < self.goodput < 1:
            message = f"expected a share above 0 and below 1, got {self.goodput:g}"
            problems.append(Problem(option("goodput"), message))
        if not 1 <= self.peak <= 1000:
            message = f"expected 1 to 1000 times the mean, got {self.peak:g}"
            problems.append(Problem(option("peak"), message))
        digits = self.spare.isascii() and self.spare.isdecimal() and len(self.spare) < 7
        number = int(self.spare) if digits else -1
        if self.spare not in ("node", "rack") and not 0 <= number <= MOST_SPARE:
            message = f"expected node, rack or a number of chips, got {self.spare[:40]!r}"
            problems.append(Problem(option("spare"), message))
        slo = self._slo(scenario)
        if slo.ttft is None and slo.tpot is None:
            place = "traffic" if self.traffic is not None else given[0]
            ways = either(option("ttft-p99"), option("tpot-p99"))
            problems.append(Problem(option(place), f"has no target: give {ways}"))
        if problems:
            raise InstanceError(problems)
        if self.traffic is not None:
            loaded = load_traffic(self.traffic, rate=scenario.rate, seed=seed)
            requests = over_time(loaded, option("traffic"))
        else:
            assert scenario.rate is not None
            own = scenario.model_copy(update={"choices": None})  # they say nothing of requests
            requests = at_random(resolve_instance(own).workload, scenario.rate, seed)
        if self.prefixes == "off":
            requests = requests.whole_prompts()
        return Asked(
            requests,
            Targets(slo.ttft, slo.tpot, self.goodput),
            self.peak,
            number if number >= 0 else self.spare,
            self.prefixes,
        )

    def _given(self) -> list[str]:
        """Options that say something only about traffic."""
        told = {
            "ttft-p99": self.ttft_p99 is not None,
            "tpot-p99": self.tpot_p99 is not None,
            "goodput": self.goodput is not None,
            "peak": self.peak != 1.0,
            "spare": self.spare != "0",
            "prefixes": self.prefixes != "off",
        }
        return [name for name, said in told.items() if said]

    def _slo(self, scenario: Scenario) -> Slo:
        """The targets of the percentiles, those of the question where none are given."""
        from costmodel.question.workload import Slo
        from topology.catalogue import checked
        from topology.errors import option

        with checked(f"{option('ttft-p99')}, {option('tpot-p99')}"):
            return Slo.model_validate(
                {
                    "ttft": self.ttft_p99 if self.ttft_p99 is not None else scenario.slo.ttft,
                    "tpot": self.tpot_p99 if self.tpot_p99 is not None else scenario.slo.tpot,
                }
            )
