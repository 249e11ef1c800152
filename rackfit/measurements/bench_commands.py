"""The commands of a run that is worth measuring: the engine's, and the benchmark's against its endpoint."""

from __future__ import annotations

from costmodel.measured.rows import Group
from rackfit.quoting import shell_word

#: requests of a run for each of those in flight, so that its start and end weigh little
_REQUESTS_PER_USER = 10
#: engines whose runs are proposed
ENGINES = ("sglang", "vllm", "trtllm")


def launch_command(engine: str, model: str, group: Group, users: int) -> str:
    """The engine's command for one worker; sizes mean what they mean to the engine.

    TensorRT-LLM takes some of them from a file: for it a comment with the sizes.
    """
    whole_experts = group.expert_ways > 1
    ranks, per_rank = group.attention_dp, -(-users // group.attention_dp)
    words: list[object]
    if engine == "sglang":
        words = ["python", "-m", "sglang.launch_server", "--model-path", model]
        words += ["--tp-size", group.tp * ranks, "--pp-size", group.pp]
        words += ["--dp-size", ranks, "--enable-dp-attention"] if ranks > 1 else []
        words += ["--ep-size", group.tp * ranks] if whole_experts else []
        words += ["--max-running-requests", users]
    elif engine == "vllm":
        words = ["vllm", "serve", model, "--tensor-parallel-size", group.tp]
        words += ["--pipeline-parallel-size", group.pp, "--data-parallel-size", ranks]
        words += ["--enable-expert-parallel"] if whole_experts else []
        words += ["--max-num-seqs", per_rank]
    else:
        return (
            f"# {engine}: tensor parallel {group.tp}, pipeline {group.pp}, attention ranks {ranks}, "
            f"{'whole experts' if whole_experts else 'each expert cut over all'}, batch {per_rank}"
        )
    return " ".join(shell_word(str(word)) for word in words)


def bench_command(model: str, input_tokens: int, output_tokens: int, users: int) -> str:
    """A closed loop of ``users`` requests of one length, its result saved."""
    words = [
        "vllm", "bench", "serve", "--backend", "openai", "--model", model, "--dataset-name", "random",
        "--random-input-len", input_tokens, "--random-output-len", output_tokens, "--ignore-eos",
        "--max-concurrency", users, "--num-prompts", _REQUESTS_PER_USER * users, "--save-result",
    ]  # fmt: skip
    return " ".join(shell_word(str(word)) for word in words)
