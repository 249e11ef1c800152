"""Errors of a command in the words of the request that asked it: its fields for options and for files that it did not name."""

from __future__ import annotations

import json
import re

from rackfit.serve.asked import LAUNCH, LAYOUT, SCENARIO, SECOND
from rackfit.serve.offered import Question

#: fields whose content a command reads as a file
_FIELDS = {SCENARIO: "scenario", LAYOUT: "document", SECOND: "second", LAUNCH: "launch"}
_WORD = re.compile(rf"--[a-z][a-z0-9-]*|{'|'.join(map(re.escape, _FIELDS))}")


def as_asked(line: bytes, question: Question) -> bytes:
    """The last line of an answer: an error with places and messages that name fields, anything else as it is."""
    if not line.startswith(b'{"error"'):
        return line
    said = json.loads(line)
    for problem in said["error"]["problems"]:
        for key in ("place", "message"):
            problem[key] = _WORD.sub(lambda found: _field(found[0], question), problem[key])
    return json.dumps(said).encode() + b"\n"


def _field(word: str, question: Question) -> str:
    """The field that an option or a file stands for; the word itself where the request has none for it."""
    if word in _FIELDS:
        return _FIELDS[word]
    name = word.removeprefix("--").replace("-", "_")
    fields = type(question).model_fields
    return next((field for field in (name, f"{name}_s") if field in fields), word)
