"""The blackboard's closed forms of ``kv-tiers``: rent against recompute, drain times, price lists of caches."""

from __future__ import annotations

from costmodel.blackboard.retention import (
    break_even_hold_s,
    may_share_a_tier,
    recompute_s,
    suited_tier,
    write_premiums,
)
from costmodel.question.instance import Instance
from rackfit.studies.base import Own, Row
from rackfit.studies.board import board_of, positive
from topology.errors import InstanceError, Problem

_HOUR = 3600.0
#: the parameter that is the hold in seconds
HOLD = "board.hold_s"


def retention_row(instance: Instance, own: Own) -> Row:
    """Rent against recompute of one token, and the tier whose drain time is nearest to the hold."""
    board, hold = board_of(instance, own), positive(own, HOLD)
    chip_flops = board.machine.flops_per_s / board.chips
    again = recompute_s(board.model.active_params, chip_flops)
    per_s = board.usd_per_chip_hour / _HOUR
    even = None
    if board.model.kv_bytes_per_token:
        even = break_even_hold_s(
            board.model.active_params, chip_flops, board.hbm_bytes, board.model.kv_bytes_per_token
        )
    drains = _drains(instance, own)
    hold_usd = hold * per_s * board.model.kv_bytes_per_token / board.hbm_bytes * 1e6
    row: Row = {
        "recompute_s_per_token": again,
        "recompute_usd_per_m": again * per_s * 1e6,
        "hold_hbm_usd_per_m": hold_usd,
        "break_even_hbm_s": even,
        "cheaper": "hold in HBM" if even is None or hold < even else "compute again",
        "suited_tier": suited_tier(drains, hold),
        **{f"drain_{name}_s": seconds for name, seconds in drains.items()},
    }
    return row | _list_prices(own)


def _list_prices(own: Own) -> Row:
    """What a price list of caches implies: premiums of writes, and whether one tier explains them."""
    base = own["prices.base"]
    if base is None:
        return {}
    price = positive(own, "prices.base")
    short, long = positive(own, "prices.write_short"), positive(own, "prices.write_long")
    premiums = write_premiums({"short": short / price, "long": long / price})
    short_s, long_s = positive(own, "prices.short_s"), positive(own, "prices.long_s")
    return {
        "write_premium_short": premiums["short"],
        "write_premium_long": premiums["long"],
        "premium_ratio": premiums["long"] / premiums["short"],
        "hold_ratio": long_s / short_s,
        "one_tier": may_share_a_tier(premiums["short"], premiums["long"], short_s, long_s),
        "hit_over_input": positive(own, "prices.hit") / price,
    }


def _drains(instance: Instance, own: Own) -> dict[str, float]:
    """Drain times by tier: those given as ``NAME=SECONDS+NAME=SECONDS``, else the chip's."""
    text = own["board.drains"]
    if text is None:
        chip = instance.cluster.usable[0].chip
        found = {"hbm": chip.hbm_bytes / chip.hbm_bytes_per_s}
        return found | {str(tier.kind): tier.drain_s for tier in chip.tiers}
    try:
        pairs = [part.split("=") for part in str(text).split("+")]
        found = {name: float(seconds) for name, seconds in pairs}
    except ValueError:
        found = {}
    if not found or min(found.values()) <= 0:
        message = f"expected NAME=SECONDS+NAME=SECONDS, got {str(text)[:60]!r}"
        raise InstanceError(Problem("board.drains", message))
    return found
