"""The blackboard beside the solver: a model and a machine as a few numbers, and a pass in closed form.

A lecture's sentence about "a model of 1 TB on 64 chips" is asked with the parameters below; what is
not given is the scenario's own. *Source:* Pope, blackboard lecture (2026); the formulas are those of
:mod:`costmodel.blackboard.aggregate` and :mod:`costmodel.blackboard.balance`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from costmodel.blackboard.aggregate import (
    AggregateModel,
    Machine,
    kv_bytes_per_token,
)
from costmodel.blackboard.balance import balance_context, multiplies_per_weight
from costmodel.models.parts.quantisation.formats import ELEMENT_BYTES
from costmodel.models.summary import summarise
from costmodel.question.instance import Instance
from rackfit.studies.base import COUNT, POSITIVE, Number, Own
from topology.errors import InstanceError, Problem

#: a study's own parameters that replace what the scenario says; ``None`` keeps the scenario's
PARAMETERS: Mapping[str, Any] = {
    "board.active_params": None,
    "board.weight_bytes": None,
    "board.bytes_per_param": None,
    "board.sparsity": None,  # total over active parameters; replaces weight_bytes
    "board.kv_bytes_per_token": None,
    "board.kv_shape": None,  # LAYERSxHEADSxDIMxBYTES; replaces kv_bytes_per_token
    "board.context": None,
    "board.chips": None,
    "board.hbm_bytes": None,
    "board.hbm_bytes_per_s": None,
    "board.flops_per_s": None,
    "board.intensity": None,  # multiplies per weight load; replaces flops_per_s
    "board.usd_per_chip_hour": None,
}
#: which numbers they may be; ``kv_shape`` is text
NUMBERS: Mapping[str, Number] = dict.fromkeys(PARAMETERS.keys() - {"board.kv_shape"}, POSITIVE) | {
    "board.kv_bytes_per_token": Number(0, 1e12),
    "board.context": Number(0, 1e12),
    "board.chips": COUNT,
}


@dataclass(frozen=True)
class Board:
    """Two numbers for the model, two for the machine, and what they imply.

    ``machine`` is all ``chips`` side by side; ``intensity`` counts multiplications in the time one
    weight is loaded.
    """

    model: AggregateModel
    machine: Machine
    bytes_per_param: float
    context: float
    chips: int
    hbm_bytes: float
    usd_per_chip_hour: float

    @property
    def intensity(self) -> float:
        """Multiplications in the time one weight is loaded."""
        return multiplies_per_weight(
            self.machine.flops_per_s, self.bytes_per_param, self.machine.hbm_bytes_per_s
        )

    @property
    def sparsity(self) -> float:
        """Total parameters over active ones."""
        return self.model.weight_bytes / self.bytes_per_param / self.model.active_params

    @property
    def balance_context(self) -> float:
        """Context (tokens) whose KV reads take as long as a token's compute."""
        return balance_context(
            self.model.active_params,
            self.bytes_per_param,
            self.intensity,
            self.model.kv_bytes_per_token,
        )


def board_of(instance: Instance, own: Own) -> Board:
    """The board of an instance: its largest domain, its model's totals, and what ``own`` replaces.

    Raises ``InstanceError`` for a parameter that is not a positive number.
    """
    domain = max(instance.cluster.domains, key=lambda domain: len(domain.usable))
    chip = domain.usable[0].chip
    totals = summarise(instance.model)
    moe = instance.operations.moe
    dtype = moe.expert_dtype if moe is not None else instance.model.native_dtype
    known = dtype if dtype in ELEMENT_BYTES else instance.model.activation_dtype

    def given(key: str, otherwise: float) -> float:
        value = own.get(f"board.{key}")
        if value is None:
            return otherwise
        if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
            raise InstanceError(
                Problem(f"board.{key}", f"must be a number from 0 on, got {value!r}")
            )
        return float(value)

    active = given("active_params", totals.active_params)
    element = given("bytes_per_param", totals.weight_bytes / totals.total_params)
    weights = given("weight_bytes", totals.weight_bytes)
    if own.get("board.sparsity") is not None:
        weights = given("sparsity", 1.0) * active * element
    kv = given("kv_bytes_per_token", totals.kv_bytes_per_token)
    if own.get("board.kv_shape") is not None:
        kv = _kv_of_shape(str(own["board.kv_shape"]))
    chips = max(1, round(given("chips", float(len(domain.usable)))))
    bandwidth = given("hbm_bytes_per_s", chip.hbm_bytes_per_s)
    flops = given("flops_per_s", chip.peak_flops_per_s(known))
    if own.get("board.intensity") is not None:
        flops = given("intensity", 1.0) * 2.0 * bandwidth / element
    price = chip.usd_per_hour * instance.scenario.prices.chip_price_factor
    return Board(
        model=AggregateModel(active, weights, kv),
        machine=Machine(flops, bandwidth).times(chips),
        bytes_per_param=element,
        context=given("context", instance.workload.decode_context),
        chips=chips,
        hbm_bytes=given("hbm_bytes", chip.hbm_bytes),
        usd_per_chip_hour=given("usd_per_chip_hour", price),
    )


def _kv_of_shape(text: str) -> float:
    try:
        layers, heads, dim, element = (float(part) for part in text.split("x"))
    except ValueError:
        message = f"expected LAYERSxHEADSxDIMxBYTES, got {text[:40]!r}"
        raise InstanceError(Problem("board.kv_shape", message)) from None
    return kv_bytes_per_token(int(layers), int(heads), int(dim), element)


def positive(own: Own, key: str) -> float:
    """A study's own parameter as a number above 0. Raises ``InstanceError``."""
    value = own[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise InstanceError(Problem(key, f"must be a positive number, got {value!r}"))
    return float(value)
