"""Every published claim has a test or a reason, and docs/published.md says which."""

import importlib.util
from pathlib import Path


def load_table():
    place = Path(__file__).with_name("table.py")
    spec = importlib.util.spec_from_file_location("published_table", place)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_claim_has_a_test_or_a_reason():
    table = load_table()
    tested = set(table.tests_by_claim())
    assert sorted(table.CLAIMS) == list(range(1, 61))
    assert tested | set(table.ELSEWHERE) == set(table.CLAIMS)
    assert not tested & set(table.ELSEWHERE)


def test_the_document_is_up_to_date():
    table = load_table()
    assert table.DOCUMENT.read_text() == table.document()
