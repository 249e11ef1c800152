"""GIT: the text decoder of an image captioner, a BERT-like stack with learned positions.

Found by its architecture alone: a released file of another family gives ``git`` as its model_type.
Source: the model's class in transformers (Apache-2.0).
"""

from __future__ import annotations

from costmodel.models.parts.builder import Builder
from costmodel.models.parts.recipe import Recipe, read_recipe
from costmodel.models.registry import Family
from costmodel.models.spec import ModelSpec

_RECIPE = Recipe(
    "GitForCausalLM", bias=True, mlp_bias=True, gated=False, norm_bias=True, heads="all",
    positions=("max_position_embeddings",), embedding_norms=2, final_norm=False, head_bias=True,
    no_effect=("num_image_with_embedding",),
)  # fmt: skip


def read(b: Builder) -> ModelSpec:
    """The decoder; its image encoder is no part of the text model."""
    if not b.outer.has("vision_config"):
        b.config.log.note("assumed: vision_config not given: no image tower is counted")
    return read_recipe(b, _RECIPE)


FAMILY = Family("git", (), ("GitForCausalLM",), read)
