"""Traces of Qwen models on Alibaba's Bailian: times in seconds, blocks of 16 tokens.

*Source:* alibaba-edu/qwen-bailian-usagetraces-anon, ``README.md``; AIPerf's documentation of ``bailian_trace``.
"""

from costmodel.question.traffic.formats import TraceFormat

FORMAT = TraceFormat(
    "Bailian",
    lines=True,
    columns={
        "t_s": "timestamp",
        "input_tokens": "input_length",
        "output_tokens": "output_length",
        "hash_ids": "hash_ids",
    },
    marks=("chat_id",),
    block_tokens=16,
)
