"""Seconds of one pass by part, and the sums that the combinations of compute and memory need."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from costmodel.passes.tokens import Array
from costmodel.question.profile import Combination, Stream

#: where the time of a pass goes; every key of :attr:`PassTime.parts`
PARTS = (
    "attention_projections",
    "attention_context",
    "dense_ffn",
    "router",
    "shared_experts",
    "routed_experts",
    "adapters",
    "head",
    "encoders",
    "norms",
    "all_reduce",
    "dispatch",
    "combine",
    "overhead",
)


@dataclass(frozen=True)
class Term:
    """One roofline of a pass: ``max(compute_s + softmax_s, memory_s)`` at the efficiencies it was priced with.

    ``dtype`` says at what the compute runs, ``stream`` what the bytes are; a part that is traffic has
    its latency in ``compute_s`` and its bytes' time in ``memory_s``, which add up.
    """

    part: str
    dtype: str
    stream: Stream
    compute_s: Array
    memory_s: Array
    #: of the arithmetic at ``dtype`` that small products reach
    share: Array = field(default_factory=lambda: np.ones(()))
    #: exponentials of attention scores, which products wait for
    softmax_s: Array = field(default_factory=lambda: np.zeros(()))


@dataclass
class PassTime:
    """Seconds of one pass on one stage by part, and the sums that the combinations need.

    ``terms``, where given, collects what the parts are made of.
    """

    parts: dict[str, Array] = field(default_factory=dict)
    compute_s: Array = field(default_factory=lambda: np.zeros(()))
    weights_s: Array = field(default_factory=lambda: np.zeros(()))
    kv_s: Array = field(default_factory=lambda: np.zeros(()))
    terms: list[Term] | None = None

    def add(self, part: str, seconds: Array) -> None:
        """Add seconds to a part."""
        self.parts[part] = self.parts[part] + seconds if part in self.parts else seconds

    def roofline(
        self,
        part: str,
        compute_s: Array,
        memory_s: Array,
        *,
        softmax_s: Array | float = 0.0,
        dtype: str = "bf16",
        stream: Stream = "weights",
    ) -> None:
        """Add one operation: its maximum to ``part``, its terms to the sums."""
        computes_s = compute_s + softmax_s
        self.add(part, np.maximum(computes_s, memory_s))
        self.compute_s = self.compute_s + computes_s
        if stream == "kv":
            self.kv_s = self.kv_s + memory_s
        else:
            self.weights_s = self.weights_s + memory_s
        if self.terms is not None:
            compute, memory, softmax = np.broadcast_arrays(compute_s, memory_s, softmax_s)
            self.terms.append(Term(part, dtype, stream, compute, memory, softmax_s=softmax))

    def traffic(self, part: str, latency_s: Array, bytes_s: Array) -> None:
        """Add one collective: latency and bytes follow each other."""
        self.add(part, latency_s + bytes_s)
        if self.terms is not None:
            self.terms.append(Term(part, "", "weights", latency_s, bytes_s))

    def total_s(self, combination: Combination) -> Array:
        """Seconds of the pass under one combination; traffic and overhead always add."""
        waiting = ("all_reduce", "dispatch", "combine", "overhead")
        extra = sum((self.parts[p] for p in waiting if p in self.parts), start=np.zeros(()))
        if combination == "per_op":
            return np.asarray(sum(self.parts.values(), start=np.zeros(())))
        if combination == "lecture":
            return np.asarray(np.maximum(self.compute_s, self.weights_s + self.kv_s) + extra)
        return np.asarray(self.kv_s + np.maximum(self.compute_s, self.weights_s) + extra)
