"""A tokenizer of printable ASCII, one token for each letter, as the files that Hugging Face's loader reads. Needs no package.

Texts that tools make of random tokens, or of English words, are as many tokens as they have letters.
"""

from __future__ import annotations

import json
from pathlib import Path

_LETTERS = [chr(code) for code in range(ord("!"), ord("~") + 1)]
_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


def letter(number: int) -> str:
    """One token."""
    return _LETTERS[number % len(_LETTERS)]


def write_tokenizer(folder: Path) -> Path:
    """``tokenizer.json`` with its configuration, and a small ``config.json`` for tools that look for one."""
    folder.mkdir(parents=True, exist_ok=True)
    # byte-level models write a space as Ġ
    words = ["<s>", "</s>", "<unk>", "Ġ", *_LETTERS]
    added = [
        {"id": index, "content": words[index], "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": True}
        for index in range(2)
    ]  # fmt: skip
    level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": True,
    }
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": level, "post_processor": None, "decoder": level,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
            "vocab": {name: index for index, name in enumerate(words)}, "merges": [],
        },
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
