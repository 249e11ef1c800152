"""Mooncake's format, which load generators and simulators write too: times in milliseconds, blocks of 512 tokens.

*Source:* kvcache-ai/Mooncake, ``FAST25-release/traces``; AIPerf's documentation of ``mooncake_trace``.
"""

from costmodel.question.traffic.formats import TraceFormat

FORMAT = TraceFormat(
    "Mooncake",
    lines=True,
    columns={
        "t_s": "timestamp",
        "input_tokens": "input_length",
        "output_tokens": "output_length",
        "hash_ids": "hash_ids",
    },
    seconds=lambda text: float(text) / 1e3,
    block_tokens=512,
)
