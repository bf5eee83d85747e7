"""What rounding and noise do to payments, and what one validation point can change."""

from __future__ import annotations

import itertools
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shapshift import Beta, KNNShapley, Policy, Privacy, allocate_budget, owner_values
from shapshift.engine.coefficients import rank_table, size_probabilities
from shapshift.exceptions import InputError
from shapshift.price import Allocation, pay_owners
from shapshift.price.policy import Terms
from shapshift.price.privacy import _best_places, _size_bound, point_norm

SECRET = "only the operator knows this"
RNG = np.random.default_rng(5)
X, Y = RNG.normal(size=(60, 2)), np.array(["no", "yes"])[RNG.integers(0, 2, 60)]
X_VAL, Y_VAL = RNG.normal(size=(40, 2)), np.array(["no", "yes"])[RNG.integers(0, 2, 40)]
OWNERS = np.array(["ann", "bob", "cid", "dee"])[np.arange(60) % 4]
VALUES = KNNShapley(progress=False).fit(X, Y).value(X_VAL, Y_VAL)


def point_values(table: Any, matches: np.ndarray, n_classes: int) -> np.ndarray:
    """Values at each rank, from the definition in engine/coefficients.py."""
    c, beta = table.c, table.per_match * matches.sum() - table.empty / n_classes
    falls = [matches[j] * (c[j] - c[j - 1]) for j in range(1, c.size)]
    return np.array([matches[r] * c[r] + sum(falls[r:]) + beta for r in range(c.size)])


@pytest.mark.parametrize("utility", ["soft", "hard"])
@pytest.mark.parametrize(
    "semivalue", ["shapley", "banzhaf", "loo", "calibrated", "filled", Beta(4, 1), Beta(1, 4), Beta(0.5, 0.5)], ids=str
)
def test_no_order_of_rows_has_values_beyond_the_bound(semivalue: Any, utility: Any) -> None:
    reached = []
    for n, k in itertools.product(range(1, 8), (1, 2, 5, 9)):
        table = rank_table(n, k, semivalue, utility)
        by_size = np.inf if semivalue in ("calibrated", "filled") else _size_bound(size_probabilities(n, semivalue))
        for m in range(n + 1):
            orders = itertools.combinations(range(n), m)
            most = max(np.abs(point_values(table, np.isin(np.arange(n), at), 2)).sum() for at in orders)
            by_rank = _best_places(table.c, m)[m] + (2 * m - n) * (table.per_match * m - table.empty / 2)
            assert most <= min(by_size, by_rank) + 1e-12
            if 0 < m <= n / 2 and most > 0.05:
                reached.append(most / min(by_size, by_rank))
    assert np.mean(reached) > 0.75  # not by being far too large


@pytest.mark.parametrize("utility", ["soft", "hard"])
@pytest.mark.parametrize(
    ("players", "semivalue"),
    [*itertools.product([False, True], ["shapley", "banzhaf", "loo"]), (False, "filled")],
)
def test_replacing_a_point_moves_totals_by_no_more_than_the_sensitivity(
    players: bool, semivalue: str, utility: str
) -> None:
    """All points of a line with 6 rows, against each other: totals of owners, and sums of positive values."""
    rng = np.random.default_rng(3)
    points = np.repeat(np.linspace(-1, 7, 33), 2)[:, None]
    labels, most = np.tile(["a", "b"], 33), 0.0
    for _ in range(6):
        y = np.array(["a", "b", "a", "b", *rng.choice(["a", "b"], 2)])
        x = np.round(rng.uniform(0, 6, 6))[:, None]  # some rows are tied
        owners = np.array(list("pqr"))[rng.integers(0, 3, 6)]
        model = KNNShapley(n_neighbors=2, semivalue=semivalue, utility=utility, progress=False).fit(x, y)
        made = model.value(points, labels, matrix=True)
        assert made.matrix is not None
        if players:
            each = [owner_values(model, points[[j]], labels[[j]], owners, semivalue=semivalue) for j in range(66)]
            totals, norm = np.array([one.values for one in each]), point_norm(made, each[0])
        else:
            totals = np.array([made.matrix[owners == name].sum(axis=0) for name in set(owners)]).T
            norm = point_norm(made)
        apart = np.abs(totals[:, None] - totals[None]).sum(axis=-1).max()
        assert apart <= 2 * norm + 1e-12
        most = max(most, apart / (2 * norm))
    assert most > 0.3


@pytest.mark.parametrize("utility", ["soft", "hard"])
def test_noise_goes_with_the_default_rule(utility: Any) -> None:
    model = KNNShapley(n_neighbors=3, utility=utility, progress=False)
    made = pay_owners(model, X, Y, X_VAL, Y_VAL, OWNERS, 100, privacy=Privacy(epsilon=1.0, seed=SECRET))
    assert made.parameters["semivalue"] == "filled"
    values = KNNShapley(3, utility=utility, semivalue="filled", progress=False).fit(X, Y).value(X_VAL, Y_VAL)
    assert made.parameters["privacy"]["sensitivity"] >= 2 * point_norm(values) / 40 - 1e-12  # counts of labels unknown


def test_equal_remainders_are_rounded_by_the_contribution() -> None:
    terms = Terms.check("allocate_budget", 40, Policy(), "EUR")
    paid = np.array([1500, 1500, 500])
    for keys in itertools.permutations([b"a", b"b", b"c"]):
        given = np.array([0.4999, 0.5, 0.1]), keys
        assert Privacy(step=10).rounded(paid, terms, *given).tolist() == [1000, 2000, 0]


def test_large_tables_have_a_bound_at_once_and_it_grows_slowly() -> None:
    bounds = []
    for n in (10**3, 10**5):
        table = rank_table(n, 5, "shapley", "hard")
        bounds.append(_best_places(table.c, n // 2)[-1])
    exact = sum(
        (table.c + (np.arange(1, 1001) - 2 * k + 1) * np.append(0, table.c[:-1] - table.c[1:]))[k - 1 :].max()
        for table in [rank_table(1000, 5, "shapley", "hard")]
        for k in range(1, 501)
    )
    assert exact <= bounds[0] <= 1.01 * exact
    assert bounds[0] == pytest.approx(1 + np.log(1000 / 2 / 5) / 2, abs=0.3)
    assert bounds[1] - bounds[0] == pytest.approx(np.log(100) / 2, abs=0.1)


@pytest.mark.parametrize("negatives", ["clip", "carry"])
@pytest.mark.parametrize("step", ["10", "7.50", 400])
def test_rounded_payments_are_multiples_and_the_budget_holds(step: Any, negatives: str) -> None:
    policy = Policy(negatives=negatives)
    plain = allocate_budget(VALUES, 1000, owners=OWNERS, policy=policy)
    made = allocate_budget(VALUES, 1000, owners=OWNERS, policy=policy, privacy=Privacy(step=step))
    assert all(amount % Decimal(step) == 0 for amount in made.payouts.values())
    assert sum(made.payouts.values()) + made.unallocated == 1000
    assert made.unallocated < Decimal(step)
    assert np.abs(made.cents - plain.cents).max() < Decimal(step) * 100
    assert made.unprotected is not None
    assert made.unprotected.tolist() == plain.cents.tolist()
    assert made.sampling_low is None
    assert f"multiples of {step} EUR" in made.privacy_note()


def test_rounding_keeps_floor_and_cap() -> None:
    policy = Policy(floor="203.17", cap="333.33")
    plain = allocate_budget(VALUES, 1000, owners=OWNERS, policy=policy)
    made = allocate_budget(VALUES, 1000, owners=OWNERS, policy=policy, privacy=Privacy(step=50))
    assert {"floor"} <= set(plain.bound)
    assert made.cents.min() == 20317
    assert made.cents.max() <= 33333
    assert int(made.cents.sum()) + made.unallocated_cents == 100_000


def test_noise_is_that_of_the_secret_and_of_everything_that_is_paid_for(tmp_path: Path) -> None:
    def paid(budget: int = 1000, values: Any = VALUES, **options: Any) -> list[int]:
        privacy = Privacy(epsilon=1.0, **options)
        made = allocate_budget(values, budget, owners=OWNERS, privacy=privacy)
        assert int(made.cents.sum()) + made.unallocated_cents == budget * 100
        return made.contributions.tolist()

    plain = allocate_budget(VALUES, 1000, owners=OWNERS)
    assert paid(seed=SECRET) == paid(seed=SECRET) == paid(seed=SECRET.encode())
    assert paid(seed=SECRET) != paid(seed=SECRET + "!")
    assert paid() != paid()
    # Noise is not the same when the points are others: the difference of two rounds does not show their totals.
    other = replace(VALUES, values=VALUES.values * (1 + 1e-9))
    noise = [np.subtract(paid(values=one, seed=SECRET), plain.contributions) for one in (VALUES, other)]
    assert np.abs(noise[0] - noise[1]).max() > 1e-4
    made = allocate_budget(VALUES, 1000, owners=OWNERS, privacy=Privacy(epsilon=1.0, seed=SECRET))
    made.save(tmp_path / "pay.npz")
    assert SECRET.encode() not in (tmp_path / "pay.npz").read_bytes()
    assert SECRET not in repr(Privacy(epsilon=1.0, seed=SECRET))
    again = Allocation.load(tmp_path / "pay.npz")
    assert again.privacy_note() == made.privacy_note() != ""
    # The order of the rows changes nothing.
    turned = np.arange(60)[::-1]
    mirrored = replace(VALUES, values=VALUES.values[turned], ids=VALUES.ids[turned], labels=VALUES.labels[turned])
    swapped = allocate_budget(mirrored, 1000, owners=OWNERS[turned], privacy=Privacy(epsilon=1.0, seed=SECRET))
    assert swapped.payouts == made.payouts


def test_noise_is_laplace_and_its_cost_is_what_is_stated() -> None:
    policy, drawn, paid, stated = Policy(negatives="clip"), [], [], []
    for number in range(400):
        privacy = Privacy(epsilon=50.0, seed=f"{number:016}")
        made = allocate_budget(VALUES, 1000, owners=OWNERS, policy=policy, privacy=privacy)
        drawn.append(made.contributions)
        paid.append(made.cents)
        stated.append([made.noise_mean, made.noise_high])
    plain = allocate_budget(VALUES, 1000, owners=OWNERS, policy=policy)
    scale = made.parameters["privacy"]["scale"]
    assert scale == pytest.approx(2 * point_norm(VALUES) / 40 / 50, rel=1e-6)
    noise = np.array(drawn) - plain.contributions
    assert np.abs(noise).mean() == pytest.approx(scale, rel=0.08)
    assert np.quantile(np.abs(noise), 0.95) == pytest.approx(scale * np.log(20), rel=0.15)
    assert abs(noise.mean()) < 0.1 * scale
    assert np.abs(np.corrcoef(noise.T) - np.eye(4)).max() < 0.2
    moved = np.abs(np.array(paid) - plain.cents)
    measured = [moved.mean(axis=0), np.quantile(moved, 0.95, axis=0)]
    np.testing.assert_allclose(np.mean(stated, axis=0), measured, rtol=0.15)


def test_much_epsilon_changes_nothing_and_owners_can_be_players() -> None:
    model = KNNShapley(progress=False).fit(X, Y)
    players = owner_values(model, X_VAL, Y_VAL, OWNERS)
    for values in (None, players):
        plain = allocate_budget(VALUES, 1000, owners=OWNERS, values=values)
        made = allocate_budget(VALUES, 1000, owners=OWNERS, values=values, privacy=Privacy(epsilon=1e9, seed=SECRET))
        assert np.abs(made.cents - plain.cents).max() <= 1
    assert point_norm(VALUES, players) == pytest.approx(1 + 1 / 2 + 1 / 3 + 1 / 4)


def test_privacy_says_what_it_cannot_do() -> None:
    for bad, said in (
        ({}, "needs 'step', 'epsilon' or both"),
        ({"epsilon": 0}, "above 0"),
        ({"epsilon": float("nan")}, "finite"),
        ({"step": 0}, "above 0"),
        ({"step": -1}, "at least 0"),
        ({"step": "x"}, "amount of money"),
        ({"epsilon": 1, "seed": "short"}, "at least 16"),
        ({"epsilon": 1, "seed": 12345678901234567890}, "secret text or bytes"),
    ):
        with pytest.raises(InputError, match=said):
            Privacy(**bad)  # type: ignore[arg-type]
    noise = Privacy(epsilon=1.0, seed=SECRET)
    weighted = KNNShapley(progress=False).fit(X, Y).value(X_VAL, Y_VAL, point_weight="balanced")
    for values in (weighted, replace(VALUES, parameters={**VALUES.parameters, "method": "SampledShapley"})):
        with pytest.raises(InputError, match="exact values of KNNShapley"):
            allocate_budget(values, 1000, owners=OWNERS, privacy=noise)
    with pytest.raises(InputError, match="labels of its rows"):
        allocate_budget(replace(VALUES, labels=None), 1000, owners=OWNERS, privacy=noise)
    with pytest.raises(InputError, match="does not go with 'corrected'"):
        allocate_budget(VALUES, 1000, owners=OWNERS, privacy=noise, corrected=VALUES)
    with pytest.raises(InputError, match="no decimals"):
        allocate_budget(VALUES, 1000, owners=OWNERS, currency="JPY", privacy=Privacy(step="0.5"))
    with pytest.raises(TypeError, match="'privacy' parameter"):
        allocate_budget(VALUES, 1000, owners=OWNERS, privacy=1.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("privacy", [Privacy(step=10), Privacy(epsilon=1.0, seed=SECRET)], ids=["step", "epsilon"])
def test_one_row_one_owner_and_nothing_to_pay(privacy: Privacy) -> None:
    one = KNNShapley(n_neighbors=1, progress=False).fit([[0.0]], ["a"]).value([[1.0]], ["a"])
    made = allocate_budget(one, 100, owners=["ann"], privacy=privacy)
    assert made.cents.tolist() in ([10_000], [0])
    wrong = KNNShapley(progress=False).fit(X, Y).value(X_VAL, np.where(Y_VAL == "no", "yes", "no"))
    made = allocate_budget(wrong, 100, owners=OWNERS, policy=Policy(negatives="carry"), privacy=privacy)
    assert int(made.cents.sum()) + made.unallocated_cents == 10_000
