"""Kinds of models that are refused by name: what is no decoder, and decoders nobody serves as such."""

from __future__ import annotations

from costmodel.models.config import Config

#: Encoders; transformers has causal-LM classes for them all the same.
_ENCODERS = frozenset(
    """
    bert bert-generation big_bird camembert data2vec-text electra ernie megatron-bert rembert roberta
    roberta-prelayernorm roc_bert roformer xlm xlm-roberta xlm-roberta-xl xlnet xmod modernbert
    distilbert albert deberta deberta-v2 mpnet nomic_bert
    """.split()  # noqa: SIM905
)
#: Encoder-decoders, and the decoder halves of such models.
_ENCODER_DECODERS = frozenset(
    """
    bart bigbird_pegasus blenderbot blenderbot-small marian mbart mvp pegasus pegasus_x plbart
    prophetnet trocr whisper t5 mt5 umt5 longt5 switch_transformers m2m_100 nllb-moe led fsmt
    speech_to_text musicgen musicgen_melody seamless_m4t seamless_m4t_v2 t5gemma t5gemma2 udop
    moonshine moonshine_streaming kyutai_speech_to_text florence2 pop2piano speecht5 encoder-decoder
    vision-encoder-decoder speech-encoder-decoder
    """.split()  # noqa: SIM905
)
#: Decoders of a make that the cost model has no word for.
_OTHERS = {
    "blt": "bytes pass a local encoder and decoder around a global decoder",
    "git": "an image encoder is part of the decoder's class, and no engine serves it",
    "hrm_text": "two stacks of layers run in cycles",
    "mllama": "cross-attention layers read an image encoder's output",
    "moshi": "a second decoder writes audio codes for every token",
    "qwen4_exp": "n-gram tables and an index of its own that no release documents",
    "qwen4_exp_text": "n-gram tables and an index of its own that no release documents",
    "reformer": "hashed attention in reversible layers",
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
        if kind in _OTHERS and not _reads_text(where):
            raise where.fail("model_type", f"{kind} is not read: {_OTHERS[kind]}")
        for key in ("cross_attention_layers", "cross_attention_hidden_size"):
            if where.data.get(key):
                raise where.fail(key, "cross-attention to another model's output is not read")


def _reads_text(where: Config) -> bool:
    """Grok-2's file says ``git``, the name of an image captioner; its architecture is its own."""
    names = where.data.get("architectures")
    return where.data.get("model_type") == "git" and isinstance(names, list) and any(
        str(name).startswith("Grok") for name in names
    )  # fmt: skip
