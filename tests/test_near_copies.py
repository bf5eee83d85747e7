"""The test for sellers whose rows are near copies of earlier ones."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from shapshift import KNNShapley
from shapshift.exceptions import InputError
from shapshift.price import Rule, find_clusters, pay_owners
from shapshift.price.near_copies import FAR, find_near_copies


def market(seed: int, noise: float | None, features: int = 8) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of five sellers, one after the other; the last adds noisy copies of rows of all."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(300, features))
    y, sellers = (X[:, 0] > 0).astype(np.int64), np.arange(300) // 60
    if noise is not None:
        stolen = rng.permutation(300)[:60]
        X = np.concatenate([X, X[stolen] + noise * rng.normal(size=(60, features))])
        y, sellers = np.concatenate([y, y[stolen]]), np.concatenate([sellers, np.full(60, 4)])
    return X, y, sellers


def test_who_copies_with_noise_is_named_and_whose_rows_were_copied_is_not() -> None:
    for seed in range(5):
        suspects, source = find_near_copies(*market(seed, 0.2))
        assert suspects.tolist() == [4]
        assert (source[:240] == -1).all()
        assert (source[300:] >= 0).mean() > 0.9
        assert (source < np.arange(360)).all()


def test_honest_sellers_and_dense_rows_are_left_alone() -> None:
    for seed in range(20):
        assert find_near_copies(*market(seed, None))[0].size == 0
    # Two features: rows are denser than the noise is wide, and the copies are like new rows.
    assert find_near_copies(*market(0, 0.3, features=2))[0].size == 0


def test_the_statistic_is_that_of_mann_and_whitney() -> None:
    X, y, sellers = market(3, 0.45)
    unit = X / X.std(axis=0)
    far = np.linalg.norm(unit[:, None] - unit[None], axis=2)
    far[(y[:, None] != y[None]) | np.eye(y.size, dtype=bool)] = np.inf
    later = far.argmin(axis=1) < np.arange(y.size)
    ratio = np.sort(far, axis=1)[:, 0] / np.sort(far, axis=1)[:, FAR - 1]
    found = find_near_copies(X, y, sellers)[0].tolist()
    for seller in range(5):
        mine, others = ratio[later & (sellers == seller)], ratio[later & (sellers != seller)]
        p = stats.mannwhitneyu(mine, others, alternative="less", use_continuity=False, method="asymptotic").pvalue
        assert (seller in found) == (p < 0.001 / 5)


def test_near_copies_do_not_vote_and_nobody_else_loses_a_row() -> None:
    X, y, sellers = market(0, 0.2)
    order = np.random.default_rng(1).permutation(360)  # of the table; that of submission is in ``when``
    X, y, sellers, when = X[order], y[order], sellers[order], order
    plain = find_clusters(X, y, owners=sellers, order=when)
    tested = find_clusters(X, y, owners=sellers, order=when, near_copies=True)
    assert tested.suspects == (4,)
    assert "near copies" in tested.findings()[-1]
    changed = plain.first != tested.first
    assert (sellers[changed] == 4).all()
    assert np.isin(tested.first, tested.representatives).all()
    assert (y[tested.first] == y).all()
    with pytest.raises(InputError, match="Pass 'owners'"):
        find_clusters(X, y, near_copies=True)


def test_the_rule_pays_without_them() -> None:
    X, y, sellers = market(0, 0.2)
    rng = np.random.default_rng(5)
    points = rng.normal(size=(100, 8))
    given = (KNNShapley(3), X, y, points, (points[:, 0] > 0).astype(np.int64), sellers, 1000)
    rule = Rule(semivalue="filled", near_copies=True)
    assert Rule.from_dict(rule.to_dict()) == rule
    paid = {
        each: pay_owners(*given, rule=Rule(semivalue="filled", near_copies=each)).payouts[4] for each in (False, True)
    }
    assert paid[True] < paid[False]
    with pytest.raises(InputError, match="'near_copies' parameter of Rule goes with"):
        Rule("rows", near_copies=True)


@pytest.mark.parametrize("n", [1, 2, 5, 9])
def test_few_rows_name_nobody(n: int) -> None:
    X = np.arange(2.0 * n).reshape(n, 2)
    suspects, source = find_near_copies(X, np.zeros(n, dtype=np.int64), np.arange(n) % 2)
    assert suspects.size == 0
    assert (source == -1).all()
    assert find_near_copies(np.zeros((40, 2)), np.zeros(40, dtype=np.int64), np.arange(40) % 2)[0].size == 0
