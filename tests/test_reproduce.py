"""The reproduction: resumable, honest about what it found, and in line with what is known of the data."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from experiments import family, paper, reproduction
from experiments.__main__ import main
from experiments.cells import Settings
from experiments.claims import (
    AGAINST,
    FAILS,
    FOR,
    HOLDS,
    OPEN,
    PARTLY,
    UNDECIDED,
    above,
    below,
    every,
    judge,
    make_claim,
    within,
)
from experiments.paper import FULL, QUICK, PaperSettings
from experiments.reproduction import run_reproduction, write_claims
from experiments.tables import Interval, by_seed, interval, percent_change

DOCS = Path(__file__).resolve().parent.parent / "docs"
TINY = PaperSettings(
    name="tiny", n_train=120, n_val=60, noise=(0.2, 1.0, 4.0), seeds=3, n_sets=3, repeats=2, datasets=("gaussian",)
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reproduction")
    run_reproduction(folder, TINY)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_everything_is_written(finished: Path) -> None:
    found = set(contents(finished))
    assert {"reproduction.md", "tables/shift_and_correction.csv", "tables/cases.csv", "tables/claims.csv"} <= found
    for figure in ("figure1_noise_demo", "figure2_shift", "figure3_case_one", "figure4_case_two"):
        assert {f"figures/{figure}.png", f"figures/{figure}.svg"} <= found
    page = (finished / "reproduction.md").read_text(encoding="utf-8")
    for line in page.splitlines():
        if line.startswith("!["):
            assert (finished / line.rsplit("(", 1)[1].rstrip(")")).exists()


def test_an_interrupted_run_ends_with_the_same_bytes(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0
    compute = paper.shift_and_correction

    def stop_after_four(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 5:
            raise KeyboardInterrupt
        return compute(*arguments)

    monkeypatch.setattr(paper, "shift_and_correction", stop_after_four)
    with pytest.raises(KeyboardInterrupt):
        run_reproduction(tmp_path, TINY)
    done = sorted((tmp_path / "cells").glob("*t-*.json"))  # soft and hard
    assert len(done) >= 2
    done[0].write_text(done[0].read_text()[:50])  # half a cell is computed again, as is a cell of other settings
    kept = json.loads(done[1].read_text())
    done[1].write_text(json.dumps({**kept, "key": "other"}))
    calls = 10
    run_reproduction(tmp_path, TINY)
    assert calls == 10 + 2 * TINY.seeds - 4 + 2
    assert contents(tmp_path) == contents(finished)


def test_cells_of_other_data_are_not_taken(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(finished / "cells", tmp_path / "cells")
    monkeypatch.setattr(reproduction, "draw_all", lambda *given: None)
    calls = []
    compute = paper.shift_and_correction
    monkeypatch.setattr(paper, "shift_and_correction", lambda *a: calls.append(a) or compute(*a))
    run_reproduction(tmp_path, TINY)
    assert not calls
    monkeypatch.setattr(Settings, "keys", lambda settings: dict.fromkeys(settings.datasets, "of another file"))
    run_reproduction(tmp_path, TINY)
    assert len(calls) == 2 * TINY.seeds


def test_a_choice_without_cases_gives_a_page_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load = Settings.load
    monkeypatch.setattr(Settings, "load", lambda settings, name, *rest: load(settings, "gaussian", *rest))
    page = run_reproduction(tmp_path, replace(TINY, datasets=("phoneme",)))
    assert "non-boundary" not in page.read_text(encoding="utf-8")
    assert not (tmp_path / "figures" / "figure3_case_one.png").exists()


def test_the_tables_hold_what_a_direct_run_gives(finished: Path) -> None:
    with open(finished / "tables" / "shift_and_correction.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["seed"] == "1" and row["utility"] == "soft"]
    data = TINY.load("gaussian", "balanced", 1)
    clean = paper.fitted(data, TINY).value(data.X_val, data.y_val)
    (row,) = (row for row in rows if row["version"] == "clean")
    assert float(row["std"]) == clean.values.std()
    assert int(row["positive_count"]) == (clean.values > 0).sum()
    for row in rows:
        if row["version"] == "boundary":
            assert abs(int(row["positive_count"]) - (clean.values > 0).sum()) <= 1  # the nearest-quantile rule


def record(seed: int, sigma: float, version: str, **numbers: float) -> dict[str, Any]:
    where = {"dataset": "gaussian", "protocol": "natural", "utility": "soft"}
    return {**where, "seed": seed, "sigma": sigma, "version": version, **numbers}


def test_changes_are_paired_by_seed() -> None:
    table = [record(seed, 0.0, "clean", std=1.0 + seed) for seed in range(3)]
    table += [record(seed, 1.0, "noisy", std=0.9 * (1.0 + seed)) for seed in (2, 0, 1)]
    at = by_seed(pd.DataFrame(table), "std", dataset="gaussian", utility="soft")
    found = interval(percent_change(at["clean", 0.0], at["noisy", 1.0]))
    assert found.mean == pytest.approx(-10)
    assert found.high - found.low == pytest.approx(0, abs=1e-9)
    assert found.percent() == "-10% [-10, -10]"
    assert interval(at["noisy", 1.0]).mean == pytest.approx(1.8)


def test_an_interval_is_the_t_interval() -> None:
    found = interval([1.0, 2.0, 4.0])
    half = 4.302652729911275 * np.std([1, 2, 4], ddof=1) / np.sqrt(3)
    assert (found.low, found.high) == pytest.approx((7 / 3 - half, 7 / 3 + half))
    assert interval([3.0]) == Interval(3.0, 3.0, 3.0)
    assert Interval(-0.001, -1.0, 0.2).show() == "0.00 [-1.00, 0.20]"


def test_the_whole_interval_must_lie_on_one_side() -> None:
    low, high, across = Interval(-2, -3, -1), Interval(2, 1, 3), Interval(0, -1, 1)
    assert [below(each, 0) for each in (low, high, across)] == [FOR, AGAINST, UNDECIDED]
    assert [above(each, 0) for each in (low, high, across)] == [AGAINST, FOR, UNDECIDED]
    assert [within(each, -1, 1) for each in (low, high, across)] == [UNDECIDED, UNDECIDED, FOR]
    assert within(Interval(5, 4, 6), -1, 1) == AGAINST
    assert every([FOR, FOR]) == FOR
    assert every([FOR, UNDECIDED]) == UNDECIDED
    assert every([FOR, AGAINST, UNDECIDED]) == AGAINST


@pytest.mark.parametrize(
    ("found", "verdict", "words"),
    [
        ({"a": FOR, "b": FOR}, HOLDS, "all 2 settings."),
        ({"a": FOR, "b": AGAINST, "c": UNDECIDED}, PARTLY, "1 of 3 settings speak for: a; against: b; undecided: c."),
        ({"a": AGAINST, "b": UNDECIDED}, FAILS, "against: a; undecided: b."),
        ({"a": UNDECIDED}, OPEN, "undecided: all 1 settings."),
        ({"a": AGAINST, "b": AGAINST}, FAILS, "against: all 2 settings."),
    ],
)
def test_verdicts(found: dict[str, str], verdict: str, words: str) -> None:
    claim = make_claim("", "", found, [])
    assert claim.verdict == verdict
    assert claim.because == words


@pytest.mark.parametrize(("factor", "verdict"), [(0.5, HOLDS), (2.0, FAILS)])
def test_verdicts_follow_the_numbers(factor: float, verdict: str) -> None:
    table = []
    for utility in ("soft", "hard"):
        for seed in range(4):
            for sigma in (0.0, *TINY.noise):
                std = (1 + seed) * factor ** (sigma / 4)
                numbers = dict.fromkeys(("mean", "positive_count", "jaccard", "spearman", "rmse"), 1.0 / (1 + sigma))
                table += [
                    {**record(seed, sigma, version, std=std, **numbers), "utility": utility, "protocol": "balanced"}
                    for version in (("noisy", "boundary", "entropy") if sigma else ("clean",))
                ]
    settings = replace(TINY, seeds=4)

    def said() -> Any:
        found = {claim.claim: claim for claim in judge(pd.DataFrame(table), pd.DataFrame(), settings)}
        return found["Noise compresses the values: their standard deviation falls."]

    assert said().verdict == verdict
    for row in table:
        if row["utility"] == "hard":
            row["std"] = 1 / row["std"] * (1 + row["seed"]) ** 2
    assert said().verdict == PARTLY
    assert said().where[AGAINST] == [f"gaussian (balanced{', hard utility' if factor < 1 else ''})"]


# Standard deviation and positive count, clean and at noise 5, balanced classes: measured independently beforehand.
KNOWN = {
    "gaussian": (2.24e-4, 1831, 3.5e-5, 999),
    "phoneme": (4.47e-4, 1630, 2.35e-4, 1423),
    "2dplanes": (2.80e-4, 1610, 1.84e-4, 1188),
    "pol": (3.20e-4, 1568, 1.66e-4, 1328),
    "cpu": (3.83e-4, 1722, 1.78e-4, 1532),
    "creditcard": (3.78e-4, 1238, 2.19e-4, 1079),
    "news20": (2.33e-4, 1800, 3.49e-4, 1260),
}


@pytest.mark.parametrize("name", KNOWN)
def test_headline_numbers_are_the_known_ones(name: str) -> None:
    folder = os.environ.get("SHAPSHIFT_DATA") or str(Path(__file__).parents[2] / "shared" / "datasets")
    if name != "gaussian" and not (Path(folder) / f"{name}.parquet").exists():
        pytest.skip(f"{name}.parquet is not here; name its folder in SHAPSHIFT_DATA")
    settings = replace(FULL, noise=(1.0, 5.0), seeds=2, data_dir=folder)
    std, positive, noisy_std, noisy_positive = KNOWN[name]
    records = [
        record
        for seed in range(settings.seeds)
        for record in paper.shift_and_correction(name, "balanced", "soft", seed, settings)["records"]
    ]
    clean = np.mean([[r["std"], r["positive_count"]] for r in records if r["version"] == "clean"], axis=0)
    strongest = [r for r in records if r["version"] == "noisy" and r["sigma"] == 5]
    noisy = np.mean([[r["std"], r["positive_count"]] for r in strongest], axis=0)
    assert clean[0] == pytest.approx(std, rel=0.35)
    assert clean[1] == pytest.approx(positive, rel=0.15)
    assert noisy[0] == pytest.approx(noisy_std, rel=0.5)
    assert noisy[1] == pytest.approx(noisy_positive, rel=0.3)
    assert np.sign(noisy[0] - clean[0]) == np.sign(noisy_std - std)
    assert noisy[1] < clean[1]


def published(name: str) -> Any:
    return pd.read_csv(DOCS / "reproduction" / "tables" / name, engine="pyarrow")  # reads numbers exactly


def test_the_published_page_is_what_its_tables_give(tmp_path: Path) -> None:
    claims = judge(published("shift_and_correction.csv"), published("cases.csv"), FULL)
    shutil.copytree(DOCS / "reproduction" / "figures", tmp_path / "reproduction" / "figures")
    page = write_claims(tmp_path / "reproduction.md", tmp_path / "reproduction", claims, FULL)
    assert page.read_bytes() == (DOCS / "reproduction.md").read_bytes()
    assert [claim.verdict for claim in claims] == published("claims.csv")["verdict"].tolist()


def test_the_published_tables_of_the_family_are_what_its_records_give() -> None:
    page = (DOCS / "family_methods.md").read_text(encoding="utf-8")
    assert family.family_tables(published("family.csv")) in page


def test_the_quick_form_is_smaller() -> None:
    assert QUICK.seeds * len(QUICK.noise) * QUICK.n_train * QUICK.n_val < 10_000_000


def test_the_family_is_compared_and_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    some = ("KNN Shapley, soft", "NB Banzhaf (MSR)", "NB class-wise", "NB out-of-bag")
    monkeypatch.setattr(family, "METHODS", {name: family.METHODS[name] for name in some})
    tiny = family.FamilySettings(n_train=20, n_val=20, n_test=30, fits=120, seeds=2, datasets=("gaussian",))
    page = family.run_family(tmp_path, tiny).read_text(encoding="utf-8")
    with (tmp_path / "family.csv").open(encoding="utf-8") as file:
        records = list(csv.DictReader(file))
    assert len(records) == 2 * len(some)
    oob = [record for record in records if record["method"] == "NB out-of-bag"]
    assert {float(record["positive_change"]) for record in oob} == {0.0}  # it does not look at the validation set
    for name in some:
        assert f"| {name} | " in page
    before = contents(tmp_path)

    def refuse(*arguments: Any) -> None:
        raise AssertionError("a finished cell is computed again")

    monkeypatch.setattr(family, "_measure", refuse)
    family.run_family(tmp_path, tiny)
    assert contents(tmp_path) == before


def test_ratios_of_the_family_are_averaged_over_datasets_as_logarithms() -> None:
    records = [
        {"dataset": name, "method": "m", "seed": 0, **dict.fromkeys(family.STATISTICS, 0.5)}
        | {"variance_clean": 1.0, "variance_noisy": ratio**2, "reliability": sure}
        for name, ratio, sure in (("a", 0.5, 1.0), ("b", 2.0, 1.0), ("c", 50.0, 0.01))
    ]
    rows = [line for line in family.family_tables(pd.DataFrame(records)).splitlines() if line.startswith("| m |")]
    assert " | 1.00 [" in rows[0]  # the third dataset has nothing but sampling error
    assert "| m | 0.50 | 2.00 | - |" in rows


def test_the_command_runs_what_it_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(family, "METHODS", {"KNN Banzhaf": family.METHODS["KNN Banzhaf"]})
    main(["family", "--quick", "--datasets", "gaussian", "--out", str(tmp_path)])
    assert (tmp_path / "family.md").exists()
    assert capsys.readouterr().out == f"Wrote {tmp_path / 'family.md'}\n"
    for wrong in (["nothing"], ["--datasets", "iris"], ["choices", "--page", "page.md"]):
        with pytest.raises(SystemExit, match="2"):
            main(wrong)


def test_a_missing_library_is_named() -> None:
    code = (
        "import importlib.util, runpy; find = importlib.util.find_spec; "
        "importlib.util.find_spec = lambda name, *rest: None if name == 'pandas' else find(name, *rest); "
        "runpy.run_module('experiments', run_name='__main__')"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=DOCS.parent, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert ran.stderr.startswith("Error: the experiments need pandas. Run them by 'make reproduce'")
