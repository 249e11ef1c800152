"""A random Qwen3 of two layers with a tokenizer of bytes, for starts without weights. Knows no Rackfit.

python tools/tiny_model.py moe|dense FOLDER     in an environment with torch and transformers
"""

from __future__ import annotations

import sys

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

#: sizes of both models
SIZES = {
    "vocab_size": 512, "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 64, "intermediate_size": 512, "max_position_embeddings": 4096,
    "tie_word_embeddings": False, "bos_token_id": 0, "eos_token_id": 1,
}  # fmt: skip
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 128}


def main(kind: str, folder: str) -> None:
    """Write config, weights and tokenizer."""
    torch.manual_seed(0)
    if kind == "moe":
        model = Qwen3MoeForCausalLM(Qwen3MoeConfig(**SIZES, **EXPERTS))
    else:
        model = Qwen3ForCausalLM(Qwen3Config(**SIZES))
    model.to(torch.bfloat16).save_pretrained(folder)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    words = {word: number for number, word in enumerate([*special.values(), *letters])}
    tokenizer = Tokenizer(models.BPE(vocab=words, merges=[], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder)


if __name__ == "__main__":
    main(*sys.argv[1:3])
