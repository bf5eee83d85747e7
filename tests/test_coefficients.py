"""Coefficient tables against the general sum without rounding, closed forms and high precision."""

from __future__ import annotations

import math
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
import reference
from scipy import stats

from shapshift.engine.coefficients import Banzhaf, Beta, rank_table, size_probabilities

NAMES = ["shapley", "banzhaf", "loo", "calibrated"]
SHAPES = [(1, 1), (4, 1), (1, 4), (0.5, 2), (16, 1), (0.5, 0.5), (1, 16)]
SEMIVALUES: list[reference.Semivalue] = [
    *NAMES,
    *(("beta", float(a), float(b)) for a, b in SHAPES),
    *(("banzhaf", w) for w in (0.01, 0.1, 0.9)),
]
UTILITIES = ["soft", "hard"]

MILLION = 1_000_000
LARGE_K = [1, 5, 1000, MILLION // 2, MILLION - 1, MILLION, MILLION + 7]


def of_package(semivalue: reference.Semivalue) -> str | Beta | Banzhaf:
    if isinstance(semivalue, str):
        return semivalue
    return (Banzhaf if semivalue[0] == "banzhaf" else Beta)(*semivalue[1:])


# --- small tables, without rounding ---------------------------------------------------------------------------------


@pytest.mark.parametrize("utility", UTILITIES)
@pytest.mark.parametrize("semivalue", SEMIVALUES, ids=str)
def test_table_is_the_general_sum(semivalue: reference.Semivalue, utility: str) -> None:
    for n_rows in (1, 2, 3, 4, 5, 8, 13, 25):
        for n_neighbors in range(1, n_rows + 4):
            c, per_match, empty = reference.exact_table(n_rows, n_neighbors, semivalue, utility)
            found = rank_table(n_rows, n_neighbors, of_package(semivalue), utility)
            case = f"N={n_rows} K={n_neighbors}"
            np.testing.assert_allclose(found.c, [float(x) for x in c], rtol=1e-13, atol=0, err_msg=case)
            assert found.per_match == pytest.approx(float(per_match), rel=1e-13, abs=0), case
            assert found.empty == pytest.approx(float(empty), rel=1e-13, abs=0), case


@pytest.mark.parametrize("utility", UTILITIES)
def test_beta_of_one_and_one_is_shapley(utility: str) -> None:
    for n_neighbors in (1, 7, 499, 1000, 1003):
        shapley = rank_table(1000, n_neighbors, "shapley", utility)
        beta = rank_table(1000, n_neighbors, Beta(1, 1), utility)
        np.testing.assert_allclose(beta.c, shapley.c, rtol=1e-12)
        assert beta.per_match == pytest.approx(shapley.per_match, rel=1e-12)
        assert beta.empty == pytest.approx(shapley.empty, rel=1e-12)


@pytest.mark.parametrize("semivalue", SEMIVALUES, ids=str)
def test_soft_ignores_neighbors_beyond_the_last_row(semivalue: reference.Semivalue) -> None:
    at_n = rank_table(40, 40, of_package(semivalue), "soft")
    for n_neighbors in (41, 44, 4000):
        beyond = rank_table(40, n_neighbors, of_package(semivalue), "soft")
        assert np.array_equal(beyond.c, at_n.c)
        assert (beyond.per_match, beyond.empty) == (at_n.per_match, at_n.empty)


# --- a million rows -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_neighbors", LARGE_K)
@pytest.mark.parametrize("utility", UTILITIES)
def test_shapley_of_a_million_rows_is_the_closed_form(n_neighbors: int, utility: str) -> None:
    found = rank_table(MILLION, n_neighbors, "shapley", utility)
    expected = reference.shapley_table(MILLION, n_neighbors, utility)
    np.testing.assert_allclose(found.c, expected.c, rtol=1e-12, atol=0)
    assert found.per_match == pytest.approx(expected.per_match, rel=1e-12, abs=0)
    assert found.empty == pytest.approx(expected.empty, rel=1e-12, abs=0)


@pytest.mark.parametrize("n_neighbors", [k for k in LARGE_K if k >= MILLION // 2])
@pytest.mark.parametrize("utility", UTILITIES)
def test_calibrated_with_many_neighbors_is_shapley(n_neighbors: int, utility: str) -> None:
    # No size is cut off once 2K reaches N.
    found = rank_table(MILLION, n_neighbors, "calibrated", utility)
    np.testing.assert_allclose(found.c, reference.shapley_table(MILLION, n_neighbors, utility).c, rtol=1e-12)


@pytest.mark.parametrize("n_neighbors", LARGE_K)
def test_hard_banzhaf_of_a_million_rows_is_a_binomial_tail(n_neighbors: int) -> None:
    found = rank_table(MILLION, n_neighbors, "banzhaf", "hard").c
    expected = stats.binom.cdf(n_neighbors - 1, np.arange(MILLION), 0.5) / n_neighbors
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-15 / n_neighbors)


@pytest.mark.parametrize("n_neighbors", LARGE_K)
def test_hard_leave_one_out_of_a_million_rows_pays_the_voters(n_neighbors: int) -> None:
    found = rank_table(MILLION, n_neighbors, "loo", "hard").c
    expected = np.zeros(MILLION)
    # Only a row that votes in the full set is missed when it leaves.
    expected[: min(n_neighbors, MILLION)] = 1 / n_neighbors
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("n_neighbors", LARGE_K)
@pytest.mark.parametrize("utility", UTILITIES)
@pytest.mark.parametrize("semivalue", SEMIVALUES, ids=str)
def test_large_tables_are_finite_and_never_rise(semivalue: reference.Semivalue, utility: str, n_neighbors: int) -> None:
    found = rank_table(MILLION, n_neighbors, of_package(semivalue), utility)
    assert found.c.shape == (MILLION,)
    assert found.c.dtype == np.float64
    assert np.isfinite(found.c).all()
    assert math.isfinite(found.per_match)
    assert 0 <= found.empty <= 1
    assert (found.c >= 0).all()
    # Whoever is nearer votes at least as often; a sum of a million terms may blur it in its last places.
    assert (np.diff(found.c) <= 1e-12 * found.c[:-1]).all()


@pytest.mark.parametrize("utility", UTILITIES)
@pytest.mark.parametrize("semivalue", [*NAMES, ("beta", 4.0, 1.0)], ids=str)
def test_a_table_takes_a_few_vectors_of_memory(semivalue: reference.Semivalue, utility: str) -> None:
    tracemalloc.start()
    try:
        rank_table(MILLION, 300_000, of_package(semivalue), utility)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 24 * 8 * MILLION


# --- spot checks in high precision ----------------------------------------------------------------------------------


def precise_mixture_table(
    n_rows: int, n_neighbors: int, semivalue: reference.Semivalue, ranks: list[int]
) -> tuple[list[float], list[float], float, float]:
    """Hard c, soft c (at the ranks, all < N), per_match and empty from beta-binomial or binomial sums of K terms."""
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(60):

        def log_choose(n: int, t: int) -> object:
            return mpmath.loggamma(n + 1) - mpmath.loggamma(t + 1) - mpmath.loggamma(n - t + 1)

        def log_beta(a: float, b: float) -> object:
            return mpmath.loggamma(a) + mpmath.loggamma(b) - mpmath.loggamma(mpmath.mpf(a) + b)

        def drawn(n: int, t: int) -> object:
            """The probability that t of n rows are in the subset."""
            if t > n:
                return mpmath.mpf(0)
            if semivalue[0] in ("b", "banzhaf"):
                w = mpmath.mpf(0.5 if semivalue == "banzhaf" else semivalue[1])
                return mpmath.exp(log_choose(n, t) + t * mpmath.log(w) + (n - t) * mpmath.log(1 - w))
            alpha, beta = mpmath.mpf(semivalue[1]), mpmath.mpf(semivalue[2])
            return mpmath.exp(log_choose(n, t) + log_beta(t + beta, n - t + alpha) - log_beta(alpha, beta))

        few = range(n_neighbors)
        hard = [sum(drawn(rank - 1, t) for t in few) / n_neighbors for rank in ranks]
        # With fewer than K - 1 others everybody votes, and the soft vote weighs 1/(s+1) instead of 1/K.
        lift = sum(
            drawn(n_rows - 2, s) * (mpmath.mpf(1) / (s + 1) - mpmath.mpf(1) / n_neighbors)
            for s in range(n_neighbors - 1)
        )
        h = sum(drawn(n_rows - 1, s) / (s + 1) for s in few if s)
        return (
            [float(x) for x in hard],
            [float(x + lift) for x in hard],
            float(-h / (n_rows - 1)),
            float(drawn(n_rows - 1, 0)),
        )


@pytest.mark.parametrize("n_neighbors", [1, 5, 300])
@pytest.mark.parametrize("semivalue", ["banzhaf", *SEMIVALUES[len(NAMES) :]], ids=str)
@pytest.mark.parametrize("n_rows", [2_000, MILLION])
def test_mixtures_in_high_precision(semivalue: reference.Semivalue, n_neighbors: int, n_rows: int) -> None:
    ranks = [1, 2, n_neighbors, n_neighbors + 1, n_neighbors + 40, 2 * n_neighbors + 3, 1500, n_rows // 2, n_rows - 1]
    hard, soft, per_match, empty = precise_mixture_table(n_rows, n_neighbors, semivalue, ranks)
    at_ranks = np.array(ranks) - 1
    found_hard = rank_table(n_rows, n_neighbors, of_package(semivalue), "hard")
    found_soft = rank_table(n_rows, n_neighbors, of_package(semivalue), "soft")
    tiny = 1e-280  # what lies below is a probability that no sum of values can notice
    np.testing.assert_allclose(found_hard.c[at_ranks], hard, rtol=1e-10, atol=tiny)
    np.testing.assert_allclose(found_soft.c[at_ranks], soft, rtol=1e-10, atol=tiny)
    assert found_soft.per_match == pytest.approx(per_match, rel=1e-10, abs=tiny)
    assert found_soft.empty == pytest.approx(empty, rel=1e-10, abs=tiny)


@pytest.mark.parametrize(("n_rows", "n_neighbors"), [(2_000, 5), (2_000, 40), (MILLION, 1), (MILLION, 5)])
def test_calibrated_without_rounding_at_large_sizes(n_rows: int, n_neighbors: int) -> None:
    """Only sizes from N - 2K on count, so the exact sum has few terms and its binomials a small complement."""
    smallest = n_rows - 2 * n_neighbors

    def weight(size: int) -> Fraction:
        if not smallest <= size < n_rows:
            return Fraction(0)
        return Fraction(1, (n_rows - smallest) * math.comb(n_rows - 1, n_rows - 1 - size))

    def general_sum(rank: int) -> Fraction:
        total = Fraction(0)
        nearer, farther = rank - 1, n_rows - 1 - rank
        for size in range(smallest - 1, n_rows - 1):
            voting = sum(
                math.comb(nearer, t) * math.comb(farther, farther - (size - t))
                for t in range(min(n_neighbors, rank))
                if 0 <= size - t <= farther
            )
            total += (weight(size) + weight(size + 1)) * voting
        return total / n_neighbors

    table = rank_table(n_rows, n_neighbors, "calibrated", "hard")
    beyond_all_votes = 3 * n_neighbors
    expected = [float(general_sum(rank)) for rank in range(1, beyond_all_votes + 2)]
    np.testing.assert_allclose(table.c[: beyond_all_votes + 1], expected, rtol=1e-11, atol=1e-18)
    assert (table.c[beyond_all_votes:] <= 1e-18).all()
    # No set that counts is smaller than K, so both utilities divide by K.
    soft = rank_table(n_rows, n_neighbors, "calibrated", "soft")
    np.testing.assert_allclose(soft.c, table.c, rtol=1e-12, atol=1e-18)
    assert (soft.per_match, soft.empty) == (0, 0)


# --- the weighted Banzhaf value -------------------------------------------------------------------------------------


@pytest.mark.parametrize("utility", UTILITIES)
@pytest.mark.parametrize(("w", "name"), [(0.5, "banzhaf"), (1, "loo")])
def test_weighted_banzhaf_has_the_bytes_of_its_special_cases(w: float, name: str, utility: str) -> None:
    for n_rows, n_neighbors in ((1, 1), (2, 1), (2, 5), (30, 4), (1000, 7), (1000, 1003)):
        found, expected = (rank_table(n_rows, n_neighbors, semivalue, utility) for semivalue in (Banzhaf(w), name))
        assert found.c.tobytes() == expected.c.tobytes()
        assert (found.per_match, found.empty) == (expected.per_match, expected.empty)
    assert size_probabilities(9, Banzhaf(w)).tobytes() == size_probabilities(9, name).tobytes()


@pytest.mark.parametrize("utility", UTILITIES)
def test_the_mean_of_weighted_banzhaf_over_all_w_is_shapley(utility: str) -> None:
    nodes, weights = np.polynomial.legendre.leggauss(16)  # exact for polynomials of degree 31
    for n_rows, n_neighbors in ((2, 1), (7, 3), (30, 5), (30, 40)):
        tables = [rank_table(n_rows, n_neighbors, Banzhaf((1 + node) / 2), utility) for node in nodes]
        expected = rank_table(n_rows, n_neighbors, "shapley", utility)
        np.testing.assert_allclose(weights / 2 @ [table.c for table in tables], expected.c, rtol=1e-13)
        assert weights / 2 @ [table.per_match for table in tables] == pytest.approx(expected.per_match, rel=1e-13)
        assert weights / 2 @ [table.empty for table in tables] == pytest.approx(expected.empty, rel=1e-13)


@pytest.mark.parametrize("bad", [0, -0.1, 1.5, math.nan, math.inf, "0.5", None, True])
def test_banzhaf_refuses_what_is_no_probability(bad: object) -> None:
    with pytest.raises(ValueError, match=rf"'w' parameter of Banzhaf must be a number above 0 and at most 1.*{bad}"):
        Banzhaf(bad)


# --- the Beta object ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [0, -1, math.nan, math.inf, "2", None])
@pytest.mark.parametrize("name", ["alpha", "beta"])
def test_beta_refuses_shapes_that_are_no_positive_numbers(name: str, bad: object) -> None:
    with pytest.raises((ValueError, TypeError), match=rf"{name}.*positive.*{bad}"):
        Beta(**{"alpha": 1.0, "beta": 1.0, name: bad})
