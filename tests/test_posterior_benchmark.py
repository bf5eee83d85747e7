"""The benchmark of corrections: resumable, and honest about what it found."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shapshift.reproduce import POSTERIOR_QUICK, _posterior, run_posterior_benchmark
from shapshift.reproduce._bars import judge_bars

pytest.importorskip("matplotlib", reason="the picture needs matplotlib")

TINY = replace(POSTERIOR_QUICK, name="tiny", n_train=120, n_val=60, seeds=2, datasets=("gaussian",))
METHODS = ["noisy", "boundary", "entropy", "posterior", "posterior+boundary", "posterior+entropy"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("correction")
    run_posterior_benchmark(folder, settings=TINY, progress=False)
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


def test_an_interrupted_run_goes_on(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = finished / "cells" / "gaussian-balanced-values-1.json"
    kept = json.loads(lost.read_text())
    lost.unlink()
    computed: list[Any] = []
    recovery = _posterior.recovery
    monkeypatch.setattr(_posterior, "recovery", lambda *given: computed.append(given) or recovery(*given))
    monkeypatch.setattr(_posterior, "draw_idea", lambda path: None)
    before = (finished / "tables" / "values.csv").read_bytes()
    run_posterior_benchmark(finished, settings=TINY, progress=False)
    assert [given[2] for given in computed] == [1]  # that seed and no other
    assert json.loads(lost.read_text()) == kept
    assert (finished / "tables" / "values.csv").read_bytes() == before
    # Another number of draws makes other cells, another number of seeds does not.
    run_posterior_benchmark(finished, settings=replace(TINY, seeds=1), progress=False)
    assert len(computed) == 1
    run_posterior_benchmark(finished, settings=replace(TINY, seeds=1, draws=3), progress=False)
    assert len(computed) == 2


def made(spearman: float, rmse: float, area: float, dataset: str = "pol") -> tuple[list[Any], list[Any]]:
    """Tables of one cell in which noisy and boundary-corrected values have 0.5, 1 and 0.9."""
    where = {"dataset": dataset, "protocol": "natural", "sigma": 0.8, "seed": 0}
    values = [{**where, "method": name, "spearman": 0.5, "rmse": 1.0} for name in ("noisy", "boundary")]
    values.append({**where, "method": "posterior", "spearman": spearman, "rmse": rmse})
    return values, [{**where, "clean": 0.95, "noisy": 0.9, "posterior": area}]


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
