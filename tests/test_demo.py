"""The demo tells its story, and tells it again."""

from __future__ import annotations

from pathlib import Path

import pytest

from shapshift import Valuation, demo
from shapshift.price import Allocation


def test_the_careless_seller_earns_little(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = demo.main(tmp_path / "demo")
    said = capsys.readouterr().out
    assert page == tmp_path / "demo" / demo.PAGE
    assert str(page.resolve()) in said.replace("\n", "")
    for step in ("1 Value", "2 Audit", "3 Correct", "4 Price", "5 Report"):
        assert step in said
    paid = Allocation.load(page.parent / "allocation.npz").payouts
    assert set(paid) == set(demo.SELLERS)
    assert sum(paid.values()) == demo.BUDGET
    assert paid[demo.CARELESS] < min(amount for seller, amount in paid.items() if seller != demo.CARELESS) / 2
    text = page.read_text(encoding="utf-8")
    assert demo.CARELESS in text
    assert str(tmp_path) not in text
    assert Valuation.load(page.parent / "valuation.npz").n_train > 300
    assert len(list((page.parent / "statements").glob("*.html"))) == len(demo.SELLERS)

    first = {path.name: path.read_bytes() for path in page.parent.rglob("*") if path.is_file()}
    demo.main(tmp_path / "demo")
    assert first == {path.name: path.read_bytes() for path in page.parent.rglob("*") if path.is_file()}
