"""Methods by name: the registry, and every command that takes --method."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from cli_files import N_TRAIN, N_VAL, make_tables, run

from shapshift import (
    BoundaryCorrector,
    EntropyNormalizer,
    KNNShapley,
    ShiftAudit,
    ThresholdKNNShapley,
    Valuation,
    WeightedKNNShapley,
    allocate_budget,
    audit_payouts,
    audit_shift,
    evaluate,
    owner_values,
)
from shapshift.methods import METHODS, parse_method
from shapshift.price import Allocation, replication_gain
from shapshift.report import build_report

SPECS = ["knn", "regression", "regression:utility=hard", "threshold:radius=1.5", "weighted", "weighted:max_error=0.2"]


def test_names_make_models() -> None:
    made = parse_method("weighted:weights=gaussian,bits=2").build({"n_neighbors": 3}, {"metric": "cosine"})
    assert isinstance(made, WeightedKNNShapley)
    assert (made.weights, made.bits, made.n_neighbors, made.metric) == ("gaussian", 2, 3, "cosine")
    assert isinstance(parse_method("knn").build({}, {}), KNNShapley)
    assert isinstance(parse_method("threshold:radius=2").build({}, {"n_neighbors": 5}), ThresholdKNNShapley)
    assert parse_method("regression:baseline=published").build({}, {}).baseline == "published"
    assert parse_method("weighted:bandwidth=none").build({}, {}).bandwidth is None
    assert [parse_method(spec).task for spec in SPECS].count("regression") == 2


@pytest.mark.parametrize("name", METHODS)
def test_every_entry_names_a_model_and_its_example_works(name: str) -> None:
    entry = METHODS[name]
    model = parse_method(entry.example).build({}, {"n_jobs": 1, "progress": False})
    assert hasattr(model, "fit")
    assert hasattr(model, "value")
    assert entry.text
    assert not set(entry.parameters()) & {"n_jobs", "progress", "max_memory"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("shapley", r"There is no method 'shapley'. The methods are: knn \("),
        ("weighted:bit=3", "does not take 'bit=3'. It takes n_neighbors, weights"),
        ("weighted:bits", "does not take 'bits'"),
        ("weighted:bits=3,bits=4", "'bits' of method 'weighted' was given twice"),
        ("weighted:n_jobs=3", "does not take 'n_jobs=3'"),
    ],
)
def test_bad_specs_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_method(text)


def test_what_a_method_does_not_take_is_refused() -> None:
    with pytest.raises(ValueError, match="'threshold' does not take 'n_neighbors'"):
        parse_method("threshold:radius=1").build({"n_neighbors": 7}, {})
    with pytest.raises(ValueError, match="'n_neighbors' of method 'weighted' was given twice"):
        parse_method("weighted:n_neighbors=3").build({"n_neighbors": 7}, {})
    with pytest.raises(
        ValueError, match=r"'threshold' needs radius. It takes radius, metric, boundary_\w+, boundary_\w+; for"
    ):
        parse_method("threshold").build({}, {})


# --- the later steps take every method -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def problem() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    X, X_val = rng.normal(size=(80, 3)), rng.normal(size=(60, 3))
    return {
        "X": X,
        "X_val": X_val,
        "noisy": X_val + 0.5 * rng.normal(size=X_val.shape),
        "classification": ((X[:, 0] > 0).astype(int), (X_val[:, 0] > 0).astype(int)),
        "regression": (X[:, 0] + X[:, 1] ** 2, X_val[:, 0] + X_val[:, 1] ** 2),
        "owners": np.array(["ann", "bob", "cid"])[np.arange(80) % 3],
    }


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.filterwarnings("ignore::shapshift.CorrectionWarning")
def test_every_later_step_takes_every_method(spec: str, problem: dict[str, Any], tmp_path: Path) -> None:
    method = parse_method(spec)
    y, y_val = problem[method.task]
    model = method.build({}, {"n_jobs": 1, "progress": False}).fit(problem["X"], y)
    clean, noisy = model.value(problem["X_val"], y_val), model.value(problem["noisy"], y_val)
    audit = audit_shift(model, problem["X_val"], y_val, noise=[0.1, 1.0], repeats=2)
    assert np.isfinite(audit.statistic("spearman")[0]).all()
    assert np.isfinite(audit.statistic("neighbor_jaccard")[0]).all()
    for corrector in (BoundaryCorrector(), EntropyNormalizer()):
        corrected = corrector.fit(clean).transform(noisy)
        assert np.isfinite(corrected.values).all()
        evaluate(corrected, clean, noisy)
    paid = audit_payouts(model, problem["X_val"], y_val, 100, owners=problem["owners"], noise=[0.5], repeats=2)
    allocation = allocate_budget(clean, 100, owners=problem["owners"], audit=paid)
    assert sum(allocation.cents) == 100_00
    replication_gain(model, problem["X"], y, problem["X_val"], y_val, problem["owners"], "ann", budget=100)
    clean.save(tmp_path / "clean.npz")
    assert np.array_equal(Valuation.load(tmp_path / "clean.npz").values, clean.values)
    build_report(
        tmp_path / "page.html",
        valuation=clean,
        audit=audit,
        noisy=noisy,
        corrected=corrected,
        allocation=allocation,
        y_train=y,
    )
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert ("predicts the validation points" in page) == (method.task == "regression")


def test_correctors_refuse_values_made_otherwise(problem: dict[str, Any]) -> None:
    y, y_val = problem["classification"]
    clean = ThresholdKNNShapley(1.0).fit(problem["X"], y).value(problem["X_val"], y_val)
    other = ThresholdKNNShapley(1.5).fit(problem["X"], y).value(problem["noisy"], y_val)
    with pytest.raises(ValueError, match=r"radius=1.5, the clean valuation with radius=1.0"):
        BoundaryCorrector().fit(clean).transform(other)


def test_owners_as_players_are_those_of_knn(problem: dict[str, Any]) -> None:
    y, y_val = problem["classification"]
    model = WeightedKNNShapley().fit(problem["X"], y)
    with pytest.raises(TypeError, match=r"must be a fitted KNNShapley.* Got WeightedKNNShapley"):
        owner_values(model, problem["X_val"], y_val, problem["owners"])


# --- the command line ------------------------------------------------------------------------------------------------


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Train.csv and val.csv with a class, and a price to predict."""
    monkeypatch.chdir(tmp_path)
    for name, table in zip(("train.csv", "val.csv"), make_tables(), strict=True):
        price = table["size"].to_numpy() * 3 + table["age"].to_numpy() ** 2
        pacsv.write_csv(table.append_column("price", pa.array(price)), name)
    return tmp_path


CLASSES = ("train.csv", "val.csv", "--id", "row", "--label", "class", "--drop", "price")
PRICES = ("train.csv", "val.csv", "--id", "row", "--label", "price", "--drop", "class")


@pytest.mark.parametrize("spec", SPECS)
def test_value_and_audit_by_every_method(spec: str, here: Path) -> None:
    tables = PRICES if spec.startswith("regression") else CLASSES
    ran = run("value", *tables, "--drop", "seller", "--method", spec, "--jobs", 1, "--json")
    assert ran.code == 0, ran.err
    made = Valuation.load("shapshift-value/valuation.npz")
    model = parse_method(spec).build({}, {})
    assert made.parameters["method"] == type(model).__name__
    assert made.n_train == N_TRAIN
    assert pq.read_table("shapshift-value/values.parquet").num_rows == N_TRAIN
    assert json.loads(Path("shapshift-value/manifest.json").read_text())["options"]["Method"]["method"] == spec
    ran = run("audit", *tables, "--drop", "seller", "--method", spec, "--noise", "0.5", "--repeats", 2, "--jobs", 1)
    assert ran.code == 0, ran.err
    assert ShiftAudit.load("shapshift-audit/audit.npz").parameters["model"]["n_val"] == N_VAL


def test_correct_price_report_and_rerun_by_method(here: Path) -> None:
    method = ("--method", "regression:baseline=zero", "-k", 3, "--jobs", 1, "--quiet")
    ran = run("correct", *PRICES, "--drop", "seller", "--clean-val", "val.csv", *method)
    assert ran.code == 0, ran.err
    ran = run("price", *PRICES, "--owner", "seller", "--budget", 100, *method)
    assert ran.code == 0, ran.err
    known = Allocation.load("shapshift-price/allocation.npz").parameters
    assert (known["n_neighbors"], known["baseline"]) == (3, "zero")
    ran = run("report", *PRICES, "--owner", "seller", "--repeats", 2, *method)
    assert ran.code == 0, ran.err
    assert "minus the squared error" in Path("shapshift-report/report.html").read_text(encoding="utf-8")
    ran = run("rerun", "shapshift-report", "--quiet")
    assert ran.code == 0, ran.err


def test_the_terminal_speaks_of_targets(here: Path) -> None:
    ran = run("value", *PRICES, "--drop", "seller", "--method", "regression", "--jobs", 1)
    assert "where the targets of nearby rows differ" in ran.out
    assert "Label 'price' is a number to predict" in ran.err


def test_any_model_by_sampling(here: Path) -> None:
    method = "sampled:estimator=naive_bayes,max_fits=200"
    ran = run("value", *CLASSES, "--drop", "seller", "--method", method, "--jobs", 1)
    assert ran.code == 0, ran.err
    low, high = Valuation.load("shapshift-value/valuation.npz").interval()
    said = f"{np.sum(low > 0)} rows are surely positive, {np.sum(high < 0)} surely negative"
    assert said in " ".join(ran.out.split())
    assert run("rerun", "shapshift-value", "--quiet").code == 0
    ran = run("value", *CLASSES, "--drop", "seller", "--method", "sampled:estimator=tree,max_fits=3", "--force")
    assert "The max_fits of --method sampled must be at least" in " ".join(ran.err.split())
    report = ("report", *PRICES, "--drop", "seller", "--method", "sampled:estimator=linear,sampler=loo,max_fits=90")
    ran = run(*report, "--semivalue", "loo", "--noise", 1, "--repeats", 2)
    assert ran.code == 0, ran.err
    assert "minus the squared error of LinearRegression" in Path("shapshift-report/report.html").read_text("utf-8")


def test_proxy_and_distributional_values_by_name(here: Path) -> None:
    ran = run("value", *CLASSES, "--drop", "seller", "--method", "proxy:estimator=tree", "-k", 3, "--jobs", 1)
    assert ran.code == 0, ran.err
    known = Valuation.load("shapshift-value/valuation.npz").parameters
    assert (known["method"], known["embed"], known["n_neighbors"]) == ("KNNProxy", "leaves", 3)
    assert run("rerun", "shapshift-value", "--quiet").code == 0
    sampled = ("--method", "sampled:estimator=naive_bayes,max_fits=200", "--jobs", 1, "--force")
    ran = run("value", *CLASSES, "--drop", "seller", *sampled, "--semivalue", "distributional:5")
    assert ran.code == 0, ran.err
    known = Valuation.load("shapshift-value/valuation.npz").parameters
    assert known["semivalue"] == "Distributional(cardinality=5)"
    ran = run("value", *CLASSES, "--drop", "seller", *sampled, "--semivalue", "distributional:0")
    assert "or distributional:N such as distributional:50 with --method sampled" in " ".join(ran.err.split())
    ran = run("value", *CLASSES, "--drop", "seller", "--force", "--semivalue", "distributional:5")
    assert ran.code == 2


SAMPLED = ["permutation", "classwise", "oob"]


@pytest.mark.parametrize("sampler", SAMPLED)
@pytest.mark.filterwarnings("ignore::shapshift.CorrectionWarning")
def test_every_later_step_takes_sampled_values(sampler: str, problem: dict[str, Any], tmp_path: Path) -> None:
    y, y_val = problem["classification"]
    method = parse_method(f"sampled:estimator=naive_bayes,max_fits=250,sampler={sampler}")
    model = method.build({}, {"n_jobs": 1, "progress": False}).fit(problem["X"], y)
    clean, noisy = model.value(problem["X_val"], y_val), model.value(problem["noisy"], y_val)
    audit = audit_shift(model, problem["X_val"], y_val, noise=[1.0], repeats=2)
    for corrector in (BoundaryCorrector(), EntropyNormalizer()):
        corrected = corrector.fit(clean).transform(noisy)
        assert corrected.standard_error is None
        with pytest.raises(ValueError, match=r"no sampling error: these values were corrected"):
            corrected.interval()
    allocation = allocate_budget(clean, 100, owners=problem["owners"])
    assert sum(allocation.cents) == 100_00
    page = tmp_path / "page.html"
    build_report(page, valuation=clean, audit=audit, noisy=noisy, corrected=corrected, allocation=allocation, y_train=y)
    worth = "predicts the training rows it lacks" if sampler == "oob" else "GaussianNB, fitted on it, predicts"
    assert worth in page.read_text(encoding="utf-8")


def test_methods_are_listed(here: Path) -> None:
    said = run("methods").out
    listed = run("methods", "--json").document["methods"]
    assert [entry["name"] for entry in listed] == list(METHODS)
    for name in METHODS:
        assert f"{name}: " in said


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--method", "knm"), "There is no method 'knm'"),
        (("--method", "threshold"), "needs radius"),
        (("--method", "threshold:radius=1", "-k", "3"), "does not take 'n_neighbors'"),
        (("--method", "threshold:radius=-1"), "The radius of --method threshold must be"),
        (("--method", "weighted", "--semivalue", "banzhaf"), "does not take 'semivalue'"),
        (("--method", "weighted:bits=12"), "The bits of --method weighted must be at most 8"),
        (("--method", "regression"), "Label 'class' must be a number for this method"),
    ],
)
def test_bad_methods_are_refused(here: Path, arguments: tuple[str, ...], says: str) -> None:
    ran = run("value", *CLASSES, "--drop", "seller", *arguments, "--jobs", 1)
    assert ran.code == 2
    assert says in " ".join(ran.err.split())
    assert not Path("shapshift-value").exists()


def test_owners_as_players_need_knn(here: Path) -> None:
    ran = run("price", *CLASSES, "--owner", "seller", "--budget", 100, "--pay-by", "owners", "--method", "weighted")
    assert ran.code == 2
    assert "does not go with --pay-by owners" in " ".join(ran.err.split())


def test_a_number_that_never_changes_is_noted(here: Path) -> None:
    for name in ("train.csv", "val.csv"):
        table = pacsv.read_csv(name)
        pacsv.write_csv(table.set_column(6, "price", pa.array([1.0] * table.num_rows)), name)
    ran = run("value", *PRICES, "--drop", "seller", "--method", "regression", "--jobs", 1)
    assert ran.code == 0, ran.err
    assert "every prediction is that number" in ran.err
    assert np.abs(Valuation.load("shapshift-value/valuation.npz").values).max() < 1e-15
