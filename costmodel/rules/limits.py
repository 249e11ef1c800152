"""Replicas keep the limits of the question: stages, domains, sequences of a rank, tokens of a prefill pass.

A prefill pass takes the whole prompts that its tokens hold, or one longer prompt in even chunks; the next prompt
waits for the next pass.

``max_domains_per_replica`` limits where it is given; by itself it only says how far a search looks.
"""

from __future__ import annotations

from collections.abc import Iterator

from costmodel.layout.layout import Layout, Replica
from costmodel.question.instance import Instance
from costmodel.replica.fleet import PricedLayout
from costmodel.replica.held import all_new
from costmodel.rules import Violation


def check(instance: Instance, layout: Layout, priced: PricedLayout) -> list[Violation]:
    """Every limit that a replica exceeds."""
    return [
        Violation("limits", f"replicas[{index}]", f"{found}, {name} is {most}")
        for index, replica in enumerate(layout.replicas)
        for found, name, most in _exceeded(instance, replica)
    ]


def _exceeded(instance: Instance, replica: Replica) -> Iterator[tuple[str, str, int]]:
    """What is found, the limit's name, and its value."""
    limits = instance.limits
    if replica.shape.pp > limits.max_pipeline_stages:
        yield (
            f"{replica.shape.pp} pipeline stages", "max_pipeline_stages", limits.max_pipeline_stages,
        )  # fmt: skip
    most = max(replica.rank_sequences(), default=0)
    if most > limits.max_sequences_per_rank:
        name = "prompts" if replica.role == "prefill" else "sequences"
        yield f"{most} {name} on a rank", "max_sequences_per_rank", limits.max_sequences_per_rank
    if replica.role == "prefill":
        # a question with returning conversations: only a replica that keeps them computes less than whole prompts
        kind = instance if replica.idle_kv else all_new(instance)
        in_pass = limits.prompts_in_pass(kind.workload)
        in_turn = -(-most // replica.shape.pp)
        if in_turn > in_pass:
            yield (
                f"{in_turn} prompts of {kind.workload.new_tokens:,} tokens in a pass of one rank, which takes {in_pass}",
                "prefill_chunk_tokens", limits.prefill_chunk_tokens,
            )  # fmt: skip
    asked = limits.max_domains_per_replica
    domains = len({instance.cluster.chip(chip).domain for chip in replica.chips})
    if asked is not None and domains > asked:
        yield f"chips in {domains} domains", "max_domains_per_replica", asked
