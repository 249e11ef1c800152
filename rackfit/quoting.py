"""Text put into another language, one function for each: what a name holds is read there, never run or obeyed."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import yaml

from topology.names import shown

if TYPE_CHECKING:
    from rich.text import Text

#: what no XML or HTML document may hold, even escaped
_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def shell_word(text: str) -> str:
    """One word of a POSIX shell."""
    return shlex.quote(text)


def shell_comment(text: str) -> str:
    """The rest of a line after ``#`` in a shell script, never more than that line."""
    return shown(text)


def markup(text: str) -> str:
    """Text or an attribute's value in HTML, SVG and XML."""
    return escape(_NOT_IN_XML.sub("\ufffd", text))


def script_json(value: Any) -> str:
    """Plain data as JSON inside a ``<script>``: no text of it ends the script or begins a comment."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", r"\u003c").replace(">", r"\u003e").replace("&", r"\u0026")


def dot_string(text: str) -> str:
    """A Graphviz string: a JSON string is one, with the same escapes."""
    return json.dumps(text, ensure_ascii=False)


def yaml_text(documents: Sequence[Any], width: int = 80, *, inline: bool = False) -> str:
    """YAML documents of plain data, keys in their order; ``inline``: innermost lists on one line."""
    text: str = yaml.safe_dump_all(
        documents,
        sort_keys=False,
        width=width,
        allow_unicode=True,
        default_flow_style=None if inline else False,
    )
    return text


def yaml_scalar(value: str | None) -> str:
    """A value on one line of YAML, quoted where it has to be."""
    text: str = yaml.safe_dump(value, width=10_000, allow_unicode=True)
    return text.removesuffix("...\n").strip()


def plain(text: object) -> Text:
    """Text in a rich table or on a rich console: its brackets are no markup, its escapes not obeyed."""
    from rich.text import Text

    return Text(shown(text))


def host_label(text: str) -> str:
    """The part of a host's name made from any text: letters, digits, dots and hyphens."""
    return re.sub(r"[^A-Za-z0-9.-]+", "-", text).strip("-.")[:63].strip("-.") or "rack"
