"""Places of a command's errors in the words of the request: its fields for the files that were written of them."""

from __future__ import annotations

import json
import re

from costmodel.question.scenario import Scenario
from rackfit.serve.asked import LAYOUT, SCENARIO, SECOND
from rackfit.serve.offered import Question

#: fields whose content a command reads as a file
_FIELDS = {SCENARIO: "scenario", LAYOUT: "document", SECOND: "second"}
_FILE = re.compile("|".join(map(re.escape, _FIELDS)))
#: how the place of a key of a scenario begins
_KEY = re.compile(r"[a-z_]+(?=$|[.:\[])")


def as_asked(line: bytes, question: Question) -> bytes:
    """The last line of an answer: an error with places in the request, anything else as it is.

    What messages call an option is said where they are made (:func:`topology.errors.option`).
    """
    if not line.startswith(b'{"error"'):
        return line
    said = json.loads(line)
    for problem in said["error"]["problems"]:
        for key in ("place", "message"):
            problem[key] = _FILE.sub(lambda found: _FIELDS[found[0]], problem[key])
        first = _KEY.match(problem["place"])
        own = type(question).model_fields
        if first and first[0] in Scenario.model_fields and first[0] not in own:
            problem["place"] = f"{question.scenario_place}.{problem['place']}"
    return json.dumps(said).encode() + b"\n"
