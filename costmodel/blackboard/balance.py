r"""Where a pass changes from bandwidth bound to compute bound: batch and context of equal times.

With ``I = (FLOPs / 2) bytes_per_param / bandwidth`` (multiplies per weight-load time; about 300 on many
GPUs, 560 on TPU v6e) and sparsity ``s = N_total / N_active``: without KV the batch that balances is
``I s``; the context at which KV alone takes as long as compute is
``N_active bytes_per_param / (I kv_bytes)``; with KV the batch is ``I s / (1 - context / balance_context)``.
*Source:* Pope, blackboard lecture (2026), 0:10-0:20 and 1:36; bytes per parameter kept apart.
"""

from __future__ import annotations

from costmodel.passes.operations import Operations


def multiplies_per_weight(
    flops_per_s: float, bytes_per_param: float, hbm_bytes_per_s: float
) -> float:
    """Multiplications done in the time one weight is loaded (dimensionless)."""
    return flops_per_s / 2.0 * bytes_per_param / hbm_bytes_per_s


def balance_batch(intensity: float, sparsity: float, context_share: float = 0.0) -> float | None:
    """Sequences at which compute takes as long as memory; ``None`` where KV alone takes longer.

    ``context_share``: context over the balance context.
    """
    if context_share >= 1.0:
        return None
    return intensity * sparsity / (1.0 - context_share)


def balance_context(
    active_params: float, bytes_per_param: float, intensity: float, kv_bytes_per_token: float
) -> float:
    """Context (tokens) whose KV reads take as long as the token's compute."""
    return active_params * bytes_per_param / (intensity * kv_bytes_per_token)


def kv_bytes_at_balance(
    active_params: float, bytes_per_param: float, intensity: float, context: float
) -> float:
    """KV bytes per token that make ``context`` the balance context: reads a price step backwards."""
    return active_params * bytes_per_param / (intensity * context)


def attention_crossover(operations: Operations, *, with_head: bool) -> float:
    """Context (tokens) at which decode's attention FLOPs equal its weight FLOPs.

    ``with_head`` counts the LM head among the weights. Only for models whose every attention reads
    the whole context.
    """
    weights = 0.0
    per_token = 0.0
    for kind in operations.kinds:
        count = len(kind.layers)
        weights += count * sum(matmul.flops_per_token for matmul in kind.matmuls)
        if kind.moe is not None:
            weights += count * 2.0 * kind.moe.top_k * kind.moe.expert_params
        for attention in kind.attentions:
            width = attention.decode_qk_dim + attention.decode_v_dim
            per_token += count * 2.0 * attention.query_heads * width
    if with_head:
        weights += sum(matmul.flops_per_token for matmul in operations.head)
    return weights / per_token
