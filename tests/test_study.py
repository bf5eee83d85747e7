"""The runner for studies of one's own, and tables as CSV and LaTeX."""

from __future__ import annotations

import importlib
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr
from sklearn.naive_bayes import GaussianNB

from experiments import study
from experiments.__main__ import main
from experiments.study import Study, StudyResult, measure, open_source, run_study
from experiments.study_file import read_study
from experiments.tables import write_table
from shapshift import BoundaryCorrector, GaussianNoise, KNNShapley, PosteriorCorrector, SampledShapley, Valuation
from shapshift.checks.identity import content_hash
from shapshift.data import load_dataset
from shapshift.exceptions import InputError
from shapshift.io.results import ONE_PAGE, latex_table
from shapshift.perturb import Compose, Round, Subsample

DOCS = Path(__file__).resolve().parent.parent / "docs"


def test_a_table_is_written_as_csv_and_latex(tmp_path: Path) -> None:
    table = pd.DataFrame({"data_set": ["x & y → z", "50% $\\"], "n": [1, 2], "value": [0.123456789, float("nan")]})
    write_table(tmp_path / "new" / "a.b", table)
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "new" / "a.b.csv"), table)
    lines = (tmp_path / "new" / "a.b.tex").read_text(encoding="utf-8").splitlines()
    assert lines == [
        r"% Needs \usepackage{booktabs}",
        r"\begin{tabular}{lrr}",
        r"\toprule",
        r"data\_set & n & value \\",
        r"\midrule",
        r"x \& y $\to$ z & 1 & 0.123457 \\",
        r"50\% \$\textbackslash  & 2 &  \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_a_long_table_breaks_over_pages() -> None:
    assert "longtable" not in latex_table(pd.DataFrame({"n": range(ONE_PAGE)}))
    lines = latex_table(pd.DataFrame({"n": range(ONE_PAGE + 1)})).splitlines()
    assert lines[:2] == [r"% Needs \usepackage{booktabs,longtable}", r"\begin{longtable}{r}"]


@pytest.mark.filterwarnings("ignore:The 'float_precision' argument")  # pandas 3.1 always does so
@pytest.mark.parametrize("path", sorted(DOCS.glob("*/tables/*.tex")), ids=lambda path: f"{path.parts[-3]}-{path.stem}")
def test_latex_tables_hold_what_the_csv_holds(path: Path) -> None:
    table = pd.read_csv(path.with_suffix(".csv"), float_precision="round_trip")
    written, first = path.read_text(encoding="utf-8"), latex_table(table.head(ONE_PAGE + 1))
    assert written.startswith(first.rpartition(r"\end{longtable}")[0] or first)
    assert written.count("\n") - first.count("\n") == max(0, len(table) - ONE_PAGE - 1)


# --- measuring -------------------------------------------------------------------------------------------------------


def small(n_train: int = 60, n_val: int = 40, seed: int = 0) -> tuple[Any, ...]:
    data = load_dataset("gaussian", n_train=n_train, n_val=n_val, random_state=seed)
    return data.X_train, data.y_train, data.X_val, data.y_val


class Halved:
    """A corrector of one's own: half the noisy values."""

    def fit(self, clean: Valuation) -> Halved:
        self.clean = clean
        return self

    def transform(self, noisy: Valuation) -> Valuation:
        return replace(noisy, values=noisy.values / 2)


def halve(X_val: Any, y_val: Any) -> Any:
    return X_val / 2, y_val


def test_records_are_what_one_computes_by_hand() -> None:
    X_train, y_train, X_val, y_val = small()
    model = KNNShapley(3).fit(X_train, y_train)
    noise = GaussianNoise(1.0, random_state=5)
    boundary, halved = BoundaryCorrector(), Halved()
    records = measure(model, X_val, y_val, {"noise": noise, "half": halve}, {"b": boundary, "own": halved})
    clean, noisy = model.value(X_val, y_val), model.value(*noise(X_val, y_val))
    expected = {
        ("", "clean"): clean.values,
        ("noise", "noisy"): noisy.values,
        ("noise", "b"): BoundaryCorrector().fit(clean).transform(noisy).values,
        ("noise", "own"): noisy.values / 2,
        ("half", "noisy"): model.value(X_val / 2, y_val).values,
    }
    found = {(record["perturbation"], record["version"]): record for record in records}
    assert len(found) == len(records) == 1 + 2 * 3
    for which, values in expected.items():
        record = found[which]
        assert record["mean"] == pytest.approx(values.mean())
        assert record["std_ratio"] == pytest.approx(values.std() / clean.values.std())
        assert record["positive_count"] == (values > 0).sum()
        distance = np.abs(np.sort(values) - np.sort(clean.values)).mean() / clean.values.std()
        assert record["wasserstein"] == pytest.approx(distance)
        assert record["spearman"] == pytest.approx(spearmanr(values, clean.values).statistic)
    assert not hasattr(boundary, "report_")  # copies are fitted
    assert not hasattr(halved, "clean")


def test_neighbours_are_compared_only_where_points_stay() -> None:
    X_train, y_train, X_val, y_val = small()
    model = KNNShapley(3).fit(X_train, y_train)
    found = measure(model, X_val, y_val, {"same": GaussianNoise(0.0), "fewer": Subsample(0.5, random_state=0)}, {})
    assert [record["jaccard"] for record in found][:2] == [1.0, 1.0]
    assert np.isnan(found[2]["jaccard"])


def test_a_posterior_correction_gets_the_noisy_points() -> None:
    X_train, y_train, X_val, y_val = small()
    model = KNNShapley(3).fit(X_train, y_train)
    noise = GaussianNoise(0.5, random_state=1)
    posterior = PosteriorCorrector(noise=0.5, random_state=0)
    found = measure(model, X_val, y_val, {"noise": noise}, {"posterior": posterior})[-1]
    by_hand = PosteriorCorrector(noise=0.5, random_state=0).fit(model).transform(*noise(X_val, y_val))
    assert found["std"] == pytest.approx(by_hand.values.std())


def test_any_model_will_do() -> None:
    X_train, y_train, X_val, y_val = small(30)
    model = SampledShapley(GaussianNB(), max_fits=200, random_state=0, progress=False).fit(X_train, y_train)
    found = measure(model, X_val, y_val, {"half": halve}, {})
    assert found[1]["mean"] == pytest.approx(model.value(X_val / 2, y_val).values.mean())
    assert np.isnan(found[1]["jaccard"])


@pytest.mark.parametrize(
    ("corrector", "message"),
    [
        (object(), "'bad' must be an object with 'fit' and 'transform'"),
        (BoundaryCorrector, "'bad' must be an object with 'fit' and 'transform'"),
        (SimpleNamespace(fit=lambda clean: None, transform=lambda noisy: noisy.values), "returns a Valuation"),
    ],
)
def test_what_is_no_corrector_is_refused(corrector: Any, message: str) -> None:
    X_train, y_train, X_val, y_val = small()
    model = KNNShapley(3).fit(X_train, y_train)
    with pytest.raises(InputError, match=message):
        measure(model, X_val, y_val, {"half": halve}, {"bad": corrector})


# --- studies in Python -----------------------------------------------------------------------------------------------

STUDY = Study(
    data={"given": small(), "split": small()[:2]},
    models={"K=1": KNNShapley(1), "K=3": KNNShapley(3)},
    noise=[0.5],
    perturbations={"half": halve},
    correctors={"own": Halved()},
    seeds=2,
)


def test_a_study_measures_every_combination() -> None:
    result = run_study(STUDY)
    cells = result.records.groupby(["data", "model", "seed"]).size()
    assert len(cells) == 8
    assert set(cells) == {1 + 2 * 2}
    # The given validation set stays, the noise is drawn anew; what is split is split anew.
    clean = result.records[result.records["version"] == "clean"].pivot_table(
        index="seed", columns=["data", "model"], values="std"
    )
    assert clean["given"].nunique().tolist() == [1, 1]
    assert clean["split"].nunique().tolist() == [2, 2]
    noisy = result.records[(result.records["version"] == "noisy") & (result.records["data"] == "given")]
    assert noisy[noisy["perturbation"] == "noise 0.5"].groupby("model")["std"].nunique().tolist() == [2, 2]
    assert noisy[noisy["perturbation"] == "half"].groupby("model")["std"].nunique().tolist() == [1, 1]
    summary = result.summary().set_index(["data", "model", "perturbation", "version", "statistic"])
    by_hand = noisy[(noisy["model"] == "K=3") & (noisy["perturbation"] == "noise 0.5")]["spearman"]
    assert summary.loc[("given", "K=3", "noise 0.5", "noisy", "spearman"), "mean"] == pytest.approx(by_hand.mean())


def test_a_study_is_written(tmp_path: Path) -> None:
    one = replace(STUDY, data={"given": small()}, models={"a|b $": KNNShapley(3)})
    result = run_study(one, tmp_path)
    for name in ("tables/records.csv", "tables/records.tex", "tables/summary.csv", "tables/summary.tex", "study.png"):
        assert (tmp_path / name).stat().st_size > 0
    assert "(study.png)" in (tmp_path / "study.md").read_text(encoding="utf-8")
    pd.testing.assert_frame_equal(run_study(one).records, result.records)


def test_an_interrupted_study_resumes_and_a_changed_one_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = replace(STUDY, models={"K=1": KNNShapley(1)})
    computed: list[str] = []
    run = study._run
    monkeypatch.setattr(study, "_run", lambda *given: computed.append("ran") or run(*given))
    monkeypatch.setattr(StudyResult, "write", lambda *given: None)

    def count(changed: Study) -> int:
        computed.clear()
        run_study(changed, tmp_path)
        return len(computed)

    assert count(first) == 4
    sorted((tmp_path / "cells").iterdir())[0].unlink()
    assert count(first) == 1
    assert count(replace(first, seeds=3)) == 2
    assert count(STUDY) == 4  # the other model
    assert count(replace(first, models={"other name": KNNShapley(1)})) == 0
    assert count(replace(first, noise=[0.6])) == 4
    assert count(replace(first, correctors={"own": BoundaryCorrector()})) == 4
    other = list(small())
    other[0] = other[0] + 1e-9
    assert count(replace(first, data={"given": tuple(other)})) == 2


def made(number: float) -> dict[str, Any]:
    """Functions and classes of the same names and source lines that do something else for another number."""

    def moved(X_val: Any, y_val: Any) -> Any:
        return X_val + number, y_val

    def default(X_val: Any, y_val: Any, by: float = number) -> Any:
        return X_val + by, y_val

    class Held(Halved):
        def __init__(self, function: Any) -> None:
            self.function = function

    class Slots(Halved):
        __slots__ = ("by",)

        def __init__(self) -> None:
            self.by = number

    base = type("Base", (Halved,), {"factor": number})
    return {
        "closure": {"perturbations": {"p": moved}},
        "default": {"perturbations": {"p": default}},
        "composed": {"perturbations": {"p": Compose(Round(1), moved)}},
        "held": {"correctors": {"c": Held(lambda values: values * number)}},
        "slots": {"correctors": {"c": Slots()}},
        "base": {"correctors": {"c": type("Derived", (base,), {})()}},
        "undescribed": {"correctors": {"c": Held(np.random.default_rng(0))}},
    }


@pytest.mark.parametrize("which", list(made(0.0)))
def test_changed_code_is_computed_anew(which: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[str] = []
    run = study._run
    monkeypatch.setattr(study, "_run", lambda *given: computed.append("ran") or run(*given))
    monkeypatch.setattr(StudyResult, "write", lambda *given: None)
    for number in (1.0, 1.0, 2.0):
        run_study(Study(data={"d": small()}, seeds=1, **({"noise": [0.5]} | made(number)[which])), tmp_path)
    assert len(computed) == (3 if which == "undescribed" else 2)


def test_a_changed_file_counts_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    text = "BY = [{}]\nclass Base: ...\nclass Own(Base):\n    def transform(self, noisy): ...\n"
    hashes = []
    for number in (1, 1, 22):
        (tmp_path / "changing.py").write_text(text.format(number), encoding="utf-8")
        sys.modules.pop("changing", None)
        importlib.invalidate_caches()
        hashes.append(content_hash(importlib.import_module("changing").Own()))
    assert hashes[0] == hashes[1] != hashes[2]
    other = subprocess.run(
        [sys.executable, "-c", "import sys; sys.path.insert(0, sys.argv[1]); import changing; "
         "from shapshift.checks.identity import content_hash; print(content_hash(changing.Own()))", str(tmp_path)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert other.stdout.strip() == hashes[2]


def test_a_class_that_was_typed_in_counts_by_its_code() -> None:
    # As in a notebook: the module of the class has no file.
    program = (
        "from shapshift.checks.identity import content_hash\n"
        "class Own:\n    def transform(self): return {}\n"
        "print(content_hash(Own()))"
    )
    hashes = [
        subprocess.run(
            [sys.executable, "-c", program.format(number)], capture_output=True, text=True, check=True
        ).stdout
        for number in (1, 1, 2)
    ]
    assert hashes[0] == hashes[1] != hashes[2]


def test_columns_are_matched_by_name(tmp_path: Path) -> None:
    X_train, y_train, X_val, y_val = small()
    train, val = (pd.DataFrame(X[:, :2] * [1, 9], columns=["a", "b"]) for X in (X_train, X_val))
    one = run_study(Study(data={"d": (train, y_train, val, y_val)}, noise=[0.1], seeds=1)).records
    other = run_study(Study(data={"d": (train, y_train, val[["b", "a"]], y_val)}, noise=[0.1], seeds=1)).records
    pd.testing.assert_frame_equal(one, other)
    with pytest.raises(InputError, match="missing"):
        run_study(Study(data={"d": (train, y_train, val.rename(columns={"b": "c"}), y_val)}, noise=[0.1], seeds=1))


def test_levels_have_names_of_their_own() -> None:
    near = Study(data={"d": small()}, noise=[0.1234567, 0.12345671])
    assert list(near.levels()) == ["noise 0.1234567", "noise 0.12345671"]


def test_order_and_company_change_no_record() -> None:
    both = run_study(STUDY).records
    alone = run_study(
        replace(STUDY, data={"split": small()[:2]}, models={"K=3": KNNShapley(3)}, perturbations={}, seeds=1)
    ).records
    keys = ["data", "model", "seed", "perturbation", "version"]
    merged = alone.merge(both, on=keys, suffixes=("", "_both"))
    assert len(merged) == len(alone) == 3
    assert (merged["spearman"] == merged["spearman_both"]).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": {}}, "'data' parameter of Study is empty"),
        ({"data": [1]}, "'data' parameter of Study must be a mapping"),
        ({"data": {"x": 3}}, "'x' of a study must be"),
        ({"data": {"x": small()[:3]}}, "of 3 entries"),
        ({"data": {"x": ([[np.nan], [1.0]], [0, 1])}}, "NaN"),
        ({"data": {"x": ([[0.0], [1.0]], [0])}}, "one label for each of the 2 rows"),
        ({"data": {"x": ([[0.0]], [0])}}, "must leave room for both"),
        ({"data": {"x": "no such set"}}, "no such set"),
        ({"n_val": 1000}, "of Study must leave room for both: 'split' has 60"),
        ({"noise": [], "perturbations": {}}, "at least one level"),
        ({"noise": 0.5}, "list of numbers"),
        ({"perturbations": {"x": 3}}, "must be a Perturbation or a function"),
        ({"noise": [0.5, 0.5]}, "'noise 0.5' is there twice"),
        ({"perturbations": {"noise 0.5": halve}}, "'noise 0.5' is there twice"),
        ({"models": {"m": KNNShapley}}, r"model 'm' must be an object.*Did you mean KNNShapley\(\.\.\.\)"),
        ({"correctors": {"c": BoundaryCorrector}}, "corrector 'c' must be an object"),
        ({"correctors": {"noisy": Halved()}}, "must not use the names"),
        ({"seeds": 0}, "'seeds' parameter of Study must be at least 1"),
        ({"protocol": "other"}, "'protocol' parameter of Study"),
    ],
)
def test_a_wrong_study_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        run_study(replace(STUDY, **changes))


def test_one_class_is_no_error() -> None:
    X = np.arange(12.0)[:, None]
    found = run_study(Study(data={"one": (X, np.zeros(12))}, noise=[0.1], seeds=1)).records
    assert found["positive_count"].ge(0).all()


# --- studies in files ------------------------------------------------------------------------------------------------

ROWS = "size,colour,class\n" + "".join(f"{i % 7},{'rb'[i % 2]},{'xy'[i % 3 == 0]}\n" for i in range(30))


def write_study(folder: Path, text: str) -> Path:
    (folder / "rows.csv").write_text(ROWS, encoding="utf-8")
    (folder / "mine.py").write_text(
        "import dataclasses\nclass Half:\n    def __init__(self, by): self.by = by\n    def fit(self, clean): pass\n"
        "    def transform(self, noisy): return dataclasses.replace(noisy, values=noisy.values * self.by)\n"
        "def move(X_val, y_val, by=0.0): return X_val + by, y_val\n",
        encoding="utf-8",
    )
    (folder / "broken.py").write_text("def f(:\n", encoding="utf-8")
    path = folder / "a study.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_becomes_the_study_it_says(tmp_path: Path) -> None:
    path = write_study(
        tmp_path,
        """
        data = [{name = "own", train = "rows.csv", label = "class", scale = "none"},
                {name = "both", train = "rows.csv", val = "rows.csv", label = "class"}]
        noise = [0.5]
        relative = false
        perturbations = ["round:1 | flip:0.1", "priors:x=0.5", {name = "moved", import = "mine:move", by = 2.0}]
        correctors = ["boundary:min_points=1", {name = "mine", import = "mine:Half", by = 0.5}]
        seeds = 1
        n_val = 10

        [model]
        n_neighbors = [1, 3]
        metric = "manhattan"
        """,
    )
    read = read_study(path)
    assert read.name == "a study"
    assert list(read.models) == ["knn n_neighbors=1", "knn n_neighbors=3"]
    assert {model.metric for model in read.models.values()} == {"manhattan"}
    assert list(read.levels()) == ["noise 0.5", "round:1 | flip:0.1", "priors:x=0.5", "moved"]
    assert read.levels()["noise 0.5"] == GaussianNoise(0.5)
    assert read.levels()["priors:x=0.5"].parameters["shares"] == [["x", 0.5]]
    assert read.correctors["boundary:min_points=1"].min_points == 1
    records = run_study(read).records
    assert set(records["data"]) == {"own", "both"}
    mine = records[(records["version"] == "mine") & (records["perturbation"] == "moved")]
    noisy = records[(records["version"] == "noisy") & (records["perturbation"] == "moved")]
    np.testing.assert_allclose(mine["std"], noisy["std"] / 2)
    # Two thirds of the rows: 30 - 10 of a table that is split, all of one that is not.
    split = open_source("own", read.data["own"], read).split(0)
    assert (split.X_train.shape, split.X_val.shape) == ((20, 3), (10, 3))
    assert open_source("both", read.data["both"], read).split(0).X_val.shape == (30, 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("data = [", "is not TOML"),
        ("seeds = 1", "lacks the key 'data'"),
        ('data = ["wine"]\nnoize = [1.0]', "unknown key 'noize'.*Did you mean 'noise'"),
        ('data = ["wine"]\nseeds = "3"', "The key 'seeds' of a study.toml must be a whole number. Got '3'"),
        ('data = ["wine"]\nseeds = true', "The key 'seeds' of a study.toml must be a whole number. Got True"),
        ('data = "wine"\nnoise = [1.0]', "The key 'data' of a study.toml must be a list"),
        ("data = [3]\nnoise = [1.0]", r"data\[0\] must be a text or a table. Got 3"),
        ('data = ["wine", "wine"]\nnoise = [1.0]', r"data\[1\] has the name 'wine' a second time"),
        ('data = ["wine"]', "at least one level"),
        ('data = ["wine"]\nnoise = ["a"]', "a study.toml: .*sigma"),
        ('data = ["wine"]\nnoise = [1.0]\nprotocol = "odd"', "a study.toml: .*'protocol'"),
        (
            'data = [{train = "gone.csv", label = "class"}]\nnoise = [1.0]',
            r"data\[0\]: the key 'train' names 'gone.csv'",
        ),
        ('data = [{train = "rows.csv"}]\nnoise = [1.0]', r"data\[0\]: the key 'label' is missing"),
        ('data = [{train = "rows.csv", label = 3}]\nnoise = [1.0]', r"key 'label' of a study.toml, data\[0\] must be"),
        ('data = [{train = "rows.csv", lable = "x"}]', r"data\[0\] has the unknown key 'lable'.*Did you mean 'label'"),
        ('data = ["wine"]\nperturbations = ["blur:3"]', r"perturbations\[0\]: a perturbation must begin with one of"),
        ('data = ["wine"]\nperturbations = [{by = 1}]', r"perturbations\[0\] has no name"),
        ('data = ["wine"]\nperturbations = [{name = "x"}]', r"perturbations\[0\]: the table needs the key 'import'"),
        ('data = ["wine"]\nperturbations = [{import = "mine:gone"}]', r"perturbations\[0\]: the key 'import' names"),
        (
            'data = ["wine"]\nperturbations = [{import = "mine:move", at = 3}]',
            r"perturbations\[0\]: move: .*'at'. It takes X_val, y_val, by",
        ),
        ('data = ["wine"]\nperturbations = [{import = "broken:f"}]', r"perturbations\[0\]: the key 'import' names"),
        (
            'data = ["wine"]\nnoise = [1.0]\ncorrectors = ["bondary"]',
            r"no corrector 'bondary'.*Did you mean 'boundary'",
        ),
        ('data = ["wine"]\nnoise = [1.0]\ncorrectors = ["boundary:x=1"]', r"correctors\[0\]: boundary.*'x'.* takes"),
        ('data = ["wine"]\nnoise = [1.0]\ncorrectors = [{import = "mine:Half"}]', r"correctors\[0\]: Half.*'by'"),
        ('data = ["wine"]\nnoise = [1.0]\n[model]\nmethod = "nn"', "model: There is no method 'nn'"),
        ('data = ["wine"]\nnoise = [1.0]\n[model]\nneighbors = 5', "model: .*does not take 'neighbors'"),
        ('data = ["wine"]\nnoise = [1.0]\n[model]\nn_neighbors = []', "A list in a study.toml, model is empty"),
    ],
)
def test_a_wrong_file_is_refused_with_its_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_study(write_study(tmp_path, text))


def test_the_example_of_the_page_prints_what_it_shows(capsys: pytest.CaptureFixture[str]) -> None:
    page = (DOCS / "experiments.md").read_text(encoding="utf-8")
    code, shown = (page.split(f"```{kind}\n")[1].split("```")[0] for kind in ("python", "text"))
    exec(compile(code, "docs/experiments.md", "exec"), {})
    printed = capsys.readouterr().out
    assert [line.rstrip() for line in printed.splitlines()] == [line.rstrip() for line in shown.splitlines()]


def test_the_file_of_the_page_is_read(tmp_path: Path) -> None:
    page = (DOCS / "experiments.md").read_text(encoding="utf-8")
    path = write_study(tmp_path, page.split("```toml\n")[1].split("```")[0].replace('drop = ["row"]', 'scale = "none"'))
    for name in ("train.csv", "val.csv"):
        (tmp_path / name).write_text(ROWS, encoding="utf-8")
    (tmp_path / "own.py").write_bytes((DOCS.parent / "experiments" / "examples" / "own.py").read_bytes())
    read = read_study(path)
    assert len(read.models) == 4
    assert list(read.correctors) == ["boundary:rule=paper", "entropy", "spread only"]


def test_the_example_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example = DOCS.parent / "experiments" / "examples" / "wine.toml"
    short = (example.read_text(encoding="utf-8")).replace("seeds = 8", "seeds = 1")
    (tmp_path / "wine.toml").write_text(short, encoding="utf-8")
    (tmp_path / "own.py").write_bytes((example.parent / "own.py").read_bytes())
    main(["study", str(tmp_path / "wine.toml"), "--out", str(tmp_path / "out")])
    assert capsys.readouterr().out.strip() == f"Wrote {tmp_path / 'out' / 'study.md'}"
    records = pd.read_csv(tmp_path / "out" / "tables" / "records.csv", keep_default_na=False)
    assert set(records["version"]) >= {"clean", "noisy", "entropy:rule=paper", "spread only"}
    spread = records[records["version"] == "spread only"]["std_ratio"].astype(float)
    np.testing.assert_allclose(spread, 1.0)


def test_the_command_line_of_a_study(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"Error: The study .*gone\.toml cannot be read"):
        main(["study", str(tmp_path / "gone.toml")])
    for entry, message in (
        ('train = "q*.csv", label = "class"', "The data 'd': No file matches the pattern"),
        ('train = "rows.csv", label = "k"', "The data 'd': .*Name the column of the class with the key 'label'"),
    ):
        path = write_study(tmp_path, f'data = [{{name = "d", {entry}}}]\nnoise = [1.0]')
        with pytest.raises(SystemExit, match=f"Error: {message}"):
            main(["study", str(path), "--out", str(tmp_path / "out")])
    for wrong in (["study"], ["paper", "a.toml"], ["study", "a.toml", "--quick"]):
        with pytest.raises(SystemExit) as stopped:
            main(wrong)
        assert stopped.value.code == 2
