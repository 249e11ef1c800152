r"""Tokens of pre-training, reinforcement learning and inference at chosen shares of the money.

FLOPs per parameter and token: pre-training 6 (forward 2, backward 4), RL 2 to 6 (a roll-out is a
forward pass, an update adds the backward one), inference 2. Generating runs at a fraction of the
utilisation of training, so that its FLOPs cost ``inefficiency`` times as much. With costs
``6 N D_pre : rl N D_rl inefficiency : 2 N D_inf inefficiency`` in the shares asked for, one number of tokens
gives the others. *Source:* Pope, blackboard lecture (2026), 1:22-1:33; Hoffmann et al. (2022) for 20
tokens per parameter.
"""

from __future__ import annotations

from dataclasses import dataclass

PRETRAINING_FLOPS, INFERENCE_FLOPS = 6.0, 2.0
#: tokens per parameter at which a fixed training budget gives the best model
CHINCHILLA_TOKENS = 20.0


@dataclass(frozen=True)
class TrainingTokens:
    """Tokens of each use of one model, and the budget that a training-only optimum would take."""

    pretraining: float
    reinforcement: float
    inference: float
    chinchilla: float

    @property
    def over_training(self) -> float:
        """Pre-training tokens over those of the training-only optimum."""
        return self.pretraining / self.chinchilla


def balanced_tokens(
    active_params: float,
    inference_tokens: float,
    *,
    shares: tuple[float, float, float] = (1.0, 1.0, 1.0),
    rl_flops: float = 3.0,
    inefficiency: float = 3.0,
) -> TrainingTokens:
    """Tokens that spend money on pre-training, RL and inference in ``shares``.

    ``rl_flops``: FLOPs per parameter and RL token; ``inefficiency``: cost of a generated FLOP over a
    training one. Raises ``ValueError`` for shares that are not positive.
    """
    if min(shares) <= 0:
        raise ValueError(f"shares must be positive, got {shares}")
    pre, rl, inference = shares
    unit = INFERENCE_FLOPS * inefficiency * inference_tokens / inference
    return TrainingTokens(
        pretraining=unit * pre / PRETRAINING_FLOPS,
        reinforcement=unit * rl / (rl_flops * inefficiency),
        inference=inference_tokens,
        chinchilla=CHINCHILLA_TOKENS * active_params,
    )
