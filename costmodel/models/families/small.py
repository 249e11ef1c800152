"""CPM-Ant and the ModernBERT decoder: small decoders with ends of their own."""

from __future__ import annotations

from costmodel.models.parts.attention import grouped_query
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import decoder, layer
from costmodel.models.parts.ffn import dense_ffn
from costmodel.models.parts.windows import typed_windows
from costmodel.models.registry import Family
from costmodel.models.spec import Layer, ModelSpec


def read(b: Builder) -> ModelSpec:
    """By ``model_type``."""
    kind = str(b.config.data.get("model_type") or b.config.data.get("architectures")).lower()
    return _cpm_ant(b) if "cpm" in kind else _modern_bert(b)


def _cpm_ant(b: Builder) -> ModelSpec:
    """Prompts and segments have tables; positions are a bias per head and bucket."""
    c = b.config
    heads, dim = b.heads, c.size("dim_head", default=b.hidden // b.heads, high=2**14)
    width = c.size("dim_ff")
    segments = c.size("segment_types", default=32, because="class default")
    prompts = c.size("prompt_types", default=32, because="class default")
    length = c.size("prompt_length", default=32, because="class default")
    buckets = c.size("position_bias_num_buckets", default=512, because="class default")
    c.ignore("position_bias_max_distance", "dropout_p", "eps", "init_std", "tie_word_embeddings",
             "mask_modules", "use_cache")  # fmt: skip

    def at(index: int) -> Layer:
        name = f"cpmant.encoder.layers.{index}"
        attention = grouped_query(b, f"{name}.self_att", heads, heads, dim)
        return layer(b, attention, dense_ffn(b, f"{name}.ffn", width))

    tables = b.vector("prompts, segments and positions",
                      (segments + prompts * length) * b.hidden + heads * (buckets + segments**2))  # fmt: skip
    return decoder(b, at, extra_embedding=(tables,), never_tied=True)


def _modern_bert(b: Builder) -> ModelSpec:
    """The first layer has no norm before attention; a projection comes before the head."""
    c, count = b.config, b.num_layers
    heads, dim, width = b.heads, b.head_dim(), b.ffn_width
    bias, mlp_bias = c.flag("attention_bias", default=False), c.flag("mlp_bias", default=False)
    norm = b.hidden * (2 if c.flag("norm_bias", default=False) else 1)
    head_bias = c.flag("decoder_bias", default=True)
    projected = c.flag("classifier_bias", default=False)
    step = c.size("global_attn_every_n_layers", default=3, because="class default")
    windows = typed_windows(b, count, lambda index, _: index % step != 0)
    c.ignore("local_attention", "classifier_activation")

    def at(index: int) -> Layer:
        name = f"model.layers.{index}"
        attention = grouped_query(
            b, f"{name}.attn", heads, heads, dim, qkv_bias=bias, o_bias=bias, window=windows[index]
        )
        ffn = dense_ffn(b, f"{name}.mlp", width, bias=mlp_bias)
        return layer(b, attention, ffn, norms=norm * (2 if index else 1))

    before = b.matrix("before the head", "lm_head.dense", b.hidden, b.hidden, "replicated",
                      role="plain", bias=projected)  # fmt: skip
    return decoder(
        b, at, tied_default=True, final_norm=norm, head_bias=head_bias,
        extra_embedding=(b.vector("embedding norm", norm),),
        extra_head=(before, b.vector("head's norm", norm)),
    )  # fmt: skip


FAMILY = Family(
    "small",
    ("cpmant", "modernbert-decoder"),
    ("CpmAntForCausalLM", "ModernBertDecoderForCausalLM"),
    read,
)
