"""Put the real output of the commands named in README.md and docs between its fences (`make readme`).

``<!-- output: COMMAND; lines: WORD WORD -->`` keeps the lines whose first word is one of these.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = (ROOT / "README.md", *(ROOT / "docs" / name for name in ("deployments.md", "plan.md")))
BLOCK = re.compile(
    r"<!-- output: (?P<command>.+?)(?:; lines: (?P<words>.+?))? -->\n```(?:text)?\n(?P<text>.*?)```",
    re.DOTALL,
)
FILE = re.compile(r'^```\w+ title="(?P<name>[^"]+)"\n(?P<text>.*?)^```$', re.MULTILINE | re.DOTALL)


def output_of(command: str, words: str | None = None, folder: Path = ROOT) -> str:
    """What a command prints, with the time it took taken out."""
    done = subprocess.run(
        [sys.executable, "-m", "rackfit", *shlex.split(command)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 1) or not done.stdout:  # 1: a deployment that misses a target
        raise RuntimeError(f"{command}: {done.stderr}")
    lines = [line.rstrip() for line in done.stdout.splitlines()]
    if words is not None:
        kept = []
        last = False
        for line in lines:  # a line that goes on is indented as far as the figures
            last = (last and line.startswith(" " * 20)) or _first_word(line) in words.split()
            if last:
                kept.append(line)
        lines = [line for line in kept if not re.match(r" *(prefill|decode|count of)\b", line)]
    return (
        re.sub(r"shapes searched in [\d.]+ s\)", "shapes searched in seconds)", "\n".join(lines))
        + "\n"
    )


def _first_word(line: str) -> str:
    """The first word, numbers aside: rows of the table of replicas begin with their count."""
    return next((word for word in line.split() if not word.isdigit()), "")


def fresh(page: Path) -> str:
    """A page with the output of its commands as it is now."""
    text = page.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for found in FILE.finditer(text):
            (folder / found["name"]).write_text(found["text"], encoding="utf-8")

        def replaced(found: re.Match[str]) -> str:
            output = output_of(found["command"], found["words"], folder)
            start = found.start("text") - found.start()
            return found[0][:start] + output + "```"

        return BLOCK.sub(replaced, text)


def main() -> None:
    """Rewrite the pages."""
    for page in PAGES:
        page.write_text(fresh(page), encoding="utf-8")


if __name__ == "__main__":
    main()
