"""Manipulated validation sets: bounds hold and are reached, attacks gain, and the audit finds them."""

from __future__ import annotations

import itertools
import math
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from cli_files import run, write_all
from scipy import sparse

from shapshift import (
    KNNRegressionShapley,
    KNNShapley,
    Policy,
    SemiSupervisedKNNShapley,
    ThresholdKNNShapley,
    allocate_budget,
)
from shapshift.checks.labels import check_owners
from shapshift.price import InfluenceAudit, attack_validation, audit_influence
from shapshift.price.manipulation import ATTACKS
from shapshift.price.points import PointRange, PointValues, check_points_model, float_payouts, without_a_row
from shapshift.price.policy import Terms

mpl.use("Agg")

RNG = np.random.default_rng(3)


def blobs(n: int, seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    return rng.normal(size=(n, 3)) + 1.1 * y[:, None], y


X, Y = blobs(150, 0)
X_VAL, Y_VAL = blobs(100, 1)
OWNERS = np.array(["ann", "bob", "cid", "dee"])[RNG.integers(0, 4, 150)]
MODEL = KNNShapley(progress=False).fit(X, Y)


def audit(**options: Any) -> InfluenceAudit:
    return audit_influence(MODEL, X_VAL, Y_VAL, 1000, **({"owners": OWNERS, "draws": 99} | options))


def attack(**options: Any) -> Any:
    return attack_validation(MODEL, X_VAL, Y_VAL, 1000, **({"owners": OWNERS, "owner": "ann"} | options))


def paid(X_val: Any, y_val: Any, policy: Policy | None = None, model: Any = MODEL, owners: Any = OWNERS) -> Any:
    return allocate_budget(model.value(X_val, y_val), 1000, owners=owners, policy=policy).cents


# --- what one point can give ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("utility", ["soft", "hard"])
@pytest.mark.parametrize("k", [1, 2, 7])
def test_no_point_whatever_gives_more_than_the_range_says(utility: str, k: int) -> None:
    reached = []
    for n in (2, 3, 4, 5):
        orders = np.array(list(itertools.permutations(range(n))), dtype=float) + 1
        for rest in itertools.product([0, 1], repeat=n - 1):
            labels = np.array([0, *rest])
            if labels.max() == 0:
                continue
            model = KNNShapley(k, utility=utility, metric="precomputed", progress=False).fit(None, labels)
            matrices = [model.value(orders, np.full(len(orders), label), matrix=True).matrix for label in (0, 1)]
            values = np.concatenate([matrix for matrix in matrices if matrix is not None], axis=1)
            found = PointRange.of(model)
            assert found is not None
            for size in range(1, n):
                of_class, own = np.bincount(labels[:size], minlength=2), values[:size]
                slack = [
                    found.most_clipped(of_class) - np.maximum(own, 0).sum(axis=0).max(),
                    own.sum(axis=0).min() - found.least(of_class),
                ]
                slack += [
                    found.most_carried(of_class, share) - (own.sum(axis=0) - share * values.sum(axis=0)).max()
                    for share in (0.0, 0.3, 1.0)
                ]
                assert min(slack) > -1e-12
                reached.append(np.array(slack) < 1e-12)
    assert (np.array(reached).mean(axis=0) > 0.05).all()  # each of them is reached by some point


def test_a_large_owner_can_get_more_than_a_whole_vote() -> None:
    # Own rows match, others do not: its k-th row is best placed at rank 2k - 1 or 2k.
    model = KNNShapley(1, utility="hard", metric="precomputed", progress=False).fit(None, [1, 0, 1])
    found = PointRange.of(model)
    assert found is not None
    best = model.value([[1.0, 2.0, 3.0]], [1]).values
    assert best[[0, 2]].sum() == pytest.approx(7 / 6)
    assert found.most_clipped(np.array([0, 2])) == pytest.approx(7 / 6)


@pytest.mark.parametrize(
    "model", [KNNShapley(semivalue="banzhaf"), ThresholdKNNShapley(1.0), KNNRegressionShapley()], ids=repr
)
def test_other_values_have_no_range(model: Any) -> None:
    assert PointRange.of(model.fit(X, Y)) is None


# --- single points ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("negatives", ["clip", "carry"])
@pytest.mark.parametrize("more", [{}, {"floor": 150}, {"cap": "26%"}, {"reserve": "10%"}], ids=str)
def test_influence_is_leave_one_out(negatives: str, more: dict[str, Any]) -> None:
    policy = Policy(negatives=negatives, **more)
    found = audit(policy=policy, reference=None)
    assert (found.cents == paid(X_VAL, Y_VAL, policy)).all()
    for point in range(0, 100, 17):
        rest = np.arange(100) != point
        change = (found.cents - paid(X_VAL[rest], Y_VAL[rest], policy)) / 100
        np.testing.assert_allclose(found.influence[point], change, atol=0.021)  # two roundings to the cent


def test_float_payouts_are_those_in_cents() -> None:
    rng = np.random.default_rng(0)
    for policy in (Policy(), Policy(floor=40), Policy(cap="20%"), Policy(floor=30, cap=150, reserve="7%")):
        terms = Terms.check("test", 1000, policy, "EUR")
        for _ in range(20):
            contributions = rng.exponential(size=8) ** 3 * (rng.random(8) > 0.2)
            cents = terms.pay(contributions, [bytes([i]) for i in range(8)])[0]
            np.testing.assert_allclose(float_payouts(terms, contributions), cents / 100, atol=0.011)
    nobody = float_payouts(Terms.check("test", 100, Policy(floor=3), "EUR"), np.zeros(4))
    np.testing.assert_allclose(nobody, 3.0)


def test_values_made_in_parts_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = audit()
    monkeypatch.setattr("shapshift.price.points.HELD_NUMBERS", 4 * 150 * 7)
    parts = audit()
    np.testing.assert_allclose(parts.influence, whole.influence, atol=1e-9)
    assert (parts.most_replaced == whole.most_replaced).all()
    np.testing.assert_array_equal(parts.p_values, whole.p_values)
    np.testing.assert_allclose(parts.excess, whole.excess)
    monkeypatch.setattr("shapshift.price.influence.DRAWN_NUMBERS", 250 * 7)
    np.testing.assert_array_equal(audit().p_values, whole.p_values)


def test_many_owners_are_compared_in_little_memory() -> None:
    n = 400
    X_many, y_many = blobs(n, 3)
    X_more, y_more = blobs(n, 4)

    def peak(memory: str | None) -> tuple[int, InfluenceAudit]:
        model = KNNShapley(progress=False, max_memory=memory).fit(X_many, y_many)
        tracemalloc.start()
        found = audit_influence(model, X_more, y_more, 1000, owners=np.arange(n), draws=19, shares=())
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most, found

    (whole, expected), (parts, found) = peak(None), peak("8MB")
    assert parts < 40e6 < whole
    np.testing.assert_array_equal(found.p_values, expected.p_values)


def test_clusters_bring_what_leaving_them_out_costs() -> None:
    clusters = np.array(["a", "b"])[np.arange(100) % 2]
    found = audit(clusters=clusters)
    odd = np.arange(100) % 2 == 1
    np.testing.assert_allclose(found.cluster_influence[1], (found.cents - paid(X_VAL[~odd], Y_VAL[~odd])) / 100)
    assert found.cluster_names == ("a", "b")
    assert (found.cluster_p_values > 0.05).all()


@pytest.mark.filterwarnings("ignore")
def test_what_is_but_rounding_pays_nobody() -> None:
    # Without the point the owners' totals are 0 but for rounding, see the policy "carry".
    rng, policy = np.random.default_rng(0), Policy(negatives="carry")
    checked = 0
    for _ in range(150):
        n, n_val = rng.integers(2, 7), rng.integers(2, 6)
        X_small, y_small = rng.integers(0, 4, (n, 1)) * 1.0, rng.integers(0, 2, n)
        X_few, y_few = rng.integers(0, 4, (n_val, 1)) + 0.3, rng.integers(0, 2, n_val)
        owners = rng.integers(0, 2, n)
        model = KNNShapley(int(rng.integers(1, n + 1)), progress=False).fit(X_small, y_small)
        found = audit_influence(model, X_few, y_few, 100, owners=owners, shares=[], reference=None, policy=policy)
        for point in range(n_val):
            rest = np.arange(n_val) != point
            left = allocate_budget(model.value(X_few[rest], y_few[rest]), 100, owners=owners, policy=policy)
            if found.cents.any() and 0 < np.maximum(left.contributions, 0).sum() < 1e-12:
                np.testing.assert_allclose(found.influence[point], found.cents / 100, atol=0.011)
                checked += 1
    assert checked


def test_others_may_contribute_less_than_nothing() -> None:
    model = KNNShapley(2, progress=False).fit([[0.0], [1.0]], [0, 1])
    given = model, [[0.0], [2.0], [0.1]], [0, 1, 0], 10
    options = {"owners": ["ann", "bob"], "policy": Policy(negatives="carry")}
    assert (audit_influence(*given, **options).most_chosen <= 1000).all()
    assert attack_validation(*given, owner="ann", **options).bound >= 0


# --- bounds and attacks -----------------------------------------------------------------------------------------------


def small(negatives: str) -> tuple[Any, ...]:
    X_small, y_small = blobs(12, 5)
    X_few, y_few = blobs(9, 6)
    model = KNNShapley(3, progress=False).fit(X_small, y_small)
    owners = np.array(["ann", "bob", "cid"] * 4)
    return model, X_few, y_few, owners, Policy(negatives=negatives)


@pytest.mark.parametrize("negatives", ["clip", "carry"])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_leaving_points_out_never_pays_more_than_the_bound(negatives: str, k: int) -> None:
    model, X_few, y_few, owners, policy = small(negatives)
    found = audit_influence(model, X_few, y_few, 1000, owners=owners, policy=policy, shares=[k / 9], reference=None)
    best = np.zeros(3, dtype=np.int64)
    for size in range(k + 1):
        for out in itertools.combinations(range(9), size):
            rest = np.setdiff1d(np.arange(9), out)
            best = np.maximum(best, paid(X_few[rest], y_few[rest], policy, model, owners))
    assert (best <= found.most_chosen[0]).all()
    if k == 1:  # exact, but for the rounding of a cent
        assert (found.most_chosen[0] <= best + 3).all()
    for at, owner in enumerate(["ann", "bob", "cid"]):
        attacked = attack_validation(
            model, X_few, y_few, 1000, owners=owners, owner=owner, kind="choose", share=k / 9, policy=policy
        )
        assert attacked.after[at] <= best[at]
        assert attacked.bound_cents == found.most_chosen[0, at]


def test_the_optimum_under_carry_is_found() -> None:
    # Totals of all owners stay positive here: the fractional problem is the whole problem.
    policy = Policy(negatives="carry")
    for share in (0.02, 0.1):
        for kind in ("choose", "labels"):
            found = attack(kind=kind, share=share, policy=policy)
            assert found.bound_cents - found.after[found.owners.index("ann")] <= 3


@pytest.mark.parametrize("negatives", ["clip", "carry"])
def test_any_points_never_pay_more_than_the_bound(negatives: str) -> None:
    model, X_few, y_few, owners, policy = small(negatives)
    found = audit_influence(model, X_few, y_few, 1000, owners=owners, policy=policy, shares=[2 / 9], reference=None)
    rng = np.random.default_rng(0)
    for _ in range(300):
        X_new, y_new = X_few.copy(), y_few.copy()
        where = rng.choice(9, 2, replace=False)
        X_new[where], y_new[where] = model._index.unscaled()[rng.integers(0, 12, 2)], rng.integers(0, 2, 2)
        assert (paid(X_new, y_new, policy, model, owners) <= found.most_replaced[0]).all()


@pytest.mark.parametrize("kind", ATTACKS)
@pytest.mark.parametrize("negatives", ["clip", "carry"])
def test_an_attack_gains_what_it_says(kind: str, negatives: str) -> None:
    policy = Policy(negatives=negatives)
    found = attack(kind=kind, share=0.1, policy=policy)
    assert (found.before == paid(X_VAL, Y_VAL, policy)).all()
    assert (found.after == paid(found.X, found.y, policy)).all()
    at = found.owners.index("ann")
    assert found.before[at] < found.after[at] <= found.bound_cents
    assert 0 < found.gain <= found.bound
    # No more points than allowed are changed, and the others are as they were.
    kept = found.honest[~found.changed]
    assert (found.X[~found.changed] == X_VAL[kept]).all()
    assert (found.y[~found.changed] == Y_VAL[kept]).all()
    assert np.unique(kept).size == kept.size >= 100 - 10 == 100 - found.allowed
    assert len(found.y) == (kept.size if kind == "choose" else 100)
    assert found.to_frame()["change"].sum() == pytest.approx(0, abs=0.01)
    assert found.allowed == 10


def test_an_attack_with_no_points_gains_nothing() -> None:
    for kind in ATTACKS:
        found = attack(kind=kind, share=0.005)
        assert found.allowed == 0
        assert found.gain == 0
        assert found.bound <= 1


def test_attacks_on_tables_and_sparse_rows() -> None:
    frame = pd.DataFrame(X, columns=list("abc"))
    model = KNNShapley(progress=False).fit(frame, Y)
    points = pd.DataFrame(X_VAL, columns=list("abc"))
    expected = attack(kind="points", share=0.1)
    found = attack_validation(model, points[["c", "a", "b"]], Y_VAL, 1000, owners=OWNERS, owner="ann", share=0.1)
    assert found.gain == expected.gain
    assert list(found.X.columns) == list("abc")
    thin = KNNShapley(progress=False).fit(sparse.csr_array(X), Y)
    found = attack_validation(thin, sparse.csr_array(X_VAL), Y_VAL, 1000, owners=OWNERS, owner="ann", share=0.1)
    assert found.gain == expected.gain
    assert sparse.issparse(found.X)


def test_the_order_of_rows_and_points_means_nothing() -> None:
    rows, points = RNG.permutation(150), RNG.permutation(100)
    model = KNNShapley(progress=False).fit(X[rows], Y[rows])
    found = audit_influence(model, X_VAL[points], Y_VAL[points], 1000, owners=OWNERS[rows], draws=99)
    expected = audit()
    mine = [found.owners.index(owner) for owner in expected.owners]
    np.testing.assert_allclose(found.influence[:, mine], expected.influence[points], atol=1e-9)
    np.testing.assert_allclose(found.excess[mine], expected.excess, atol=1e-9)
    np.testing.assert_allclose(found.p_values[mine], expected.p_values)
    other = attack_validation(model, X_VAL, Y_VAL, 1000, owners=OWNERS[rows], owner="ann", share=0.1)
    assert other.gain == attack(share=0.1).gain


# --- the test ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ATTACKS)
def test_strong_attacks_are_found(kind: str) -> None:
    X_more, y_more = blobs(1000, 8)
    X_many, y_many = blobs(500, 9)
    model = KNNShapley(progress=False).fit(X_many, y_many)
    owners = np.array(["ann", "bob", "cid", "dee", "eve"])[np.random.default_rng(0).integers(0, 5, 500)]
    assert not audit_influence(model, X_more, y_more, 1000, owners=owners, shares=(), draws=199).alarm
    attacked = attack_validation(model, X_more, y_more, 1000, owners=owners, owner="ann", kind=kind, share=0.1)
    found = audit_influence(model, attacked.X, attacked.y, 1000, owners=owners, shares=(), draws=199)
    assert found.alarm
    assert found.suspects[0] == "ann"
    assert "ann" in found.finding
    at = found.owners.index("ann")
    if not found.missing[at]:
        flagged = found.flagged[:, at]
        assert flagged.sum() > found.expected[at]
        assert attacked.changed[flagged].mean() > 2 * attacked.changed.mean()
        rest = ~flagged
        assert found.without_flagged[at] == paid(attacked.X[rest], attacked.y[rest], None, model, owners)[at]
    source = np.where(attacked.changed, "new source", "old source")
    if kind != "choose":
        by_source = audit_influence(
            model, attacked.X, attacked.y, 1000, owners=owners, shares=(), reference=None, clusters=source, draws=199
        )
        assert by_source.alarm
        assert "new source" in by_source.finding


def test_honest_sets_seldom_raise_an_alarm() -> None:
    alarms = 0
    for seed in range(40):
        X_some, y_some = blobs(240, 100 + seed)
        model = KNNShapley(progress=False).fit(X_some[:120], y_some[:120])
        owners = np.random.default_rng(seed).integers(0, 4, 120)
        alarms += audit_influence(
            model, X_some[120:], y_some[120:], 100, owners=owners, shares=(), draws=99, alpha=0.1
        ).alarm
    assert alarms <= 10  # 4 are expected; 11 or more in one of 500 runs


@pytest.mark.parametrize("repeated", [True, False])
def test_honest_sets_with_repeated_points_or_clusters_seldom_raise_an_alarm(repeated: bool) -> None:
    alarms = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        X_some = rng.integers(0, 3, (90, 2)) * 1.0 if repeated else rng.normal(size=(90, 2))
        y_some = (X_some[:, 0] + rng.normal(size=90) > (1 if repeated else 0)).astype(int)
        model = KNNShapley(progress=False).fit(X_some[:60], y_some[:60])
        more = {"alpha": 0.05} if repeated else {"alpha": 0.2, "clusters": np.repeat(np.arange(5), 6)}
        alarms += audit_influence(
            model, X_some[60:], y_some[60:], 100, owners=rng.integers(0, 3, 60), shares=(), draws=99, **more
        ).alarm
    assert alarms <= (10 if repeated else 26)  # 5 and 20 are expected


def test_equal_points_leave_out_different_rows_in_any_order() -> None:
    ownership = check_owners(OWNERS, MODEL.ids_)
    X_same, y_same = np.repeat(X_VAL[:4], 10, axis=0), np.tile([0, 1], 20)
    order = RNG.permutation(40)
    model = check_points_model("test", MODEL)
    made = [
        without_a_row(PointValues(model, X_same[at], y_same[at], ownership, "clip")) for at in (np.arange(40), order)
    ]
    left, shuffled = (one.own for one in made)
    assert left is not None
    assert shuffled is not None
    assert (Y[left] == y_same).all()
    for start in range(0, 40, 10):
        assert np.unique(left[start : start + 10]).size >= 8
        here = order // 10 == start // 10
        assert sorted(shuffled[here]) == sorted(left[start : start + 10])
    alone = without_a_row(PointValues(model, X_VAL[:4], np.zeros(4), ownership, "clip")).own
    np.testing.assert_array_equal(alone, left[::10])  # the first of equal ones leaves out what a single one does


def test_owners_and_clusters_are_tested_at_half_of_alpha_each() -> None:
    found = audit(clusters=np.arange(100) % 2)
    low = np.array([0.03, 1, 1, 1])
    both = replace(found, p_values=low, cluster_p_values=np.array([0.03, 1.0]))
    assert not both.alarm
    assert both.suspects == ()
    assert "No owner is favoured" in both.finding
    assert replace(both, p_values=np.full(4, np.nan)).alarm
    assert replace(both, cluster_names=("a",), cluster_p_values=np.ones(1)).suspects == (found.owners[0],)


def test_p_values_compare_with_all_owners_together() -> None:
    found = audit(draws=19)
    assert ((found.p_values * 20).round() == found.p_values * 20).all()
    assert (np.diff(found.p_values[np.argsort(found.excess)]) <= 0).all()


def test_a_trusted_sample_is_a_reference() -> None:
    X_more, y_more = blobs(300, 12)
    found = audit(reference=(X_more, y_more))
    assert found.parameters["n_reference"] == 300
    assert not found.alarm
    distances = np.sqrt(((X_VAL[:, None] - X) ** 2).sum(axis=2))
    model = KNNShapley(metric="precomputed", progress=False).fit(None, Y)
    given = audit_influence(model, distances, Y_VAL, 1000, owners=OWNERS, reference=None)
    assert np.isnan(given.p_values).all()
    np.testing.assert_allclose(given.influence, audit().influence, atol=1e-9)


@pytest.mark.parametrize("model", [ThresholdKNNShapley(1.0), KNNRegressionShapley(), KNNShapley(semivalue="loo")])
def test_other_models_are_audited(model: Any) -> None:
    found = audit_influence(model.fit(X, Y), X_VAL, Y_VAL, 1000, owners=OWNERS, draws=19)
    assert (found.most_replaced[1:] == 100_000).all()  # nothing is known of points anywhere
    assert (found.most_chosen <= 100_000).all()


# --- results ----------------------------------------------------------------------------------------------------------


def test_a_result_is_saved_shown_and_drawn(tmp_path: Path) -> None:
    found = audit(clusters=np.arange(100) % 3)
    found.save(tmp_path / "a.npz")
    loaded = InfluenceAudit.load(tmp_path / "a.npz")
    np.testing.assert_array_equal(loaded.influence, found.influence)
    assert loaded.policy == found.policy
    assert loaded.finding == found.finding
    frame = found.to_frame("pandas")
    assert frame["owner"].tolist() == list(found.owners)
    assert frame["most_chosen[0.05]"].tolist() == (found.most_chosen[1] / 100).tolist()
    near = audit(shares=[0.1234, 0.12341, 1], reference=None).to_frame("pandas").columns
    assert [name for name in near if "top" in name] == [f"without_top[{share}]" for share in ("0.1234", "0.12341", "1")]
    one = audit_influence(MODEL, X_VAL[:49], Y_VAL[:49], 10, owners=OWNERS, shares=[1 / 49], reference=None)
    assert one.finding.startswith("Without the 1 of 49 validation points")
    points = found.points_frame("pandas")
    assert sorted(points["point"]) == list(range(100))
    assert points["influence"].is_monotonic_decreasing
    best = found.influence[points["point"][0]]
    assert points["owner"][0] == found.owners[best.argmax()]
    ax = found.plot(top=2)
    assert len(ax.get_yticklabels()) == 2
    assert found.plot(ax=ax) is ax
    with pytest.raises(ValueError, match="'top' parameter"):
        found.plot(top=0)
    assert "no alarm" in repr(found)


def test_what_cannot_be_audited_is_refused() -> None:
    for options, said in (
        ({"alpha": 0}, "'alpha'"),
        ({"draws": 0}, "'draws'"),
        ({"shares": [2]}, "'shares'"),
        ({"shares": "0.1"}, "'shares'.*list of numbers"),
        ({"reference": "val"}, "'reference'.*pair"),
        ({"reference": (X_VAL, Y_VAL[:3])}, "reference"),
        ({"clusters": [1]}, "clusters"),
        ({"owners": ["ann"]}, "owners"),
    ):
        with pytest.raises(ValueError, match=said):
            audit(**options)
    for options, said in (
        ({"kind": "bribe"}, "'kind'"),
        ({"share": -1}, "'share'"),
        ({"owner": "zoe"}, "'owner'.*one of the owners"),
        ({"owner": np.array(["ann", "bob"])}, "'owner'.*one of the owners"),
    ):
        with pytest.raises(ValueError, match=said):
            attack(**options)
    with pytest.raises(ValueError, match=r"must be a fitted KNN model.*Got str"):
        audit_influence("model", X_VAL, Y_VAL, 1000, owners=OWNERS)
    given = KNNShapley(metric="precomputed").fit(None, Y)
    with pytest.raises(ValueError, match="'reference' parameter of audit_influence is 'train'"):
        audit_influence(given, np.ones((2, 150)), [0, 1], 1000, owners=OWNERS)
    semi = SemiSupervisedKNNShapley(progress=False).fit(X, Y)
    with pytest.raises(ValueError, match=r"'reference' .* SemiSupervisedKNNShapley.*\(X, y\), or None"):
        audit_influence(semi, X_VAL, Y_VAL, 1000, owners=OWNERS)
    assert audit_influence(semi, X_VAL, Y_VAL, 1000, owners=OWNERS, reference=(X_VAL, Y_VAL), draws=19).p_values.all()
    with pytest.raises(ValueError, match="puts points at training rows"):
        attack_validation(given, np.ones((2, 150)), [0, 1], 1000, owners=OWNERS, owner="ann")
    with pytest.raises(ValueError, match="needs class labels"):
        attack_validation(
            KNNRegressionShapley().fit(X, Y), X_VAL, Y_VAL, 1000, owners=OWNERS, owner="ann", kind="labels"
        )
    with pytest.raises(ValueError, match="NaN"):
        audit_influence(MODEL, X_VAL * math.nan, Y_VAL, 1000, owners=OWNERS)


@pytest.mark.parametrize("n", [1, 2])
def test_the_smallest_sets(n: int) -> None:
    model = KNNShapley(progress=False).fit(X[:2], [0, 1])
    found = audit_influence(model, X_VAL[:n], np.zeros(n), 10, owners=["ann", "bob"], clusters=["a"] * n, draws=19)
    assert not found.alarm
    assert attack_validation(model, X_VAL[:n], np.zeros(n), 10, owners=["ann", "bob"], owner="bob", share=1).bound >= 0
    alone = KNNShapley(progress=False).fit(X[:5], np.zeros(5))
    one = audit_influence(alone, X_VAL[:5], np.zeros(5), 10, owners=["ann"] * 5, draws=19)
    assert not one.alarm
    assert "validation points" in one.finding or one.finding


def test_sums_of_points_are_the_values() -> None:
    points = PointValues(check_points_model("test", MODEL), X_VAL, Y_VAL, check_owners(OWNERS, MODEL.ids_), "clip")
    np.testing.assert_allclose(points.totals() / 100, MODEL.value(X_VAL, Y_VAL).values, atol=1e-12)


# --- the command line -------------------------------------------------------------------------------------------------


MARKET = ("--label", "class", "--id", "row", "--owner", "seller", "--budget", 100)


def test_price_says_which_rows_decide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_all(tmp_path)
    ran = run("price", "train.csv", "val.csv", *MARKET, "--influence", "--json", "--out", "out")
    assert ran.code == 0, ran.err
    found = InfluenceAudit.load("out/influence.npz")
    result = ran.document["result"]
    assert result["influence"]["finding"] == found.finding
    assert [entry["payout"] for entry in result["owners"]] == [f"{cents / 100:.2f}" for cents in found.cents]
    assert (tmp_path / "out" / "influential_points.csv").read_text(encoding="utf-8-sig").count("\n") == 41
    statements = "".join(page.read_text(encoding="utf-8") for page in (tmp_path / "out" / "statements").glob("*.html"))
    assert "favour" not in statements
    assert "nfluence" not in statements
    again = run("rerun", "out/manifest.json", "--out", "again")
    assert again.code == 0, again.err
    np.testing.assert_array_equal(InfluenceAudit.load("again/influence.npz").influence, found.influence)


def test_price_with_one_training_row_leaves_the_test_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_all(tmp_path)
    lines = (tmp_path / "train.csv").read_text().splitlines(keepends=True)
    (tmp_path / "one.csv").write_text("".join(lines[:2]))
    ran = run("price", "one.csv", "val.csv", *MARKET, "--influence", "--json", "--out", "out")
    assert ran.code == 0, ran.err
    assert "--influence leaves out the test" in ran.err
    assert set(ran.document["result"]["influence"]["p_values"].values()) == {None}


@pytest.mark.parametrize(
    "more",
    [
        (
            "--pay-by",
            "owners",
        ),
        ("--pool",),
    ],
    ids=str,
)
def test_price_refuses_what_does_not_go_together(
    more: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_all(tmp_path)
    ran = run("price", "train.csv", "val.csv", *MARKET, "--influence", *more)
    assert ran.code == 2
    assert f"--influence does not go with {more[0]}" in ran.err
