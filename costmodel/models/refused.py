"""Kinds of models that are refused by name: what is no decoder, and decoders nobody serves as such."""

from __future__ import annotations

from costmodel.models.config import Config

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
