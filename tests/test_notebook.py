"""Every public result shows itself in a notebook, by one template; and whatever can be drawn takes ``ax``."""

from __future__ import annotations

import importlib
import inspect
import re
import typing
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pytest
from sklearn.base import BaseEstimator
from sklearn.naive_bayes import GaussianNB

import shapshift
from shapshift import _notebook
from shapshift.audit import point_influence
from shapshift.cleaning.revaluation import Revalued
from shapshift.correct.prior import NoiseEstimate
from shapshift.io.shown import Shown
from shapshift.tables import TableSpec, prepare

PACKAGES = (
    *("audit", "cleaning", "correct", "data", "design", "knn", "mechanism", "perturb", "price", "report", "sampled"),
    *("store", "suspects", "tables", "market.ledger"),
)
# Reached from public functions, but no results; a class stands for those made from it.
OTHERS = {
    "settings, which a call writes in one line": (
        *("Beta", "Banzhaf", "BoundaryStratifiedSplit", "CopyDiscount", "FederatedRound", "Form", "Perturbation"),
        *("Sampler", "Distributional", "TableSpec", "Thresholds"),
    ),
    "tuples of arrays, for other code": ("Neighborhood", "Observations", "Offer", "Plan", "Released"),
    "parts of a case, which shows them": ("Example", "FeatureMap"),
    "gives valuations, and shows nothing itself": (
        "ShiftStream",
        "PoolingModel",
        "WeightedModel",
        "Ledger",
        "Revaluation",
    ),
    "a file of decisions, and images: read and written, not shown": ("DecisionLog", "Images"),
    "raised, not returned": ("Warning", "Exception"),
}


def classes_in(hint: Any) -> Iterator[type]:
    if inspect.isclass(hint) and hint.__module__.startswith("shapshift"):
        yield hint
    for part in typing.get_args(hint):
        yield from classes_in(part)


def hints_of(found: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(found)
    except (NameError, TypeError):  # names for type checkers only, and what Python itself made
        return {}


def reached(found: Any) -> Iterator[type]:
    """Classes that a public function returns, or that the attributes, properties and methods of a class have."""
    if not inspect.isclass(found):
        yield from classes_in(hints_of(found).get("return"))
        return
    for name, hint in hints_of(found).items():
        if not name.startswith("_"):
            yield from classes_in(hint)
    for name, member in inspect.getmembers(found):
        member = member.fget if isinstance(member, property) else member
        if not name.startswith("_") and inspect.isroutine(member):
            yield from classes_in(hints_of(member).get("return"))


@cache
def public_classes() -> frozenset[type]:
    left = [getattr(shapshift, name) for name in shapshift.__all__]
    for name in PACKAGES:
        module = importlib.import_module(f"shapshift.{name}")
        left += [getattr(module, public) for public in getattr(module, "__all__", ())]
    seen: set[Any] = set()
    while left:
        found = left.pop()
        if found not in seen:
            seen.add(found)
            left += reached(found) if callable(found) else []
    return frozenset(found for found in seen if inspect.isclass(found))


def exempt(found: type) -> bool:
    names = {name for listed in OTHERS.values() for name in listed}
    return issubclass(found, BaseEstimator) or bool(names & {base.__name__ for base in found.__mro__})


RESULTS = sorted((found for found in public_classes() if not exempt(found)), key=lambda found: found.__name__)


def test_the_walk_finds_results() -> None:
    names = {found.__name__ for found in RESULTS}
    assert {"Valuation", "ShiftAudit", "Allocation", "CorrectionReport", "Verification", "Closed"} <= names
    assert len(names) > 35


@pytest.mark.parametrize("found", RESULTS, ids=lambda found: found.__name__)
def test_every_public_result_shows_itself_and_draws_into_given_axes(found: type) -> None:
    assert issubclass(found, Shown), f"{found.__name__} has no _repr_html_: derive it from Shown"
    chosen: Any = _notebook.blocks.dispatch(found)
    assert chosen is not _notebook.blocks.dispatch(object), f"_notebook has no function for {found.__name__}"
    for name, method in inspect.getmembers(found, inspect.isfunction):
        if name == "plot" or name.startswith("plot_"):
            parameters = inspect.signature(method).parameters
            assert "axes" not in parameters
            assert parameters["ax"].kind is inspect.Parameter.KEYWORD_ONLY
            assert parameters["ax"].default is None


HOSTILE = "<b onclick='x'>& \x1b[31m"
RNG = np.random.default_rng(0)
X, X_VAL = RNG.normal(size=(60, 2)), RNG.normal(size=(30, 2))
CODES, CODES_VAL = (X[:, 0] > 0).astype(int), (X_VAL[:, 0] > 0).astype(int)
NAMES = np.array([HOSTILE, "b & c"], dtype=object)
Y, Y_VAL = NAMES[CODES], NAMES[CODES_VAL]
OWNERS = [f"{HOSTILE}{i % 3}" for i in range(60)]
IDS = [f"{HOSTILE}{i}" for i in range(60)]
LEVELS = [0.1, 0.5]


def market_of(folder: Path) -> list[Any]:
    pytest.importorskip("sqlalchemy", reason="the ledger is in a database")
    rows = [f"{a:.3f},{b:.3f},{'u' if c else 'v'}" for (a, b), c in zip(X, CODES, strict=True)]
    for name, part in (("val", rows[:20]), ("ann", rows[20:40]), ("bob", rows[40:])):
        (folder / f"{name}.csv").write_text("\n".join(["f,g,class", *part, ""]))
    with shapshift.Market.create(folder / "market.db", issuer=HOSTILE.replace("\x1b", "")) as market:
        market.open("r", folder / "val.csv", 100, label="class", model={"n_neighbors": 3})
        event, _ = market.submit("r", "<b>ann", folder / "ann.csv")
        market.submit("r", "bob", folder / "bob.csv")
        closed, checked = market.close("r", folder / "val.csv"), market.verify(recompute=False)
        check_html(market)  # while its ledger is open
        return [market, market.terms("r"), event, closed, checked, checked.chain]


def results(folder: Path) -> list[Any]:
    """One of each class."""
    model = shapshift.KNNShapley(progress=False).fit(X, Y, ids=IDS)
    clean, noisy = model.value(X_VAL, Y_VAL), model.value(X_VAL + RNG.normal(size=X_VAL.shape), Y_VAL)
    corrector = shapshift.BoundaryCorrector().fit(clean)
    corrected = corrector.transform(noisy)
    judge = {"estimator": GaussianNB(), "X_test": X_VAL, "y_test": Y_VAL}
    rehearsed = shapshift.PosteriorCorrector(0.5, progress=False).fit(model)
    rehearsed.transform(X_VAL, Y_VAL)
    decisions = shapshift.Decisions.of(X, Y, ids=range(5), actions=["drop"] * 5)
    profile = shapshift.entropy_profile(X, Y, X_VAL, Y_VAL, draws=50)
    store = shapshift.ValuationStore(model)
    store.add(X_VAL, Y_VAL)
    table = pa.table({"a": [1.0, 2.0], HOSTILE: ["u", "v"]})
    report = rehearsed.report_
    return [
        clean,
        shapshift.audit_shift(model, X_VAL, Y_VAL, noise=LEVELS, repeats=2, progress=False),
        model.explain(X_VAL, Y_VAL, IDS[:7]),
        shapshift.find_suspects(X, np.where(np.arange(60) % 12 == 0, NAMES[1 - CODES], Y), error=0.3, ids=IDS),
        shapshift.find_duplicates(np.repeat(X[:5], 2, axis=0), ids=IDS[:10], owners=OWNERS[:10]),
        shapshift.find_clusters(np.repeat(X[:5], 2, axis=0), np.repeat(Y[:5], 2), owners=OWNERS[:10]),
        shapshift.knn_interactions(model, X_VAL, Y_VAL, owners=OWNERS),
        shapshift.allocate_budget(clean, 100, owners=OWNERS),
        shapshift.audit_payouts(model, X_VAL, Y_VAL, 100, owners=OWNERS, noise=LEVELS, repeats=2),
        shapshift.owner_values(model, X_VAL, Y_VAL, OWNERS),
        shapshift.audit_influence(model, X_VAL, Y_VAL, 100, owners=OWNERS, draws=99),
        shapshift.attack_validation(model, X_VAL, Y_VAL, 100, owners=OWNERS, owner=OWNERS[0]),
        shapshift.federated_values([shapshift.FederatedRound(tuple(OWNERS[:2]), len)]),
        shapshift.stress_market(model, X, Y, X_VAL, Y_VAL, OWNERS, 100, attackers=2, n_repeats=1, progress=False),
        shapshift.suggest_labels(clean, X, X_VAL, 3, ids=IDS[:30]),
        shapshift.design_validation(model, X_VAL, Y_VAL, 15, noise=0.5, repeats=2, holdout=2, n_random=5),
        profile,
        profile.training,
        shapshift.evaluate_valuation(clean, X, Y, **judge),
        shapshift.evaluate_valuation({HOSTILE: clean, "noisy": noisy}, X, Y, **judge),
        shapshift.evaluate(corrected, clean, noisy),
        corrector.report_,
        report,
        NoiseEstimate(0.5, 0.4, 0.6, False, 30),
        report.rehearsal,
        decisions,
        shapshift.measure_cleaning(decisions, X, Y, X_VAL, Y_VAL, "logistic", repeats=2, progress=False),
        shapshift.case_one(model, X_VAL, Y_VAL, noise=LEVELS, repeats=2),
        shapshift.case_two(model, X_VAL, Y_VAL, noise=LEVELS, repeats=2, X_train=X),
        shapshift.noise_demo(model, X_VAL, Y_VAL, X),
        shapshift.knn_proxy(GaussianNB(), X, Y, X_VAL, Y_VAL, embed="probabilities", subsample=20),
        store,
        point_influence(model, X_VAL, Y_VAL, clean),
        Revalued(clean, np.arange(60), True, 0.1),
        shapshift.Policy(),
        shapshift.Rule(),
        shapshift.Privacy(step=10, epsilon=1.0, seed="a secret of 16 characters"),
        shapshift.load_dataset("gaussian", n_train=20, n_val=10),
        prepare(table, table, TableSpec(HOSTILE)),
    ]


def check_html(result: Any) -> None:
    name, html = type(result).__name__, result._repr_html_()
    root = ElementTree.fromstring(html)
    text = " ".join("".join(root.itertext()).split())
    assert len(text) > 20, name
    assert not re.search(r"<b\b|<script|onclick='|\x1b", html), name
    assert not re.search(r"\bnan\b|\bNone\b|\binf\b| at 0x", text), f"{name}: {text}"
    # Read on white and on black: no background, no black or white letters.
    assert "background" not in html
    assert html.count("<table") == html.count('<table style="color:inherit;')
    colours = set(re.findall(r"(?:color:|fill=\"|stroke=\")(#?\w+)", html)) - {"none", "inherit"}
    for colour in colours:
        brightest = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
        assert 60 < np.dot([0.3, 0.59, 0.11], brightest) < 200, f"{name}: {colour}"
    assert "secret" not in text


def test_results_are_shown_with_everything_escaped(tmp_path: Path) -> None:
    shown = [*results(tmp_path), *market_of(tmp_path)]
    for one in shown:
        if not isinstance(one, shapshift.Market):
            check_html(one)
    missing = {found.__name__ for found in RESULTS} - {type(one).__name__ for one in shown}
    assert not missing


def test_tables_that_are_long_or_wide_say_where_the_rest_is() -> None:
    model = shapshift.KNNShapley(progress=False).fit(X, Y, ids=IDS)
    found = shapshift.allocate_budget(model.value(X_VAL, Y_VAL), 100, owners=list(range(60)))
    assert "and 50 rows more, see to_frame()" in found._repr_html_()


def test_what_no_function_knows_is_refused() -> None:
    show: Callable[[Any], str] = _notebook.show
    with pytest.raises(TypeError, match="nothing to show of int"):
        show(1)
