"""The discount of copies: its definition, that copying does not pay, and what it leaves alone."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from shapshift import CopyDiscount, KNNShapley, Policy, allocate_budget, audit_payouts
from shapshift.market.attacks import Offer, play
from shapshift.price import Allocation, write_statements

RNG = np.random.default_rng(0)
Y = np.arange(90) % 3
X = RNG.normal(size=(90, 3)) + Y[:, None]
X_VAL, Y_VAL = RNG.normal(size=(40, 3)) + (np.arange(40) % 3)[:, None], np.arange(40) % 3
OWNERS = np.array([f"owner {k}" for k in RNG.integers(0, 4, 90)])
MODEL = KNNShapley(progress=False)


def payouts(rows: Any = X, labels: Any = Y, owners: Any = OWNERS, **options: Any) -> Allocation:
    return allocate_budget(MODEL.fit(rows, labels).value(X_VAL, Y_VAL), 1000, owners=owners, **options)


@pytest.mark.parametrize("metric", ["euclidean", "manhattan", "cosine"])
@pytest.mark.parametrize("bandwidth", [0.0, 0.7])
def test_factors_are_their_definition(metric: str, bandwidth: float) -> None:
    rows, labels = X[[0, 1, 2, 3, 0, 0, 4]], [0, 1, 1, 0, 0, 1, 0]
    expected = np.zeros(7)
    for i, j in itertools.permutations(range(7), 2):
        difference = rows[i] - rows[j]
        distance = {
            "euclidean": np.sqrt(difference @ difference),
            "manhattan": np.abs(difference).sum(),
            "cosine": 1 - rows[i] @ rows[j] / np.linalg.norm(rows[i]) / np.linalg.norm(rows[j]),
        }[metric]
        copy = np.array_equal(rows[i], rows[j])
        alike = float(copy) if bandwidth == 0 else math.exp(-0.5 * (distance / bandwidth) ** 2)
        expected[i] += alike * (labels[i] == labels[j])
    found = CopyDiscount(0.4, bandwidth, metric).factors(rows, labels)
    np.testing.assert_allclose(found, np.exp(-0.4 * expected), atol=1e-9)
    thin = rows if metric == "manhattan" else sparse.csr_array(rows)
    np.testing.assert_allclose(CopyDiscount(0.4, bandwidth, metric).factors(thin, labels), found, atol=1e-9)


def test_without_labels_all_rows_are_compared() -> None:
    assert CopyDiscount().factors([[1.0], [1.0], [1.0]]).tolist() == pytest.approx([0.25] * 3)
    assert CopyDiscount().factors([[1.0], [1.0], [1.0]], [0, 0, 1]).tolist() == pytest.approx([0.5, 0.5, 1.0])
    assert CopyDiscount().factors([[1.0]]).tolist() == [1.0]


def test_payouts_are_cut_by_the_share_that_is_discounted(tmp_path: Path) -> None:
    rows = np.vstack([X, X[:10]])
    labels, owners = np.append(Y, Y[:10]), np.append(OWNERS, ["copier"] * 10)
    plain = payouts(rows, labels, owners, policy=Policy(negatives="clip"))
    found = CopyDiscount().apply(plain, rows, labels)
    factors, helpful = np.ones(100), np.maximum(plain.row_values, 0.0)
    factors[:10] = factors[90:] = 0.5
    for number in range(len(plain.owners)):
        own = plain.codes == number
        share = (helpful * factors)[own].sum() / helpful[own].sum()
        assert found.cents[number] == math.floor(plain.cents[number] * share + 1e-9)
    assert found.cents.sum() + found.unallocated_cents == found.budget_cents
    assert "CopyDiscount" in found.parameters["copy_discount"]
    for allocation, said in ((plain, False), (found, True)):
        _, page, *_ = write_statements(allocation, tmp_path / str(said))
        assert ("discount for copies is deducted" in page.read_text(encoding="utf-8")) == said


def test_rows_unlike_all_others_are_paid_as_before(tmp_path: Path) -> None:
    plain = payouts()
    found = CopyDiscount().apply(plain, X, Y)
    assert found.cents.tolist() == plain.cents.tolist()
    assert found.unallocated_cents == plain.unallocated_cents
    found.save(tmp_path / "pay.npz")
    assert Allocation.load(tmp_path / "pay.npz").cents.tolist() == plain.cents.tolist()


@pytest.mark.parametrize("negatives", ["clip", "carry"])
@pytest.mark.parametrize("attack", ["copy", "copy x4"])
def test_copying_does_not_pay(attack: str, negatives: str) -> None:
    offer, policy = Offer(X, Y, OWNERS), Policy(negatives=negatives)
    for owner in sorted(set(OWNERS)):
        gains = []
        for discount in (CopyDiscount(0.0), CopyDiscount()):
            before, after = (
                discount.apply(payouts(each.X, each.y, each.owners, policy=policy), each.X, each.y).payouts[owner]
                for each in (offer, play(attack, offer, owner)[0])
            )
            gains.append(after - before)
        assert gains[0] > 0 > gains[1]


def test_near_copies_need_a_bandwidth() -> None:
    own = np.flatnonzero(OWNERS == "owner 1")
    near = X[own] + 0.01 * RNG.normal(size=X[own].shape)
    rows, labels = np.vstack([X, near]), np.append(Y, Y[own])
    owners = np.append(OWNERS, OWNERS[own])
    at = payouts().owners.index("owner 1")
    gains = []
    for discount in (CopyDiscount(), CopyDiscount(bandwidth=0.1)):
        before = discount.apply(payouts(), X, Y).cents[at]
        gains.append(discount.apply(payouts(rows, labels, owners), rows, labels).cents[at] - before)
    assert gains[0] > 0 > gains[1]


def test_intervals_are_cut_too() -> None:
    rows, labels, owners = np.vstack([X, X[:10]]), np.append(Y, Y[:10]), np.append(OWNERS, OWNERS[:10])
    model = MODEL.fit(rows, labels)
    audit = audit_payouts(model, X_VAL, Y_VAL, 1000, owners=owners, noise=[0.5], repeats=2, progress=False)
    found = CopyDiscount().apply(payouts(rows, labels, owners).with_interval(audit), rows, labels)
    assert found.low is not None
    assert found.high is not None
    assert (found.low <= found.cents).all()
    assert (found.cents <= found.high).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: CopyDiscount(-1.0), "'strength' parameter of CopyDiscount"),
        (lambda: CopyDiscount(bandwidth=math.nan), "'bandwidth' parameter of CopyDiscount"),
        (lambda: CopyDiscount(metric="precomputed"), "'metric' parameter of CopyDiscount"),
        (lambda: CopyDiscount().apply(payouts(), X[:5]), "'X' must have the 90 rows that are paid for. Got 5"),
        (lambda: CopyDiscount().apply(MODEL, X), "'allocation' parameter of CopyDiscount.apply"),
        (lambda: CopyDiscount().factors(X, Y[:5]), "one label for each of the 90 rows"),
    ],
)
def test_bad_inputs(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
