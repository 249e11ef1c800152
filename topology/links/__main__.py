"""``python -m topology.links``: fits every chip's collectives and writes ``instances/links``."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence

from topology.catalogue import data_dir
from topology.links.fits import Fit, LinkFits, read_link_fits
from topology.links.fitting import errors, fit_dispatch, fit_local, held_out
from topology.links.rows import expert_rows, nccl_rows


def main() -> None:
    """Fit every chip, print the errors, write the files."""
    rows = [*nccl_rows(), *expert_rows()]
    folder = data_dir("links")
    for chip in sorted({row.chip for row in rows}):
        fits: dict[str, Fit] = {}
        out: Fit | None = None
        notes = []
        for kind in sorted({row.kind for row in rows if row.chip == chip}):
            mine = [row for row in rows if row.chip == chip and row.kind == kind]
            if kind == "dispatch":
                fits[kind], out = fit_dispatch(mine)
            else:
                fits[kind] = fit_local(mine)
            seen = errors(mine, fits[kind], out)
            builds = held_out(mine, lambda row: row.build)
            counts = held_out(mine, lambda row: row.num_chips)
            note = (
                f"{kind}: median error {statistics.median(seen):.1%} in sample, "
                f"{_median(builds)} with each build left out, "
                f"{_median(counts)} with each number of chips left out ({len(mine)} rows)"
            )
            print(chip, note)
            notes.append(note)
        before = read_link_fits(chip)
        found = LinkFits(
            chip=chip,
            like=before.like if before else None,
            collectives={kind: _rounded(fit) for kind, fit in fits.items()},
            scale_out=_rounded(out) if out else None,
            sources=("measured/nccl.csv", "measured/moe_all_to_all.csv"),
            notes=tuple(notes),
        )
        text = json.dumps(found.model_dump(exclude_none=True, exclude_defaults=True), indent=2)
        (folder / f"{chip}.json").write_text(text + "\n", encoding="utf-8")


def _median(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.1%}" if values else "not measured"


def _rounded(fit: Fit) -> Fit:
    digits = {name: float(f"{value:.4g}") for name, value in fit.model_dump().items()}
    return Fit(**digits)


if __name__ == "__main__":
    main()
