"""HBM that the engine of a measured run gives to weights and KV.

A recipe states a fraction, and engines mean different things by it: vLLM of all HBM, TensorRT-LLM of what weights leave
free, SGLang of what was free before weights came (``profile_max_num_token`` of its ``model_runner.py``).

Where no recipe states one, SGLang's server works it out: of all HBM, less what it sets aside for activations of a prefill
pass, graphs, and each chip of a worker (``server_args.py`` of releases 0.5.3 to 0.5.9, ``memory_hook.py`` since).
"""

from __future__ import annotations

from costmodel.measured.rows import Group
from topology import Chip

#: share of HBM that engines give to weights and KV unless told, and the share that is free before weights come
_USABLE_HBM, _FREE_HBM = 0.9, 0.96
#: engines that admit a sequence only with room for its last token, and count their fraction of what weights leave
RESERVES = ("trtllm",)
#: engines that count their fraction of what was free before weights came
_OF_FREE = ("sglang",)

_MIB = 2.0**20
#: SGLang's servers: below so many MiB of HBM, tokens of a prefill pass and the largest batch of its graphs, of workers of
#: fewer than four chips and of wider ones
_SERVERS = (
    (35.0 * 1024, 2048, 24, 80),
    (60.0 * 1024, 4096, 32, 160),
    (160.0 * 1024, 8192, 256, 512),
    (float("inf"), 16384, 512, 512),
)
_WIDE = 4


def sequences_hbm_bytes(chip: Chip, group: Group, engine: str, held_bytes: float) -> float:
    """Bytes of a chip that an engine gives to KV beside ``held_bytes`` of weights, below zero where these do not fit."""
    fraction = group.settings.memory_fraction
    if engine in RESERVES and fraction is not None:
        return fraction * most_hbm_bytes(chip, held_bytes)
    if engine in _OF_FREE:
        told = sglang_fraction(chip, group) if fraction is None else fraction
        return told * _FREE_HBM * chip.hbm_bytes - held_bytes
    return (_USABLE_HBM if fraction is None else fraction) * chip.hbm_bytes - held_bytes


def most_hbm_bytes(chip: Chip, held_bytes: float) -> float:
    """Bytes of a chip that ``held_bytes`` of weights leave free."""
    return _FREE_HBM * chip.hbm_bytes - held_bytes


def sglang_fraction(chip: Chip, group: Group) -> float:
    """Share of what is free that SGLang's server takes for weights and KV when it is not told.

    *Formula:* ``1 - r / HBM`` with ``r = 512 + 1.5 t + 2 g + 128 c`` MiB for passes of ``t`` tokens, graphs of up to ``g``
    sequences and workers of ``c`` chips; ``3 g`` more for each attention rank where there are several, ``4.5 g`` with
    ``g > 300``; with more than 60 GiB at least 10 GiB.
    """
    hbm = chip.hbm_bytes / _MIB
    tokens, narrow, wide = next(own for most, *own in _SERVERS if hbm < most)
    graphs = wide if group.tp * group.attention_dp >= _WIDE else narrow
    reserved = 512.0 + 1.5 * tokens + 2.0 * graphs + 128.0 * group.chips
    if group.attention_dp > 1:
        reserved += (4.5 if graphs > 300 else 3.0) * graphs * group.attention_dp
    if hbm > 60.0 * 1024:
        reserved = max(reserved, 10.0 * 1024)
    return 1.0 - reserved / hbm
