"""Traces of Qwen models on Alibaba's Bailian: Mooncake's names, but times in seconds and blocks of 16 tokens.

*Source:* alibaba-edu/qwen-bailian-usagetraces-anon, ``README.md``; AIPerf's documentation of ``bailian_trace``.
"""

from costmodel.question.traffic.formats import TraceFormat, mooncake

FORMAT = TraceFormat(
    "Bailian",
    lines=True,
    columns=mooncake.FORMAT.columns,
    marks=("chat_id",),
    block_tokens=16,
)
