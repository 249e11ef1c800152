"""LoRA adapters that every replica holds beside the model."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from topology.quantity import Bytes, Given


class Adapters(Given):
    """``count`` adapters of ``bytes`` each in bf16, spread evenly over the layers.

    A pass reads them all (its sequences may use any), and every token passes one of them.
    """

    count: Annotated[int, Field(ge=1, le=100_000)]
    bytes: Bytes

    @property
    def held_bytes(self) -> float:
        """Bytes of all of them."""
        return self.count * self.bytes

    @property
    def flops_per_token(self) -> float:
        """Two per parameter of one adapter, which has two bytes."""
        return self.bytes
