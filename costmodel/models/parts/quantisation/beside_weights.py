"""What a quantiser's settings say beside the formats of matrices: the KV cache, and zeros that may be left out."""

from __future__ import annotations

from costmodel.models.config import Config
from costmodel.models.read_log import shown


def note_sparsity(section: Config) -> None:
    """Warn where matrices have zeros that the checkpoint leaves out, or kernels may."""
    sparse = section.section("sparsity_config")
    if sparse is not None:
        kept = sparse.data.get("format")
        sparse.ignore(*sparse.data)
        if sparse.data and kept != "dense":
            said = shown(sparse.data.get("sparsity_structure", kept))
            section.log.note(
                f"warning: {section.path}sparsity_config: matrices are sparse ({said}), bytes and FLOPs are counted as of dense ones"
            )
    elif section.data.get("format") == "marlin-24":
        section.log.note(
            f"warning: {section.path}format 'marlin-24': matrices are sparse (2:4), bytes and FLOPs are counted as of dense ones"
        )


def kv_scheme(section: Config) -> str | None:
    """The KV cache by its scheme; bf16 with a note where there is none."""
    scheme = section.section("kv_cache_scheme")
    if scheme is None:
        section.log.note(f"assumed: {section.path}kv_cache_scheme not given (KV cache in bf16)")
        return None
    bits = scheme.size("num_bits", low=4, high=16)
    scheme.ignore(*scheme.data)
    return {8: "fp8", 4: "fp4"}.get(bits, "bf16")


def modelopt_kv(section: Config) -> str | None:
    """The KV cache by its scheme, or by its algorithm: files have either. The scheme decides where both are given."""
    scheme = kv_scheme(section) if section.has("kv_cache_scheme") else None
    if scheme is not None and not section.has("kv_cache_quant_algo"):
        return scheme
    algorithm = section.choice(
        "kv_cache_quant_algo", allowed=("FP8", "NVFP4", "none"), default="none",
        because="KV cache not quantised",
    )  # fmt: skip
    named = {"FP8": "fp8", "NVFP4": "fp4"}.get(algorithm)
    if scheme is not None and scheme != (named or "bf16"):
        section.log.note(
            f"warning: {section.path}kv_cache_scheme says {scheme} and kv_cache_quant_algo {algorithm}: the scheme is taken"
        )
    return scheme or named
