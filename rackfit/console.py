"""What people read on a terminal: tables that are never cut, sentences that wrap between words."""

from __future__ import annotations

from textwrap import fill

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text


def make_console() -> Console:
    """A console as wide as the terminal; wide enough for every table in a pipe."""
    console = Console()
    return console if console.is_terminal else Console(width=120)


def print_table(console: Console, table: Table) -> None:
    """Print a table; row by row in words where the terminal is too narrow for it: a cut number is another number."""
    heads = [_plain(console, column.header) for column in table.columns]
    columns = [[_plain(console, cell) for cell in column.cells] for column in table.columns]
    edges = 2 * len(heads) - (0 if table.pad_edge else 2)
    least = [
        max(
            (
                cell_len(part)
                for text in (head, *cells)
                for part in ([text] if column.no_wrap else text.split())
            ),
            default=0,
        )
        for head, cells, column in zip(heads, columns, table.columns, strict=True)
    ]
    if sum(least) + edges <= console.width:
        console.print(table, highlight=False)
        return
    if table.title is not None:
        console.print(table.title, style="bold", highlight=False)
    for cells in zip(*columns, strict=True):
        said = zip(heads, cells, strict=True)
        parts = [f"{head}: {cell}" if head else cell for head, cell in said if cell.strip()]
        print_sentence(console, ("; " if any(heads) else ": ").join(parts), indent=" ")


def print_sentence(
    console: Console, text: Text | str, *, indent: str = "", style: str = ""
) -> None:
    """Print one line; a terminal's further lines begin under it, two letters on where it is indented."""
    if not console.is_terminal:
        whole = Text(indent) + text if isinstance(text, Text) else Text(indent + text)
        console.print(whole, highlight=False, soft_wrap=True, style=style)
    elif isinstance(text, Text) and not indent:
        console.print(text, highlight=False, style=style)
    else:
        plain = text.plain if isinstance(text, Text) else text
        further = indent + "  " if indent else ""
        wrapped = fill(
            plain,
            max(console.width, 20),
            initial_indent=indent,
            subsequent_indent=further,
            break_long_words=False,
            break_on_hyphens=False,
        )
        console.print(Text(wrapped), highlight=False, soft_wrap=True, style=style)


def _plain(console: Console, cell: object) -> str:
    """A cell as it is read."""
    return cell.plain if isinstance(cell, Text) else console.render_str(str(cell)).plain
