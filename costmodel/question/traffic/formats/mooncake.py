"""Mooncake's format, which load generators and simulators write too: times in milliseconds, blocks of 512 tokens.

*Source:* kvcache-ai/Mooncake, ``FAST25-release/traces``; AIPerf's documentation of ``mooncake_trace``.
"""

from costmodel.question.traffic.formats import TraceFormat
from topology.quantity import is_number


def _seconds(text: str) -> float:
    """Seconds of milliseconds. Raises ``ValueError``."""
    if not is_number(text):
        raise ValueError
    return float(text) / 1e3


FORMAT = TraceFormat(
    "Mooncake",
    lines=True,
    columns={
        "t_s": "timestamp",
        "input_tokens": "input_length",
        "output_tokens": "output_length",
        "hash_ids": "hash_ids",
    },
    seconds=_seconds,
    block_tokens=512,
)
