"""docs/released-models.md: packaged configs of released models, read, beside names and bits. No torch.

python -m benchmarks.architectures.released
"""

from __future__ import annotations

from pathlib import Path

from costmodel.models.summary import Summary, summarise
from tests.costmodel.models.bits import BY_HAND, SHAPES, counted_bytes
from tests.costmodel.models.named_sizes import EXPLAINED, closest_active, named
from tests.costmodel.models.test_mutated_lists import DOCUMENT, PACKAGED, _read

PAGE = Path(__file__).resolve().parents[2] / "docs/released-models.md"
_MODELS = """# Released models

What `rackfit model` reads of {num} configs of released models, as {source} packages them
({licence}). `make architectures` writes this page.

## Sizes

Billions of parameters of the text model. Differences are to the sizes in the name; names count active
parameters with or without embeddings, and the count that comes closest is compared.

| model | read as | total | active | total and name | active and name | why above 6 % |
|---|---|---|---|---|---|---|
"""
_BYTES = """
## Bytes of quantised checkpoints

GB of the text model's weights, without draft modules and towers. The second column adds up bits per module: shapes come
from the model's class in transformers (from formulas of their own where there is no class: {by_hand}), and
what is quantised is decided from words in the checkpoint's lists, without Rackfit's reader.

| model | stored as | read, GB | bits per module, GB | difference |
|---|---|---|---|---|
"""


def size_row(name: str, s: Summary, family: str) -> str:
    """One model's sizes beside its name's."""
    sizes = named(name)
    total = active = ""
    if sizes is not None:
        total = f"{s.total_params / sizes[0] - 1:+.1%}"
        if sizes[1] is not None:
            active = f"{closest_active(s, sizes[1]) / sizes[1] - 1:+.1%}"
    return (
        f"| {name.replace('--', '/')} | {family} | {s.total_params / 1e9:,.2f} | "
        f"{s.active_params / 1e9:,.2f} | {total or '-'} | {active or '-'} | {EXPLAINED.get(name, '')} |"
    )


def page() -> str:
    """The whole page."""
    read = {name: _read(name, entry) for name, entry in PACKAGED.items()}
    sums = {name: summarise(spec) for name, spec in read.items()}
    lines = [
        _MODELS.format(
            num=len(read), source=DOCUMENT["source"].split(",")[0], licence=DOCUMENT["licence"]
        ).rstrip("\n")
    ]
    lines += [size_row(name, s, read[name].family) for name, s in sums.items()]
    quantised = sorted({*SHAPES, *BY_HAND})
    by_hand = " and ".join(name.split("--")[1] for name in sorted(BY_HAND))
    lines.append(_BYTES.format(by_hand=by_hand).rstrip("\n"))
    within = 0
    for name in quantised:
        counted, own = counted_bytes(name), sums[name].weight_bytes
        within += abs(own / counted - 1) <= 0.02
        lines.append(
            f"| {name.replace('--', '/')} | {read[name].native_dtype} | {own / 1e9:,.2f} | "
            f"{counted / 1e9:,.2f} | {own / counted - 1:+.2%} |"
        )
    lines += ["", f"Within 2 %: {within} of {len(quantised)}."]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the page."""
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
