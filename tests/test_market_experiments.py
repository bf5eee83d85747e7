"""The experiments about money: manipulated validation sets, and payouts under noise."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from experiments import manipulation, market, payouts
from experiments.__main__ import main
from shapshift.price.manipulation import ATTACKS

DOCS = Path(__file__).resolve().parent.parent / "docs"
ATTACKED = replace(manipulation.QUICK, name="tiny", n_train=80, n_val=60, n_owners=4, datasets=("gaussian",))
PAID = replace(payouts.QUICK, name="tiny", n_train=80, n_val=40, seeds=2, n_owners=4, datasets=("gaussian",))


def test_attacks_are_recorded_and_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = manipulation.run_manipulation(tmp_path, ATTACKED)
    attacks, honest = (pd.read_csv(tmp_path / "tables" / f"{name}.csv") for name in ("attacks", "honest"))
    assert len(attacks) == 2 * len(ATTACKS)
    assert (attacks["gain"] >= 0).all()
    assert (attacks["gain"] <= attacks["bound"]).all()
    assert (attacks["flagged_and_changed"] <= attacks["changed"]).all()
    assert len(honest) == 4
    text = page.read_text(encoding="utf-8")
    assert "ValidationAttack('ann', 'points'" in text
    assert "{" not in text.split("## Measured")[1]
    monkeypatch.setattr(manipulation, "attack_validation", lambda *args, **options: pytest.fail("computed again"))
    again = manipulation.manipulation_tables(tmp_path, ATTACKED)
    pd.testing.assert_frame_equal(again["attacks"], attacks, check_exact=False)


def test_sellers_get_rows_at_random_or_by_region() -> None:
    data = ATTACKED.load("gaussian", "balanced", 0)
    for sellers in manipulation.SELLERS:
        owners = manipulation.assign(data, 4, sellers, 0)
        assert np.bincount(owners).tolist() == [20] * 4
        assert (owners == manipulation.assign(data, 4, sellers, 0)).all()

    def spread(sellers: str) -> float:
        owners = manipulation.assign(data, 4, sellers, 0)
        return float(np.mean([data.X_train[owners == owner].var(axis=0).sum() for owner in range(4)]))

    assert spread("regional") < 0.9 * spread("random")


def test_payouts_are_compared_with_the_clean_ones(tmp_path: Path) -> None:
    payouts.run_payouts(tmp_path, PAID)
    table = pd.read_csv(tmp_path / "tables" / "payouts.csv")
    assert set(table["version"]) == {*payouts.VERSIONS, payouts.ANOTHER}
    # Half the sum of ten absolute changes is what moves.
    np.testing.assert_allclose(table["moved"], table["share_change"] * 1000 * 4 / 2, atol=0.01)
    assert table["spearman"].between(-1, 1).all()
    summary = pd.read_csv(tmp_path / "tables" / "payouts_summary.csv")
    noisy = summary[(summary["version"] == "noisy") & (summary["dataset"] == "gaussian")].iloc[0]
    here = table[(table["version"] == "noisy") & (table["sellers"] == "random")]
    assert noisy["moved"] == pytest.approx(here["moved"].mean(), abs=1e-6)
    assert noisy["moved_against_noisy"] == 0


@pytest.mark.parametrize("name", ["manipulation", "payouts"])
def test_the_command_runs_them(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([name, "--quick", "--datasets", "gaussian", "--out", str(tmp_path)])
    assert f"{name}.md" in capsys.readouterr().out


def test_rules_of_payment_are_compared(tmp_path: Path) -> None:
    tiny = {"n_train": 60, "n_val": 40, "choice_rows": 60, "choice_points": 40, "noise": (0.3,), "attackers": 1}
    settings = replace(market.QUICK, name="tiny", datasets=("gaussian",), **tiny)
    tables = market.market_tables(tmp_path, settings)
    gains = tables["gains"]
    safe = gains[(gains["rule"] == market.SAFE) & gains["attack"].isin(["copy", "copy x4", "steal"])]
    assert safe["gain"].abs().max() < 0.01
    assert gains[(gains["rule"] == "rows, clip") & (gains["attack"] == "copy x4")]["gain"].iloc[0] > 10
    assert len(tables["choices"]) == 8 * len(market.SELLERS) * len(tables["choices_summary"])
    assert (tables["honest"][tables["honest"]["rule"] == "rows"]["spearman"] == 1).all()
    copied, known = tables["noise"], gains[gains["attack"] == "near-copy"].set_index("rule")["gain"]
    assert (copied["gain"] > 0).all()  # sixty rows in five dimensions: nothing is found
    assert copied["gain"].max() < 4 * known["rows, clip"]
    assert {row["verdict"] for row in market.bars(tables)} <= {"**holds**", "**does not hold**"}
    text = market._page(tables, settings, "market")
    assert "## Why no rule closes near-copies everywhere" in text
    assert "nan" not in text.split("## Why no rule")[1]


def test_the_page_of_rules_shows_the_stored_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(market, "before_and_after", lambda: [{"a seller": ""}])  # it is computed, not stored
    stored = (DOCS / "market" / "tables").glob("*.csv")
    tables = {path.stem: pd.read_csv(path).fillna({"parameter": 0.0}) for path in stored}
    page = (DOCS / "market_benchmark.md").read_text(encoding="utf-8")
    made = market._page(tables, market.FULL, "market")
    example = re.compile("(?<=## An example\n).*(?=## How the default)", re.DOTALL)
    assert example.sub("", page) == example.sub("", made).rstrip("\n") + "\n"


def test_candidates_differ_in_their_smallest_subsets_alone() -> None:
    before = market.coefficients.FILLED
    found = [market.coefficients.rank_table(60, 5, rule.semivalue, "soft").c for *_, rule in market.candidates()]
    assert len({tuple(c) for c in found}) == len(found)
    assert before == market.coefficients.FILLED


def test_sections_are_short_and_rest_on_the_stored_tables() -> None:
    for module, names in (
        (manipulation, ("attacks", "honest", "summary")),
        (payouts, ("payouts", "payouts_summary")),
    ):
        folder = DOCS / module.__name__.rsplit(".", 1)[1] / "tables"
        text = module.section({name: pd.read_csv(folder / f"{name}.csv") for name in names})
        words = [line for line in text.splitlines() if not line.startswith("|")]
        assert len(" ".join(words).split()) <= 150
        assert sum(line.startswith("|") for line in text.splitlines()) <= 12
        assert not re.search(r"nan|None", text)


def test_the_page_shows_the_stored_tables() -> None:
    folder, page = DOCS / "manipulation" / "tables", (DOCS / "manipulation.md").read_text(encoding="utf-8")
    tables = {name: pd.read_csv(folder / f"{name}.csv") for name in ("attacks", "honest", "summary")}
    for policy in manipulation.POLICIES:
        assert manipulation.measured(tables, policy) in page
    assert manipulation.false_alarms(tables["honest"], "random") in page
    # The summary is that of the attacks.
    again = manipulation.summarize(tables["attacks"])
    pd.testing.assert_frame_equal(again, tables["summary"], check_exact=False, atol=1e-5)
