"""What running servers show is read as they mean it: metrics, configurations, streams, slow answers."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from costmodel.question.instance import resolve_instance
from costmodel.question.scenario import Scenario
from costmodel.question.workload import Workload
from rackfit.live.exposition import mean, samples
from rackfit.live.shown import shown_by
from rackfit.live.site import Site
from rackfit.live.timing import timed
from tests.rackfit.live.fake_engine import Answer, Engine, Sglang, Vllm, serving
from topology.errors import InstanceError

LINE = (
    "vllm serve m --served-model-name m --max-model-len 500 --kv-cache-dtype fp8 --gpu-memory-utilization 0.9 "
    "--data-parallel-size 2 --max-num-seqs 8"
)


def test_a_production_vllm_shows_what_its_metrics_and_models_say() -> None:
    with serving(Vllm(LINE, dev=False, mean_s=0.01)) as url:
        found = shown_by(Site(url))
    assert found.options == {
        "--max-model-len": 500, "--kv-cache-dtype": "fp8", "--gpu-memory-utilization": "0.9",
        "--data-parallel-size": 2,
    }  # fmt: skip
    assert found.means == {"tpot_s": (pytest.approx(0.01), 2000)}
    assert "VLLM_SERVER_DEV_MODE=1" in found.hidden


class Told(Engine):
    """Answers each path with what it was told, others with 404."""

    def __init__(self, answers: dict[str, object]) -> None:
        super().__init__("")
        self.answers = answers

    def get(self, path: str) -> Answer:
        if path not in self.answers:
            return 404, "text/plain", "no"
        said = self.answers[path]
        return 200, "text/plain", said if isinstance(said, str) else json.dumps(said)


def test_the_fullest_rank_and_the_first_of_a_name_count() -> None:
    """A rank with less room stops first; a draft's configuration repeats names of the model's own."""
    metrics = (
        'vllm:cache_config_info{engine="0",kv_cache_size_tokens="900"} 1\n'
        'vllm:cache_config_info{engine="1",kv_cache_size_tokens="700"} 1\n'
    )
    config = {
        "model_config": {"dtype": "torch.bfloat16"},
        "cache_config": {"cache_dtype": "fp8"},
        "draft_config": {"dtype": "torch.float16"},
    }
    answers = {
        "/version": {"version": "0.33.0"}, "/metrics": metrics,
        "/server_info?config_format=json": {"vllm_config": config},
    }  # fmt: skip
    with serving(Told(answers)) as url:
        found = shown_by(Site(url))
    assert found.kv_tokens == 700
    assert found.options["--dtype"] == "torch.bfloat16"
    assert found.options["--kv-cache-dtype"] == "fp8"


@pytest.mark.parametrize("path", ["/server_info", "/get_server_info"])
def test_sglang_is_known_by_either_path_and_says_room_model_and_means(path: str) -> None:
    info = {
        "version": "0.5.23", "tp_size": 8, "served_model_name": "m", "max_total_num_tokens": 900,
    }  # fmt: skip
    metrics = (
        'sglang:time_to_first_token_seconds_sum{model_name="m",is_streaming="true"} 6\n'
        'sglang:time_to_first_token_seconds_count{model_name="m",is_streaming="true"} 30\n'
        'sglang:inter_token_latency_seconds_sum{model_name="m"} 45.0\n'
        'sglang:inter_token_latency_seconds_count{model_name="m"} 1500.0\n'
    )
    with serving(Told({path: info, "/metrics": metrics})) as url:
        found = shown_by(Site(url))
    assert (found.engine, found.version, found.model) == ("sglang", "0.5.23", "m")
    assert found.kv_tokens == 900
    assert found.means == {"ttft_s": (0.2, 30), "tpot_s": (0.03, 1500)}


def test_a_server_under_a_path_is_asked_there() -> None:
    fake = Sglang("sglang serve --tp-size 8")
    with serving(fake) as url, pytest.raises(InstanceError):
        shown_by(Site(f"{url}/below/"))
    assert "/below/version" in fake.asked


def test_metrics_are_read_as_their_format_says() -> None:
    text = (
        "# HELP h_sum 1\n# h_sum 7\nh_sum{a=\"x\"} 1.5\nh_sum{a=\"y\"} 2.5 1700000000\n"
        "h_count{a=\"x\"} 3\nh_count{a=\"y\"} 1\nh_count nonsense\nzero_sum 0\nzero_count 0\n"
        "bad_sum NaN\nbad_count 2\nword{a=\"with \\\"quotes\\\"\"} 1\n"
    )  # fmt: skip
    found = samples(text)
    assert mean(found, "h") == (1.0, 4)
    assert mean(found, "zero") is None
    assert mean(found, "bad") is None
    assert mean(found, "none") is None
    assert found["word"][0].labels == {"a": 'with "quotes"'}


class Streaming(Engine):
    """Streams the events that it is told."""

    def __init__(self, *events: object) -> None:
        super().__init__("")
        self.events = events

    def tokens(self, body: dict[str, Any]) -> Iterator[str]:
        self.prompts.append(body)
        yield from (one if isinstance(one, str) else json.dumps(one) for one in self.events)


CHUNK = {"choices": [{"text": "a"}]}


def asked(fake: Engine, requests: int = 1) -> Any:
    """``timed`` of a question with 40 tokens in, 30 of them cached, and 500 out."""
    workload = Workload(input_tokens=40, cached_tokens=30, output_tokens=500)
    instance = resolve_instance(
        Scenario(model="llama-3.1-8b", cluster="hgx-h100", workload=workload)
    )
    with serving(fake) as url:
        return timed(Site(url), "m", instance, requests)


def test_timed_prompts_share_what_the_workload_says_is_cached() -> None:
    fake = Streaming(CHUNK, {"choices": [], "usage": {"completion_tokens": 64}})
    found = asked(fake, 3)
    assert (found.requests, found.input_tokens, found.output_tokens) == (3, 40, 64)
    prompts = [body["prompt"] for body in fake.prompts]
    assert len(prompts) == 4
    assert len({tuple(prompt[:30]) for prompt in prompts}) == 1
    assert len({tuple(prompt[30:]) for prompt in prompts}) == 4


def test_the_time_of_a_token_is_of_tokens_and_not_of_events(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server may send several tokens at once. The first request warms up and is not counted."""
    moments = iter([9.0, 99.0, 99.1, 0.5, 1.5, 1.6])
    whole = Site.events
    monkeypatch.setattr(
        Site, "events", lambda *a: ((next(moments), event) for _, event in whole(*a))
    )
    found = asked(Streaming(CHUNK, CHUNK, {"choices": [], "usage": {"completion_tokens": 11}}))
    assert (found.ttft_s, found.tpot_s) == (0.5, pytest.approx(0.1))


@pytest.mark.parametrize(
    ("events", "said"),
    [
        (({"error": {"message": "out of memory"}},), "out of memory"),
        (("[DONE]",), "ends without a token"),
        ((CHUNK, "[DONE]"), "ends without a token"),
        (("x" * 2**20,) * 17, "no JSON"),
        ((json.dumps({"pad": "x" * 2**20}),) * 17, "answers more than 16 MiB"),
    ],
)
def test_a_stream_that_is_none_is_one_clear_error(events: tuple[object, ...], said: str) -> None:
    with pytest.raises(InstanceError, match=said):
        asked(Streaming(*events))


class Early(threading.Timer):
    """A timer that is over before a connection is made."""

    def start(self) -> None:
        self.function()


@pytest.mark.parametrize("timer", [threading.Timer, Early])
def test_a_server_that_answers_by_drops_is_given_up(
    timer: type[threading.Timer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte comes in time, the whole never does."""
    monkeypatch.setattr("rackfit.live.site.threading.Timer", timer)
    ended = threading.Event()

    def drip(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(4096)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
            try:
                while not ended.wait(0.02):
                    connection.sendall(b"x")
            except OSError:
                return

    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        thread = threading.Thread(target=drip, args=(server,))
        thread.start()
        site = Site(f"http://127.0.0.1:{server.getsockname()[1]}", timeout_s=0.5)
        with pytest.raises(InstanceError, match=r"no whole answer to /version in 0\.5 s"):
            site.text("/version")
        ended.set()
        thread.join()


def test_a_key_is_not_in_what_is_printed_of_a_site() -> None:
    assert "opensesame" not in repr(Site("http://a", 1.0, "opensesame"))
