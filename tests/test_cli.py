"""The command line on real files of every kind: what it writes, says and repeats."""

from __future__ import annotations

import csv
import gc
import hashlib
import importlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
import weakref
from collections import Counter
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from cli_files import N_TRAIN, N_VAL, OWNERS, make_tables, run, write_all
from sklearn.preprocessing import StandardScaler

from shapshift import BoundaryCorrector, KNNShapley, PosteriorCorrector, ShiftAudit, Valuation, audit_shift
from shapshift.cli import _data
from shapshift.cli._commands import COMMANDS
from shapshift.cli._errors import Code
from shapshift.cli._requirements import Requirement
from shapshift.perturb import Compose, FlipLabels, GaussianNoise, LaplaceNoise, Round, ShiftPriors
from shapshift.price import Allocation, Policy, Rule, allocate_budget, pay_owners

KINDS = ("csv", "parquet", "feather", "arrow", "jsonl", "npz", "folder", "glob")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path]]:
    return write_all(tmp_path_factory.mktemp("tables"))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory of its own with train.csv, val.csv and noisy.csv."""
    monkeypatch.chdir(tmp_path)
    train, val = make_tables()
    noisy = val.set_column(2, "size", pa.array(val["size"].to_numpy() + np.random.default_rng(5).normal(size=N_VAL)))
    for name, table in (("train.csv", train), ("val.csv", val), ("noisy.csv", noisy)):
        pacsv.write_csv(table, name)
    return tmp_path


COLUMNS = ("--label", "class", "--id", "row")
MARKET = (*COLUMNS, "--owner", "seller")


def fitted() -> tuple[Any, Any, Any]:
    """The model that the commands should have fitted, and the validation set, made without them."""
    train, val = make_tables()
    X, X_val = (np.column_stack([t[c].to_numpy() for c in ("size", "weight", "age")]) for t in (train, val))
    scaler = StandardScaler().fit(X)
    model = KNNShapley(progress=False).fit(
        scaler.transform(X), train["class"].to_pylist(), ids=train["row"].to_pylist()
    )
    return model, scaler.transform(X_val), val["class"].to_pylist()


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def digests(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): digest(path) for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("kind", KINDS)
def test_value_reads_every_kind_of_file(kind: str, files: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    train, val = files[kind]
    columns = () if kind == "npz" else (*COLUMNS, "--drop", "seller")
    ran = run("value", train, val, *columns, "--out", tmp_path / "out", "--json")
    assert ran.code == 0, ran.err
    model, X_val, y_val = fitted()
    expected = model.value(X_val, y_val).values
    table = pq.read_table(tmp_path / "out" / "values.parquet")
    np.testing.assert_allclose(table["value"].to_numpy(), expected, rtol=0, atol=1e-12)
    assert table["id"].to_pylist() == [f"t{i:03d}" for i in range(N_TRAIN)]
    assert ran.document["result"]["positive"] == int((expected > 0).sum())


def test_value_writes_what_it_says(here: Path) -> None:
    ran = run("value", "train.csv", "val.csv", *MARKET)
    assert ran.code == 0, ran.err
    out = here / "shapshift-value"
    assert sorted(os.listdir(out)) == ["manifest.json", "valuation.npz", "values.parquet"]
    valuation = Valuation.load(out / "valuation.npz")
    table = pq.read_table(out / "values.parquet")
    order = np.argsort(-valuation.values)
    assert table["rank"].to_pylist()[order[0]] == 1
    assert set(table["owner"].to_pylist()) == set(OWNERS)
    assert table["label"].to_pylist() == make_tables()[0]["class"].to_pylist()
    assert f"Valued {N_TRAIN} training rows on {N_VAL} validation points" in ran.out
    for place in (order[0], order[-1]):
        assert valuation.ids[place] in ran.out
    assert "StandardScaler" in ran.err  # the default scale is said aloud
    assert not list(here.glob(".shapshift-*"))


def test_options_reach_the_model(here: Path) -> None:
    options = ("-k", 3, "--utility", "hard", "--semivalue", "beta:4,1", "--metric", "manhattan", "--ties", "index")
    ran = run(
        "value",
        "train.csv",
        "val.csv",
        *MARKET,
        *options,
        "--scale",
        "none",
        "--jobs",
        1,
        "--max-memory",
        "1GB",
        "--quiet",
    )
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    made = Valuation.load("shapshift-value/valuation.npz").parameters
    assert (made["n_neighbors"], made["utility"], made["metric"], made["ties"]) == (3, "hard", "manhattan", "index")
    assert made["semivalue"] == "Beta(alpha=4, beta=1)"


def test_weighted_banzhaf_is_named_by_its_probability(here: Path) -> None:
    kept = {}
    for name in ("banzhaf", "banzhaf:0.5", "banzhaf:0.1"):
        assert run("value", "train.csv", "val.csv", *COLUMNS, "--semivalue", name, "--out", "out", "--force").code == 0
        kept[name] = Valuation.load("out/valuation.npz")
    assert kept["banzhaf:0.1"].parameters["semivalue"] == "Banzhaf(w=0.1)"
    assert kept["banzhaf"].values.tobytes() == kept["banzhaf:0.5"].values.tobytes()
    assert kept["banzhaf"].values.tobytes() != kept["banzhaf:0.1"].values.tobytes()


def test_rows_join_in_the_order_of_a_column(here: Path) -> None:
    train = pacsv.read_csv("train.csv")
    days = np.datetime64("2024-01-01") + np.arange(N_TRAIN) % 7
    pq.write_table(train.append_column("day", pa.array(days)), "train.parquet")
    tables = ("value", "train.parquet", "val.csv", *MARKET)
    ran = run(*tables, "--order", "day", "--out", "out")
    assert ran.code == 0, ran.err
    assert "Rows joined in 7 classes, one after the other." in ran.out
    found = Valuation.load("out/valuation.npz")
    assert found.parameters["order"]["classes"] == 7
    assert run(*tables, "--drop", "day", "--out", "plain").code == 0
    assert Valuation.load("plain/valuation.npz").fingerprint == found.fingerprint  # the day is no feature
    assert run("rerun", "out").code == 0
    assert run(*tables, "--drop", "day", "--order", "seller", "--out", "sellers").code == 0
    assert Valuation.load("sellers/valuation.npz").parameters["order"]["classes"] == len(OWNERS)
    for more, message in (
        (("--order", "dya"), "The --order column"),
        (("--order", "day", "--pool"), "--order needs VAL, and does not go with --pool"),
        (("--order", "day", "--method", "threshold:radius=1"), "--order does not go with ThresholdKNNShapley"),
    ):
        ran = run(*tables, *more, "--out", "other")
        assert (ran.code, message in ran.err) == (2, True), ran.err


def test_columns_can_be_listed_with_commas_or_one_by_one(here: Path) -> None:
    for number, options in enumerate(
        (("--drop", "seller,age"), ("--drop", "seller", "--drop", "age"), ("--features", "size,weight"))
    ):
        assert run("value", "train.csv", "val.csv", *COLUMNS, *options, "--out", f"out{number}").code == 0
    assert len({digest(here / f"out{number}" / "values.parquet") for number in range(3)}) == 1


def test_csv_output_holds_no_formula(tmp_path: Path) -> None:
    train, val = make_tables()
    evil = pa.array(["=1+1", "@SUM(A1)", "-x", *train["row"].to_pylist()[3:]])
    pacsv.write_csv(train.set_column(0, "row", evil), tmp_path / "train.csv")
    pacsv.write_csv(val, tmp_path / "val.csv")
    ran = run(
        "value", tmp_path / "train.csv", tmp_path / "val.csv", *MARKET, "--format", "csv", "--out", tmp_path / "out"
    )
    assert ran.code == 0, ran.err
    with open(tmp_path / "out" / "values.csv", newline="", encoding="utf-8-sig") as file:
        text = file.read()
    rows = list(csv.DictReader(io.StringIO(text)))
    assert '"\'=1+1",' in text  # quoted, so that no other separator can cut it loose
    assert [row["id"] for row in rows[:3]] == ["'=1+1", "'@SUM(A1)", "'-x"]
    # Negative numbers stay numbers, to the last bit.
    values = Valuation.load(tmp_path / "out" / "valuation.npz").values
    assert [float(row["value"]) for row in rows] == values.tolist()


def test_markup_and_escapes_in_data_stay_text(tmp_path: Path) -> None:
    train, val = make_tables()
    ids = pa.array(["[red]x[/red]", "\x1b[31mboo", *train["row"].to_pylist()[2:]])
    names = ["row", "[bold]seller", *train.column_names[2:]]
    # Two rows with all the wrong labels, so that they are shown among the least valuable.
    pq.write_table(train.set_column(0, "row", ids).rename_columns(names).slice(0, 8), tmp_path / "train.parquet")
    pq.write_table(val.rename_columns(names), tmp_path / "val.parquet")
    options = ("--label", "class", "--id", "row", "--owner", "[bold]seller", "--out", tmp_path / "out")
    ran = run("value", tmp_path / "train.parquet", tmp_path / "val.parquet", *options)
    assert ran.code == 0, ran.err
    assert "[red]x[/red]" in ran.out
    assert "\\x1b[31mboo" in ran.out
    assert "\x1b" not in ran.out + ran.err
    assert "[bold]seller" in ran.err
    wrong = run(
        "value",
        tmp_path / "train.parquet",
        tmp_path / "val.parquet",
        "--label",
        "[red]no[/red]",
        "--out",
        tmp_path / "o",
    )
    assert wrong.code == 2
    assert "'[red]no[/red]' is not a column" in wrong.err


def test_audit_is_the_library_s(here: Path) -> None:
    ran = run("audit", "train.csv", "val.csv", *MARKET, "--noise", "0.1,1", "--repeats", 3, "--seed", 7)
    assert ran.code == 0, ran.err
    model, X_val, y_val = fitted()
    expected = audit_shift(model, X_val, y_val, noise=[0.1, 1.0], repeats=3, random_state=7)
    found = ShiftAudit.load("shapshift-audit/audit.npz")
    np.testing.assert_allclose(found.means, expected.means, rtol=0, atol=1e-9, equal_nan=True)
    assert f"Verdict: {expected.verdict}." in ran.out
    with open("shapshift-audit/shift.csv", newline="", encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file))
    assert (rows[0]["level"], float(rows[0]["pearson"])) == ("another sample", found.sampling["reliability"])
    assert [float(row["spearman"]) for row in rows[1:]] == found.statistic("spearman")[0].tolist()
    assert ran.out.startswith(f"Another sample of {len(y_val)} points would agree with these values")
    assert f"{found.sampling['open']} open" in ran.out
    assert pq.read_table("shapshift-audit/rows.parquet").num_rows == N_TRAIN


def test_value_says_how_far_the_values_can_be_trusted(here: Path) -> None:
    ran = run("value", "train.csv", "val.csv", *MARKET, "--json")
    model, X_val, y_val = fitted()
    expected, sampling = model.value(X_val, y_val), json.loads(ran.out)["result"]["sampling"]
    assert sampling["reliability"] == pytest.approx(expected.reliability, abs=1e-9)
    counts = [sampling[name] for name in ("surely_positive", "surely_negative", "open")]
    assert counts == [expected.surely_positive, expected.surely_negative, expected.open]
    assert sampling["unknown"] is None
    table = pq.read_table("shapshift-value/values.parquet")
    np.testing.assert_allclose(table["low"].to_numpy(), expected.interval()[0], rtol=0, atol=1e-9)


def test_one_validation_row_has_no_error_and_says_why(here: Path) -> None:
    header, first, *_ = (here / "val.csv").read_text().splitlines()
    (here / "one.csv").write_text(f"{header}\n{first}\n")
    ran = run("audit", "train.csv", "one.csv", *MARKET, "--noise", 0.1, "--repeats", 2, "--report", "page.html")
    assert ran.code == 0, ran.err
    assert "What another sample would change is not known: it takes at least two validation points" in ran.out
    assert "nan" not in ran.out
    page = (here / "page.html").read_text(encoding="utf-8").partition("<script")[0]
    assert "it takes at least two validation points" in page
    assert ">nan<" not in page.lower()


def test_rows_that_depend_on_each_other_are_counted_as_clusters(here: Path) -> None:
    header, *lines = (here / "val.csv").read_text().splitlines()
    named = [f"{header},patient", *(f"{line},p{i // 4}" for i, line in enumerate(lines))]
    (here / "readings.csv").write_text("\n".join(named) + "\n")
    ran = run("value", "train.csv", "readings.csv", *MARKET, "--clusters", "patient")
    assert ran.code == 0, ran.err
    model, X_val, y_val = fitted()
    clusters = np.arange(len(y_val)) // 4
    expected = model.value(X_val, y_val, clusters=clusters)
    found = Valuation.load("shapshift-value/valuation.npz")
    np.testing.assert_allclose(found.standard_error, expected.standard_error, rtol=1e-6)
    assert f"Another sample of {clusters.max() + 1} clusters of points" in ran.out
    missing = run("value", "train.csv", "val.csv", *MARKET, "--clusters", "patient", "--force")
    assert missing.code != 0
    assert "The --clusters entry 'patient' is not a column of the validation table" in missing.err


def test_audit_takes_perturbations(here: Path) -> None:
    specs = ("--perturb", "laplace:epsilon=2", "--perturb", "round:1 | flip:0.1", "--perturb", "priors:yes=0.7")
    ran = run("audit", "train.csv", "val.csv", *MARKET, *specs, "--repeats", 2, "--json")
    assert ran.code == 0, ran.err
    levels = [level["level"] for level in ran.document["result"]["levels"]]
    assert levels == [
        "LaplaceNoise(epsilon=2)",
        "Round(decimals=1) | FlipLabels(rate=0.1)",
        "ShiftPriors(shares=[['yes', 0.7]])",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gaussian:0.5", GaussianNoise(0.5)),
        ("gaussian:sigma=0.5,relative=true", GaussianNoise(0.5, relative=True)),
        ("laplace:epsilon=1,sensitivity=2.5", LaplaceNoise(1, sensitivity=2.5)),
        ("round:1|flip:0.1", Compose(Round(1), FlipLabels(0.1))),
        ("priors:1=0.25,n=10", ShiftPriors({1: 0.25}, n=10)),
    ],
)
def test_perturbations_are_parsed(text: str, expected: Any) -> None:
    assert _data.parse_perturbation(text, [0, 1]) == expected


def test_correct_fits_on_the_clean_set_and_reuses_the_fit(here: Path) -> None:
    ran = run("correct", "train.csv", "noisy.csv", *MARKET, "--clean-val", "val.csv", "--out", "one", "--json")
    assert ran.code == 0, ran.err
    again = run("correct", "train.csv", "noisy.csv", *MARKET, "--fitted", "one/corrector.json", "--out", "two")
    assert again.code == 0, again.err
    assert digest(here / "one" / "corrected.parquet") == digest(here / "two" / "corrected.parquet")
    assert (here / "one" / "evaluation.csv").exists()
    assert not (here / "two" / "evaluation.csv").exists()
    model, X_val, y_val = fitted()
    corrector = BoundaryCorrector().fit(model.value(X_val, y_val))
    table = pq.read_table("one/corrected.parquet")
    assert int((table["value"].to_numpy() > 0).sum()) == corrector.positive_count_
    assert ran.document["result"]["evaluation"]["rows"]["corrected"]["spearman"] > 0.5
    entropy = run(
        "correct",
        "train.csv",
        "noisy.csv",
        *MARKET,
        "--clean-val",
        "val.csv",
        "--corrector",
        "entropy",
        "--bins",
        2,
        "--out",
        "three",
    )
    assert entropy.code == 0, entropy.err
    assert (
        run("correct", "train.csv", "noisy.csv", *MARKET, "--fitted", "three/corrector.json", "--out", "four").code == 0
    )


def test_rules_and_switches_of_a_correction(here: Path) -> None:
    files = ("train.csv", "noisy.csv", *MARKET, "--clean-val", "val.csv")
    switches = ("--rule", "paper", "--rescale", "boundary", "--no-shift")
    ran = run("correct", *files, *switches, "--out", "one", "--json")
    assert ran.code == 0, ran.err
    applied = ran.document["result"]["correction"]
    assert [applied[name] for name in ("rule", "positive", "min_points", "rescale", "shifted", "shift")] == [
        *("paper", "nearest", 1, "boundary", False, 0.0)
    ]
    assert applied["groups"]["nonboundary"]["alpha"] == 1
    saved = BoundaryCorrector.load("one/corrector.json")
    assert (saved.rule, saved.rescale, saved.shift, saved.positive) == ("paper", "boundary", False, None)
    again = run("correct", "train.csv", "noisy.csv", *MARKET, "--fitted", "one/corrector.json", "--out", "two")
    assert again.code == 0, again.err
    assert digest(here / "one" / "corrected.parquet") == digest(here / "two" / "corrected.parquet")
    for option in (("--rule", "paper"), ("--rescale", "none"), ("--no-shift",)):
        refused = run("correct", *files[:-2], "--fitted", "one/corrector.json", *option, "--out", "no")
        assert refused.code != 0
        assert f"{option[0]} goes with --clean-val" in refused.err
    price = ("price", "train.csv", "noisy.csv", *MARKET, "--budget", "1000")
    refused = run(*price, "--rule", "paper", "--out", "no")
    assert "--rule goes with --clean-val" in refused.err
    paid = [run(*price, "--clean-val", "val.csv", "--rule", rule, "--out", rule) for rule in ("default", "paper")]
    assert [one.code for one in paid] == [0, 0], paid[0].err + paid[1].err
    corrected = [Allocation.load(here / rule / "allocation.npz").corrected for rule in ("default", "paper")]
    assert corrected[0].tolist() != corrected[1].tolist()


def test_correct_undoes_known_noise_without_clean_rows(here: Path) -> None:
    arguments = ("correct", "train.csv", "noisy.csv", *MARKET)
    ran = run(*arguments, "--noise-sigma", "0.5", "--out", "one", "--json")
    assert ran.code == 0, ran.err
    model, _, y_val = fitted()
    raw = pacsv.read_csv("noisy.csv")
    X = np.column_stack([raw[c].to_numpy() for c in ("size", "weight", "age")])
    train, _ = make_tables()
    scaler = StandardScaler().fit(np.column_stack([train[c].to_numpy() for c in ("size", "weight", "age")]))
    expected = PosteriorCorrector(0.5 * model.feature_std_).fit(model).transform(scaler.transform(X), y_val)
    found = Valuation.load("one/corrected.npz")
    np.testing.assert_allclose(found.values, expected.values)
    np.testing.assert_allclose(found.standard_error, expected.standard_error)
    table = pq.read_table("one/corrected.parquet")
    assert {"value", "noisy", "standard_error"} <= set(table.column_names)
    assert (
        ran.document["result"]["posterior"]["weights"] == json.loads(Path("one/posterior.json").read_text())["weights"]
    )
    assert not (here / "one" / "corrector.json").exists()
    again = run("rerun", "one/manifest.json", "--out", "again")
    assert again.code == 0, again.err
    both = run(*arguments, "--noise-sigma", "auto", "--clean-val", "val.csv", "--out", "two", "--json")
    assert both.code == 0, both.err
    assert both.document["result"]["posterior"]["estimate"]["high"] > 0
    assert both.document["result"]["correction"]["after"]["positive_count"] > 0
    assert {"posterior.json", "corrector.json", "evaluation.csv"} <= set(os.listdir("two"))
    said = run(*arguments, "--noise-sigma", "0.5", "--fitted", "two/corrector.json", "--out", "three")
    assert "averaged over possible clean versions of the points" in said.out


def test_categories_carry_no_noise(here: Path) -> None:
    for name in ("train", "noisy"):
        table = pacsv.read_csv(f"{name}.csv")
        shade = ["dark" if size > 0.5 else "light" for size in table["size"].to_pylist()]
        pacsv.write_csv(table.append_column("shade", pa.array(shade)), f"{name}.csv")
    arguments = ("correct", "train.csv", "noisy.csv", *MARKET, "--noise-sigma")
    ran = run(*arguments, "0.5", "--json")
    assert ran.code == 0, ran.err
    assert ran.document["result"]["posterior"]["noise"]["std"][-2:] == [0.0, 0.0]
    refused = run(*arguments, "auto", "--out", "other")
    assert refused.code != 0
    assert "'shade=dark' was made from another kind of" in refused.err


def test_price_pays_to_the_cent(here: Path) -> None:
    options = (
        "--budget",
        "1000.01",
        "--policy",
        "carry",
        "--floor",
        "5",
        "--cap",
        "60%",
        "--reserve",
        "10%",
        "--currency",
        "CHF",
    )
    options = (*options, "--pay-by", "rows", "--noise", "0.5", "--repeats", 3)
    ran = run("price", "train.csv", "val.csv", *MARKET, *options, "--json")
    assert ran.code == 0, ran.err
    result = ran.document["result"]
    paid = [Decimal(entry["payout"]) for entry in result["owners"]]
    assert sum(paid) + Decimal(result["reserve"]) + Decimal(result["unallocated"]) == Decimal("1000.01")
    model, X_val, y_val = fitted()
    rules = Policy(negatives="carry", floor="5", cap="60%", reserve="10%")
    owners = make_tables()[0]["seller"].to_pylist()
    expected = allocate_budget(model.value(X_val, y_val), "1000.01", owners=owners, policy=rules)
    assert paid == list(expected.payouts.values())
    assert all(Decimal(e["low"]) <= Decimal(e["payout"]) <= Decimal(e["high"]) for e in result["owners"])
    allocation = Allocation.load("shapshift-price/allocation.npz")
    assert allocation.currency == "CHF"
    pages = [name for name in os.listdir("shapshift-price/statements") if name.endswith(".html")]
    assert len(pages) == len(OWNERS)
    with open("shapshift-price/statements/payouts.csv", newline="", encoding="utf-8") as file:
        assert [Decimal(row["payout"]) for row in csv.DictReader(file)] == paid
    assert (here / "shapshift-price" / "intervals.csv").exists()


def test_price_of_owners_as_players_and_correction(here: Path) -> None:
    ran = run("price", "train.csv", "val.csv", *MARKET, "--budget", 100, "--pay-by", "owners", "--json")
    assert ran.code == 0, ran.err
    assert ran.document["result"]["basis"] == "owners"
    corrected = run(
        "price", "train.csv", "noisy.csv", *MARKET, "--budget", 100, "--clean-val", "val.csv", "--out", "c", "--json"
    )
    assert corrected.code == 0, corrected.err
    assert {"corrected"} <= set(corrected.document["result"]["owners"][0])


def test_price_pays_whoever_was_first_and_charges_deposits(here: Path) -> None:
    """Of bob's rows a third are ann's, later; cid's labels are wrong."""
    train, val = make_tables()
    ann = train.filter(pa.compute.equal(train["seller"], "ann"))
    copied = ann.slice(0, 9).set_column(0, "row", pa.array([f"copy{i}" for i in range(9)]))
    copied = copied.set_column(1, "seller", pa.array(["bob"] * 9))
    wrong = ["yes" if label == "no" else "no" for label in ann["class"].to_pylist()]
    bad = ann.set_column(0, "row", pa.array([f"bad{i}" for i in range(len(wrong))]))
    bad = bad.set_column(1, "seller", pa.array(["cid"] * len(wrong))).set_column(5, "class", pa.array(wrong))
    rows = pa.concat_tables([copied, ann, bad])
    days = [2] * 9 + [1] * ann.num_rows + [3] * bad.num_rows
    pacsv.write_csv(rows.append_column("day", pa.array(days)), "train.csv")
    price = ("price", "train.csv", "val.csv", *MARKET, "--budget", 100, "--scale", "none")
    X, X_val = (np.column_stack([t[c].to_numpy() for c in ("size", "weight", "age")]) for t in (rows, val))

    def expected(**options: Any) -> dict[str, str]:
        labels, labels_val, owners, ids = (
            t[column].to_pylist() for t, column in ((rows, "class"), (val, "class"), (rows, "seller"), (rows, "row"))
        )
        tables = X, labels, X_val, labels_val
        made = pay_owners(KNNShapley(progress=False), *tables, owners, 100, ids=ids, **options)
        return {str(owner): str(amount) for owner, amount in made.payouts.items()}

    def lines(path: str) -> list[dict[str, str]]:
        with open(path, encoding="utf-8-sig", newline="") as file:
            return list(csv.DictReader(file))

    found, by_day = {}, ("--order", "day")
    for name, more in {"table": ("--drop", "day"), "day": by_day, "owing": (*by_day, "--deposit", "5")}.items():
        ran = run(*price, *more, "--out", name)
        assert ran.code == 0, ran.err
        first, other = ("bob", "ann") if name == "table" else ("ann", "bob")
        assert lines(f"{name}/duplicates.csv") == [{"owner": first, "other": other, "rows": "9", "exact": "9"}]
        found[name] = {row["owner"]: row["payout"] for row in lines(f"{name}/statements/payouts.csv")}
    order = np.array(days)
    assert found["table"] == expected()
    assert found["day"] == expected(order=order)
    assert found["owing"] == expected(order=order, rule=Rule(policy=Policy(deposit=5)))
    assert found["day"]["bob"] == "0.00" != found["table"]["bob"]
    assert found["owing"]["cid"] == "-5.00"
    for wrong_words, says in (
        (("--order", "dya"), "The --order column"),
        (("--deposit", "x"), "--deposit must be an amount"),
        (("--deposit", "5", "--policy", "clip"), "--deposit"),
    ):
        ran = run(*price, *wrong_words, "--out", "refused")
        assert (ran.code, says in ran.err) == (2, True), ran.err


def test_price_pays_saved_values(here: Path) -> None:
    correct = ("correct", "train.csv", "noisy.csv", *MARKET, "--clean-val", "val.csv")
    assert run(*correct, "--out", "corrected").code == 0
    price = ("price", "train.csv", "noisy.csv", *MARKET, "--budget", 1000)
    ran = run(*price, "--values", "corrected/corrected.npz", "--out", "paid")
    assert ran.code == 0, ran.err
    corrected = Valuation.load(here / "corrected" / "corrected.npz")
    owners = [OWNERS[i % 3] for i in range(N_TRAIN)]
    paid = Allocation.load(here / "paid" / "allocation.npz")
    assert paid.payouts == allocate_budget(corrected, 1000, owners=owners).payouts
    assert run(*price, "--out", "noisy").code == 0
    assert paid.payouts != Allocation.load(here / "noisy" / "allocation.npz").payouts
    assert run("rerun", "paid").code == 0
    for more in (("--noise", "1"), ("--clean-val", "val.csv"), ("--pay-by", "owners")):
        ran = run(*price, "--values", "corrected/corrected.npz", *more, "--out", "no")
        assert (ran.code, f"{more[0]}" in ran.err, "not go with --values" in ran.err) == (2, True, True)
    for other in (("--drop", "age"), ("--scale", "none")):
        ran = run(*price, *other, "--values", "corrected/corrected.npz", "--out", "no")
        assert ran.code == 2
        assert "must be values of these training rows" in ran.err
    for table in ("train.csv", "corrected/values.parquet"):
        ran = run(*price, "--values", table, "--out", "no")
        assert ran.code == 2
        assert "--values takes the valuation.npz or corrected.npz of a run" in ran.err
    ran = run(*price, "--values", "paid/allocation.npz", "--out", "no")
    assert ran.code == 2


@pytest.mark.parametrize("semivalue", ["banzhaf:0.00001", "beta:4,1", "filled"])
def test_price_reads_how_saved_values_were_weighted(here: Path, semivalue: str) -> None:
    assert run("value", "train.csv", "val.csv", *MARKET, "--semivalue", semivalue, "--out", "values").code == 0
    price = ("price", "train.csv", "val.csv", *MARKET, "--budget", 1000, "--values", "values/valuation.npz")
    ran = run(*price, "--out", "paid")
    assert ran.code == 0, ran.err
    rule = Allocation.load(here / "paid" / "allocation.npz").parameters["rule"]
    assert rule["semivalue"] == semivalue.replace("0.00001", "1e-05")


def test_price_adds_noise_under_the_default_rule(here: Path) -> None:
    (here / "key").write_bytes(bytes(range(32)))
    price = ("price", "train.csv", "val.csv", *MARKET, "--budget", 1000)
    ran = run(*price, "--epsilon", 1, "--secret", "key", "--near-copies", "--out", "paid")
    assert ran.code == 0, ran.err
    rule = Allocation.load(here / "paid" / "allocation.npz").parameters["rule"]
    assert (rule["semivalue"], rule["near_copies"]) == ("filled", True)


@pytest.mark.parametrize(
    "options",
    [
        ("--pay-by", "owners", "--semivalue", "filled"),
        ("--pay-by", "owners", "--semivalue", "calibrated"),
        ("--pay-by", "precedence", "--order", "age", "--semivalue", "filled"),
        ("--pay-by", "rows", "--near-copies"),
    ],
)
def test_rules_of_payment_that_contradict_themselves_are_refused_before_anything_is_read(options: Any) -> None:
    ran = run("price", "absent.csv", "absent.csv", *MARKET, "--budget", 1000, *options)
    assert ran.code == 2
    assert options[-2 if options[-1] != "--near-copies" else -1] in ran.err
    assert f"--pay-by {options[1]}" in " ".join(ran.err.split())


def test_price_writes_the_values_it_pays_in_the_format_asked_for(here: Path) -> None:
    price = ("price", "train.csv", "val.csv", *MARKET, "--budget", 1000)
    assert run(*price, "--out", "one").code == 0
    assert run(*price, "--format", "csv", "--out", "two").code == 0
    values = pq.read_table(here / "one" / "values.parquet")
    with open(here / "two" / "values.csv", encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["value"]) for row in rows] == values["value"].to_pylist()
    assert [row["owner"] for row in rows] == values["owner"].to_pylist()


def test_cases_and_design(here: Path) -> None:
    ran = run(
        "cases", "train.csv", "val.csv", *MARKET, "--points", 2, "--repeats", 2, "--noise", "0.5", "--figures", "--json"
    )
    assert ran.code == 0, ran.err
    assert set(ran.document["result"]["case_one"]) == {"boundary", "nonboundary"}
    assert {"case_one.csv", "case_one.png", "case_two_levels.svg"} <= set(os.listdir("shapshift-cases"))
    ran = run("design", "train.csv", "val.csv", *MARKET, "--select", 15, "--repeats", 2, "--noise", "0.5", "--json")
    assert ran.code == 0, ran.err
    assert isinstance(ran.document["result"]["profile"]["representative"], bool)
    chosen = pq.read_table("shapshift-design/selected.parquet")
    assert chosen.num_rows == 15
    assert chosen.column_names == make_tables()[1].column_names
    assert set(chosen["row"].to_pylist()) <= set(make_tables()[1]["row"].to_pylist())


@pytest.mark.parametrize(
    "basis",
    [
        (),
        (
            "--pay-by",
            "owners",
        ),
    ],
    ids=["rows", "owners"],
)
@pytest.mark.parametrize("command", ["report", "price"])
def test_every_distinct_validation_set_is_valued_once(
    command: str, basis: tuple[str, ...], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    valued: Counter[bytes] = Counter()
    run_model = KNNShapley._run

    def counted(self: Any, given: Any, runner: Any) -> Any:
        valued[given.points.tobytes() + given.targets.tobytes()] += 1
        return run_model(self, given, runner)

    monkeypatch.setattr(KNNShapley, "_run", counted)
    options = (*MARKET, "--budget", "500", "--noise", "0.2,0.5", "--repeats", "3", *basis)
    assert run(command, "train.csv", "val.csv", *options).code == 0
    # The clean set, and three draws at each of two levels; a noisy one to correct is of the report only, and rows are
    # not valued on perturbed sets where owners are the players, unless there is an audit.
    draws = 0 if command == "price" and basis else 6
    assert sorted(valued.values()) == [1] * (1 + draws + (command == "report"))


def test_report_bundles_everything_and_reruns(here: Path) -> None:
    options = (*MARKET, "--budget", 100, "--noise", "0.2,1", "--repeats", 2, "--noisy-val", "noisy.csv")
    ran = run("report", "train.csv", "val.csv", *options)
    assert ran.code == 0, ran.err
    out = here / "shapshift-report"
    assert {"report.html", "audit.npz", "allocation.npz", "corrected.parquet", "values.parquet"} <= set(os.listdir(out))
    assert str(out / "report.html") in ran.out
    page = (out / "report.html").read_text(encoding="utf-8")
    assert str(here) not in page
    again = run("rerun", "shapshift-report", "--json")
    assert again.code == 0, again.err
    assert again.document["identical"] is True
    assert digests(out) == digests(here / "shapshift-report-rerun")


@pytest.mark.parametrize(
    "command",
    [
        ("value", "train.csv", "val.csv", *MARKET, "--report", "page.html"),
        ("explain", "train.csv", "val.csv", *MARKET, "--row", "t003", "--lowest", "4", "--format", "csv"),
        ("audit", "train.csv", "val.csv", *MARKET, "--perturb", "mask:0.2", "--repeats", "2", "--format", "csv"),
        ("correct", "train.csv", "noisy.csv", *MARKET, "--clean-val", "val.csv", "--report", "page.html"),
        ("price", "train.csv", "val.csv", *MARKET, "--budget", "100", "--noise", "1", "--repeats", "2"),
        ("datasets", "iris", "--n-train", "20"),
    ],
    ids=lambda command: command[0],
)
def test_rerun_reproduces_the_bytes(command: tuple[str, ...], here: Path) -> None:
    assert run(*command, "--out", "runs/one", "--seed", "3").code == 0
    ran = run("rerun", "runs/one/manifest.json", "--out", "runs/two")
    assert ran.code == 0, ran.err
    assert "Identical" in ran.out
    one, two = digests(here / "runs" / "one"), digests(here / "runs" / "two")
    two.pop("page.html", None)  # a page from elsewhere goes into the new folder
    assert one == two
    # A second run from scratch too, at another time and with another number of threads.
    jobs = () if command[0] == "datasets" else ("--jobs", "1")
    assert run(*command, "--out", "runs/three", "--seed", "3", "--force", *jobs).code == 0
    three = digests(here / "runs" / "three")
    assert {k: v for k, v in three.items() if k != "manifest.json"} == {
        k: v for k, v in one.items() if k != "manifest.json"
    }


def test_the_manifest_tells_the_truth_and_no_path(here: Path) -> None:
    ran = run("value", here / "train.csv", "val.csv", *MARKET, "--seed", 4, "--report", "deep/er/page.html")
    assert ran.code == 0, ran.err
    text = (here / "shapshift-value" / "manifest.json").read_text(encoding="utf-8")
    assert str(here) not in text
    manifest = json.loads(text)
    assert manifest["command"] == "value"
    assert manifest["seed"] == 4
    assert manifest["inputs"]["train"] == {"path": "../train.csv", "sha256": digest(here / "train.csv")}
    assert manifest["outputs"] == {
        name: digest(here / "shapshift-value" / name) for name in ("valuation.npz", "values.parquet")
    }
    assert manifest["report"] == {"name": "page.html", "sha256": digest(here / "deep" / "er" / "page.html")}
    assert {"python", "shapshift", "numpy", "numba", "scikit-learn"} <= set(manifest["versions"])
    assert manifest["options"]["Columns"]["label"] == "class"


def test_rerun_refuses_a_changed_input_and_finds_a_moved_one(here: Path) -> None:
    assert run("value", "train.csv", "val.csv", *MARKET, "--out", "one").code == 0
    original = (here / "train.csv").read_bytes()
    (here / "train.csv").write_bytes(original.replace(b"yes", b"no", 1))
    ran = run("rerun", "one", "--out", "two")
    assert ran.code == 2
    assert "has changed" in ran.err
    assert "train.csv" in ran.err
    assert not (here / "two").exists()
    (here / "train.csv").unlink()
    ran = run("rerun", "one", "--out", "two")
    assert ran.code == 2
    assert "--data" in ran.err
    (here / "moved").mkdir()
    (here / "moved" / "train.csv").write_bytes(original)
    (here / "val.csv").rename(here / "moved" / "val.csv")
    ran = run("rerun", "one", "--out", "two", "--data", "moved")
    assert ran.code == 0, ran.err
    assert digest(here / "one" / "values.parquet") == digest(here / "two" / "values.parquet")


def test_rerun_says_so_when_bytes_differ(here: Path) -> None:
    assert run("value", "train.csv", "val.csv", *MARKET, "--out", "one").code == 0
    path = here / "one" / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    manifest["outputs"]["values.parquet"] = "0" * 64
    manifest["versions"]["numpy"] = "1.0"
    path.write_text(json.dumps(manifest), encoding="utf-8")
    ran = run("rerun", path, "--out", "two", "--json")
    manifest["options"]["Columns"]["colour"] = "red"
    path.write_text(json.dumps(manifest), encoding="utf-8")
    assert "it sets 'colour', which no run records" in run("rerun", path, "--out", "three").err
    assert ran.code == 5
    assert ran.document["different"] == ["values.parquet"]
    assert "numpy 1.0" in ran.err


def test_force_replaces_own_files_and_leaves_others(here: Path) -> None:
    price = ("price", "train.csv", "val.csv", "--label", "class", "--budget", 100, "--out", "pay")
    assert run(*price, "--id", "row", "--owner", "seller").code == 0
    (here / "pay" / "mine.txt").write_text("keep me")
    before = set(os.listdir(here / "pay" / "statements"))
    ran = run(*price, "--owner", "row", "--drop", "seller", "--force")
    assert ran.code == 0, ran.err
    after = set(os.listdir(here / "pay" / "statements"))
    assert len(after) == N_TRAIN + 1
    assert before & after == {"payouts.csv"}  # statements of the earlier run are gone
    assert (here / "pay" / "mine.txt").read_text() == "keep me"
    assert not list((here / "pay").glob(".shapshift-*"))


def test_results_can_go_where_other_files_are(here: Path) -> None:
    ran = run("value", "train.csv", "val.csv", *MARKET, "--out", ".")
    assert ran.code == 0, ran.err
    assert {"train.csv", "values.parquet", "manifest.json"} <= set(os.listdir(here))


def test_datasets_doctor_version(here: Path) -> None:
    ran = run("datasets", "--json")
    assert {"iris", "phoneme"} <= {entry["name"] for entry in ran.document["datasets"]}
    assert "iris" in run("datasets").out
    assert run("datasets", "wine", "--out", "data").code == 0
    assert run("value", "data/train.parquet", "data/val.parquet", "--label", "label").code == 0
    ran = run("doctor", "--json")
    assert ran.code == 0
    assert ran.document["command"] == "doctor"
    assert ran.document["works"] is True
    assert "numba" in ran.document["versions"]
    assert "Valuing works here" in run("doctor").out
    assert run("--version").out.startswith("shapshift ")


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_help_with_examples(name: str) -> None:
    ran = run(*name.split(), "--help")
    assert ran.code == 0
    assert f"shapshift {name}" in ran.out
    assert "Examples" in ran.out


def test_the_help_lists_commands_and_exit_codes() -> None:
    ran = run("--help")
    for word in ("130", "--force replaces"):
        assert word in ran.out
    for name in COMMANDS:
        group, _, own = name.rpartition(" ")
        assert re.search(rf"^. {own} ", run(*group.split(), "--help").out, re.MULTILINE), name
        assert re.search(rf"^. {group or own} ", ran.out, re.MULTILINE), name


def test_the_installed_command(here: Path) -> None:
    """The real thing: a process, one JSON document on stdout and everything else on stderr."""
    shapshift = [sys.executable, "-m", "shapshift"]
    command = [*shapshift, "value", "train.csv", "val.csv", *MARKET, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["result"]["n_train"] == N_TRAIN
    assert "StandardScaler" in done.stderr
    environment = {
        **os.environ,
        "_SHAPSHIFT_COMPLETE": "complete_bash",
        "COMP_WORDS": "shapshift val",
        "COMP_CWORD": "1",
    }
    done = subprocess.run(shapshift, capture_output=True, text=True, timeout=120, check=False, env=environment)
    assert done.stdout.split() == ["value"], done.stderr


def documented() -> list[str]:
    """Every command line in the documentation and in the help."""
    page = Path(__file__).parent.parent / "docs" / "command_line.md"
    lines = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("shapshift ")]
    for name in COMMANDS:
        text = " ".join(run(*name.split(), "--help").out.split())
        lines += re.findall(r"\$ (shapshift .*?)(?= \$ |╭)", text)
    return lines


def test_documented_options_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    lines = documented()
    assert len(lines) > 30
    helped = cache(lambda *name: run(*name, "--help").out)
    for line in lines:
        words = shlex.split(re.split(r" \| jq| && ", line)[0])
        name = words[1:3] if " ".join(words[1:3]) in COMMANDS else words[1:2]
        assert " ".join(name) in COMMANDS, line
        described = helped(*name)
        for word in words[2:]:
            if word.startswith("-"):
                assert re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", described), line


def test_documented_exit_codes_are_the_real_ones() -> None:
    text = (Path(__file__).parent.parent / "docs" / "command_line.md").read_text(encoding="utf-8")
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)] == list(Code)


def pretend(folder: Path, name: str, version: str) -> None:
    """Let importlib.metadata find a distribution of this version when ``folder`` comes first on the path."""
    about = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def test_doctor_refuses_a_dependency_that_is_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("narwhals", "scikit-learn"):
        pretend(tmp_path, name, "0.9.5")
    monkeypatch.syspath_prepend(tmp_path)
    ran = run("doctor")
    assert ran.code == 1
    assert "Valuing works here" not in ran.out
    assert re.search(r"narwhals [\d.]+ or later is needed, 0\.9\.5 is installed", ran.err)
    assert re.search(r"pip install --upgrade 'narwhals>=[\d.]+' 'scikit-learn>=[\d.]+'", ran.err)
    found = run("doctor", "--json").document["requirements"]
    assert [name for name, entry in found.items() if not entry["ok"]] == ["narwhals", "scikit-learn"]
    assert found["narwhals"]["installed"] == "0.9.5"


def test_doctor_notes_an_optional_library_that_is_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(tmp_path, "matplotlib", "3.8.9")
    monkeypatch.syspath_prepend(tmp_path)
    ran = run("doctor")
    assert ran.code == 0
    assert "Valuing works here" in ran.out
    assert re.search(r"matplotlib [\d.]+ or later is needed, 3\.8\.9 is installed", ran.err)


@pytest.mark.parametrize(
    ("have", "least", "outdated"),
    [("2.0", "2.0.0", False), ("2.10.1", "2.9", False), ("2.9", "2.10", True), ("2.13.0+cpu", "2.13", False)],
)
def test_versions_are_compared_by_their_numbers(have: str, least: str, outdated: bool) -> None:
    assert Requirement("a", least, None, have).outdated is outdated


@pytest.mark.parametrize("command", [["doctor"], ["value", "train.csv", "val.csv", *MARKET]], ids=["doctor", "value"])
def test_a_library_that_does_not_load_is_named_with_its_version(command: list[str], here: Path) -> None:
    pretend(here / "old", "narwhals", "1.2")
    (here / "old" / "narwhals.py").write_text("raise ImportError('no name of that kind')")
    path = os.pathsep.join([str(here / "old"), *(part for part in [os.environ.get("PYTHONPATH")] if part)])
    ran = subprocess.run(
        [sys.executable, "-m", "shapshift", *command],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1
    assert "Traceback" not in ran.stderr
    assert re.search(r"narwhals [\d.]+ or later is needed, 1\.2 is installed. Run: pip install", ran.stderr)


def test_an_unexpected_error_names_what_is_too_old(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(here / "old", "narwhals", "1.2")
    monkeypatch.syspath_prepend(here / "old")
    monkeypatch.delattr("shapshift.knn.base.KNNModel._prepare")  # stands for a name that an old library lacks
    ran = run("value", "train.csv", "val.csv", *MARKET)
    assert ran.code == 1
    assert "AttributeError" in ran.err
    assert "'narwhals>=" in ran.err


@pytest.mark.parametrize("more", [(), ("--json",)], ids=["text", "json"])
def test_an_encoding_without_the_letters_of_a_name_does_not_end_a_command(more: tuple[str, ...], here: Path) -> None:
    train = make_tables()[0]
    names = ["\N{GREEK SMALL LETTER SIGMA}-Zoë", "\N{GRINNING FACE}"]
    train = train.set_column(1, "seller", pa.array([names[i % 2] for i in range(N_TRAIN)]))
    pacsv.write_csv(train, "train.csv")
    ran = subprocess.run(
        [sys.executable, "-m", "shapshift", "price", "train.csv", "val.csv", *MARKET, "--budget", "9", *more],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    if more:
        assert set(names) <= set(re.findall(r'"([^"]+)"', json.dumps(json.loads(ran.stdout), ensure_ascii=False)))
    else:
        assert "\\u03c3-Zo\\xeb" in ran.stdout


@pytest.mark.parametrize("command", ["value", "audit", "price", "report"])
@pytest.mark.parametrize("raw", [False, True])
def test_rows_are_held_once_while_they_are_valued(
    command: str, raw: bool, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fitted model has the features; neither their array nor the table they came from stays beside it."""
    module = importlib.import_module(f"shapshift.cli.{'price' if command == 'price' else 'value'}")
    load, held, seen = module.load, [], []

    def watched(*arguments: Any) -> Any:
        data = load(*arguments)
        held.extend([weakref.ref(data.arrays.X_train), weakref.ref(data.train)])
        return data

    def value(self: Any, *arguments: Any, **more: Any) -> Any:
        gc.collect()
        seen.append([one() is not None for one in held])
        return original(self, *arguments, **more)

    original = KNNShapley._value
    monkeypatch.setattr(module, "load", watched)
    monkeypatch.setattr(KNNShapley, "_value", value)
    options = {"value": (), "audit": (), "price": ("--budget", 100), "report": ("--budget", 100)}[command]
    noise = () if command == "value" else ("--noise", "1", "--repeats", 2)
    page = ("--report", "page.html", *(["--raw-features"] * raw))
    ran = run(command, "train.csv", "val.csv", *MARKET, *options, *noise, *page)
    assert ran.code == 0, ran.err
    assert seen
    assert all(one == [False, raw] for one in seen)
