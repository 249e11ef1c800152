"""XML as a tree, read without ever expanding or fetching anything: entities are refused, a bare DOCTYPE is ignored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.parsers import expat

from topology.errors import InstanceError, Problem
from topology.reading import MAX_DEPTH

#: elements of one file; a host of 16 GPUs has some thousands
MAX_ELEMENTS = 300_000


@dataclass
class Element:
    """A tag with its attributes, its text and the elements in it."""

    tag: str
    attributes: dict[str, str] = field(default_factory=dict)
    text: str = ""
    inside: list[Element] = field(default_factory=list)

    def each(self, tag: str) -> Iterator[Element]:
        """Direct children of one tag."""
        return (child for child in self.inside if child.tag == tag)

    def at(self, path: str) -> str:
        """Text of the first element along ``a/b/c``; empty if there is none."""
        here: Element | None = self
        for tag in path.split("/"):
            here = next(here.each(tag), None) if here is not None else None
        return here.text.strip() if here is not None else ""


def parse_xml(text: str, place: str) -> Element:
    """The root element. Raises ``InstanceError`` with line and column."""
    parser = expat.ParserCreate()
    root = Element("")
    open_elements = [root]
    count = 0

    def where() -> str:
        return f"{place}:{parser.CurrentLineNumber}:{parser.CurrentColumnNumber + 1}"

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal count
        count += 1
        if count > MAX_ELEMENTS:
            raise InstanceError(Problem(where(), f"more than {MAX_ELEMENTS:,} elements"))
        if len(open_elements) > MAX_DEPTH:
            raise InstanceError(Problem(where(), f"nested deeper than {MAX_DEPTH} levels"))
        element = Element(tag, attributes)
        open_elements[-1].inside.append(element)
        open_elements.append(element)

    def end(tag: str) -> None:
        open_elements.pop()

    def characters(data: str) -> None:
        open_elements[-1].text += data

    def refuse(*_: object) -> int:
        message = (
            "XML with a document type or entities of its own is not read; leave the DOCTYPE out (of nvidia-smi: "
            "without --dtd)"
        )
        raise InstanceError(Problem(where(), message))

    def doctype(name: str, system: str | None, public: str | None, internal: int) -> None:
        if internal:
            refuse()

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = characters
    parser.StartDoctypeDeclHandler = doctype
    parser.EntityDeclHandler = refuse
    parser.UnparsedEntityDeclHandler = refuse
    parser.ExternalEntityRefHandler = refuse
    try:
        parser.Parse(text.encode("utf-8", "replace"), True)
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code)
        message = f"not whole XML: {reason}"
        raise InstanceError(
            Problem(f"{place}:{error.lineno}:{error.offset + 1}", message)
        ) from None
    return root.inside[0]
