"""What the shipped fit knows of the parameters of a chip with an engine: their covariance, and what a deployment adds.

The constants themselves are the profile's; ``instances/measured/parameters.json`` holds how well they are known.
Everything is on the unbounded scale of :mod:`costmodel.measured.fitting.parameters`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from costmodel.measured.fitting.fit import RIDGE, Fitted, Problem, linearised
from costmodel.measured.fitting.intervals import row_spread
from costmodel.measured.fitting.parameters import (
    ALL,
    BY_CELL,
    CHIPS_ALIKE,
    ENGINES_DIFFER,
    Structure,
    rounded,
    scales_of,
)
from costmodel.question.profile import Efficiency, Profile
from topology.catalogue import checked, data_dir, read_data
from topology.chip import load_chip

Array = NDArray[np.float64]
Positive = Annotated[float, Field(gt=0)]

FILE = "parameters.json"
#: deviation of an unknown that measurements say nothing of. The curvature at a limit is that: it tells nothing of what
#: lies away from it
UNKNOWN_SD = 4.0
#: a chip or an engine without rows
OTHER = "other"


class Known(BaseModel):
    """How well fitted parameters are known.

    ``parameters``: the unknowns, pace last. ``cells``: by ``CHIP ENGINE`` the lower triangle of a factor ``L`` of their covariance ``L L'``, row by row;
    ``own_sd``: what a deployment's unknowns differ by; ``row_sd``: scatter of the log errors of its rows.
    ``first_token_sd``, ``first_token_row_sd``: the same of the logarithms of the constants of the first token.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    parameters: tuple[str, ...]
    own_sd: tuple[Positive, ...]
    row_sd: Positive
    first_token_sd: tuple[Positive, Positive, Positive, Positive, Positive]
    first_token_row_sd: Positive
    cells: dict[str, tuple[tuple[float, ...], ...]]

    def covariance(self, chip: str, engine: str) -> Array:
        """Covariance ``[parameters, parameters]`` of the shipped values of a chip with an engine."""
        tries = (f"{chip} {engine}", f"{chip} {OTHER}", f"{OTHER} {engine}", f"{OTHER} {OTHER}")
        lower = self.cells[next(one for one in tries if one in self.cells)]
        factor = np.zeros((len(lower), len(lower)))
        for place, row in enumerate(lower):
            factor[place, : len(row)] = row
        return factor @ factor.T


@dataclass(frozen=True)
class Prior:
    """Unknowns of a chip with an engine before its runs were seen: normal on the unbounded scale."""

    chip: str
    engine: str
    mean: Array
    covariance: Array


@lru_cache(maxsize=1)
def shipped_known() -> Known:
    """What is shipped."""
    path = data_dir("measured") / FILE
    with checked(path.name):
        return Known.model_validate(read_data(path))


def prior_of(known: Known, profile: Profile, chip: str, engine: str) -> Prior:
    """Around a profile's values: the shipped covariance, and what deployments differ by."""
    covariance = np.diag(np.square(known.own_sd))
    covariance[: len(ALL), : len(ALL)] += known.covariance(chip, engine)
    return Prior(chip, engine, np.append(scales_of(cell(profile, chip, engine)), 0.0), covariance)


def cell(profile: Profile, chip: str, engine: str) -> Efficiency:
    """A profile's values for a chip with an engine, as they hold on it."""
    return profile.of_engine(engine).for_chip(chip).on(load_chip(chip))


def fit_covariance(problem: Problem, fitted: Fitted) -> tuple[Array, float]:
    """Covariance ``[unknowns, unknowns]`` of a fit's unknowns, and the spread of its rows' log errors."""
    residuals, jacobian = linearised(problem, fitted)
    spread = row_spread(residuals, len(problem.runs))
    told = jacobian.T @ jacobian / spread**2
    return np.asarray(np.linalg.inv(told + np.eye(len(told)) / UNKNOWN_SD**2)), spread


def cell_covariance(
    structure: Structure, covariance: Array, spread: float, chip: str, engine: str
) -> Array:
    """That of the parameters of a chip with an engine; what was never measured varies as far as the ridge lets it."""
    levels = structure.levels([chip], [engine])
    chain = np.stack([structure.chain(one[:, None], levels)[0] for one in np.eye(len(ALL))])
    missing = (chip not in structure.chips) / CHIPS_ALIKE**2
    missing += (engine not in structure.engines) / ENGINES_DIFFER**2
    free = np.zeros(len(ALL))
    free[-len(BY_CELL) :] = [(spread / (RIDGE * one.stiffness)) ** 2 for one in BY_CELL]
    return np.asarray(chain @ covariance @ chain.T + missing * np.diag(free))


def factor_rows(covariance: Array) -> tuple[tuple[float, ...], ...]:
    """The lower triangle of a factor of a covariance, rounded: what it multiplies to is a covariance still."""
    size = len(covariance)
    factor = np.linalg.cholesky(covariance + 1e-10 * np.eye(size))
    return tuple(tuple(rounded(v) for v in factor[i, : i + 1]) for i in range(size))


def known_json(known: Known) -> str:
    """The text of the shipped file."""
    rows: Sequence[str] = [
        f"    {json.dumps(name)}: {json.dumps(lower)}" for name, lower in known.cells.items()
    ]
    plain = known.model_dump(mode="json", exclude={"cells"})
    head = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in plain.items())
    return "{\n" + head + ',\n  "cells": {\n' + ",\n".join(rows) + "\n  }\n}\n"
