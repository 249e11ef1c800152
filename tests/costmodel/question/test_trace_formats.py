"""Traces as others publish them: what is read of each, and what is refused at its line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from costmodel.question.traffic.formats import trace_formats
from costmodel.question.traffic.load import load_traffic
from costmodel.question.traffic.trace import read_trace
from topology.errors import InstanceError

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
"""
AZURE_2024 = """TIMESTAMP,NumImages,ContextTokens,GeneratedTokens
2024-05-10 00:00:00.009930+00:00,0,374,44
2024-05-10 02:00:04.324509+02:00,1,396,109
"""
BURSTGPT = """Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type
5,a,1.5,ChatGPT,374,44,418,Conversation log
9.314579,b,2.5,GPT-4,396,109,505,API log
"""
MOONCAKE = """{"timestamp": 1000, "input_length": 600, "output_length": 44, "hash_ids": [9, 7]}

{"timestamp": 5314.579, "input_length": 396, "output_length": 109, "hash_ids": [9]}
"""
BAILIAN = """{"chat_id": 3, "parent_chat_id": -1, "timestamp": 61.0, "input_length": 600, "output_length": 44, "type": "text", "turn": 1}
{"chat_id": 4, "parent_chat_id": 3, "timestamp": 65.314579, "input_length": 40, "output_length": 109, "type": "text",\
 "turn": 2, "hash_ids": [18446744073709551615, 2, 18446744073709551615]}
"""


LINE = {"timestamp": 1, "input_length": 5, "output_length": 5}


@pytest.mark.parametrize(
    ("name", "text", "tokens", "blocks", "sizes"),
    [
        ("a.csv", AZURE, 374, (), ()),
        ("b.csv", AZURE_2024, 374, (), ()),
        ("c.csv", BURSTGPT, 374, (), ()),
        ("d.jsonl", MOONCAKE, 600, [(0, 1), (0,)], [(512, 88), (396,)]),
        ("e.jsonl", BAILIAN, 600, [(), (0, 1, 0)], [(), (16, 16, 8)]),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_each_format_is_read(
    name: str, text: str, tokens: int, blocks: object, sizes: object, packed: bool, tmp_path: Path
) -> None:
    path = tmp_path / (name + ".gz" * packed)
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    found = load_traffic(str(path))
    assert found.arrival_s == pytest.approx([0.0, 4.314579])
    assert found.input_tokens[0] == tokens
    assert found.output_tokens.tolist() == [44, 109]
    assert (found.blocks, found.block_sizes) == (blocks, sizes)


def test_tokens_of_a_block_may_be_said(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    path.write_text(MOONCAKE)
    assert read_trace(path, block_tokens=300).block_sizes == [(300, 300), (300,)]


@pytest.mark.parametrize(
    ("ids", "tokens", "likely"), [(16, 1024, "64"), (63, 1000, "16"), (3, 9, "4"), (9, 5, "")]
)
def test_more_ids_than_a_prompt_has_blocks_are_refused(
    ids: int, tokens: int, likely: str, tmp_path: Path
) -> None:
    """Smaller blocks read as large ones would make the first ids hold the whole prompt."""
    path = tmp_path / "d.jsonl"
    line = json.dumps(LINE | {"input_length": tokens, "hash_ids": list(range(ids))})
    path.write_text(f"{line}\n{line}\n")  # it is said once
    with pytest.raises(InstanceError) as refused:
        read_trace(path)
    said = f"{path}:1: {ids} hash_ids for {tokens:,} tokens at 512 a block; give --block-tokens"
    assert str(refused.value).startswith(said)
    assert str(refused.value).endswith(f"({likely}?)" if likely else "that names this trace")
    if likely:
        assert len(read_trace(path, block_tokens=int(likely)).blocks[0]) == ids


def test_a_file_of_its_own_name_is_its_format() -> None:
    assert [one.title for one in trace_formats()] == [
        "Azure", "Bailian", "BurstGPT", "Mooncake", "Rackfit's own",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text", "place", "message"),
    [
        ("a.csv", AZURE.replace("2023-11-16 18:15:50.9951690", "noon"), ":3", "TIMESTAMP: expected a time, got 'noon'"),
        ("a.csv", AZURE.replace("18:15:50", "18:15:40"), ":3", "sort the requests by time"),
        ("a.csv", AZURE.replace("GeneratedTokens", "Tokens"), ":1", "columns missing: GeneratedTokens; known are those of Azure"),
        ("a.csv", AZURE + "2023-11-16 18:15:51,1\n", ":4", "2 cells under 3 columns"),
        ("c.csv", BURSTGPT.replace(",44,", ",0,"), ":2", "the request failed; read the file of the same number without such requests"),
        ("t.csv", "t_s,input_tokens,output_tokens,%s\n" % ("x" * 200_000), ":1", "not CSV: field larger than field limit"),
        ("d.jsonl", "[1]\n", ":1", "expected an object"),
        ("d.jsonl", "{\n", ":1", "not JSON"),
        ("d.jsonl", "[" * 200_000, ":1", "not JSON"),
        ("d.jsonl", json.dumps(LINE | {"timestamp": None}), ":1", "timestamp missing"),
        ("d.jsonl", json.dumps(LINE | {"timestamp": "soon"}), ":1", "timestamp: expected a time"),
        ("d.jsonl", json.dumps(LINE | {"timestamp": float("nan")}), ":1", "expected seconds from 0"),
        ("d.jsonl", json.dumps(LINE | {"input_length": 1e30}), ":1", "input_tokens: expected a whole number"),
        ("d.jsonl", json.dumps(LINE | {"hash_ids": {"a": 1}}), ":1", "hash_ids: expected a whole number"),
        ("d.jsonl", json.dumps({"when": 1}), ":1", "fields missing: timestamp, input_length, output_length"),
        ("d.jsonl", json.dumps(LINE) + "\n" + json.dumps({"delay": 4}), ":2", "timestamp, input_length, output_length missing"),
        ("d.jsonl", "", "", "holds no request"),
        ("d.jsonl", json.dumps(LINE | {"timestamp": "1_0"}), ":1", "timestamp: expected a time"),
        ("d.jsonl", json.dumps(LINE)[:-1] + ', "input_length": 4}', ":1", "not JSON: a key is given twice"),
        ("t.csv", "t_s,input_tokens,output_tokens\n0,1_000,5\n", ":2", "input_tokens: expected a whole number from 1, got '1_000'"),
        ("t.csv", "t_s,input_tokens,output_tokens\n0,10,\uff15\n", ":2", "output_tokens: expected a whole number from 1"),
        ("t.csv", "t_s,input_tokens,output_tokens\n1_0,10,5\n", ":2", "t_s: expected seconds from 0, got '1_0'"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_at_its_line(
    name: str, text: str, place: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InstanceError) as refused:
        read_trace(path)
    assert [problem.place for problem in refused.value.problems] == [f"{path}{place}"]
    assert message in str(refused.value)
