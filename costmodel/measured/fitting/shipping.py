"""From a fit to profile JSON: common values, values by chip and by engine, what it rests on.

``python -m costmodel.measured`` writes ``instances/profiles/calibrated.json`` and ``docs/accuracy.md``
from the shipped measurements. Values are rounded, so that the file is the same bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from costmodel.measured.fitting.crossvalidation import LeftOut, error_quantiles
from costmodel.measured.fitting.first_token import fit_first_token
from costmodel.measured.fitting.fit import Fitted, Problem
from costmodel.measured.fitting.launches import fit_launches
from costmodel.measured.fitting.parameters import COMMON, efficiency_at, rounded
from costmodel.question.engine_files import engine_names, load_engine
from costmodel.question.profile import Efficiency, EngineConstants, Profile
from costmodel.question.profile_parts import FirstToken
from topology.chip import load_chip
from topology.quantity import parse_quantity, per_cent

#: HBM that engine, graphs and buffers take on each chip: assumed, usual setting of memory fraction
RUNTIME_BYTES = parse_quantity("4 GiB", "B")

SOURCES = (
    "InferenceX measurement database, exports of 2026-03-25, 2026-04-06 and 2026-04-27 (Apache-2.0)",
    "NVIDIA aiconfigurator gap analyses (Apache-2.0)",
    "FP8 over BF16 arithmetic: NVIDIA aiconfigurator GEMM tables, commit 095f58a (Apache-2.0)",
)


def fused_chips(engine: str) -> tuple[str, ...] | None:
    """Chips on which an engine has joined kernels of experts; ``None`` where its data does not tell them apart."""
    if engine not in engine_names():
        return None
    experts = load_engine(engine).experts
    return None if experts is None else experts.fused_on


def quickest_products(chips: Sequence[str]) -> dict[str, float]:
    """By dtype, the share of the peak that the quickest products reach: the median of these chips that know it."""
    known = [load_chip(chip).efficiency.sustained for chip in chips]
    dtypes = sorted({dtype for own in known for dtype in own})
    return {dtype: rounded(median(own[dtype] for own in known if dtype in own)) for dtype in dtypes}


def profile_of(
    fitted: Fitted,
    problem: Problem,
    left_out: Sequence[LeftOut],
    name: str,
    first_token: dict[str, FirstToken] | None = None,
) -> Profile:
    """The profile of a fit. Chips and engines without rows get the common values, as assumed.

    ``first_token``: constants of the first token, where they are not those that fit the problem best.
    """
    structure = fitted.structure
    pairs = {(run.chip, run.row.engine) for run in problem.runs}

    best = quickest_products(structure.chips)

    def at(chip: str, engine: str, *, measured: bool) -> Efficiency:
        values = structure.cells(fitted.x, [chip], [engine])
        found = efficiency_at(values, 0, RUNTIME_BYTES, measured=measured)
        if chip not in structure.chips:
            found = found.model_copy(update={"best": best})
        fused_on = fused_chips(engine)
        if fused_on is None or chip in fused_on:
            return found.model_copy(update={"unfused_moe_overhead_s": 0.0})
        return found

    engines = {
        engine: EngineConstants(
            default=at("", engine, measured=False),
            chips={
                chip: at(chip, engine, measured=(chip, engine) in pairs)
                for chip in sorted({*structure.chips, *(fused_chips(engine) or ())})
            },
        )
        for engine in structure.engines
    }
    errors = []
    for one in left_out:
        found = one.score(problem)
        errors.append(
            f"each {one.key} left out: mean {found.mape:.1%}, median {found.median_ape:.1%}, "
            f"bias {per_cent(found.bias, signed=True)}"
        )
    quantiles = error_quantiles(left_out, problem) if left_out else ()
    return Profile(
        name=name,
        description=(
            f"Fitted on measured serving runs: {len(COMMON)} parameters for all, what a kernel costs by chip and engine, none "
            "per model. Chips that were not measured get the common values (provenance assumed)."
        ),
        default=at("", "", measured=False),
        chips={chip: at(chip, "", measured=True) for chip in structure.chips},
        engines=engines,
        first_token=fit_first_token(problem, fitted) if first_token is None else first_token,
        launches=fit_launches(problem, fitted),
        interval=tuple(rounded(value) for value in quantiles),
        fitted_on=(
            f"TPOT of {len(problem.runs)} runs of {len({r.instance.model.name for r in problem.runs})} "
            f"checkpoints on {', '.join(structure.chips)} with {', '.join(structure.engines)}"
        ),
        error="; ".join(errors),
        sources=SOURCES,
    )
