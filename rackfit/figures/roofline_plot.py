"""Operations of a pass on the roofline: arithmetic intensity against FLOP/s, under the chip's roofs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from costmodel.layout.layout import Layout
from costmodel.question.instance import Instance
from costmodel.replica.held import place_in_flight, reading_from
from costmodel.replica.replica import StageTerms, stage_terms
from rackfit.documents.replica_groups import ReplicaGroup
from rackfit.figures.chart import Chart, Series
from rackfit.figures.live import figure
from rackfit.report.page import table
from rackfit.wording import counted
from topology import Chip


@dataclass(frozen=True)
class RooflinePoint:
    """One kind of operation of one pass on the busiest chip; traffic between chips is not one."""

    part: str
    dtype: str
    flops: float
    bytes_moved: float
    seconds: float
    compute_s: float

    @property
    def intensity(self) -> float:
        """FLOPs per byte of HBM traffic."""
        return self.flops / self.bytes_moved

    @property
    def flops_per_s(self) -> float:
        """Achieved FLOP/s."""
        return self.flops / self.seconds

    @property
    def bound(self) -> str:
        """What the operation waits for most of its time."""
        return "compute" if 2 * self.compute_s >= self.seconds else "memory"


def roofline_points(instance: Instance, stage: StageTerms, name: str) -> list[RooflinePoint]:
    """Points of one pass of a stage (``name``: decode or prefill), the slowest first."""
    chip = chip_of(instance, stage)
    efficiency = instance.profile.for_chip(chip.name).on(chip)
    found: dict[tuple[str, str], list[float]] = {}
    for term in stage.passes.get(name, ()):
        compute, memory = float(term.compute_s), float(term.memory_s)
        computing = compute + float(term.softmax_s)
        if not term.dtype or not (compute > 0 and memory > 0):
            continue
        rate = chip.peak_flops_per_s(term.dtype) * efficiency.arithmetic(
            chip.computes_in(term.dtype)
        )
        width = chip.hbm_bytes_per_s * efficiency.stream(term.stream)
        rate *= float(term.share)
        if term.stream != "kv" and chip.unpacks(term.dtype):
            width *= efficiency.unpacking
            rate *= efficiency.widened
        sums = found.setdefault((term.part, term.dtype), [0.0, 0.0, 0.0, 0.0])
        for place, value in enumerate((compute * rate, memory * width, max(computing, memory))):
            sums[place] += value
        sums[3] += computing if computing >= memory else 0.0
    points = [RooflinePoint(*key, *sums) for key, sums in found.items()]
    return sorted(points, key=lambda point: -point.seconds)


def chip_of(instance: Instance, stage: StageTerms) -> Chip:
    """The chip type that the stage's terms were priced on."""
    return next(
        placed.chip for placed in instance.cluster.chips if placed.chip.name == stage.slowest_chip
    )


def roofline_chart(
    instance: Instance,
    stage: StageTerms,
    points: Sequence[RooflinePoint],
    title: str,
    names: Sequence[str] = (),
) -> Chart:
    """Dots by operation; a roof for each number format in use, at the profile's efficiencies.

    ``names``: those of every roofline that is shown beside this one, so that a colour means one thing.
    """
    chip = chip_of(instance, stage)
    efficiency = instance.profile.for_chip(chip.name).on(chip)
    width = chip.hbm_bytes_per_s * efficiency.hbm
    peaks = {
        dtype: chip.peak_flops_per_s(dtype) * efficiency.arithmetic(chip.computes_in(dtype))
        for dtype in dict.fromkeys(point.dtype for point in points)
    }
    ridges = [peak / width for peak in peaks.values()]
    intensities = [point.intensity for point in points]
    low, high = min(*ridges, *intensities) / 4, 2 * max(*ridges, *intensities)
    roofs = []
    for dtype, peak in peaks.items():
        line = [(low, low * width), (peak / width, peak), (high, peak)]
        roofs.append(Series(roof_name(dtype), [(x, y / 1e12) for x, y in line], "line"))
    dots = [
        Series(dot_name(point), [(point.intensity, point.flops_per_s / 1e12)], "dots")
        for point in points
    ]  # fmt: skip
    return Chart(
        title, "FLOP per byte of HBM traffic", "TFLOP/s of a chip", [*dots, *roofs],
        log_x=True, log_y=True, names=names,
    )  # fmt: skip


def dot_name(point: RooflinePoint) -> str:
    """An operation in the key of a roofline."""
    return f"{point.part.replace('_', ' ')}, {point.dtype}"


def roof_name(dtype: str) -> str:
    """The roof of a number format in the key of a roofline."""
    return f"roof, {dtype}"


def rooflines(instance: Instance, layout: Layout, groups: Sequence[ReplicaGroup]) -> str:
    """Section of a report: a plot and a table for each pass of the largest replica of each role."""
    largest: dict[str, ReplicaGroup] = {}
    for group in sorted(groups, key=lambda group: len(group[0].chips)):
        if group[0].apart is None:  # the terms of two groups in turn are no single pass
            largest[group[0].role] = group
    found: list[tuple[str, Instance, StageTerms, list[RooflinePoint]]] = []
    for replica, _, _ in largest.values():
        read = reading_from(instance, place_in_flight(replica))
        first = stage_terms(read, layout, replica)[0]
        for name in first.passes:
            title = f"{name.capitalize()} pass of a {replica.role} replica on {counted(len(replica.chips), 'chip')}"
            found.append((title, read, first, roofline_points(read, first, name)))
    every = [point for *_, points in found for point in points]
    names = [*sorted({dot_name(p) for p in every}), *sorted({roof_name(p.dtype) for p in every})]
    parts = []
    for title, read, first, points in found:
        if not points:
            continue
        rows = [
            [p.part.replace("_", " "), p.dtype, p.intensity, p.flops_per_s / 1e12,
             p.seconds * 1e3, p.bound]
            for p in points
        ]  # fmt: skip
        parts.append(
            figure(roofline_chart(read, first, points, title, names))
            + table(["operation", "format", "FLOP/B", "TFLOP/s", "ms", "waits for"], rows, title)
        )
    if not parts:
        return ""
    note = (
        '<p class="note">Largest replica of each role, first stage, busiest chip; roofs at the efficiencies of the profile. Exchanges '
        "between chips are in the times above, not here.</p>"
    )
    return "<h2>Roofline</h2>" + note + "".join(parts)
