"""Cost per day of owned chips, rented chips and an API, by hand; prices of the catalogue; the study ``buy``."""

from __future__ import annotations

import json

import jsonschema
import pytest
import yaml

from costmodel.money.day import (
    api_usd_per_day,
    owned_usd_per_day,
    paid_back_days,
    power_usd_per_day,
    rented_usd_per_day,
)
from costmodel.money.offers import Api, Bought, Rented, api_of, bought, offers, rented
from rackfit.documents.schema import FOLDER
from rackfit.studies.questions.buy import WAYS
from rackfit.studies.run import StudyResult, study
from topology.catalogue import catalogue_names, data_dir
from topology.chip import load_chip
from topology.errors import InstanceError

ASKED = {
    "model": "llama-3.1-8b",
    "cluster": "hgx-h100",
    "slo": {"ttft": 1.0, "tpot": 0.02},
    "workload": {"input_tokens": 1000, "output_tokens": 200},
}
GIVEN = {"owned_usd_per_chip": 30_000.0, "api_usd_per_request": 1e-4, "peak": 1.0, "spare": 0}


def test_a_day_by_hand() -> None:
    # 700 W x 1.3 x 24 h = 21.84 kWh at 0.1 USD
    power = power_usd_per_day(load_chip("h100"), 1.3, 0.1)
    assert power == pytest.approx(2.184)
    assert owned_usd_per_day(365.25 * 4 * 10, 4, power) == pytest.approx(12.184)
    assert rented_usd_per_day(2.5) == 60.0
    assert api_usd_per_day(2.0, 1e-3) == pytest.approx(172.8)
    assert paid_back_days(5781.6, power, 60.0) == pytest.approx(100.0, rel=1e-4)
    assert paid_back_days(1.0, 5.0, 5.0) == float("inf")


def test_an_api_charges_cached_tokens_at_their_own_price() -> None:
    found = api_of("deepseek-r1")
    assert found is not None
    # 0.55 x 2,000 + 0.14 x 1,000 + 2.19 x 500, per million
    assert found.usd_per_request(3000, 1000, 500) == pytest.approx((1100 + 140 + 1095) / 1e6)


def test_every_price_names_its_source_and_date_and_something_of_the_catalogue() -> None:
    known = {"model": set(catalogue_names("models")), "chip": set(catalogue_names("chips"))}
    schema = json.loads((FOLDER / "price.schema.json").read_text())
    for offer in offers():
        assert offer.sources
        assert any(character.isdigit() for character in offer.date)
        if isinstance(offer, Api):
            assert offer.model in known["model"]
        else:
            assert offer.chip in known["chip"]
            low, high = offer.usd if isinstance(offer, Bought) else offer.usd_per_chip_hour
            assert low <= high
    for path in sorted(data_dir("prices").iterdir()):
        jsonschema.validate(yaml.safe_load(path.read_text()), schema)
    names = [offer.name for offer in offers()]
    assert names == [path.stem for path in sorted(data_dir("prices").iterdir())]
    of = [
        (type(offer), offer.model if isinstance(offer, Api) else offer.chip) for offer in offers()
    ]
    assert len(set(of)) == len(of)
    assert {Api, Bought, Rented} == {kind for kind, _ in of}


@pytest.fixture(scope="module")
def found() -> StudyResult:
    over = {"mean_rate": [10.0, 400.0], "crossing": ["rented_low", "owned_low"]}
    return study("buy", ASKED, over=over | {key: [value] for key, value in GIVEN.items()})


def test_the_table_is_the_formula_times_whole_units(found: StudyResult) -> None:
    chip = load_chip("h100")
    offer = rented("h100")
    assert offer is not None
    assert bought("h100") is None
    for row in found.rows[:2]:
        assert row["chips_bought"] == 8 * row["units"]
        power = power_usd_per_day(chip, 1.3, 0.08)
        own = owned_usd_per_day(30_000.0, 4.0, power)
        assert row["owned_low_usd_per_day"] == pytest.approx(row["chips_bought"] * own)
        rent = row["chips_bought"] * 24 * offer.usd_per_chip_hour[1]
        assert row["rented_high_usd_per_day"] == pytest.approx(rent)
        assert row["api_usd_per_day"] == pytest.approx(86_400 * row["mean_rate"] * 1e-4)
        assert "h100-rented" in row["price_sources"]
        assert "owned_usd_per_chip 30000: given" in row["price_sources"]
    assert found.rows[0]["units"] < found.rows[1]["units"]


def test_of_one_price_one_line_is_drawn(found: StudyResult) -> None:
    (chart,) = found.study.figures(found.rows)
    names = [series.name for series in chart.series]
    assert names == ["owned", "rented, lowest price", "rented, highest price", "API, list price"]


def test_at_the_crossing_both_cost_the_same_and_the_units_carry_it(found: StudyResult) -> None:
    for row in found.rows[2:]:
        rate = row["crossing_requests_per_s"]
        assert row["crossing_usd_per_day"] == pytest.approx(api_usd_per_day(rate, 1e-4))
        over = {"mean_rate": [0.9 * rate, rate], "crossing": []}
        few, many = study("buy", ASKED, over=over | {k: [v] for k, v in GIVEN.items()}).rows
        way = row["crossing"]
        assert many["units"] <= row["units"]
        assert many[f"{way}_usd_per_day"] <= many["api_usd_per_day"] * (1 + 1e-9)
        assert few[f"{way}_usd_per_day"] > few["api_usd_per_day"]
        assert any(WAYS[way].capitalize() in said for said in found.conclusion)


def test_what_has_no_price_is_left_out() -> None:
    (row,) = study(
        "buy", ASKED, over={"mean_rate": [10.0], "crossing": [], "peak": [1.0], "spare": [0]}
    ).rows
    assert row["owned_low_usd_per_day"] is None
    assert row["api_usd_per_day"] is None
    assert row["rented_low_usd_per_day"] > 0


def test_bad_parameters_are_refused() -> None:
    for key, value in (("years", 0.0), ("usd_per_kwh", "x"), ("crossing", "leased")):
        found = study("buy", ASKED, over={"mean_rate": [1.0], "crossing": []} | {key: [value]})
        assert any(row["error"] for row in found.rows), key
    with pytest.raises(InstanceError):
        study("buy", ASKED, over={"wages": [1.0]})
