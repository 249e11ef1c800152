"""Stands for Triton's ``perf_analyzer``, which GenAI-Perf starts and no package index has: sends its inputs, times answers.

Written into an environment of GenAI-Perf as ``bin/perf_analyzer``; needs Python alone. The requests, their times
and the profile export's form are its part; every metric and the file that Rackfit reads are GenAI-Perf's own.
"""

from __future__ import annotations

import http.client
import json
import sys
import threading
import time
from collections.abc import Iterator
from itertools import cycle, islice
from typing import Any


def option(words: list[str], name: str, default: str) -> str:
    """Value of an option, which may be joined to it."""
    for index, word in enumerate(words):
        if word == name:
            return words[index + 1]
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
    return default


def asked(host: str, endpoint: str, payload: dict[str, Any]) -> dict[str, Any]:
    """One request as the profile export lists it; times in ns."""
    connection = http.client.HTTPConnection(host, timeout=600)
    text = json.dumps(payload)
    begun = time.time_ns()
    connection.request("POST", f"/{endpoint}", text, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    times: list[int] = []
    outputs: list[dict[str, str]] = []
    for event in _events(answer):
        times.append(time.time_ns())
        outputs.append({"response": event})
    connection.close()
    return {"timestamp": begun, "request_inputs": {"payload": text}, "response_timestamps": times,
            "response_outputs": outputs, "success": answer.status == 200}  # fmt: skip


def _events(answer: http.client.HTTPResponse) -> Iterator[str]:
    lines: list[str] = []
    for raw in answer:
        line = raw.decode()
        lines.append(line)
        if line == "\n":
            yield "".join(lines)
            lines = []
    if lines:
        yield "".join(lines)


def main(words: list[str]) -> int:
    """Send as many requests as asked, so many in flight, and write the export."""
    loop = int(option(words, "--concurrency-range", "1").partition(":")[0])
    count = int(option(words, "--request-count", "0")) or 10 * loop
    endpoint = option(words, "--endpoint", "v1/chat/completions")
    host = option(words, "-u", "localhost:8000")
    with open(option(words, "--input-data", "inputs.json"), encoding="utf-8") as file:
        rows = json.load(file)["data"]
    payloads = islice(cycle(part for row in rows for part in row["payload"]), count)
    lock = threading.Lock()
    done: list[dict[str, Any]] = []

    def work() -> None:
        while True:
            with lock:
                payload = next(payloads, None)
            if payload is None:
                return
            one = asked(host, endpoint, payload)
            with lock:
                done.append(one)

    threads = [threading.Thread(target=work) for _ in range(loop)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    good = [one for one in done if one.pop("success")]
    run = {
        "experiment": {"mode": "concurrency", "value": loop},
        "requests": good,
        "window_boundaries": [],
    }
    export = {
        "service_kind": "openai",
        "endpoint": endpoint,
        "experiments": [run],
        "version": "stand-in",
    }
    with open(
        option(words, "--profile-export-file", "profile_export.json"), "w", encoding="utf-8"
    ) as file:
        json.dump(export, file)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
