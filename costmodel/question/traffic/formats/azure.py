"""Traces of Azure's services, of 2023 and 2024: dates with fractions of a second, in UTC where they do not say.

*Source:* Azure/AzurePublicDataset, ``AzureLLMInferenceDataset2023.md`` and ``AzureLLMInferenceDataset2024.md``.
"""

from datetime import UTC, datetime

from costmodel.question.traffic.formats import TraceFormat


def _seconds(text: str) -> float:
    """Seconds since 1970 of a date."""
    at = datetime.fromisoformat(text.strip())
    return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()


FORMAT = TraceFormat(
    "Azure",
    lines=False,
    columns={
        "t_s": "TIMESTAMP",
        "input_tokens": "ContextTokens",
        "output_tokens": "GeneratedTokens",
    },
    seconds=_seconds,
)
