"""A tokenizer of 512 words, one token each, as the files that Hugging Face's loader reads. Needs no package."""

from __future__ import annotations

import json
from pathlib import Path

#: words of its own beside the special ones; a text of n of them is n tokens
WORDS = 509
_SPECIAL = ("<s>", "</s>", "<unk>")
_TEMPLATE = "{% for message in messages %}{{ message['content'] }} {% endfor %}"


def word(number: int) -> str:
    """One token."""
    return f"w{number % WORDS}"


def write_tokenizer(folder: Path) -> Path:
    """``tokenizer.json`` with its configuration, and a small ``config.json`` for tools that look for one."""
    folder.mkdir(parents=True, exist_ok=True)
    words = [*_SPECIAL, *map(word, range(WORDS))]
    added = [
        {"id": index, "content": name, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": True}
        for index, name in enumerate(_SPECIAL)
    ]  # fmt: skip
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": None,
        "model": {"type": "WordLevel", "vocab": {name: index for index, name in enumerate(words)}, "unk_token": "<unk>"},
    }  # fmt: skip
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
        "model_max_length": 8192, "chat_template": _TEMPLATE,
    }  # fmt: skip
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": len(words), "hidden_size": 64,
        "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "max_position_embeddings": 8192,
    }  # fmt: skip
    for name, data in (
        ("tokenizer.json", tokenizer),
        ("tokenizer_config.json", settings),
        ("config.json", config),
    ):
        (folder / name).write_text(json.dumps(data))
    return folder
