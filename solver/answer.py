"""What a search answers: progress, the verified layout with its proof, and which of two answers is better."""

from __future__ import annotations

from dataclasses import dataclass

from costmodel.evaluate import Evaluation
from costmodel.layout.layout import Layout
from costmodel.question.choices.options import Values
from costmodel.question.instance import Instance
from costmodel.replay.met import Met
from costmodel.replay.targets import Targets
from costmodel.worlds.across import Across
from solver.certificate import Certificate


@dataclass(frozen=True)
class Progress:
    """State of a search at one moment; costs in dollars per million output tokens."""

    elapsed_s: float
    incumbent: float | None
    bound: float | None
    gap: float | None
    doing: str


@dataclass(frozen=True)
class MainShape:
    """Role and widths of the shape that most generating chips of a layout stand on."""

    role: str
    tp: int
    pp: int
    stage_chips: int

    def words(self, *, experts: bool) -> str:
        """``decode replicas like tp 1 on 16 chips``, whole experts or cut: both are alike."""
        wide = f" on {self.stage_chips} chip{'s' * (self.stage_chips > 1)}" if experts else ""
        piped = f"{' a stage,' if wide else ''} pp {self.pp}" if self.pp > 1 else ""
        return f"{self.role} replicas like tp {self.tp}{wide}{piped}"


@dataclass(frozen=True)
class RunnerUp:
    """The cheapest layout found that has no replica like the best one's main shape.

    ``least_usd_per_m_output_tokens``: no such layout of the search space costs less (``None``: not proven).
    """

    layout: Layout
    evaluation: Evaluation
    without: MainShape
    least_usd_per_m_output_tokens: float | None


@dataclass(frozen=True)
class Alone:
    """What one engine alone costs; ``None`` where nothing was found, ``reason`` then says why.

    ``engine``: name and version. No layout that it runs costs less than ``bound_usd_per_m_output_tokens``.
    """

    engine: str
    label: str
    usd_per_m_output_tokens: float | None
    bound_usd_per_m_output_tokens: float
    reason: str = ""
    wall_s: float = 0.0


@dataclass(frozen=True)
class Chosen:
    """What one combination of values of the choices costs.

    ``usd_per_m_output_tokens``: of the best layout found, ``None`` where none was looked for or there is none (``reason``
    then says why). No layout of it costs less than ``bound_usd_per_m_output_tokens``.
    """

    values: Values
    usd_per_m_output_tokens: float | None
    bound_usd_per_m_output_tokens: float
    reason: str = ""


@dataclass(frozen=True)
class PrefixUse:
    """What blocks of earlier prompts do for an answer.

    ``tier``: where they are kept, ``hbm`` or, beside it, ``host``; ``host_bytes``: the memory of the hosts of replicas that
    compute prompts (0: not used). ``hit_rate``: prompt tokens that needed no pass, of the traffic as it is; a cache that never
    forgets has ``most_hit_rate``. ``hbm_usd_per_m_output_tokens``: the best answer found with HBM alone (``None``: none was).
    """

    tier: str
    host_bytes: float
    hit_rate: float
    most_hit_rate: float
    hbm_usd_per_m_output_tokens: float | None


@dataclass(frozen=True)
class PutOff:
    """What the longest hundredth of the prompts meets where the shortest that waits is next, of the traffic as it is.

    ``tokens``: such prompts have so many at least. ``ttft_p50_s``: of these. ``late``: the share of them whose first token is.
    """

    tokens: int
    ttft_p50_s: float
    late: float


@dataclass(frozen=True)
class ForTraffic:
    """What replays said of an answer for traffic, and what steady answers cost beside it.

    ``met``: on the traffic as it is, at the peak. ``runs``: replays passed, ``losses``: after each of so many.
    ``confirmed``: whether those of all draws by which it was not chosen are among them; else the time was over, or it
    missed one and ``draws`` says on how many others it meets the targets, and of how many.
    ``peak``: the rate of the replays over the mean rate. ``mean_usd_per_hour``: the steady answer at the mean
    lengths; ``spread_usd_per_hour``: the same where lengths differ (both ``None`` where none meets the targets);
    ``usd_per_hour``: this answer.
    ``usd_per_m_output_tokens`` at the mean rate. ``loads`` by role: what the peak takes of each pool.
    ``prefill_chunk_tokens``: prompt tokens of a rank in one pass at most, ``chunks_tried``: all that were looked at.
    ``put_off``: what the longest prompts meet where the shortest that waits is next; ``None``: they are computed as they come.
    """

    met: Met
    targets: Targets
    runs: int
    losses: int
    confirmed: bool
    peak: float
    mean_usd_per_hour: float | None
    spread_usd_per_hour: float | None
    usd_per_hour: float
    usd_per_m_output_tokens: float
    loads: dict[str, float]
    prefill_chunk_tokens: int
    chunks_tried: tuple[int, ...]
    #: whether replays began with sequences that decode, as their requests alone would not fill the fleet
    under_way: bool = False
    draws: tuple[int, int] | None = None
    #: ``None`` where prompts are computed whole
    prefixes: PrefixUse | None = None
    put_off: PutOff | None = None


@dataclass(frozen=True)
class SearchResult:
    """The best verified layout with its proof."""

    status: str
    layout: Layout
    evaluation: Evaluation
    certificate: Certificate
    wall_s: float
    first_layout_s: float
    proof_s: float | None
    shapes: int
    trajectory: tuple[Progress, ...]
    #: relative cost of uneven expert load (0 for a dense model)
    skew_cost: float
    #: the best layout found that is built differently, where it was asked for and there is one
    runner_up: RunnerUp | None = None
    #: what each engine alone costs, where the engine was a choice
    engines: tuple[Alone, ...] = ()
    #: what each combination of values costs, where options were choices
    choices: tuple[Chosen, ...] = ()
    #: the question as it is for the engine and the values chosen, or for traffic; ``None``: as it was asked
    instance: Instance | None = None
    #: what replays said, where the question was traffic
    traffic: ForTraffic | None = None
    #: the answer over the worlds, where a confidence was asked for
    worlds: Across | None = None
