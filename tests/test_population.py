"""The benchmark of populations: resumable, its truths are true, and its page says what its tables hold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from experiments import population
from experiments.__main__ import main
from experiments.population import (
    FULL,
    METHODS,
    QUICK,
    REGIMES,
    SEMIVALUES,
    Scene,
    judge_bars,
    make_scene,
    one_weight,
    over_seeds,
    points_for,
    run_population,
    true_reliability,
    write_population,
)
from shapshift import KNNShapley, cross_value

DOCS = Path(__file__).resolve().parent.parent / "docs"
TINY = replace(QUICK, name="tiny", n_train=80, n_val=900, truths=6, datasets=("gaussian",))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("population")
    run_population(folder, TINY)
    return folder


def test_tables_page_and_figures(finished: Path) -> None:
    values, sampled, noisy = (
        pd.read_csv(finished / "tables" / f"{kind}.csv") for kind in ("values", "sampling", "noisy")
    )
    assert len(values) == TINY.seeds * len(REGIMES) * len(TINY.points)
    assert len(sampled) == TINY.seeds * len(SEMIVALUES) * len(TINY.points)
    assert len(noisy) == TINY.noisy_seeds * len(TINY.noisy_points)
    assert values[[f"{method}_spearman" for method in METHODS]].abs().le(1).all(axis=None)
    assert values["coverage"].between(0.3, 1).all()
    assert (values.loc[values["regime"] == "features", "population"] < 0.45 * 9920).all()
    page = (finished / "population.md").read_text(encoding="utf-8")
    for line in page.splitlines():
        if line.startswith("!["):
            assert (finished / line.rsplit("(", 1)[1].rstrip(")")).exists()


def test_an_interrupted_run_resumes(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (finished / "cells" / "gaussian-values-1.json").unlink()
    computed: list[Any] = []
    nearness = population.nearness
    monkeypatch.setattr(population, "draw_figures", lambda *given: None)
    monkeypatch.setattr(population, "nearness", lambda *given: computed.append(given) or nearness(*given))
    before = (finished / "population.md").read_bytes()
    run_population(finished, TINY)
    assert [given[1] for given in computed] == [1]  # that seed and no other
    assert (finished / "population.md").read_bytes() == before


def scene(regime: str = "same", **sizes: int) -> Scene:
    return make_scene("gaussian", regime, 0, replace(TINY, **sizes))


def test_the_truth_leaves_the_validation_points_out() -> None:
    here = scene(n_train=30, n_val=60)
    points = here.draw(20, np.random.default_rng(0))
    rest = np.setdiff1d(np.arange(60), points)
    assert np.unique(points).size == 20
    np.testing.assert_allclose(here.truth(points), here.value(rest).values, atol=1e-15)
    np.testing.assert_allclose(here.truth(), here.value(np.arange(60)).values, atol=1e-15)


def test_shifted_shares_count_in_the_draw_and_in_the_truth() -> None:
    here = scene("shares")
    assert here.shares is not None
    odds = here.shares / np.bincount(here.y)
    assert np.sort(odds / odds.max()).round(9).tolist() == [0.25, 0.25, 1.0]
    points = here.draw(300, np.random.default_rng(0))
    assert np.abs(np.bincount(here.y[points]) / 300 - here.shares).max() < 0.1
    by_class = [here.value(np.setdiff1d(np.flatnonzero(here.y == c), points)).values for c in range(3)]
    np.testing.assert_allclose(here.truth(points), here.shares @ np.array(by_class), atol=1e-14)


def test_wrong_labels_are_in_training_only() -> None:
    right, wrong = scene(), scene("wrong 30%")
    assert (right.model.codes_ != wrong.model.codes_).mean() == pytest.approx(0.3, abs=0.1)
    assert (right.y == wrong.y).all()


def test_reliability_is_known_where_it_can_be_said() -> None:
    # Row i has the value i on every point, but for noise of variance 36: with m points the correlation is
    # 33.25 / (33.25 + 36 / m), the variance of 0 to 19 against that of the noise.
    rng = np.random.default_rng(0)
    matrix = np.arange(20.0) + rng.normal(0, 6, (4000, 20))
    here = Scene(KNNShapley(), matrix, matrix, np.zeros(4000, dtype=np.int64), matrix)
    settings = replace(FULL, truths=60)
    pearson, spearman = true_reliability(here, 4, rng, settings)
    assert pearson == pytest.approx(33.25 / (33.25 + 9), abs=0.04)
    assert abs(spearman - pearson) < 0.06
    assert points_for(replace(here, matrix=np.arange(20.0) + 10 * (matrix - np.arange(20.0))), 0.9, rng, settings) == (
        pytest.approx(9 * 3600 / 33.25, rel=0.1)
    )


@pytest.mark.parametrize(("apart", "weight"), [(1.0, 1 / 4), (4.0, 1 / 16)])
def test_one_weight_by_hand(apart: float, weight: float) -> None:
    here = scene()
    rows = cross_value(here.model, here.X_train, here.model.classes_[here.model.codes_])
    plain = here.value(here.draw(50, np.random.default_rng(1)))
    # Squared errors of 1 and 3 explain a difference of 1; of one of 4 they leave a squared bias of 12.
    plain = replace(plain, values=np.zeros(80), variance=np.full(80, 50.0))
    rows = replace(rows, values=np.full(80, apart), variance=np.full(80, 79 * 3.0))
    np.testing.assert_allclose(one_weight(plain, rows), weight * apart)


def published() -> dict[str, pd.DataFrame]:
    folder = DOCS / "population" / "tables"
    # pyarrow reads numbers exactly
    return {
        kind: pd.read_csv(folder / f"{kind}.csv", engine="pyarrow")
        for kind in ("values", "sampling", "statements", "noisy")
    }


def test_the_published_page_is_what_its_tables_give(tmp_path: Path) -> None:
    page = write_population(tmp_path / "population.md", tmp_path / "population", published(), FULL)
    assert page.read_bytes() == (DOCS / "population.md").read_bytes()
    for name in ("spearman.png", "reliability.png"):
        assert f"(population/{name})" in page.read_text(encoding="utf-8")
        assert (DOCS / "population" / name).exists()


def test_a_bar_that_is_missed_is_named() -> None:
    tables = published()
    values, sampled = tables["values"].copy(), tables["sampling"].copy()
    here = (values["dataset"] == "pol") & (values["regime"] == "same") & (values["m"] == 200)
    values.loc[here, "pooled_spearman"] = values.loc[here, "plain_spearman"] - 0.02
    values.loc[here, "pooled_rmse"] = values.loc[here, "plain_rmse"] + 0.02
    sampled.loc[(sampled["semivalue"] == "loo") & (sampled["m"] == 500), "coverage"] = 0.91
    bars = {bar.bar: bar for bar in judge_bars(tables | {"values": values, "sampling": sampled})}
    missed = " ".join(cell for bar in bars.values() if not bar.holds for cell in bar.exceptions)
    assert missed.count("pol, same population, m = 200") == 2
    assert missed.count("leave-one-out") == 7


def test_standard_errors_are_over_seeds() -> None:
    table = pd.DataFrame({"seed": [0, 0, 1, 1], "x": [1.0, 3.0, 2.0, 6.0]})
    assert over_seeds(table, "x") == (3.0, 1.0)
    assert over_seeds(table, "x").show(1) == "3.0 ± 1.0"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"pol_10k\.parquet, which was not found.*--data-dir"):
        main(["population", "--datasets", "pol", "--data-dir", str(tmp_path), "--out", str(tmp_path)])
