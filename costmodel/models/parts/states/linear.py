"""Linear attention with a constant state: gated delta rule, Kimi delta attention, lightning.

State FLOPs per token count a multiply-add as 2: read-out and update touch every state element, the
delta rule reads it once more, and decay multiplies it once.
"""

from __future__ import annotations

from dataclasses import dataclass

from costmodel.models.config import Config
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.quantisation.formats import BY_TORCH_NAME, ELEMENT_BYTES
from costmodel.models.spec import LinearState, Weights

#: FLOPs per state element and token: read-out 2, update 2, decay 1; the delta rule reads 2 more.
_PLAIN_FLOPS, _DELTA_FLOPS = 5.0, 7.0


def state_element_bytes(c: Config, *names: str) -> float:
    """Bytes of one state element: fp32 unless the config asks for another dtype."""
    kept = c.choice(
        *(names or ("mamba_ssm_dtype", "mamba_ssm_cache_dtype")),
        allowed=tuple(BY_TORCH_NAME),
        default="float32",
        because="engines keep the state in fp32",
    )
    return ELEMENT_BYTES[BY_TORCH_NAME[kept].dtype]


@dataclass(frozen=True)
class DeltaHeads:
    """Heads and widths of a delta-rule attention."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv: int  #: taps of the short convolution

    @property
    def channels(self) -> int:
        """Channels of q, k and v together, which pass the convolution."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim

    def state_bytes(self, element_bytes: float, conv_bytes: float) -> float:
        """One key x value matrix per value head, and the convolution's last inputs."""
        matrix = self.value_heads * self.key_dim * self.value_dim
        return matrix * element_bytes + self.channels * (self.conv - 1) * conv_bytes

    def flops(self) -> float:
        """FLOPs of state and convolution for one token."""
        state = self.value_heads * self.key_dim * self.value_dim
        return _DELTA_FLOPS * state + 2.0 * self.channels * self.conv


def gated_delta(b: Builder, at: str, heads: DeltaHeads, element_bytes: float) -> LinearState:
    """Gated DeltaNet as Qwen3-Next builds it: q, k, v, z from one projection, b and a from another."""
    values = heads.value_heads * heads.value_dim
    weights = (
        b.matrix("q, k, v", f"{at}.in_proj_qkv", heads.channels, b.hidden, "heads"),
        b.matrix("output gate", f"{at}.in_proj_z", values, b.hidden, "heads"),
        b.matrix("beta and decay", f"{at}.in_proj_ba", 2 * heads.value_heads, b.hidden, "heads",
                 role="plain"),
        b.matrix("attention output", f"{at}.out_proj", b.hidden, values, "heads"),
        b.vector("convolution, decay and norm",
                 heads.channels * heads.conv + 2 * heads.value_heads + heads.value_dim, "heads"),
    )  # fmt: skip
    return LinearState(
        "gated-delta", weights, heads.value_heads,
        heads.state_bytes(element_bytes, b.base_bytes), heads.flops(),
    )  # fmt: skip


def kimi_delta(
    b: Builder,
    at: str,
    heads: DeltaHeads,
    element_bytes: float,
    *,
    decay_rank: int | None,
    gate_rank: int | None,
    gate_rows: int | None = None,
) -> LinearState:
    """Kimi delta attention: a decay per key channel, projected in two steps of ``decay_rank``.

    A rank of ``None`` is one full projection; ``gate_rows`` the rows of the output gate (all value
    channels unless given). Source: Kimi Linear report, section 3.
    """
    h, keys = b.hidden, heads.key_heads * heads.key_dim
    values = heads.value_heads * heads.value_dim
    weights: list[Weights] = [
        b.matrix("query", f"{at}.q_proj", keys, h, "heads"),
        b.matrix("key", f"{at}.k_proj", keys, h, "heads"),
        b.matrix("value", f"{at}.v_proj", values, h, "heads"),
        b.matrix("beta", f"{at}.b_proj", heads.value_heads, h, "heads", role="plain"),
        b.matrix("attention output", f"{at}.o_proj", h, values, "heads"),
        b.vector("convolution, decay and norm",
                 heads.channels * heads.conv + heads.value_heads + keys + heads.value_dim, "heads"),
    ]  # fmt: skip
    rows = values if gate_rows is None else gate_rows
    for name, module, rank, width in (
        ("decay", "f", decay_rank, keys), ("output gate", "g", gate_rank, rows)
    ):  # fmt: skip
        if rank is None:
            weights.append(b.matrix(name, f"{at}.{module}_proj", width, h, "heads"))
        else:
            weights.append(b.matrix(f"{name} down", f"{at}.{module}_a_proj", rank, h, "replicated"))
            weights.append(b.matrix(f"{name} up", f"{at}.{module}_b_proj", width, rank, "heads"))
    return LinearState(
        "kda", tuple(weights), heads.value_heads,
        heads.state_bytes(element_bytes, b.base_bytes), heads.flops(),
    )  # fmt: skip


def lightning(b: Builder, at: str, heads: int, head_dim: int, element_bytes: float) -> LinearState:
    """Lightning attention with an output gate and a norm over all heads (MiniMax-01 report)."""
    width = heads * head_dim
    weights = (
        b.matrix("q, k, v", f"{at}.qkv_proj", 3 * width, b.hidden, "heads"),
        b.matrix("output gate", f"{at}.output_gate", width, b.hidden, "heads"),
        b.matrix("attention output", f"{at}.out_proj", b.hidden, width, "heads"),
        b.vector("norm", width, "heads"),
    )
    state = heads * head_dim * head_dim
    return LinearState("lightning", weights, heads, state * element_bytes, _PLAIN_FLOPS * state)
