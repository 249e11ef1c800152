"""Kimi-Linear and Kimi-K3: three Kimi-delta layers to one MLA layer, routed experts.

K3 adds output gates, experts in a latent width, and residual connections over blocks of layers.
"""

from __future__ import annotations

from costmodel.models.parts.builder import Builder
from costmodel.models.parts.decoder import decoder, layer
from costmodel.models.parts.ffn import Experts, dense_ffn, ffn_weights, mixture
from costmodel.models.parts.mla import Latent, latent_attention
from costmodel.models.parts.mtp import next_token_modules, num_modules
from costmodel.models.parts.schedule import sparse_layers
from costmodel.models.parts.states.linear import DeltaHeads, kimi_delta, state_element_bytes
from costmodel.models.registry import Family
from costmodel.models.spec import Attention, Layer, LinearState, ModelSpec, Weights


def read(b: Builder) -> ModelSpec:
    """``linear_attn_config`` lists both kinds of layer, counted from one."""
    c, count = b.config, b.num_layers
    latent = Latent.read(b)
    experts = Experts.read(b, groups=True, group_names=("num_expert_group", "n_group"))
    num_shared = c.size("num_shared_experts", low=0, high=2**10)
    width, sparse, modules = (
        b.ffn_width,
        sparse_layers(b, count, first_default=1 if b.config.class_defaults else None),
        num_modules(b),
    )
    delta, full, full_gate = _linear(b, count)
    dim, element = delta.key_dim, state_element_bytes(c)
    gated = c.flag("mla_use_output_gate", default=False)
    inner = c.optional_size("routed_expert_hidden_size", because="experts at full width")
    inner_norm = c.flag("latent_moe_use_norm", default=False) if inner else False
    residual = c.optional_size("attn_res_block_size", because="plain residuals", high=count)
    c.ignore("activation_situ_beta", "activation_situ_linear_beta", "topk_method")
    c.ignore("mla_use_nope", "head_dim", "use_grouped_topk", "moe_renormalize", "rope_theta")

    #: two norms; with block residuals a norm and a query vector more before each branch
    norms = (6 if residual else 2) * b.hidden

    def at(index: int) -> Layer:
        name = f"model.layers.{index}"
        attention: Attention | LinearState
        if index >= count or index in full:
            gate = latent.heads * latent.v if gated else 0
            attention = latent_attention(b, f"{name}.self_attn", latent, gate_rows=gate)
        else:
            attention = kimi_delta(
                b,
                f"{name}.self_attn",
                delta,
                element,
                decay_rank=dim,
                gate_rank=None if full_gate else dim,
            )
        if index < count and not sparse[index]:
            return layer(b, attention, dense_ffn(b, f"{name}.mlp", width), norms=norms)
        shared = ffn_weights(
            b, f"{name}.block_sparse_moe.shared_experts", num_shared * experts.width,
            prefix="shared experts' ",
        )  # fmt: skip
        moe = mixture(
            b, f"{name}.block_sparse_moe", experts, router_bias=True, num_shared=num_shared,
            shared=(*(shared if num_shared else ()), *_latent(b, name, inner, inner_norm)),
            input_dim=inner,
        )  # fmt: skip
        return layer(b, attention, moe, norms=norms)

    return decoder(b, at, never_tied=True, mtp=lambda: next_token_modules(b, modules, at, count))


def _linear(b: Builder, count: int) -> tuple[DeltaHeads, list[int], bool]:
    """Delta heads, the layers of full attention, and whether the output gate has full rank.

    Released files nest them in ``linear_attn_config``; ``layer_types`` with ``linear_*`` keys is what
    the class in transformers writes.
    """
    c = b.config
    linear = c.section("linear_attn_config")
    if linear is None:
        kinds = c.strings("layer_types", ("linear_attention", "full_attention"), count)
        if kinds is None and "linear_head_dim" not in c.class_defaults:
            raise c.fail("linear_attn_config", "is missing: which layers are linear is not known")
        if kinds is None:
            c.log.note("assumed: layer_types not given: every fourth layer has full attention")
        heads = c.size("linear_num_heads", high=2**12)
        dim = c.size("linear_head_dim", high=2**14)
        conv = c.size("linear_conv_kernel_dim", high=64)
        full = [i for i in range(count) if (kinds[i] == "full_attention" if kinds else i % 4 == 3)]
        return DeltaHeads(heads, heads, dim, dim, conv), full, False
    heads, dim = linear.size("num_heads", high=2**12), linear.size("head_dim", high=2**14)
    delta = DeltaHeads(heads, heads, dim, dim, linear.size("short_conv_kernel_size", high=64))
    listed = linear.indices("full_attn_layers", count, first=1)
    deltas = linear.indices("kda_layers", count, first=1)
    if listed is None or deltas is None or sorted(listed + deltas) != list(range(count)):
        raise linear.fail(
            "full_attn_layers", f"with kda_layers must name each of the {count} layers once"
        )
    full_gate = linear.flag("use_full_rank_gate", default=False, because="gate in two steps")
    linear.ignore("gate_lower_bound")
    return delta, listed, full_gate


def _latent(b: Builder, name: str, inner: int | None, norm: bool) -> tuple[Weights, ...]:
    """Projections into and out of the experts' width."""
    if inner is None:
        return ()
    at = f"{name}.block_sparse_moe"
    return (
        b.matrix("latent down", f"{at}.routed_expert_down_proj", inner, b.hidden, "replicated"),
        b.matrix("latent up", f"{at}.routed_expert_up_proj", b.hidden, inner, "replicated"),
        *((b.vector("latent norm", inner),) if norm else ()),
    )


FAMILY = Family(
    "kimi_linear",
    ("kimi_linear", "kimi_k3_text", "kimi_k3"),
    ("KimiLinearForCausalLM", "KimiK3ForCausalLM", "KimiK3ForConditionalGeneration"),
    read,
)
