"""Put the real output of the commands named in README.md between its fences (`make readme`)."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

README = Path(__file__).resolve().parent.parent / "README.md"
BLOCK = re.compile(r"<!-- output: (?P<command>.+?) -->\n```\n(?P<text>.*?)```", re.DOTALL)


def output_of(command: str) -> str:
    """What a command prints, with the time it took taken out."""
    done = subprocess.run(
        [sys.executable, "-m", "rackfit", *shlex.split(command)],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line.rstrip() for line in done.stdout.splitlines()]
    return re.sub(r"shapes, [\d.]+ s\)", "shapes, in seconds)", "\n".join(lines)) + "\n"


def main() -> None:
    """Rewrite README.md."""
    text = README.read_text()
    fresh = BLOCK.sub(
        lambda found: f"<!-- output: {found['command']} -->\n```\n{output_of(found['command'])}```",
        text,
    )
    README.write_text(fresh)


if __name__ == "__main__":
    main()
