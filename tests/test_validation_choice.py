"""Experiments on the choice of validation points: coverage of the boundary, and designed sets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

from experiments import coverage, design
from experiments.__main__ import main
from experiments.coverage import DRAWN, LIMIT, NATURAL, best, draw_points, effects, point_weights, vary_coverage
from experiments.design import METHODS, beaten, choose, compare_choices, gains, holm
from shapshift import KNNShapley

DOCS = Path(__file__).resolve().parent.parent / "docs"
COVERAGE = replace(coverage.QUICK, n_train=100, n_val=300, n_held=100, m=10, datasets=("gaussian",))
DESIGN = replace(design.QUICK, n_train=80, n_val=80, n_held=60, m=20, datasets=("gaussian",))

CLASSES = np.repeat([0, 1, 2], [50, 30, 20])
BOUNDARY = np.arange(100) % 3 == 0


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_drawn_points_have_the_coverage_and_the_classes(share: float) -> None:
    points = draw_points(CLASSES, BOUNDARY, share, 20, np.random.default_rng(0))
    assert points is not None
    assert np.unique(points).size == 20
    assert np.bincount(CLASSES[points]).tolist() == [10, 6, 4]
    for code, count in enumerate([10, 6, 4]):
        assert abs(BOUNDARY[points][CLASSES[points] == code].sum() - share * count) <= 0.5


def test_nothing_is_drawn_where_a_part_is_too_small() -> None:
    assert draw_points(CLASSES, BOUNDARY, 1.0, 40, np.random.default_rng(0)) is None
    assert draw_points(CLASSES, np.zeros(100, dtype=bool), 0.1, 20, np.random.default_rng(0)) is None
    assert point_weights(CLASSES, np.zeros(100, dtype=bool), 0.1) is None
    assert point_weights(CLASSES, np.zeros(100, dtype=bool), 0.0) is not None


def test_weights_have_the_coverage_and_the_classes() -> None:
    weights = point_weights(CLASSES, BOUNDARY, 0.3)
    assert weights is not None
    np.testing.assert_allclose(np.bincount(CLASSES, weights), [0.5, 0.3, 0.2])
    np.testing.assert_allclose(np.bincount(CLASSES, weights * BOUNDARY), [0.15, 0.09, 0.06])


def test_values_at_a_coverage_are_means_over_the_parts_of_the_pool() -> None:
    records = pd.DataFrame(vary_coverage("gaussian", "balanced", 0, COVERAGE)).set_index(["set", "coverage"])
    data = COVERAGE.load("gaussian", "balanced", 0, COVERAGE.n_val + COVERAGE.n_held)
    model = KNNShapley(5, progress=False).fit(data.X_train, data.y_train)
    X, y = data.X_val[COVERAGE.n_held :], data.y_val[COVERAGE.n_held :]
    boundary = model.value(X, y).boundary
    held = model.value(data.X_val[: COVERAGE.n_held], data.y_val[: COVERAGE.n_held]).values
    values = sum(
        (y == label).mean() * share * model.value(X[part], y[part]).values
        for label in (0, 1)
        for side, share in ((True, 0.3), (False, 0.7))
        for part in [(y == label) & (boundary == side)]
    )
    found = records.loc[(LIMIT, 0.3)]
    assert found["mean"] == pytest.approx(values.mean())
    assert found["std"] == pytest.approx(values.std())
    assert found["positive_count"] == (values > 0).sum()
    assert found["spearman"] == pytest.approx(spearmanr(values, held).statistic)
    # Means are linear in the coverage.
    ends = records.loc[(LIMIT, 0.0)]["mean"], records.loc[(LIMIT, 1.0)]["mean"]
    assert found["mean"] == pytest.approx(0.7 * ends[0] + 0.3 * ends[1])
    assert records.loc[NATURAL].index.to_numpy() == pytest.approx([boundary.mean()], abs=1e-4)


def test_methods_of_chance_choose_what_they_say() -> None:
    rng = np.random.default_rng(0)
    codes = CLASSES.astype(np.int32)
    for method in ("random", "class", "boundary", "interior"):
        points = choose(method, codes, BOUNDARY, 20, rng)
        assert points is not None
        assert np.unique(points).size == 20
        if method != "random":
            assert np.bincount(codes[points]).tolist() == [10, 6, 4]
        if method == "boundary":
            assert abs(BOUNDARY[points].sum() - 20 * BOUNDARY.mean()) < 3
        if method == "interior":
            assert not BOUNDARY[points].any()
    assert choose("interior", codes, ~np.zeros(100, dtype=bool), 20, rng) is None


def test_statistics_of_a_set_by_hand() -> None:
    found = pd.DataFrame(compare_choices("gaussian", "balanced", 0, DESIGN)).set_index("method")
    assert list(found.index) == list(METHODS)
    data = DESIGN.load("gaussian", "balanced", 0, DESIGN.n_held + 2 * DESIGN.n_val)
    model = KNNShapley(5, progress=False).fit(data.X_train, data.y_train)
    cuts = [slice(0, 60), slice(60, 140), slice(140, 220)]
    held, *pools = (model.value(data.X_val[cut], data.y_val[cut]).values for cut in cuts)
    by_hand = {
        "spearman": np.mean([spearmanr(pool, held).statistic for pool in pools]),
        "rmse": np.mean([np.sqrt(np.mean((pool - held) ** 2)) for pool in pools]) / held.std(),
        "reliability": spearmanr(*pools).statistic,
    }
    for statistic, number in by_hand.items():
        assert found.loc["pool", statistic] == pytest.approx(number)
    assert found["shift"].gt(0).all()
    assert found.loc["design", "rmse"] < found.loc["random", "rmse"]
    still = compare_choices("gaussian", "balanced", 0, replace(DESIGN, noise=0.0))
    assert [record["shift"] for record in still] == [0.0] * len(METHODS)


def test_holm_is_bonferroni_for_the_smallest_and_never_falls() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_a_gain_is_what_is_better() -> None:
    rows = [
        {"protocol": "balanced", "dataset": name, "seed": seed, "method": method}
        | dict.fromkeys(("spearman", "reliability"), 0.5 + better * (1 + 0.1 * seed))
        | dict.fromkeys(("rmse", "shift"), 0.5 - better * (1 + 0.1 * seed))
        for name, gain in (("one", 0.1), ("two", -0.1))
        for seed in range(5)
        for method in METHODS
        for better in [gain if method == "design" else 0.0]
    ]
    table = gains(pd.DataFrame(rows))
    for statistic in ("spearman", "rmse", "reliability", "shift"):
        assert beaten(table, "design", "random", statistic) == (1, 1, 2)
    assert table[table["method"] == "design"].groupby("dataset")["gain"].mean().round(3).to_dict() == {
        "one": 0.12,
        "two": -0.12,
    }


@pytest.mark.parametrize(("name", "settings"), [("coverage", COVERAGE), ("design", DESIGN)])
def test_a_run_writes_tables_figure_and_page_and_resumes(
    name: str, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = {"coverage": coverage, "design": design}[name]
    run = getattr(module, f"run_{name}")
    page = run(tmp_path, settings)
    text = page.read_text(encoding="utf-8")
    for line in text.splitlines():
        if line.startswith("!["):
            assert (tmp_path / line.rsplit("(", 1)[1].rstrip(")")).exists()
    assert "| gaussian |" in text
    assert (tmp_path / "tables" / f"{name}.tex").exists()
    measure = {"coverage": "vary_coverage", "design": "compare_choices"}[name]
    monkeypatch.setattr(module, measure, lambda *given: pytest.fail("computed again"))
    monkeypatch.setattr(module, f"draw_{name}", lambda table: None)
    monkeypatch.setattr(module, "save_figure", lambda *given, **options: None)
    run(tmp_path, settings)
    assert page.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("name", ["coverage", "design"])
def test_the_command_line_knows_them(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    assert f"{name}:" in capsys.readouterr().out


def published(folder: str) -> dict[str, pd.DataFrame]:
    return {path.stem: pd.read_csv(path) for path in (DOCS / folder / "tables").glob("*.csv")}


def test_published_tables_follow_from_the_records() -> None:
    found, designed = published("coverage"), published("design")
    for made, name in ((effects, "coverage_effects"), (best, "coverage_best")):
        pd.testing.assert_frame_equal(made(found["coverage"]), found[name], check_dtype=False, atol=2e-6, rtol=0)
    pd.testing.assert_frame_equal(gains(designed["design"]), designed["design_gains"], atol=2e-6, rtol=0)
    assert found["coverage"]["seed"].nunique() == coverage.FULL.seeds
    assert designed["design"]["seed"].nunique() == design.FULL.seeds


def test_sections_say_what_the_records_say() -> None:
    found, designed = published("coverage"), published("design")
    text = coverage.section(found)
    records = found["coverage"].query("protocol == 'balanced'")
    at = records[records["set"] == DRAWN].pivot_table(index="dataset", columns="coverage", values="mean")
    assert f"falls / rises: mean value {(at[1.0] < at[0.0]).sum()} / 0;" in text
    ranks = records[records["set"] == DRAWN].pivot_table(index="dataset", columns="coverage", values="spearman")
    assert f"at coverage 0 on {(ranks.idxmax(axis=1) == 0).sum()} of 7" in text
    natural = records[records["set"] == NATURAL].groupby("dataset")["spearman"].mean()
    assert f"{ranks.loc['cpu', 0.0]:.2f} / {natural['cpu']:.2f} / {ranks.loc['cpu', 1.0]:.2f}" in text
    told = design.section(designed)
    means = designed["design"].query("protocol == 'balanced'").groupby(["dataset", "method"])["spearman"].mean()
    line = next(line for line in told.splitlines() if line.startswith("| pol"))
    assert " / ".join(f"{means['pol', one]:.2f}" for one in ("random", "class", "design", "pool")) in line
    for section in (text, told):
        words = " ".join(line for line in section.splitlines() if not line.startswith(("|", "#", "!")))
        assert len(words.split()) <= 150
