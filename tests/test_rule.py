"""Rules of payment: copies, theft and splitting change nothing under the default one; every cent is accounted for."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from shapshift import Banzhaf, Beta, KNNShapley, find_duplicates
from shapshift.correct import PosteriorCorrector
from shapshift.exceptions import InputError
from shapshift.price import (
    Allocation,
    Clusters,
    Policy,
    Rule,
    allocate_budget,
    audit_payouts,
    find_clusters,
    owner_values,
    pay_owners,
    write_statements,
)
from shapshift.price.rule import PAY_BY, SAFE_SEMIVALUE, count_by, pay_counted

RNG = np.random.default_rng(0)
X, X_VAL = RNG.normal(size=(90, 3)), RNG.normal(size=(40, 3))
Y, Y_VAL = (X[:, 0] > 0).astype(int), (X_VAL[:, 0] > 0).astype(int)
Y[::7] = 1 - Y[::7]
OWNERS = np.array(["ann", "bob", "cid", "dee"], dtype=object)[np.arange(90) % 4]
ORDER = np.arange(90)
MODEL = KNNShapley(3, progress=False)


def pay(rows: Any = X, labels: Any = Y, owners: Any = OWNERS, order: Any = ORDER, **options: Any) -> Allocation:
    return pay_owners(MODEL, rows, labels, X_VAL, Y_VAL, owners, 1000, order=order, **options)


def shuffled(rows: Any, labels: Any, owners: Any, order: Any, seed: int) -> tuple[Any, ...]:
    at = np.random.default_rng(seed).permutation(len(labels))
    return rows[at], labels[at], owners[at], order[at]


def largest_change(before: Allocation, after: Allocation, **together: str) -> float:
    """Largest change of a payout; names on the left are paid into those on the right."""
    changes: dict[str, float] = {}
    for owner, change in before.compare(after).items():
        name = together.get(owner, owner)
        changes[name] = changes.get(name, 0) + float(change)
    return max(map(abs, changes.values()))


# --- what gains nothing ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pay_by", ["clusters", "owners"])
@pytest.mark.parametrize("policy", [Policy(), Policy(deposit=30)])
def test_copies_and_theft_change_no_payout(pay_by: str, policy: Policy) -> None:
    rule = Rule(pay_by, policy=policy)
    before = pay(rule=rule)
    own, others = np.flatnonzero(OWNERS == "ann"), np.flatnonzero(OWNERS != "ann")
    for seed, taken in enumerate((own, np.tile(own, 4), others)):
        rows, labels = np.vstack([X, X[taken]]), np.append(Y, Y[taken])
        owners = np.append(OWNERS, np.full(taken.size, "ann", dtype=object))
        order = np.append(ORDER, np.full(taken.size, 90))
        after = pay(*shuffled(rows, labels, owners, order, seed), rule=rule)
        assert largest_change(before, after) <= 0.01
    # Under the rule that pays for all rows the same theft gains.
    plain = Rule("rows")
    assert float(pay(rule=plain).compare(pay(rows, labels, owners, order, rule=plain))["ann"]) > 50


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_splitting_changes_no_payout(seed: int) -> None:
    before, owners = pay(), OWNERS.copy()
    best = before.owners[int(np.argmax(before.cents))]
    own = np.flatnonzero(best == OWNERS)
    # Both names get good and bad rows, so that both totals are positive.
    owners[own[np.argsort(before.row_values[own])][seed % 2 :: 2]] = "another"
    after = pay(*shuffled(X, Y, owners, ORDER, seed), rule=Rule())
    assert (after.contributions > 0)[[after.owners.index(name) for name in (best, "another")]].all()
    assert largest_change(before, after, another=best) <= 0.02


def test_a_deposit_takes_the_gain_out_of_hiding_bad_rows() -> None:
    plain, owners = pay(), OWNERS.copy()
    best = plain.owners[int(np.argmax(plain.cents))]
    owners[(best == OWNERS) & (plain.row_values < 0)] = "another"
    for deposit, gains in ((0, True), (10_000, False)):
        rule = Rule(policy=Policy(deposit=deposit))
        before, after = pay(rule=rule).payouts[best], pay(owners=owners, rule=rule).payouts
        assert (after[best] + after["another"] > before) == gains


# --- clusters --------------------------------------------------------------------------------------------------------


def stars(rows: np.ndarray, labels: np.ndarray, order: np.ndarray, radius: float) -> list[int]:
    """The definition: a row joins the first earlier one of its label that votes and is near, or is much nearer."""
    scale = np.unique(rows, axis=0).std(axis=0)
    scaled, first = rows / scale, np.arange(len(rows))
    earlier: list[int] = []
    for i in np.lexsort((np.arange(len(rows)), order)):
        reach = [radius if first[j] == j else radius / 100 for j in earlier]
        away = np.linalg.norm(scaled[earlier] - scaled[i], axis=1)
        near = [j for j, far, most in zip(earlier, away, reach, strict=True) if labels[i] == labels[j] and far <= most]
        if near:
            first[i] = first[near[0]]
        earlier.append(i)
    return first.tolist()


@pytest.mark.parametrize("radius", [0.0, 0.3, 0.8, 3.0])
@pytest.mark.parametrize("seed", [0, 1])
def test_clusters_are_those_of_the_definition(radius: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, labels, order = rng.normal(size=(120, 2)), rng.integers(0, 3, 120), rng.integers(0, 9, 120)
    rows[60:80], labels[60:70] = rows[:20], labels[:10]
    rows[100:] = rows[:20] + 0.01
    found = find_clusters(rows, labels, order=order, radius=radius)
    assert found.first.tolist() == stars(rows, labels, order, radius)
    assert (found.first[found.representatives] == found.representatives).all()
    assert (labels[found.first] == labels).all()
    assert (order[found.first] <= order).all()


def test_copies_and_later_rows_move_neither_radius_nor_votes() -> None:
    found = find_clusters(X, Y)
    assert found.radius > 0
    rows, labels = np.vstack([X, X[:30], X[:30]]), np.concatenate([Y, Y[:30], 1 - Y[:30]])
    more = find_clusters(rows, labels)
    assert more.radius == pytest.approx(found.radius, rel=1e-12)
    assert more.first[:90].tolist() == found.first.tolist()
    assert more.first[90:120].tolist() == found.first[:30].tolist()
    assert (more.first[120:] >= 120).all()  # another label
    # A row farther than the radius from the one that votes has a vote, though one between them is near it.
    line = np.array([[0.0], [1.0], [1.9], [1.005]])
    fixed = find_clusters(line[:3], [0] * 3, radius=1.0 / np.std(line[:3])).first
    assert fixed.tolist() == [0, 0, 2]
    # A near copy of a row without a vote has none, on whichever side of the radius it is.
    assert find_clusters(line[[0, 1, 3]], [0] * 3, radius=1.0 / np.std(line[[0, 1, 3]])).first.tolist() == [0, 0, 0]


def uneven(kind: str, rng: np.random.Generator) -> np.ndarray:
    """Rows with heavy tails, frequent values, a lattice, or in clusters."""
    rows = rng.normal(size=(400, 6))
    if kind == "heavy":
        return np.asarray(rng.standard_t(1.2, size=(400, 6)))
    if kind == "zeros":  # several features have nothing but one value between their quartiles
        return np.where(rng.random((400, 6)) < [0.5, 0.6, 0.75, 0.8, 0.97, 0.2], 0.0, np.exp(1.5 * rows))
    if kind == "lattice":
        return rng.integers(-1, 2, (400, 6)) + 0.05 * rows
    return np.asarray(5 * rng.normal(size=(20, 6))[rng.integers(20, size=400)] + 0.05 * rows)


@pytest.mark.parametrize("kind", ["heavy", "zeros", "lattice", "clusters"])
@settings(max_examples=5)
@given(seed=st.integers(0, 2**16), noise=st.sampled_from([1e-9, 1e-6, 1e-4, 1e-3]))
def test_rows_with_noise_far_below_the_radius_have_no_vote(kind: str, seed: int, noise: float) -> None:
    rng = np.random.default_rng(seed)
    rows, owners = uneven(kind, rng), np.arange(400) % 8
    labels = (rows[:, 0] > np.median(rows[:, 0])).astype(int)
    found = find_clusters(rows, labels)
    own = np.tile(np.flatnonzero(owners == 3), 10)
    moved = rng.normal(size=(own.size, 6))
    moved *= noise * found.radius / np.linalg.norm(moved, axis=1, keepdims=True)
    spread = np.clip(rows, *np.quantile(rows, [0.02, 0.98], axis=0)).std(axis=0)
    more = find_clusters(np.concatenate([rows, rows[own] + spread * moved]), np.append(labels, labels[own]))
    assert more.radius == pytest.approx(found.radius, rel=1e-12)
    assert more.first[:400].tolist() == found.first.tolist()
    assert more.representatives.max() < 400


def test_a_chain_takes_no_vote_beyond_the_radius() -> None:
    rng = np.random.default_rng(3)
    rows = rng.uniform(-1, 1, size=(300, 2))
    for step in (0.5, 0.009, 0.001):
        radius = 0.05
        at = np.arange(0, 1, step * radius)
        chain = np.column_stack([at, np.zeros(at.size)]) * rows.std(axis=0)
        alone = find_clusters(rows, np.zeros(300), radius=radius)
        after = find_clusters(np.concatenate([chain, rows]), np.zeros(300 + at.size), radius=radius)
        lost = np.flatnonzero((alone.first == np.arange(300)) & (after.first[at.size :] != at.size + np.arange(300)))
        distance = np.linalg.norm((rows[lost, None] - chain) / rows.std(axis=0), axis=2).min(axis=1)
        assert (distance <= 1.1 * radius).all()  # the chain moves the scale a little
        assert lost.size < 30


def test_orders_of_any_kind() -> None:
    rows, labels = [[1.0], [1.0], [2.0]], ["a", "a", "a"]
    days = pd.to_datetime(["2026-03-01", "2026-01-01", "2026-02-01"])
    for order in ([3, 1, 2], [3.5, 1.0, 2.0], days, days.to_numpy(), list(days.date), pd.Series(days)):
        assert find_clusters(rows, labels, order=order).first.tolist() == [1, 1, 2]
    assert find_clusters(rows, labels, order=[1, 1, 1]).first.tolist() == [0, 0, 2]
    frame = pd.DataFrame({"x": [1.0, 1.0, 2.0]}, index=["p", "q", "r"])
    by_index = pd.Series([1, 2, 3], index=["q", "r", "p"])
    assert find_clusters(frame, labels, order=by_index).first.tolist() == [1, 1, 2]
    for wrong in (["2026", "2025", "2024"], [1, "2", 3], [1, None, 3], [1, 2], [1.0, math.nan, 2.0]):
        with pytest.raises(ValueError, match="order"):
            find_clusters(rows, labels, order=wrong)


def test_who_has_copies_of_whose_rows() -> None:
    rows, labels = np.vstack([X, X[:8]]), np.append(Y, Y[:8])
    owners = np.append(OWNERS, np.full(8, "eve", dtype=object))
    found = find_clusters(rows, labels, owners=owners)
    frame = found.duplicates.owners_frame("pandas")
    assert frame["other"].tolist() == ["eve"] * 4
    assert frame["rows"].sum() == 8
    assert "do not vote: 8 of 98" in found.findings()[0]
    # Had eve been first, the others would have the copies.
    early = find_clusters(rows, labels, owners=owners, order=np.append(ORDER, np.full(8, -1)))
    assert early.duplicates.owners_frame("pandas")["owner"].tolist() == ["eve"] * 4
    assert early.first[:8].tolist() == list(range(90, 98))


def test_equal_labels_are_asked_for_with_labels() -> None:
    with pytest.raises(ValueError, match="same_label"):
        find_duplicates(X, same_label=True)
    thin = find_clusters(sparse.csr_array(np.eye(4)[[0, 1, 0, 2]]), [0, 0, 0, 0], radius=0)
    assert thin.first.tolist() == [0, 1, 0, 3]


def test_clusters_are_saved(tmp_path: Any) -> None:
    paid = pay(np.vstack([X, X[:9]]), np.append(Y, Y[:9]), np.append(OWNERS, OWNERS[:9]), np.arange(99))
    assert paid.first is not None
    assert paid.first[90:].tolist() == list(range(9))
    assert not paid.row_values[90:].any()
    paid.save(tmp_path / "pay.npz")
    again = Allocation.load(tmp_path / "pay.npz")
    assert again.first is not None
    assert again.first.tolist() == paid.first.tolist()
    assert again.sentences() == paid.sentences() == Rule().sentences("EUR")
    assert again.invites() == Rule().invites()
    assert isinstance(find_clusters(X, Y), Clusters)


# --- what is paid ----------------------------------------------------------------------------------------------------


def test_each_rule_pays_what_its_parts_say() -> None:
    rows, labels, owners = np.vstack([X, X[:9]]), np.append(Y, Y[:9]), np.append(OWNERS, OWNERS[9:18])
    order = np.append(ORDER // 30, np.full(9, 3))
    given = rows, labels, owners, order
    voting = KNNShapley(3, semivalue=SAFE_SEMIVALUE, progress=False).fit(X, Y)
    by_hand = {
        "clusters": allocate_budget(voting.value(X_VAL, Y_VAL), 1000, owners=OWNERS),
        "rows": allocate_budget(MODEL.fit(rows, labels).value(X_VAL, Y_VAL), 1000, owners=owners),
        "precedence": allocate_budget(MODEL.fit(rows, labels).value(X_VAL, Y_VAL, order=order), 1000, owners=owners),
        "owners": allocate_budget(
            voting.value(X_VAL, Y_VAL), 1000, owners=OWNERS, values=owner_values(voting, X_VAL, Y_VAL, OWNERS)
        ),
    }
    assert set(by_hand) == set(PAY_BY)
    for pay_by, expected in by_hand.items():
        found = pay(*given, rule=Rule(pay_by))
        assert found.payouts == expected.payouts
        assert found.row_counts.sum() == 99
        assert found.sampling_low is not None
        assert found.parameters["rule"]["pay_by"] == pay_by


def test_owners_without_a_vote_are_paid_nothing_for_sure() -> None:
    rows, labels = np.vstack([X, X[:5]]), np.append(Y, Y[:5])
    owners, order = np.append(OWNERS, np.full(5, "eve", dtype=object)), np.append(ORDER, np.full(5, 90))
    for pay_by in ("clusters", "owners"):
        found = pay(rows, labels, owners, order, rule=Rule(pay_by))
        at = found.owners.index("eve")
        assert found.sampling_low is not None
        assert found.sampling_high is not None
        assert found.contributions[at] == found.cents[at] == found.sampling_low[at] == found.sampling_high[at] == 0
        assert found.row_counts[at] == 5


@pytest.mark.parametrize("pay_by", PAY_BY)
def test_audits_are_of_what_is_paid(pay_by: str) -> None:
    rows, labels = np.vstack([X, X[:5]]), np.append(Y, Y[:5])
    owners, order = np.append(OWNERS, np.full(5, "eve", dtype=object)), np.append(ORDER, np.full(5, 90))
    rule = Rule(pay_by, policy=Policy(deposit=20))
    model = count_by(MODEL, rule, rows, labels, owners=owners, order=order)
    basis = {"basis": "owners", "semivalue": rule.semivalue} if pay_by == "owners" else {}
    audit = audit_payouts(
        model, X_VAL, Y_VAL, 1000, owners=owners, noise=[0.5], repeats=3, policy=rule.policy, progress=False, **basis
    )
    paid = pay_counted(model, rule, X_VAL, Y_VAL, owners, 1000)
    with_range = paid.with_interval(audit)
    assert with_range.low is not None
    assert with_range.high is not None
    assert ((with_range.low <= paid.cents) & (paid.cents <= with_range.high)).all()
    assert with_range.low.min() >= -2000
    assert "between" in with_range.line("eve")


def test_charges_and_their_intervals() -> None:
    wrong = np.where(OWNERS == "dee", 1 - Y, Y)
    paid = pay(labels=wrong, rule=Rule(policy=Policy(deposit="12.34")))
    at = paid.owners.index("dee")
    assert paid.cents[at] == -1234
    assert paid.bound[at] == "deposit"
    assert paid.collected_cents == paid.unallocated_cents == 1234
    assert paid.cents[paid.cents > 0].sum() == 100_000
    assert paid.sampling_low is not None
    assert paid.sampling_low.min() >= -1234
    assert "collected=12.34" in repr(paid)
    assert "-12.34" in paid.line("dee")
    frame = paid.to_frame("pandas").sort_values("contribution")
    assert frame["payout"].is_monotonic_increasing
    assert "value_of_all_rows" not in frame
    ample = pay(labels=wrong, rule=Rule(policy=Policy(deposit=10_000)))
    rate = ample.cents.max() / ample.contributions.max()
    np.testing.assert_allclose(ample.cents, rate * ample.contributions, atol=2.0)
    ax = paid.plot()
    assert ax.get_xlim()[0] < 0


@pytest.mark.parametrize("policy", [Policy(), Policy(negatives="clip"), Policy(deposit=5)])
def test_a_lower_contribution_never_has_a_higher_payment(policy: Policy) -> None:
    frame = pay(rule=Rule("rows", policy=policy)).to_frame("pandas").sort_values("contribution")
    assert frame["payout"].is_monotonic_increasing
    assert ("value_of_all_rows" in frame) == (policy.negatives == "clip")


# --- words -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pay_by", PAY_BY)
@pytest.mark.parametrize("semivalue", [None, "loo", Beta(4, 1), Banzhaf(0.1), Banzhaf(0.123456789), Banzhaf(1e-5)])
def test_rules_are_written_and_read(pay_by: str, semivalue: Any) -> None:
    policy = Policy(deposit=5, cap="30%")
    rule = Rule(pay_by, semivalue, 0.5 if pay_by in ("clusters", "owners") else None, policy)
    assert Rule.from_dict(rule.to_dict()) == rule
    assert len(rule.sentences()) == 4  # the cap has its own
    assert "5.00 EUR" in rule.sentences("EUR")[2]


@pytest.mark.parametrize("semivalue", ["filled", "calibrated"])
@pytest.mark.parametrize("pay_by", ["owners", "precedence"])
def test_subsets_by_the_number_of_neighbours_are_for_rows(pay_by: str, semivalue: str) -> None:
    with pytest.raises(InputError, match=f"'{semivalue}', does not go with pay_by='{pay_by}'"):
        Rule(pay_by, semivalue)


def test_sentences_are_for_people_and_name_what_was_done_to_the_values() -> None:
    plain = " ".join(Rule().sentences())
    assert "filled" not in plain
    assert "without the small ones" in plain
    valuation = KNNShapley(3, progress=False).fit(X, Y).value(X_VAL, Y_VAL, point_weight="balanced")
    made = allocate_budget(valuation, 100, owners=OWNERS)
    made = replace(made, parameters={**made.parameters, "rule": Rule("rows").to_dict()})
    assert "with weights of validation rows" in " ".join(made.sentences())
    said = Rule("rows").sentences(parameters={"pool": {}, "correction": {}})[1]
    assert said.endswith("pooled with training rows, corrected for noise in the validation rows.")


def test_values_that_a_posterior_corrected_are_paid_as_corrected(tmp_path: Path) -> None:
    fitted = KNNShapley(3, progress=False).fit(X, Y)
    corrector = PosteriorCorrector(0.3, draws=2, progress=False).fit(fitted)
    for valuation in (corrector.transform(X_VAL, Y_VAL), fitted.value(X_VAL, Y_VAL, correction=corrector)):
        made = allocate_budget(valuation, 100, owners=OWNERS)
        made = replace(made, parameters={**made.parameters, "rule": Rule("rows").to_dict()})
        assert " ".join(made.sentences()).count("corrected for noise in the validation rows") == 1
        page = write_statements(made, tmp_path, overwrite=True)[1].read_text(encoding="utf-8")
        assert page.count("values were corrected for noise in the validation points") == 1


def test_every_rule_says_what_it_invites() -> None:
    assert len(Rule().sentences()) == 3
    for pay_by in ("clusters", "owners", "precedence"):
        assert "the operator's own record" in " ".join(Rule(pay_by).invites())
    words = {
        "clusters": ["noise", "mixup", "second name"],
        "rows": ["copies"],
        "owners": ["splitting"],
        "precedence": ["first", "near copies"],
    }
    for pay_by, expected in words.items():
        said = " ".join(Rule(pay_by).invites())
        assert all(word in said for word in expected)
    said = " ".join(Policy(negatives="clip", floor=1, cap="50%").invites())
    assert all(word in said for word in ("random rows", "more names", "splitting"))
    assert "second name" in " ".join(Policy().invites())
    assert "deposit" in " ".join(Policy(deposit=1).invites())


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"pay_by": "names"}, "pay_by"), ({"radius": -1}, "radius"), ({"pay_by": "rows", "radius": 1}, "radius"),
        ({"policy": "carry"}, "policy"), ({"semivalue": "shapely"}, "semivalue"), ({"semivalue": 3}, "semivalue"),
    ],
)  # fmt: skip
def test_rules_that_make_no_sense(options: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        Rule(**options)


def test_policies_that_contradict_themselves() -> None:
    for options in ({"negatives": "clip"}, {"floor": 1}):
        with pytest.raises(ValueError, match="deposit"):
            Policy(deposit=1, **options)
    with pytest.raises(ValueError, match="deposit"):
        Policy(deposit=-1)


# --- hostile input ---------------------------------------------------------------------------------------------------


def test_hostile_tables() -> None:
    model = KNNShapley(3, utility="hard", progress=False)
    one = pay_owners(model, [[1.0]], ["a"], [[1.0]], ["a"], ["ann"], 10)
    assert str(one.payouts["ann"]) == "10.00"
    copies = pay_owners(model, [[1.0]] * 5, ["a"] * 5, [[1.0], [2.0]], ["a", "a"], list("pqrst"), 10)
    assert [str(amount) for amount in copies.payouts.values()] == ["10.00", "0.00", "0.00", "0.00", "0.00"]
    single = pay_owners(model, X, ["a"] * 90, X_VAL, ["a"] * 40, OWNERS, 10)
    assert sum(single.payouts.values()) + single.unallocated == 10
    flat, given = np.arange(90.0)[:, None], np.arange(90) // 30
    owing = Rule(policy=Policy(deposit=3))
    bad = pay_owners(KNNShapley(1, utility="soft"), flat, (given + 1) % 3, flat, given, OWNERS, 10, rule=owing)
    assert not bad.cents.any()  # nobody is paid, so there is no rate to charge by
    assert bad.unallocated == 10
    nobody = pay_owners(model, X, Y, X_VAL, Y_VAL, ["ann"] * 90, 10)
    assert str(nobody.payouts["ann"]) == "10.00"
    with pytest.raises(ValueError, match="precomputed"):
        pay_owners(KNNShapley(metric="precomputed"), None, Y, np.ones((2, 90)), [0, 1], OWNERS, 10)
    distances = np.abs(RNG.normal(size=(2, 90)))
    assert (
        pay_owners(KNNShapley(metric="precomputed"), None, Y, distances, [0, 1], OWNERS, 10, rule=Rule("rows")).budget
        == 10
    )
    with pytest.raises(ValueError, match="order"):
        pay(rule=Rule("precedence"), order=None)
    with pytest.raises(ValueError, match="owners"):
        pay_owners(model, X, Y, X_VAL, Y_VAL, ["ann"], 10)
    with pytest.raises(ValueError, match="rule"):
        pay(rule="clusters")


def test_many_near_copies_do_not_open_the_rule() -> None:
    rng = np.random.default_rng(2)
    X, X_val = rng.normal(size=(300, 5)), rng.normal(size=(60, 5))
    y, y_val = (X[:, 0] + X[:, 1] > 0).astype(int), (X_val[:, 0] + X_val[:, 1] > 0).astype(int)
    owners = np.arange(300) % 6

    def paid(rows: Any, noise: Any) -> float:
        offered = np.concatenate([X, X[rows] + np.reshape(noise, (-1, 1)) * rng.normal(size=(len(rows), 5))])
        labels, names = np.concatenate([y, y[rows]]), np.concatenate([owners, np.ones(len(rows), dtype=int)])
        given = (offered, labels, X_val, y_val, names, 1000)
        return float(pay_owners(KNNShapley(5, progress=False), *given, intervals=False, rule=Rule()).payouts[1])

    own, others = np.flatnonzero(owners == 1), np.flatnonzero(owners != 1)
    honest = paid(own[:0], 0.0)
    for times in (10, 20):
        assert paid(np.repeat(own, times), 1e-7) == pytest.approx(honest, abs=0.011)
    for clump in (1e-12, 1e-7):
        rows, noise = np.append(others, np.repeat(own[:1], 30)), np.repeat([1e-5, clump], [others.size, 30])
        assert paid(rows, noise) == pytest.approx(honest, abs=0.011)
