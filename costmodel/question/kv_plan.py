"""Where a search puts KV: which tier sequences in flight are read from, and where idle KV waits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from topology import TierKind

Role = Literal["prefill", "decode", "mixed"]
#: where KV may lie
Place = Literal["hbm"] | TierKind


@dataclass(frozen=True)
class KvPlan:
    """One choice for a whole layout.

    ``prefill``: where the prompts that a prefill replica computes have their caches; ``generate``: the
    same for sequences that decode and mixed replicas generate; ``idle``: where the KV of
    conversations that may go on waits (``None``: nowhere, it is computed again). At most a share ``kept``
    of the conversations is kept; ``least_kept`` is where the next lower share takes over, which a bound
    on the rent may count on.
    """

    prefill: Place = "hbm"
    generate: Place = "hbm"
    idle: Place | None = None
    kept: float = 1.0
    least_kept: float = 0.0

    def in_flight(self, role: Role) -> Place:
        """Where a replica of this role has the caches of sequences in flight."""
        return self.prefill if role == "prefill" else self.generate

    def words(self) -> str:
        """The plan as a phrase."""
        said = {
            "hbm": "in HBM",
            "host": "in host memory",
            "flash": "in flash",
            "disk": "on disk",
        }
        text = f"KV {said[self.generate]}"
        if self.prefill != self.generate:
            text = f"KV of prompts {said[self.prefill]} and of answers {said[self.generate]}"
        if self.idle is not None:
            text += f", idle KV {said[self.idle]}"
        return text
