"""The benchmark of corrections: resumable, and honest about what it found."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from experiments import correction_choices, corrections
from experiments.corrections import FULL, QUICK, judge_bars, run_corrections, write_comparison
from shapshift.correct import posterior, prior, rehearsal

DOCS = Path(__file__).resolve().parent.parent / "docs"
TINY = replace(QUICK, name="tiny", n_train=120, n_val=60, seeds=2, datasets=("gaussian",))
PATCHED = [(posterior, "fit_prior"), (prior, "label_probabilities"), (rehearsal, "mixing_weights")]
families = correction_choices.families
METHODS = ["noisy", "boundary", "entropy", "posterior", "posterior+boundary", "posterior+entropy"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("correction")
    run_corrections(folder, TINY)
    return folder


def test_tables_page_and_picture(finished: Path) -> None:
    with open(finished / "tables" / "values.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 2 * len(METHODS)
    assert list(dict.fromkeys(row["method"] for row in rows)) == METHODS
    with open(finished / "tables" / "mislabelled.csv", newline="") as file:
        areas = list(csv.DictReader(file))
    assert len(areas) == 2
    assert all(0 < float(row[name]) <= 1 for row in areas for name in ("clean", "noisy", "posterior"))
    page = (finished / "benchmark.md").read_text(encoding="utf-8")
    assert "| gaussian | balanced | 0.8 |" in page
    assert (finished / "posterior.png").exists()


def test_an_interrupted_run_resumes(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = finished / "cells" / "gaussian-balanced-values-1.json"
    kept = json.loads(lost.read_text())
    lost.unlink()
    computed: list[Any] = []
    recovery = corrections.recovery
    monkeypatch.setattr(corrections, "recovery", lambda *given: computed.append(given) or recovery(*given))
    monkeypatch.setattr(corrections, "draw_idea", lambda path: None)
    before = (finished / "tables" / "values.csv").read_bytes()
    run_corrections(finished, TINY)
    assert [given[2] for given in computed] == [1]  # that seed and no other
    assert json.loads(lost.read_text()) == kept
    assert (finished / "tables" / "values.csv").read_bytes() == before
    # Another number of draws makes other cells, another number of seeds does not.
    run_corrections(finished, replace(TINY, seeds=1))
    assert len(computed) == 1
    run_corrections(finished, replace(TINY, seeds=1, draws=3))
    assert len(computed) == 2


def made(spearman: float, rmse: float, area: float, dataset: str = "pol") -> tuple[Any, Any]:
    """Tables of one cell in which noisy and boundary-corrected values have 0.5, 1 and 0.9."""
    where = {"dataset": dataset, "protocol": "natural", "sigma": 0.8, "seed": 0}
    values = [{**where, "method": name, "spearman": 0.5, "rmse": 1.0} for name in ("noisy", "boundary")]
    values.append({**where, "method": "posterior", "spearman": spearman, "rmse": rmse})
    return pd.DataFrame(values), pd.DataFrame([{**where, "clean": 0.95, "noisy": 0.9, "posterior": area}])


@pytest.mark.parametrize(
    ("found", "holds"),
    [
        ((0.8, 0.5, 0.95), [True, True, True, True, True]),
        ((0.496, 0.5, 0.9), [True, False, True, True, False]),
        ((0.49, 1.0, 0.89), [False, False, False, False, False]),
    ],
)
def test_bars_say_what_holds(found: tuple[float, float, float], holds: list[bool]) -> None:
    bars = judge_bars(*made(*found))
    assert [bar.holds for bar in bars] == holds
    assert bars[0].exceptions == (() if holds[0] else ("pol natural 0.8: -0.0100",))
    assert bars[3].record()["verdict"] == ("holds" if holds[3] else "does not hold")


def test_the_gaussian_data_do_not_count_as_real() -> None:
    bars = judge_bars(*made(0.8, 0.5, 0.95, dataset="gaussian"))
    assert not any("real datasets" in bar.bar for bar in bars)


def published(name: str) -> Any:
    return pd.read_csv(DOCS / "correction" / "tables" / name, engine="pyarrow")  # reads numbers exactly


def test_the_published_page_is_what_its_tables_give(tmp_path: Path) -> None:
    values, labels = published("values.csv"), published("mislabelled.csv")
    bars = judge_bars(values, labels)
    page = write_comparison(tmp_path / "page.md", values, labels, bars, FULL)
    assert page.read_bytes() == (DOCS / "correction_benchmark.md").read_bytes()
    assert [bar.record()["found"] for bar in bars] == published("bars.csv")["found"].tolist()


def test_the_published_choices_are_what_their_runs_give() -> None:
    found = correction_choices.summarise(published("choices_runs.csv")).round(6)
    pd.testing.assert_frame_equal(found, published("choices.csv"), check_dtype=False, check_exact=False, atol=2e-6)


def test_choices_are_put_back_after_a_trial(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = [getattr(module, name) for module, name in PATCHED]
    monkeypatch.setattr(correction_choices, "N_TRAIN", 60)
    monkeypatch.setattr(correction_choices, "N_VAL", 30)
    monkeypatch.setattr(correction_choices, "LEVELS", (0.8,))
    monkeypatch.setattr(correction_choices, "families", lambda seed: list(families(seed))[:2])
    correction_choices.run_choices(tmp_path, (0,))
    assert [getattr(module, name) for module, name in PATCHED] == before
    table = pd.read_csv(tmp_path / "choices.csv", index_col="choice")
    assert list(table.index) == ["clean", "noisy", "plain", *correction_choices.CANDIDATES, "true labels"]
    assert (table.loc["plain", ["spearman", "auc"]] == 0).all()
