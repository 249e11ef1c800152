"""A sample of the shipped measurements, priced once."""

import pytest

from costmodel.measured.fitting.calibration import shipped_rows
from costmodel.measured.runs import runs_of


@pytest.fixture(scope="session")
def rows():
    return shipped_rows()[0]


@pytest.fixture(scope="session")
def sample(rows):
    """Every 61st row and the first disaggregated ones."""
    apart = [row for row in rows if row.prefill is not None]
    return runs_of([*rows[::61], *apart[::23]])[0]
