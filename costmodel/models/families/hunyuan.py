"""Hunyuan-A13B and Hunyuan-Large: lists per layer, shared MLP, optional cross-layer KV sharing."""

from __future__ import annotations

from typing import Any

from costmodel.models.config import MAX_EXPERTS, MAX_LAYERS, MAX_SIZE
from costmodel.models.parts.attention import grouped_query
from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import decoder, layer
from costmodel.models.parts.ffn import Experts, dense_ffn, ffn_weights, mixture
from costmodel.models.registry import Family
from costmodel.models.spec import Layer, ModelSpec, Weights

#: Image, pooling and token keys that a text config of this family carries.
_NO_EFFECT = """
    add_classification_head anyres_pooling_size anyres_vit_max_image_size anyres_vit_two_views
    class_num dense_list im_end_id im_newline_id im_start_id mask_init_id moe_drop_tokens
    moe_random_routing_dropped_token norm_type num_media_embeds org_vocab_size pad_id pool_type
    position_embedding_xdrope skip_cls_token text_end_id text_start_id video_end_id video_start_id
    vit_add_patchemb_bias vit_input_resolution vit_mapping_type vit_norm_type vit_patch vit_path
    vit_remove_prenorm vit_token vit_type vit_used_rms_norm xdrope_section eod_token_id
    kv_lora_rank q_lora_rank qk_nope_head_dim qk_rope_head_dim v_head_dim capacity_factor
    group_limited_greedy n_group topk_group
""".split()  # noqa: SIM905


def read(b: Builder) -> ModelSpec:
    """``num_experts`` 1 is dense; with ``use_cla`` every so-manieth layer alone projects k and v."""
    c, count = b.config, b.num_layers
    c.ignore(*_NO_EFFECT)
    if c.flag("use_mla", default=False):
        raise c.fail("use_mla", "latent attention is not known in this family")
    heads, kv_heads, dim = b.heads, b.kv_heads(), b.head_dim()
    bias, mlp_bias = c.flag("attention_bias", default=False), c.flag("mlp_bias", default=False)
    always = c.data.get("model_type") == "hunyuan_v1_moe"  # the class has no keys for these
    norm = 2 * dim if c.flag("use_qk_norm", default=always) else 0
    width, share = b.ffn_width, _share_factor(b)
    num = c.size("num_experts", high=MAX_EXPERTS)
    skipped = c.size(
        "moe_layer_num_skipped", default=0, because="none is dense", low=0, high=MAX_LAYERS
    )
    mixed = c.flag("use_mixed_mlp_moe", default=always) and num > 1
    if num == 1:
        c.ignore("moe_topk", "moe_intermediate_size", "num_shared_expert", "num_experts_per_tok")
        top_k, widths, shared_nums = [1] * count, [width] * count, [0] * count
    else:
        top_k = _per_layer(b, "moe_topk", count, MAX_EXPERTS)
        c.ignore("num_experts_per_tok")
        widths = _per_layer(b, "moe_intermediate_size", count, MAX_SIZE, default=width)
        one = 1 if always else None
        shared_nums = (
            _per_layer(b, "num_shared_expert", count, 2**10, default=one) if mixed else [0] * count
        )
        c.ignore("num_shared_expert")

    def at(index: int) -> Layer:
        name = f"model.layers.{index}"
        attention = grouped_query(
            b, f"{name}.self_attn", heads, kv_heads, dim, qkv_bias=bias, o_bias=bias,
            vectors=norm, has_kv=index % share == 0,
        )  # fmt: skip
        if num == 1 or index < skipped:
            return layer(b, attention, dense_ffn(b, f"{name}.mlp", width, bias=mlp_bias))
        shared: tuple[Weights, ...] = ()
        if shared_nums[index]:
            shared = ffn_weights(
                b, f"{name}.mlp.shared_mlp", shared_nums[index] * width, prefix="shared experts' "
            )
        experts = Experts(num, top_k[index], widths[index])
        moe = mixture(b, f"{name}.mlp", experts, shared=shared, num_shared=shared_nums[index])
        return layer(b, attention, moe)

    return decoder(b, at, tied_default=True)


def _share_factor(b: Builder) -> int:
    c = b.config
    if not c.flag("use_cla", default=False):
        c.ignore("cla_share_factor")
        return 1
    return c.size("cla_share_factor", high=MAX_LAYERS)


def _per_layer(
    b: Builder, key: str, count: int, high: int, default: int | None = None
) -> list[int]:
    """A list with one number per layer, or one number for all."""
    value: Any = b.config.data.get(key)
    if isinstance(value, list):
        return b.config.sizes(key, count, low=1, high=high) or []
    return [b.config.size(key, default=default, high=high)] * count


FAMILY = Family(
    "hunyuan",
    ("hunyuan", "hunyuan_v1_moe"),
    ("HunYuanMoEV1ForCausalLM", "HunYuanForCausalLM"),
    read,
)
