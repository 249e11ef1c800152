"""Kinds of models that are refused by name: what is no decoder, and decoders nobody serves as such."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from costmodel.models.config import Config
from costmodel.models.read_log import shown

#: Endings of class names that are decoders which write text.
DECODERS = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
#: Endings of class names whose head writes no text, and what such a class is.
_OTHER_HEADS = {
    "ForSequenceClassification": "a classifier or reward model",
    "ForTokenClassification": "a classifier of tokens",
    "ForMultipleChoice": "a classifier",
    "RewardModel": "a reward model",
    "RewardModelWithGating": "a reward model",
    "ModelForScore": "a reward model",
    "ForQuestionAnswering": "a finder of answers in a text",
    "ForMaskedLM": "an encoder that fills in masked tokens",
    "ForRetrieval": "an embedding model",
    "ForEmbedding": "an embedding model",
    "BidirectionalModel": "an embedding model",
    "BidirectModel": "an embedding model",
}
#: Class names of EAGLE heads in lower case; NVIDIA's models for images are called Eagle, too.
_EAGLE = re.compile(r"eagle3?(\w*forcausallm|draftmodel|speculator|model)|\w*(?<!p)eagle3?")

#: Encoders; transformers has causal-LM classes for them all the same.
_ENCODERS = frozenset(
    """
    bert bert-generation big_bird camembert data2vec-text electra ernie megatron-bert rembert roberta
    roberta-prelayernorm roc_bert roformer xlm xlm-roberta xlm-roberta-xl xlnet xmod modernbert
    distilbert albert deberta deberta-v2 mpnet nomic_bert mega qdqbert
    """.split()  # noqa: SIM905
)
#: Encoder-decoders, and the decoder halves of such models.
_ENCODER_DECODERS = frozenset(
    """
    bart bigbird_pegasus blenderbot blenderbot-small marian mbart mvp pegasus pegasus_x plbart
    prophetnet xlm-prophetnet trocr whisper t5 mt5 umt5 longt5 switch_transformers m2m_100 nllb-moe led fsmt
    speech_to_text speech_to_text_2 musicgen musicgen_melody seamless_m4t seamless_m4t_v2 t5gemma t5gemma2 udop
    moonshine moonshine_streaming kyutai_speech_to_text florence2 pop2piano speecht5 encoder-decoder
    vision-encoder-decoder speech-encoder-decoder
    """.split()  # noqa: SIM905
)
#: Decoders of a make that the cost model has no word for.
_OTHERS = {
    "blip": "cross-attention layers read an image encoder's output",
    "blt": "bytes pass a local encoder and decoder around a global decoder",
    "ernie4_5_moe_vl": "two sets of experts, one for text and one for images",
    "ernie4_5_vl_moe": "two sets of experts, one for text and one for images",
    "evolla": "cross-attention layers read a protein encoder's output",
    "idefics": "cross-attention layers read an image encoder's output",
    "kosmos-2": "an encoder's output is projected by cross-attention, and no engine serves it",
    "kosmos-2.5": "an encoder's output is projected by cross-attention, and no engine serves it",
    "mllama": "cross-attention layers read an image encoder's output",
    "moshi": "a second decoder writes audio codes for every token",
    "pi0": "a policy for robots, whose output is actions",
    "reformer": "hashed attention in reversible layers",
    "transfo-xl": "segments with a memory, adaptive softmax",
    "unlimited_ocr": "a window beside reference tokens that are kept for ever",
}


def refuse_by_kind(config: Config, outer: Config) -> None:
    """Raise ``InstanceError`` where a config is of a kind that is not read, saying which."""
    for where in (outer, config):
        kind = str(where.data.get("model_type"))[:60]
        if where.data.get("is_encoder_decoder") is True or kind in _ENCODER_DECODERS:
            raise where.fail("model_type", f"{kind} is an encoder-decoder (or a half of one): "
                             "only decoders are read")  # fmt: skip
        if kind in _ENCODERS:
            raise where.fail("model_type", f"{kind} is an encoder: only decoders are read")
        if kind in _OTHERS:
            raise where.fail("model_type", f"{kind} is not read: {_OTHERS[kind]}")
        for key in ("cross_attention_layers", "cross_attention_hidden_size"):
            if where.data.get(key):
                raise where.fail(key, "cross-attention to another model's output is not read")


def class_names(data: Mapping[str, Any]) -> list[str]:
    """The classes that ``architectures`` names, as a list of them or alone."""
    names = data.get("architectures")
    listed = names if isinstance(names, list) else [names]
    return [name for name in listed[:4] if isinstance(name, str)]


def is_eagle(name: str) -> bool:
    """Whether a class of this name is an EAGLE head, which drafts one token in a run."""
    return _EAGLE.fullmatch(name.lower()) is not None


def refuse_by_class(config: Config, outer: Config, known: Collection[str]) -> None:
    """Raise ``InstanceError`` where the class writes no text; warn of one of a ``known`` family that lacks its head.

    Class names that nobody lists are read by ``model_type`` all the same: code of their own has such. Decoders were
    released under the bare name of their class (Bloom), embedding models are: these get a warning.
    """
    for key in ("use_bidirectional_attention", "use_bidirectional_attn"):
        value = config.data.get(key)
        if value is True or value == "all":
            message = "attention in both directions makes an embedding model, no text generator"
            raise config.fail(key, f"{'true' if value is True else shown(value)}: {message}")
    where = outer if class_names(outer.data) else config
    names = class_names(where.data)
    if any(name.endswith(DECODERS) and not is_eagle(name) for name in names):
        return
    for name in names:
        ending = next((end for end in _OTHER_HEADS if name.endswith(end)), None)
        if ending is not None:
            message = f"{shown(name)} is {_OTHER_HEADS[ending]}, no text generator: a class with a language-model head is read"
            raise where.fail("architectures", message)
        if is_eagle(name) or name.endswith(("DraftModel", "Speculator")):
            message = f"{shown(name)} drafts tokens for another model and writes no text alone: name the model, and this as its draft"
            raise where.fail("architectures", message)
        stem = name.removesuffix("Model").removesuffix("Text")
        if name.endswith("Model") and any(stem + end in known for end in DECODERS):
            where.log.note(
                f"warning: architectures names {shown(name)}, which has no language-model head, as embedding models have "
                "none: it is read as the text generator of its family"
            )
