"""The server from its start to the signal that ends it."""

from __future__ import annotations

import asyncio
import signal

import tornado.httpserver
import tornado.netutil

from rackfit.documents.output import say
from rackfit.serve.handlers import MOST_BYTES, Door, application
from rackfit.serve.processes import Processes
from topology.errors import InstanceError, Problem


async def run(
    address: str,
    port: int,
    token: str | None,
    at_once: int,
    time_limit_s: float,
    memory_bytes: int,
) -> None:
    """Serve until SIGINT or SIGTERM. Raises ``InstanceError`` where the address cannot be had."""
    processes = Processes(at_once, time_limit_s, memory_bytes)
    door = Door(token, tuple(dict.fromkeys(("localhost", "127.0.0.1", "::1", address))))
    server = tornado.httpserver.HTTPServer(
        application(door, processes), max_body_size=MOST_BYTES, max_buffer_size=MOST_BYTES
    )
    try:
        sockets = tornado.netutil.bind_sockets(port, address)
    except OSError as error:
        place, why = f"{address}:{port}", error.strerror or "cannot be had"
        raise InstanceError(Problem(place, why)) from None
    server.add_sockets(sockets)
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    await processes.warm()
    host = f"[{address}]" if ":" in address else address
    say(f"serving http://{host}:{sockets[0].getsockname()[1]}/")
    await ended.wait()
    server.stop()
    await processes.close()
