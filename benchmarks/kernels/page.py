"""The tables of docs/kernels.md: what kernels took on one chip beside what the cost model prices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from benchmarks.kernels import beside
from benchmarks.kernels.beside import Line, Ratio, ratios
from costmodel.passes.routed import NARROW_COLUMNS
from costmodel.question.profile import Efficiency
from topology.chip import load_chip

PAGE = Path(__file__).resolve().parents[2] / "docs" / "kernels.md"
BEGIN, END = "<!-- kernels:begin -->\n", "<!-- kernels:end -->\n"
_MEASURED = ("measured / priced, median", "from, to", "kernels")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _ratios(head: Sequence[str], rows: Iterable[Ratio]) -> str:
    return table((*head, *_MEASURED), [row.cells() for row in rows])


def rates() -> str:
    """What the chip reaches alone beside the constants of serving runs."""
    own, chip = beside.constants(), load_chip(beside.CHIP)
    found = []
    for name, dtype in (("BF16 products", "bf16"), ("FP8 products, one scale per matrix", "fp8")):
        flops = [
            2.0 * float(x["rows"]) * float(x["columns"]) * float(x["depth"]) / float(x["seconds"])
            for x in beside.lines("product")
            if x["dtype"] == dtype and float(x["rows"]) >= 1024
        ]
        shares = sorted(one / chip.peak_flops_per_s(dtype) for one in flops)
        found.append(
            (f"{name}, 1,024 rows or more", _spread(shares), f"{own.arithmetic(dtype):.2f}")
        )
    for name, label in (("read", "a large tensor, read"), ("copy", "a large tensor, copied")):
        (line,) = beside.lines(name)
        share = float(line["columns"]) / float(line["seconds"]) / chip.hbm_bytes_per_s
        found.append((label, f"{share:.2f}", f"{own.hbm:.2f}"))
    streams = []
    for line in beside.lines("product"):
        if line["dtype"] == "bf16" and float(line["rows"]) <= 64:
            size = beside.BYTES["bf16"] * float(line["columns"]) * float(line["depth"])
            streams.append(size / float(line["seconds"]) / chip.hbm_bytes_per_s)
    found.append(
        ("weights of BF16 products, 64 rows or fewer", _spread(sorted(streams)), f"{own.hbm:.2f}")
    )
    return table(("share of the peak", "measured", "serving runs"), found)


def _spread(values: Sequence[float]) -> str:
    return f"{values[0]:.2f} to {values[-1]:.2f}, median {values[len(values) // 2]:.2f}"


def products() -> str:
    """Dense products by rows."""
    return _ratios(
        ("rows", "format"),
        ratios(
            beside.lines("product"), beside.product_s, lambda x: (f"{int(x['rows']):,}", x["dtype"])
        ),
    )


def attention() -> str:
    """The quicker library on each prompt, all heads of a model on one chip."""
    best: dict[tuple[str, ...], Line] = {}
    for line in beside.lines("attention"):
        key = tuple(line[name] for name in ("heads", "qk_dim", "queries", "context"))
        if int(line["heads"]) >= 64 and (
            key not in best or float(line["seconds"]) < float(best[key]["seconds"])
        ):
            best[key] = line

    def label(line: Line) -> tuple[str, ...]:
        whole = line["queries"] == line["context"]
        return (
            f"{int(line['queries']):,}",
            "itself" if whole else f"{int(line['context']):,} before it",
        )

    return _ratios(("tokens", "sees"), ratios(list(best.values()), beside.attention_s, label))


def layers() -> str:
    """Routed experts of one layer: with what lies between kernels, and as if caches held it."""
    measured = beside.lines("layer")

    def label(line: Line) -> tuple[str, ...]:
        return ("a slice of each" if line["how"] == "cut" else "whole", f"{int(line['tokens']):,}")

    def priced(how: Efficiency) -> Callable[[Line], float]:
        return lambda line: beside.layer_s(line, how)

    found = zip(
        ratios(measured, priced(beside.with_results()), label),
        ratios(measured, priced(beside.without_results()), label),
        strict=True,
    )
    rows = sorted((one.cells(), other.cells()[2]) for one, other in found)
    rows.sort(key=lambda row: (row[0][0] != "whole", int(row[0][1].replace(",", ""))))
    head = (
        "experts",
        "tokens of the layer",
        *_MEASURED[:2],
        "layers",
        "median where caches held it",
    )
    return table(head, [(*cells, other) for cells, other in rows])


def narrow() -> str:
    """Weights of routed experts under few rows, by columns of a slice."""
    up, down = beside.lines("grouped_up"), beside.lines("grouped_down")
    found: dict[int, list[float]] = {}
    widest: dict[tuple[str, str, str], float] = {}
    for one, other in zip(up, down, strict=True):
        if float(one["rows"]) > 16:
            continue
        width = int(other["depth"])
        size = (
            3.0 * float(one["experts"]) * width * float(one["depth"]) * beside.BYTES[one["dtype"]]
        )
        rate = size / (float(one["seconds"]) + float(other["seconds"]))
        best = widest.setdefault((one["dtype"], one["depth"], one["rows"]), rate)
        found.setdefault(width, []).append(rate / best)
    full = 1.0 + NARROW_COLUMNS / max(found)
    return table(
        ("columns", "measured, of the rate of 2,048 columns", "priced"),
        [
            (f"{width:,}", _spread(sorted(values)), f"{full / (1.0 + NARROW_COLUMNS / width):.2f}")
            for width, values in found.items()
        ],
    )


def launches() -> str:
    """Microseconds of a kernel that does nothing much."""
    found = {line["how"]: float(line["seconds"]) * 1e6 for line in beside.lines("launch")}
    return (
        f"A kernel that does nothing much takes {found['graph']:.1f} us in a graph and {found['host']:.1f} us launched from the "
        "host one by one.\n"
    )


def tables() -> str:
    """All tables under their headings."""
    parts = {
        "Rates": rates(),
        "Dense products": products(),
        "Attention over prompts": attention(),
        "Routed experts": layers(),
        "Narrow slices": narrow(),
        "Launches": launches(),
    }
    return "\n".join(f"### {name}\n\n{text}" for name, text in parts.items())


def write() -> None:
    """Write the tables into the page."""
    head, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    PAGE.write_text(f"{head}{BEGIN}\n{tables()}\n{END}{rest.split(END)[1]}", encoding="utf-8")
