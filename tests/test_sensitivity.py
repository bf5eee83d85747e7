"""What the paper leaves open: each option changes one thing, and the page says what its tables hold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from experiments import sensitivity
from experiments.__main__ import main
from experiments.sensitivity import (
    BASE,
    FULL,
    OPTIONS,
    QUESTIONS,
    QUICK,
    STATISTICS,
    run_sensitivity,
    summarize,
    write_sensitivity,
)
from shapshift import BoundaryCorrector, GaussianNoise, KNNShapley, load_dataset

DOCS = Path(__file__).resolve().parent.parent / "docs"
TINY = replace(QUICK, name="tiny", n_train=120, n_val=60, datasets=("gaussian",))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sensitivity")
    run_sensitivity(folder, TINY)
    return folder


def test_tables(finished: Path) -> None:
    runs, summary = (pd.read_csv(finished / "tables" / f"{name}.csv") for name in ("runs", "summary"))
    assert len(runs) == len(OPTIONS) * len(TINY.noise) * TINY.seeds
    assert len(summary) == len(OPTIONS) * len(TINY.noise) * 2
    assert np.isfinite(runs[list(STATISTICS)]).all(axis=None)
    # Values do not depend on which points are boundary points; corrections do.
    plain, other = (runs[runs["option"] == name].reset_index() for name in (BASE.name, "10 neighbours"))
    assert (plain["std_change"] == other["std_change"]).all()
    assert (plain["boundary_clean"] < other["boundary_clean"]).all()
    assert (plain["std_gap_corrected"] != other["std_gap_corrected"]).any()


def test_one_run_against_the_definition(finished: Path) -> None:
    data = load_dataset("gaussian", protocol="balanced", n_train=120, n_val=60, random_state=1, standardize=False)
    model = KNNShapley(5).fit(data.X_train, data.y_train)
    clean = model.value(data.X_val, data.y_val)
    noisy = model.value(*GaussianNoise(3.0, random_state=1)(data.X_val, data.y_val))
    corrected = BoundaryCorrector(positive="nearest", min_points=1).fit(clean).transform(noisy)
    runs = pd.read_csv(finished / "tables" / "runs.csv")
    chosen = (
        (runs["option"] == "raw features, isotropic noise in raw units") & (runs["sigma"] == 3) & (runs["seed"] == 1)
    )
    (row,) = runs[chosen].to_dict("records")
    assert row["std_change"] == pytest.approx(100 * (noisy.values.std() / clean.values.std() - 1), abs=1e-3)
    assert row["mean_change"] == pytest.approx(100 * (noisy.values.mean() / clean.values.mean() - 1), abs=1e-3)
    assert row["std_gap_corrected"] == pytest.approx(
        100 * abs(corrected.values.std() / clean.values.std() - 1), abs=1e-3
    )
    lost = np.mean(noisy.values > 0) - np.mean(clean.values > 0)
    assert row["positive_change"] == pytest.approx(100 * lost, abs=1e-3)
    assert row["boundary_noisy"] == pytest.approx(100 * noisy.boundary.mean(), abs=1e-3)


def test_an_interrupted_run_resumes(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, computed = (finished / "tables" / "runs.csv").read_bytes(), []
    (finished / "cells" / "gaussian-1.json").unlink()
    original = sensitivity.measure

    def measure(dataset: str, seed: int, settings: sensitivity.SensitivitySettings) -> list[dict]:
        computed.append((dataset, seed))
        return original(dataset, seed, settings)

    monkeypatch.setattr(sensitivity, "measure", measure)
    run_sensitivity(finished, TINY)
    assert computed == [("gaussian", 1)]
    assert (finished / "tables" / "runs.csv").read_bytes() == before


def test_page(finished: Path) -> None:
    page = (finished / "sensitivity.md").read_text(encoding="utf-8")
    assert [f"## {question}" in page for question in QUESTIONS] == [True] * len(QUESTIONS)


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["sensitivity", "--quick", "--datasets", "gaussian", "--out", str(tmp_path)])
    assert "sensitivity.md" in capsys.readouterr().out


def test_documented_numbers_come_from_the_tables(tmp_path: Path) -> None:
    tables = {name: pd.read_csv(DOCS / "sensitivity" / "tables" / f"{name}.csv") for name in ("runs", "summary")}
    pd.testing.assert_frame_equal(summarize(tables["runs"]), tables["summary"], atol=1e-4, check_dtype=False)
    page = write_sensitivity(tmp_path / "page.md", tables, FULL)
    assert page.read_text(encoding="utf-8") == (DOCS / "sensitivity.md").read_text(encoding="utf-8")
