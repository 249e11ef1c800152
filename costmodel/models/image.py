"""Parameters of image and audio towers, for totals of multimodal cards and the memory they take.

A tower is never part of a text model's totals, bytes or FLOPs. Sources of the forms: SigLIP, MoonViT,
Qwen-VL and Llama-4 vision code in public model libraries.
"""

from __future__ import annotations

from collections.abc import Callable

from costmodel.models.config import Config
from costmodel.models.read_log import shown
from costmodel.models.spec import Tower

_MAX_IMAGE = 2**16


#: Keys of what describes an audio tower.
_AUDIO = ("audio_config", "speech_config")


def read_image_tower(outer: Config, text_hidden: int) -> Tower | None:
    """Weights of the tower that ``vision_config`` describes; a note where its kind is not known."""
    section = _section(outer, "vision_config")
    if section is None:
        if outer.has("text_config"):
            audio = _section(outer, *_AUDIO) is not None
            given = "vision_config not given" if audio else "no vision_config, no audio_config"
            outer.log.note(f"assumed: {given}: no image tower is counted")
        return None
    kind = section.data.get("model_type")
    key = (
        kind.removesuffix("_vision")
        if isinstance(kind, str) and kind
        else "kimi"
        if section.has("vt_hidden_size")
        else ""
    )
    reader = _KINDS.get(key, _estimate)
    params = reader(section, text_hidden)
    if not params:
        outer.log.note("warning: the image tower (vision_config) is not understood: not counted")
        return None
    outer.log.note("the image tower is not part of the text model: its parameters are given apart")
    return _tower(section, params)


def read_audio_tower(outer: Config, text_hidden: int) -> Tower | None:
    """Weights of the tower that ``audio_config`` describes, estimated; a note where it cannot be."""
    section = _section(outer, *_AUDIO)
    if section is None:
        return None
    params = _estimate(section, text_hidden)
    if not params:
        outer.log.note("warning: the audio tower (audio_config) is not understood: not counted")
        return None
    outer.log.note("the audio tower is not part of the text model: its parameters are given apart")
    return _tower(section, params)


def _tower(section: Config, params: int) -> Tower:
    """A tower in bf16, whatever the text model is stored in."""
    return Tower(params, 2.0 * params, _first(section, *_WIDTHS), _first(section, *_DEPTHS))


#: Keys of a tower's width and of its number of blocks.
_WIDTHS = ("embed_dim", "hidden_size", "d_model", "width", "vt_hidden_size", "n_embd")
_DEPTHS = ("num_hidden_layers", "depth", "encoder_layers", "num_layers", "layers",
           "vt_num_hidden_layers", "n_layer")  # fmt: skip


def _section(outer: Config, *keys: str) -> Config | None:
    """The first of some objects, of the config or of a thinker's inside it."""
    thinker = outer.section("thinker_config")
    for where in (outer, *((thinker,) if thinker else ())):
        for key in keys:
            found: Config | None = where.section(key)
            if found is not None:
                found.ignore(*found.data)
                return found
    return None


def _estimate(c: Config, text_hidden: int) -> int:
    """Encoder blocks of a width, depth and FFN, and one projection to the text; 0 without these keys."""
    width, depth = _first(c, *_WIDTHS), _first(c, *_DEPTHS)
    if not width or not depth:
        return 0
    inner = _first(c, "intermediate_size", "encoder_ffn_dim", "ffn_dim", "vt_intermediate_size")
    ratio = c.data.get("mlp_ratio")
    if not inner:
        inner = (
            int(width * ratio) if isinstance(ratio, int | float) and 0 < ratio < 64 else 4 * width
        )
    if str(c.data.get("model_type")).startswith(("glm4v", "glm46v")):
        inner = (
            _first(c, "out_hidden_size") or inner
        )  # of blocks; intermediate_size is the merger's
    gated = c.data.get("hidden_act") in ("silu", "swiglu") or c.data.get("use_swiglu_ffn") is True
    patch = _first(c, "patch_size")
    c.log.note(
        f"{c.path}: the tower is estimated as {depth} plain encoder blocks of width {width}, with "
        f"{3 if gated else 2} FFN matrices of {inner}"
        + (f", on patches of {patch} pixels" if patch else "")
    )
    blocks = depth * (4 * width * width + (3 if gated else 2) * width * inner)
    return blocks + 3 * patch * patch * width + width * text_hidden


def _first(c: Config, *names: str) -> int:
    """The first of some keys that is a believable size; 0 without one."""
    for name in names:
        value = c.data.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MAX_IMAGE:
            return value
    return 0


def _blocks(width: int, inner: int, depth: int) -> int:
    """Plain ViT blocks: four projections and two FFN matrices, all with bias, two layer norms."""
    attention = 4 * (width * width + width)
    ffn = 2 * width * inner + inner + width
    return depth * (attention + ffn + 4 * width)


def _size(c: Config, *names: str, default: int | None = None) -> int:
    return c.size(*names, default=default, high=_MAX_IMAGE)


def _siglip(c: Config, text_hidden: int) -> int:
    width, patch = _size(c, "hidden_size"), _size(c, "patch_size")
    tokens = (_size(c, "image_size") // patch) ** 2
    embed = 3 * patch * patch * width + width + tokens * width
    blocks = _blocks(width, _size(c, "intermediate_size"), _size(c, "num_hidden_layers"))
    return embed + blocks + 2 * width + width * text_hidden + width


def _qwen(c: Config, text_hidden: int) -> int:
    width, patch = _size(c, "hidden_size"), _size(c, "patch_size")
    merged = width * _size(c, "spatial_merge_size") ** 2
    out = _size(c, "out_hidden_size", default=text_hidden)
    embed = 3 * _size(c, "temporal_patch_size") * patch * patch * width + width
    embed += _size(c, "num_position_embeddings") * width
    mlp = merged * merged + merged + merged * out + out
    deep = c.data.get("deepstack_visual_indexes")
    if deep is None:
        c.log.note(f"assumed: {c.path}deepstack_visual_indexes not given: no further mergers")
    elif not isinstance(deep, list) or len(deep) > 64 or any(type(i) is not int for i in deep):
        c.problem(
            "deepstack_visual_indexes", f"expected a list of layer numbers, got {shown(deep)}"
        )
    num_deep = len(deep) if isinstance(deep, list) else 0
    blocks = _blocks(width, _size(c, "intermediate_size"), _size(c, "depth"))
    return embed + blocks + (2 * width + mlp) + num_deep * (2 * merged + mlp)


def _moonvit(c: Config, text_hidden: int) -> int:
    width, patch = _size(c, "vt_hidden_size"), _size(c, "patch_size")
    kernel = c.sizes("merge_kernel_size", 2, low=1, high=64) or [2, 2]
    merged = width * kernel[0] * kernel[1]
    grid = _size(c, "init_pos_emb_height") * _size(c, "init_pos_emb_width")
    embed = 3 * patch * patch * width + width + grid * width
    blocks = _blocks(width, _size(c, "vt_intermediate_size"), _size(c, "vt_num_hidden_layers"))
    projector = 2 * width + merged * merged + merged + merged * text_hidden + text_hidden
    return embed + blocks + 2 * width + projector


def _llama4(c: Config, text_hidden: int) -> int:
    width, patch = _size(c, "hidden_size"), _size(c, "patch_size")
    inner, out = _size(c, "intermediate_size"), _size(c, "vision_output_dim")
    tokens = (_size(c, "image_size") // patch) ** 2 + 1
    embed = 3 * patch * patch * width + width + tokens * width + 4 * width
    middle = _size(c, "projector_input_dim")
    adapter = inner * middle + middle * _size(c, "projector_output_dim")
    return (
        embed + _blocks(width, inner, _size(c, "num_hidden_layers")) + adapter + out * text_hidden
    )


def _step3(c: Config, text_hidden: int) -> int:
    """ViT blocks with four extra tokens, two strided convolutions and a projection (vLLM's classes)."""
    width, patch, out = (
        _size(c, "hidden_size"),
        _size(c, "patch_size"),
        _size(c, "output_hidden_size"),
    )
    tokens = (_size(c, "image_size") // patch) ** 2 + 1
    embed = 3 * patch * patch * width + width + tokens * width
    blocks = _blocks(width, _size(c, "intermediate_size"), _size(c, "num_hidden_layers"))
    shrink = 4 * width * out + out + 9 * out * 2 * out + 2 * out
    return embed + blocks + shrink + 2 * out * text_hidden


_KINDS: dict[str, Callable[[Config, int], int]] = {
    "siglip_vision_model": _siglip,
    "qwen3_vl": _qwen,
    "qwen3_vl_moe": _qwen,
    "qwen3_5": _qwen,
    "qwen3_5_moe": _qwen,
    "kimi": _moonvit,
    "llama4_vision_model": _llama4,
    "step3_vision_encoder": _step3,
}
