"""Solve and export the twenty deployments, compare ``--engine any``, write the page.

    python -m benchmarks.engines solve FOLDER [NAME ..]    answers and exports that are not there yet
    python -m benchmarks.engines any FOLDER [NAME ..]      each engine alone and the choice
    python -m benchmarks.engines read FOLDER ENGINE=PYTHON ..   the engines read the exports (their Python)
    python -m benchmarks.engines page FOLDER               tables of docs/engines.md from the folder

``make engines`` does all of it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.engines.choice import compare
from benchmarks.engines.deployments import answer, deployments
from benchmarks.engines.page import write
from benchmarks.engines.reading import read


def main(words: list[str]) -> int:
    """The command line."""
    if len(words) < 2 or words[0] not in ("solve", "any", "read", "page"):
        print(__doc__, file=sys.stderr)
        return 2
    folder, names = Path(words[1]), words[2:]
    if words[0] == "any":
        compare(folder, names)
    elif words[0] == "read":
        return int(not read(folder, dict(word.split("=", 1) for word in names)))
    elif words[0] == "page":
        write(folder)
    else:
        for one in deployments():
            if not names or one.name in names:
                document = answer(one, folder)
                cost = document["evaluation"]["usd_per_m_output_tokens"]
                seconds = (folder / f"{one.name}.seconds").read_text()
                print(
                    f"{one.name:20} {cost:.4f} gap {document['certificate']['gap']:.4f} {seconds} s",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
