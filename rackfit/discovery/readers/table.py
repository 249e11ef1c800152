"""Tables of values between commas, several of them one after the other in a file: rows by the names above them."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator

from topology.errors import InstanceError, Problem
from topology.names import shown

#: rows of one file; a host of 64 parts that is asked every second for a day
_MOST = 6_000_000


def table_rows(
    text: str, is_head: Callable[[list[str]], bool], place: str
) -> Iterator[tuple[dict[str, str], str]]:
    """Rows below each header, cells without margins, and the place of each.

    Lines above the first header are no part of a table, an empty line or another header ends one. Raises
    ``InstanceError`` for rows of more or fewer cells than their header, and for a name that stands twice in one.
    """
    head: list[str] = []
    number = 0
    try:
        for number, row in enumerate(csv.reader(text.splitlines(), skipinitialspace=True), 1):
            cells = [cell.strip() for cell in row]
            if number > _MOST:
                raise InstanceError(Problem(place, f"more than {_MOST:,} lines"))
            if is_head(cells):
                head = cells
                if twice := next((name for name in head if name and head.count(name) > 1), ""):
                    message = f"two columns called {shown(twice, 60)}"
                    raise InstanceError(Problem(f"{place}:{number}", message))
            elif not any(cells):
                head = []
            elif head:
                if len(cells) != len(head):
                    message = f"{len(cells)} cells below {len(head)} names; the file seems cut off"
                    raise InstanceError(Problem(f"{place}:{number}", message))
                yield dict(zip(head, cells, strict=True)), f"{place}:{number}"
    except csv.Error as error:
        raise InstanceError(Problem(f"{place}:{number + 1}", f"not CSV: {error}")) from None
