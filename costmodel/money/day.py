r"""Dollars per day of chips that are owned or rented round the clock, and of requests at an API.

    owned  = chips * (capex / (365.25 years) + 24 h * power / 1000 * usd_per_kwh)
    rented = chips * 24 h * usd_per_chip_hour
    api    = 86,400 s * requests/s * usd_per_request

Staff, floor space, spare parts and the margin of money are in none of them.
"""

from __future__ import annotations

from topology.chip import Chip

HOURS_PER_DAY = 24.0
SECONDS_PER_DAY = 86_400.0
DAYS_PER_YEAR = 365.25


def power_usd_per_day(chip: Chip, overhead: float, usd_per_kwh: float) -> float:
    """Electricity of one chip, with ``overhead`` watts drawn per watt of chip (host, network, cooling)."""
    return HOURS_PER_DAY * chip.power_w * overhead / 1000.0 * usd_per_kwh


def owned_usd_per_day(capex_usd: float, years: float, power_usd: float) -> float:
    """A chip written off over some years, and its electricity."""
    return capex_usd / (DAYS_PER_YEAR * years) + power_usd


def rented_usd_per_day(usd_per_chip_hour: float) -> float:
    """A chip rented round the clock."""
    return HOURS_PER_DAY * usd_per_chip_hour


def api_usd_per_day(requests_per_s: float, usd_per_request: float) -> float:
    """Requests at an API's price."""
    return SECONDS_PER_DAY * requests_per_s * usd_per_request


def paid_back_days(capex_usd: float, power_usd: float, rent_usd: float) -> float:
    """Days of renting round the clock that cost as much as buying and running; ``inf``: rent is the cheaper forever."""
    saved = rent_usd - power_usd
    return capex_usd / saved if saved > 0 else float("inf")
