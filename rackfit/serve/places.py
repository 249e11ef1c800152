"""Errors of a command in the words of the request that asked it: its fields for options and for files that it did not name."""

from __future__ import annotations

import json
import re

from rackfit.serve.asked import LAUNCH, LAYOUT, SCENARIO, SECOND
from rackfit.serve.offered import Question
from topology.catalogue import catalogue_names

#: fields whose content a command reads as a file
_FIELDS = {SCENARIO: "scenario", LAYOUT: "document", SECOND: "second", LAUNCH: "launch"}
_WORD = re.compile(rf"--[a-z][a-z0-9-]*|{'|'.join(map(re.escape, _FIELDS))}")
#: an alternative that is an option
_OTHERWISE = re.compile(r",? or (--[a-z][a-z0-9-]*)(?=$|[.;])")
#: how a message ends that knows the command which lists names, and that offers a path
_PATH = re.compile(
    r"(?:`rackfit catalogue ([a-z]{1,40})` lists all \d{1,6})?; or (give a path|the path of a config\.json)$"
)


def as_asked(line: bytes, question: Question) -> bytes:
    """The last line of an answer: an error with places and messages that name fields, anything else as it is."""
    if not line.startswith(b'{"error"'):
        return line
    said = json.loads(line)
    for problem in said["error"]["problems"]:
        problem["message"] = _PATH.sub(_offered, problem["message"])
        problem["message"] = _OTHERWISE.sub(
            lambda found: "" if _field(found[1], question) == found[1] else found[0],
            problem["message"],
        )
        for key in ("place", "message"):
            problem[key] = _WORD.sub(lambda found: _field(found[0], question), problem[key])
    return json.dumps(said).encode() + b"\n"


def _offered(found: re.Match[str]) -> str:
    """What a request can give for a path, after the names that a command would list."""
    known = f"known: {', '.join(catalogue_names(found[1]))}" if found[1] else ""
    return f"{known}; or give a file's name and its content in files"


def _field(word: str, question: Question) -> str:
    """The field that an option or a file stands for; the word itself where the request has none for it."""
    if word in _FIELDS:
        return _FIELDS[word]
    name = word.removeprefix("--").replace("-", "_")
    fields = type(question).model_fields
    return next((field for field in (name, f"{name}_s") if field in fields), word)
