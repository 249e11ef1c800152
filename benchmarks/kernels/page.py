"""The tables of docs/kernels.md: what kernels took on one chip beside what the cost model prices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from benchmarks.kernels import beside, engine, under_load
from benchmarks.kernels.beside import Line, Ratio, ratios
from costmodel.passes.routed import NARROW_S_PER_B
from rackfit.wording import counted
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
    """What the chips reach alone beside the constants of serving runs."""
    found = []
    for name in beside.CHIPS:
        own, chip = beside.constants(name), load_chip(name)
        for label, dtype in (
            ("BF16 products", "bf16"),
            ("FP8 products, one scale per matrix", "fp8"),
        ):
            shares = sorted(
                2.0 * float(x["rows"]) * float(x["columns"]) * float(x["depth"])
                / float(x["seconds"]) / chip.peak_flops_per_s(dtype)
                for x in beside.lines("product", name)
                if x["dtype"] == dtype and float(x["rows"]) >= 1024
            )  # fmt: skip
            serving = f"{own.arithmetic(dtype):.2f}"
            found.append((name, f"{label}, 1,024 rows or more", _spread(shares), serving))
        for kernel, label in (("read", "a large tensor, read"), ("copy", "a large tensor, copied")):
            (line,) = beside.lines(kernel, name)
            share = float(line["columns"]) / float(line["seconds"]) / chip.hbm_bytes_per_s
            found.append((name, label, f"{share:.2f}", f"{own.hbm:.2f}"))
        streams = sorted(
            beside.BYTES["bf16"] * float(x["columns"]) * float(x["depth"])
            / float(x["seconds"]) / chip.hbm_bytes_per_s
            for x in beside.lines("product", name)
            if x["dtype"] == "bf16" and float(x["rows"]) <= 64
        )  # fmt: skip
        label = "weights of BF16 products, 64 rows or fewer"
        found.append((name, label, _spread(streams), f"{own.hbm:.2f}"))
    return table(("chip", "share of the peak", "measured", "serving runs"), found)


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
        key = tuple(line[name] for name in ("chip", "heads", "qk_dim", "queries", "context"))
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


def engine_attention() -> str:
    """Engines' attention over 8,192 tokens and more: the spread is that of engines."""
    found: dict[tuple[str, ...], list[float]] = {}
    for line in beside.engine_lines():
        key = (line["chip"], f"{line['qk_dim']}, {line['v_dim']}", line["kv"])
        own = float(line["seconds_per_score"]) / beside.score_s(line)
        found.setdefault(key, []).append(own)
    head = ("chip", "head, of queries and values", "KV", *_MEASURED[:2], "engines")
    return table(head, [Ratio(key, tuple(own)).cells() for key, own in found.items()])


def layers() -> str:
    """Routed experts of one layer: with what lies between kernels, and as if caches held it."""
    measured = beside.lines("layer")
    measured.sort(key=lambda x: (x["chip"], x["how"] == "cut", int(x["tokens"])))

    def label(line: Line) -> tuple[str, ...]:
        how = "a slice of each" if line["how"] == "cut" else "whole"
        return (line["chip"], how, f"{int(line['tokens']):,}")

    found = zip(
        ratios(measured, beside.layer_s, label),
        ratios(measured, partial(beside.layer_s, between=False), label),
        strict=True,
    )
    head = (
        "chip",
        "experts",
        "tokens of the layer",
        *_MEASURED[:2],
        "layers",
        "median where caches held it",
    )
    return table(head, [(*one.cells(), other.cells()[3]) for one, other in found])


def narrow() -> str:
    """Weights of routed experts under few rows, by columns of a slice."""
    found = []
    for chip in beside.CHIPS:
        turn = NARROW_S_PER_B * load_chip(chip).hbm_bytes_per_s
        rates: dict[int, list[float]] = {}
        widest: dict[tuple[str, ...], float] = {}
        for kind, width, rate in beside.slices(chip):
            rates.setdefault(width, []).append(rate / widest.setdefault(kind, rate))
        full = 1.0 + turn / max(rates)
        for width, values in rates.items():
            priced = full / (1.0 + turn / width)
            found.append((chip, f"{width:,}", _spread(sorted(values)), f"{priced:.2f}"))
    return table(("chip", "columns", "measured, of the rate of 2,048 columns", "priced"), found)


def launches() -> str:
    """Microseconds of a kernel that does next to nothing."""
    found = [
        (
            line["chip"],
            {"graph": "in a graph", "host": "launched from the host"}[line["how"]],
            f"{float(line['seconds']) * 1e6:.1f}",
        )
        for line in beside.lines("launch")
    ]
    return table(("chip", "a kernel that does next to nothing", "us"), found)


def engine_runs() -> str:
    """First tokens of lone prompts and times per token by users, under a whole engine."""
    found = []
    for one in engine.beside():
        line, prompts = one.line, not one.line["tpot_ms"]
        tokens = f"{int(line['input_tokens']):,}"
        if prompts:
            what = f"first token of one prompt of {tokens} tokens"
            took, priced = float(line["ttft_p50_ms"]), one.ttft_s * 1e3
        else:
            users, rate = line["users"], line["requests_per_s"]
            load = counted(int(users), "user") if users else f"{rate} requests/s"
            what = f"a token, {load}, {tokens} + {line['output_tokens']} tokens"
            took, priced = float(line["tpot_ms"]), one.tpot_s * 1e3
        name = engine.name(line)
        found.append((name, what, f"{took:.2f}", f"{priced:.2f}", f"{took / priced:.2f}"))
    return table(("model", "what", "measured, ms", "predicted, ms", "measured / predicted"), found)


def engine_loads() -> str:
    """First and further tokens under loads of users and of requests that come at random."""
    found = []
    for one in under_load.loaded():
        median, late = one.ttft_ms
        further = one.tpot_ms
        found.append(
            (one.server.model, one.what, str(one.server.api_servers),
             *(f"{ms:,.0f}" for ms in (*median, *late)),
             *(("-", "-") if further is None else (f"{ms:.1f}" for ms in further)),
             f"{one.server.tokens_sent_together:.1f}")
        )  # fmt: skip
    head = ("model", "load", "API processes", "first token, median, ms", "replayed", "99th percentile, ms", "replayed",
            "a further token, ms", "replayed", "tokens sent together")  # fmt: skip
    return table(head, found)


def engine_memory() -> str:
    """What an engine's server had in HBM beside what is priced, GiB."""
    found = []
    for one in engine.held():
        line = one.line
        kv = float(line["kv_gib"]) * engine.GIB / float(line["kv_tokens"])
        rest = float(line["other_gib"]) + float(line["graphs_gib"])
        found.append(
            (engine.name(line), line["weight_gib"], f"{one.weight_gib:.2f}", line["activations_gib"],
             f"{one.activations_gib:.2f}", f"{rest:.2f}", f"{kv:,.0f}", f"{one.kv_token_bytes:,.0f}")
        )  # fmt: skip
    head = ("model", "weights", "priced", "activations", "priced", "graphs and the rest", "KV of a token, bytes", "priced")  # fmt: skip
    return table(head, found)


def tables() -> str:
    """All tables under their headings."""
    parts = {
        "Rates": rates(),
        "Dense products": products(),
        "Attention over prompts": attention(),
        "Attention over prompts in engines": engine_attention(),
        "Routed experts": layers(),
        "Narrow slices": narrow(),
        "Launches": launches(),
        "A whole engine, H200": engine_runs(),
        "A whole engine under load, H200": engine_loads(),
        "Its memory, GiB": engine_memory(),
    }
    return "\n".join(f"### {name}\n\n{text}" for name, text in parts.items())


def write() -> None:
    """Write the tables into the page."""
    head, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    PAGE.write_text(f"{head}{BEGIN}\n{tables()}\n{END}{rest.split(END)[1]}", encoding="utf-8")
