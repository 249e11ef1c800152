"""What a narrow terminal shows: every figure whole, and one line of progress that is rewritten."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rackfit.console import print_sentence, print_table
from rackfit.progress import ProgressPrinter, describe
from solver.answer import Progress

HEADS = ("role", "chips", "weights", "experts", "activations", "runtime", "capacity")
ROWS = (("prefill", "1", "4.3", "61.0", "0.8", "4.3", "151.4"), ("decode", "16", "2.1", "10.2", "0.0", "4.3", "151.4"))  # fmt: skip


def printed(width: int, terminal: bool = True) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=terminal, color_system=None)
    table = Table(title="HBM, GB", title_justify="left", box=None)
    for head in HEADS:
        table.add_column(head, justify="right")
    for row in ROWS:
        table.add_row(*map(Text, row))
    print_table(console, table)
    return out.getvalue()


@pytest.mark.parametrize("width", [200, 80, 57, 50, 40, 24])
def test_no_width_cuts_a_head_or_a_figure(width: int) -> None:
    said = printed(width)
    assert "…" not in said
    for word in (*HEADS, *ROWS[0], *ROWS[1]):
        assert re.search(rf"(^|[\s:;]){re.escape(word)}($|[\s:;])", said), word
    assert max(map(len, said.splitlines())) <= width


def test_a_table_is_kept_where_it_fits_and_each_figure_has_its_head_where_not() -> None:
    least = min(width for width in range(20, 200) if "role: prefill" not in printed(width))
    assert "61.0" in printed(least)
    assert "experts: 61.0" in printed(least - 1)


def test_a_terminal_breaks_sentences_between_words_and_a_pipe_not_at_all() -> None:
    words = "the busiest chips cost more than if each stage spread the same load evenly"
    for terminal in (True, False):
        out = io.StringIO()
        console = Console(file=out, width=30, force_terminal=terminal, color_system=None)
        print_sentence(console, words, indent="  ")
        found = out.getvalue().splitlines()
        assert " ".join(line.strip() for line in found) == words
        assert len(found) == (3 if terminal else 1)
        assert found[0].startswith("  the")


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_stays_on_one_line_of_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    out = Screen()
    with ProgressPrinter(out) as printer:
        printer(Progress(1.0, 0.37956, 0.37956, 0.0, "403 shapes bounded and placed"))
    assert max(map(len, out.getvalue().split("\r"))) < 50


def test_progress_proves_no_more_than_is_proven() -> None:
    told = describe(Progress(1.0, 0.40, 0.37958, 0.0537901, "10 shapes placed"))
    assert "bound $0.3795/M" in told
    assert "gap 5.38%" in told
