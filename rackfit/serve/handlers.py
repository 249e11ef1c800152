"""The HTTP side of ``rackfit serve``, on Tornado: who may ask, how much, and which document comes back."""

from __future__ import annotations

import asyncio
import hmac
import json
import sys
import zlib
from dataclasses import dataclass
from typing import Any, ClassVar

import tornado.httputil
import tornado.web

from rackfit.serve.asked import QUESTIONS
from rackfit.serve.explore import explore_page
from rackfit.serve.offered import Question, unlike_the_schema
from rackfit.serve.openapi import ERRORS, openapi
from rackfit.serve.processes import Busy, Processes
from topology.catalogue import checked
from topology.errors import InstanceError, Problem, noted, told
from topology.reading import parse_json

#: the largest request
MOST_BYTES = 16 * 2**20
#: what a caller accepts who wants each state of a search, then the document or the error, each in a line
LINES = "application/x-ndjson"


@dataclass(frozen=True)
class Door:
    """Who may ask: with a ``token`` who has it, else who calls the server by one of its ``hosts``."""

    token: str | None
    hosts: tuple[str, ...]


class _Handler(tornado.web.RequestHandler):
    """Refuses who may not ask; every error is a document."""

    #: methods of the address
    takes: ClassVar[str] = "GET, HEAD"

    def initialize(self, door: Door) -> None:
        self.door = door

    def prepare(self) -> None:
        given = self.request.headers.get("Authorization", "")
        if self.door.token is not None:
            if not hmac.compare_digest(given.encode(), f"Bearer {self.door.token}".encode()):
                self.refuse("no_token", "request", "give the token: Authorization: Bearer TOKEN")
            return
        # another site's page may reach this machine by a name of its own
        if self.request.host_name.strip("[]") not in self.door.hosts:  # an IPv6 address has these
            self.refuse("not_allowed", "Host", f"expected one of {', '.join(self.door.hosts)}")

    def set_default_headers(self) -> None:
        self.set_header("Content-Type", "application/json; charset=utf-8")
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Cache-Control", "no-store")
        self.clear_header("Server")

    def refuse(self, kind: str, place: str, message: str) -> None:
        """Answer with an error of one problem."""
        self.fail({"kind": kind, "problems": [{"place": place, "message": message}]})

    def fail(self, error: dict[str, Any]) -> None:
        """Answer with an error document."""
        self.set_status(ERRORS[error["kind"]][0])
        self.finish(json.dumps({"error": error}))

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        kinds = {404: "not_found", 405: "wrong_method", 413: "too_large"}
        kind = kinds.get(status_code, "bad_input" if status_code < 500 else "internal")
        message = ERRORS[kind][1]
        self.set_default_headers()
        if status_code == 405:
            self.set_header("Allow", self.takes)
            message = f"expected {self.takes}, got {self.request.method}"
        problem = {"place": self.request.path[:200], "message": message}
        self.set_status(status_code)
        self.finish(json.dumps({"error": {"kind": kind, "problems": [problem]}}))


class Missing(_Handler):
    """Whatever has no other handler."""

    def prepare(self) -> None:
        """Answer whatever the method."""
        super().prepare()
        if not self._finished:
            self.refuse("not_found", self.request.path[:200], "the API is under /api/openapi.json")


class Described(_Handler):
    """The OpenAPI document."""

    def get(self) -> None:
        """Send it."""
        self.finish(json.dumps(openapi()))

    #: as ``get``, without the document
    head = get


class Explored(_Handler):
    """The page."""

    def get(self) -> None:
        """Send it; it asks this server and runs what it carries itself."""
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.set_header(
            "Content-Security-Policy",
            "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; "
            "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        )
        self.finish(explore_page())

    #: as ``get``, without the page
    head = get


@tornado.web.stream_request_body
class Asked(_Handler):
    """One question. What is too long is read to its end and thrown away, so that its sender hears why."""

    takes = "POST"

    def initialize(self, door: Door) -> None:
        """Begin without work."""
        super().initialize(door)
        self.work: asyncio.Task[bytes] | None = None
        self.gone = False
        self.body = bytearray()
        self.length = 0
        #: of a body that comes packed
        self.unpacking: Any = None
        self.packed_badly = False

    def prepare(self) -> None:
        """Take any length; what is kept of it has a limit."""
        super().prepare()
        connection: Any = self.request.connection
        connection.set_max_body_size(sys.maxsize)
        if self._coding() == "gzip":
            self.unpacking = zlib.decompressobj(zlib.MAX_WBITS | 16)

    def _coding(self) -> str:
        """How the body is packed."""
        return self.request.headers.get("Content-Encoding", "identity").strip().lower()

    def data_received(self, chunk: bytes) -> None:
        """Keep a part of the request, or nothing of it once it is too long."""
        if self.unpacking is not None and not self.packed_badly and self.length <= MOST_BYTES:
            try:
                # no more than one byte beyond what is read, however much is packed into it
                chunk = self.unpacking.decompress(chunk, MOST_BYTES + 1)
            except zlib.error:
                self.packed_badly = True
        if self.packed_badly:
            return
        self.length += len(chunk)
        if self.length > MOST_BYTES:
            self.body.clear()
        else:
            self.body += chunk

    async def post(self, name: str) -> None:
        """Answer it."""
        kind = self.request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            self.refuse(
                "bad_input", "Content-Type", f"expected application/json, got {kind[:60]!r}"
            )
            return
        if self._coding() not in ("gzip", "identity"):
            self.set_header("Accept-Encoding", "gzip, identity")
            message = f"expected gzip or identity (no header), got {self._coding()[:60]!r}"
            self.refuse("wrong_coding", "Content-Encoding", message)
            return
        if self.length > MOST_BYTES:
            message = f"has {self.length:,} bytes; at most {MOST_BYTES:,} are read"
            self.refuse("too_large", "request", message)
            return
        if self.packed_badly or (self.unpacking is not None and not self.unpacking.eof):
            self.refuse("bad_input", "request", "is no whole gzip stream, as Content-Encoding says")
            return
        try:
            text = self.body.decode("utf-8")
            data = parse_json(text, "request")
            question = read_question(name, data)
        except UnicodeDecodeError as error:
            self.refuse("bad_input", "request", f"not UTF-8 text (byte {error.start})")
            return
        except InstanceError as error:
            problems = [{"place": one.place, "message": one.message} for one in error.problems]
            self.fail({"kind": "bad_input", "problems": problems})
            return
        processes: Processes = self.settings["processes"]
        listens = LINES in self.request.headers.get("Accept", "")
        self.work = asyncio.create_task(processes.ask(question, self.tell if listens else None))
        try:
            found = await self.work
        except Busy:
            self.set_header("Retry-After", "5")
            self.refuse("busy", "request", "too many requests wait; ask again later")
            return
        except asyncio.CancelledError:
            if self.gone:
                return
            raise
        if listens:
            self.line(found)
            self.finish()
            return
        said = json.loads(found)
        if "error" in said:
            self.fail(said["error"])
        else:
            self.finish(json.dumps(said["document"]))

    def tell(self, said: bytes) -> None:
        """Send what is known before the answer."""
        self.line(said)
        self.flush()

    def line(self, said: bytes) -> None:
        """Write one of several documents; of an answer in lines the status says nothing."""
        self.set_header("Content-Type", LINES)
        self.write(said)

    def on_connection_close(self) -> None:
        """Nobody listens: the work ends."""
        self.gone = True
        if self.work is not None:
            self.work.cancel()


def read_question(name: str, data: object) -> Question:
    """The question that a request is. Raises ``InstanceError`` with all that is wrong."""
    problems: list[Problem] = []
    question = None
    with noted(problems), checked("request"):
        question = QUESTIONS[name].model_validate(data)
    said = {one.place for one in problems}
    problems += [one for one in unlike_the_schema(data) if one.place not in said]
    if question is None or problems:
        raise InstanceError(told(problems, "request"))
    return question


def application(door: Door, processes: Processes) -> tornado.web.Application:
    """Every address of the server."""
    return tornado.web.Application(
        [
            (r"/", Explored, {"door": door}),
            (r"/api/openapi\.json", Described, {"door": door}),
            (rf"/api/({'|'.join(QUESTIONS)})", Asked, {"door": door}),
        ],
        default_handler_class=Missing,
        default_handler_args={"door": door},
        processes=processes,
    )
