"""BurstGPT: requests to ChatGPT and GPT-4 through a service of Azure; failed ones have no tokens of an answer.

*Source:* HPMLL/BurstGPT, ``README.md`` and the files ``data/BurstGPT_without_fails_*.csv``, which hold none that failed.
"""

from costmodel.question.traffic.formats import TraceFormat

FORMAT = TraceFormat(
    "BurstGPT",
    lines=False,
    columns={
        "t_s": "Timestamp",
        "input_tokens": "Request tokens",
        "output_tokens": "Response tokens",
    },
    failed="read the file of the same number without such requests, BurstGPT_without_fails_N.csv",
)
