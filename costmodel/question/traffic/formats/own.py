"""Our own: one row a request."""

from costmodel.question.traffic.formats import TraceFormat

FORMAT = TraceFormat(
    "Rackfit's own",
    lines=False,
    columns={
        name: name for name in ("t_s", "input_tokens", "output_tokens", "session", "hash_ids")
    },
)
