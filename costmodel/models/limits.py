"""Which sizes of a config are believed, and which are remarked on."""

from __future__ import annotations

#: Largest width, rank or count that is believed; vocabularies of today are below 2**19.
MAX_SIZE = 2**22


#: Widths of released models are multiples of this; others are noted as suspicious.
WIDTH_MULTIPLE = 8


#: Endings of the keys that are such widths.
WIDTHS = ("hidden_size", "intermediate_size", "head_dim", "_rank", "d_model", "latent_size")


#: Most layers that are believed; the deepest released model has a few hundred.
MAX_LAYERS = 2048


#: Most routed experts of one layer that are believed.
MAX_EXPERTS = 2**14


#: What makes a model what it is: never taken from a class's defaults.
ESSENTIAL = frozenset(
    """
    vocab_size hidden_size d_model n_embd num_hidden_layers n_layers num_layers n_layer
    num_attention_heads n_heads n_head num_heads intermediate_size ffn_dim moe_intermediate_size
    n_routed_experts num_experts num_local_experts moe_num_experts num_experts_per_tok moe_topk
    kv_lora_rank qk_nope_head_dim v_head_dim
    """.split()  # noqa: SIM905
)
