"""Correctors against the published formulas, written out here on the full matrix of values."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.datasets import make_gaussian_quantiles
from sklearn.exceptions import NotFittedError

from shapshift import KNNShapley, Valuation
from shapshift.agreement import agreement, distribution
from shapshift.correct import BoundaryCorrector, CorrectionWarning, EntropyNormalizer, evaluate
from shapshift.correct.correctors import _checksum, exact_shift, sum_factor
from shapshift.price import audit_payouts
from shapshift.valuation import corrected_by

# --- the correction, plainly ----------------------------------------------------------------------------------------


def group_scores(matrix: np.ndarray, members: np.ndarray) -> np.ndarray:
    return np.array([np.mean([row[j] for j in np.flatnonzero(members)]) for row in matrix])


def naive_scores(clean: Valuation, noisy: Valuation, parts: list) -> np.ndarray:
    """Rescaled scores before the shift; a part is a predicate on the entropy of a point."""
    total = np.zeros(noisy.n_train)
    for part in parts:
        clean_members, noisy_members = part(clean.entropy), part(noisy.entropy)
        if not noisy_members.any():
            continue
        scores = group_scores(noisy.matrix, noisy_members)
        alpha = group_scores(clean.matrix, clean_members).std() / scores.std()
        total += noisy_members.mean() * (scores.mean() + alpha * (scores - scores.mean()))
    return total


def nearest_quantile(scores: np.ndarray, q: float) -> float:
    return sorted(scores)[round((len(scores) - 1) * q)]


BOUNDARY_PARTS = [lambda entropy: entropy > 0, lambda entropy: entropy == 0]


def make(n_classes: int = 2, n: int = 150, m: int = 80, noise: float = 0.8, **parameters):
    X, y = make_gaussian_quantiles(n_samples=n + m, n_features=2, n_classes=n_classes, random_state=3)
    model = KNNShapley(**parameters).fit(X[:n], y[:n])
    X_noisy = X[n:] + noise * np.random.default_rng(1).normal(size=(m, 2))
    return [model.value(points, y[n:], matrix=True) for points in (X[n:], X_noisy)]


@pytest.fixture(scope="module")
def pair() -> list[Valuation]:
    return make()


# --- boundary correction --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("utility", ["soft", "hard"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_nearest_is_the_published_rule(n_classes: int, utility: str) -> None:
    clean, noisy = make(n_classes, utility=utility)
    scores = naive_scores(clean, noisy, BOUNDARY_PARTS)
    rho = np.mean(clean.matrix.mean(axis=1) > 0)
    expected = scores - nearest_quantile(scores, 1 - rho)
    corrected = BoundaryCorrector(positive="nearest", min_points=1).fit(clean).transform(noisy)
    np.testing.assert_allclose(corrected.values, expected, rtol=0, atol=1e-12 * np.abs(expected).max())
    assert (corrected.values == 0).sum() == 1
    assert abs((corrected.values > 0).sum() - (clean.values > 0).sum()) <= 1


def test_a_bound_on_the_noisy_values_does_not_bound_the_corrected_ones(pair: list[Valuation]) -> None:
    clean, noisy = pair
    corrector = BoundaryCorrector().fit(clean)
    assert corrector.transform(noisy).error_bound is None
    bounded = replace(noisy, error_bound=np.full(noisy.n_train, 1e-3))
    assert np.isinf(corrector.transform(bounded).error_bound).all()


def test_exact_meets_the_count_with_the_same_scores(pair: list[Valuation]) -> None:
    clean, noisy = pair
    scores = np.sort(naive_scores(clean, noisy, BOUNDARY_PARTS))[::-1]
    wanted = int((clean.values > 0).sum())
    corrected = BoundaryCorrector().fit(clean).transform(noisy)
    expected = scores - (scores[wanted - 1] + scores[wanted]) / 2
    np.testing.assert_allclose(np.sort(corrected.values)[::-1], expected, rtol=0, atol=1e-15)
    assert (corrected.values > 0).sum() == wanted != (noisy.values > 0).sum()


def test_fitted_numbers(pair: list[Valuation]) -> None:
    clean, _ = pair
    corrector = BoundaryCorrector().fit(clean)
    for name, part in zip(("boundary", "nonboundary"), BOUNDARY_PARTS, strict=True):
        expected = group_scores(clean.matrix, part(clean.entropy)).std()
        assert corrector.group_std_[name] == pytest.approx(expected, rel=1e-12)
    assert corrector.positive_count_ == (clean.values > 0).sum()
    assert corrector.positive_ratio_ == corrector.positive_count_ / 150
    assert (corrector.n_train_, corrector.fingerprint_) == (150, clean.fingerprint)
    assert corrector.parameters_["n_neighbors"] == 5


def test_report_and_result(pair: list[Valuation]) -> None:
    clean, noisy = pair
    corrector = BoundaryCorrector().fit(clean)
    corrected = corrector.transform(noisy)
    report = corrector.report_
    assert corrected.parameters["correction"] == report.to_dict()
    assert report.groups["boundary"]["share"] == pytest.approx(noisy.boundary_fraction)
    scores = group_scores(noisy.matrix, noisy.entropy > 0)
    assert report.groups["boundary"]["alpha"] == pytest.approx(corrector.group_std_["boundary"] / scores.std())
    assert report.groups["boundary"]["mean"] == pytest.approx(scores.mean())
    assert report.to_positive == ((corrected.values > 0) & (noisy.values <= 0)).sum()
    assert report.to_negative == ((corrected.values <= 0) & (noisy.values > 0)).sum()
    assert report.before["std"] == pytest.approx(noisy.values.std())
    assert report.after["mean"] == pytest.approx(noisy.values.mean() + report.shift)
    assert "alpha" in str(report)
    assert corrected.matrix is None
    assert corrected.group_values == {}
    assert corrected.fingerprint == noisy.fingerprint
    np.testing.assert_array_equal(corrected.ids, noisy.ids)
    np.testing.assert_array_equal(corrected.boundary, noisy.boundary)


@pytest.mark.parametrize("preserve_sum", [False, True])
def test_levels_average_to_the_values(pair: list[Valuation], preserve_sum: bool) -> None:
    clean, noisy = pair
    corrected = BoundaryCorrector(preserve_sum=preserve_sum).fit(clean).transform(noisy)
    mean = corrected.level_counts @ corrected.level_values / corrected.n_val
    np.testing.assert_allclose(mean, corrected.values, atol=1e-15)
    if not preserve_sum:
        assert corrected.boundary_values.std() == pytest.approx(clean.boundary_values.std())
        assert corrected.nonboundary_values.std() == pytest.approx(clean.nonboundary_values.std())


def test_clean_values_are_left_alone(pair: list[Valuation]) -> None:
    clean, _ = pair
    again = BoundaryCorrector().fit(clean).transform(clean)
    # The spreads and the count are met already; only the cut between the signs moves, inside the gap around 0.
    ordered = np.sort(clean.values)
    gap = ordered[ordered > 0][0] - ordered[ordered <= 0][-1]
    assert np.abs(again.values - clean.values).max() <= gap
    np.testing.assert_array_equal(again.values > 0, clean.values > 0)


def test_a_corrected_valuation_survives_its_file(pair: list[Valuation], tmp_path: Path) -> None:
    clean, noisy = pair
    corrected = BoundaryCorrector().fit(clean).transform(noisy)
    corrected.save(tmp_path / "corrected.npz")
    assert Valuation.load(tmp_path / "corrected.npz").parameters == corrected.parameters


# --- entropy levels and bins ----------------------------------------------------------------------------------------


def test_one_part_per_level() -> None:
    clean, noisy = make(n_classes=4, n=200, m=150, noise=0.4)
    levels = clean.level_entropy
    np.testing.assert_allclose(levels, noisy.level_entropy)
    parts = [
        lambda entropy, level=level: np.abs(entropy[:, None] - levels).argmin(axis=1) == np.flatnonzero(levels == level)
        for level in levels
    ]
    scores = naive_scores(clean, noisy, parts)
    got = EntropyNormalizer(positive="nearest", min_points=1).fit(clean).transform(noisy)
    expected = scores - nearest_quantile(scores, 1 - np.mean(clean.values > 0))
    np.testing.assert_allclose(got.values, expected, rtol=0, atol=1e-12 * np.abs(expected).max())


def test_quantile_bins() -> None:
    clean, noisy = make(n_classes=4, n=200, m=150, noise=0.4)
    normalizer = EntropyNormalizer(bins=3, positive="nearest", min_points=1).fit(clean)
    ordered = np.sort(clean.entropy)
    first, second = ordered[150 // 3 - 1], ordered[2 * 150 // 3 - 1]
    np.testing.assert_allclose(normalizer.edges_, np.unique([first, second]), atol=1e-9)
    parts = [
        lambda entropy: entropy <= first + 1e-9,
        lambda entropy: (entropy > first + 1e-9) & (entropy <= second + 1e-9),
        lambda entropy: entropy > second + 1e-9,
    ]
    scores = naive_scores(clean, noisy, parts)
    expected = scores - nearest_quantile(scores, 1 - np.mean(clean.values > 0))
    got = normalizer.transform(noisy)
    np.testing.assert_allclose(got.values, expected, rtol=0, atol=1e-12 * np.abs(expected).max())


def test_two_classes_in_bins_of_zero_and_above_is_the_boundary_correction(pair: list[Valuation]) -> None:
    clean, noisy = pair
    normalizer = EntropyNormalizer(bins=2).fit(clean)
    assert normalizer.edges_ == [0.0]  # most points lie inside a class here
    np.testing.assert_allclose(
        normalizer.transform(noisy).values, BoundaryCorrector().fit(clean).transform(noisy).values, atol=1e-16
    )
    assert EntropyNormalizer(bins=1).fit(clean).edges_ == []


def test_a_level_on_one_side_only(pair: list[Valuation]) -> None:
    clean, noisy = pair
    fewer = drop_levels(clean, clean.level_entropy < 0.6)
    with pytest.warns(CorrectionWarning, match=r"clean validation set has no entropy 0\.673012 points"):
        corrected = EntropyNormalizer().fit(fewer).transform(noisy)
    assert corrected.parameters["correction"]["groups"]["entropy 0.673012"]["alpha"] == 1.0
    with pytest.warns(CorrectionWarning, match=r"noisy validation set has no entropy 0\.673012 points"):
        EntropyNormalizer().fit(clean).transform(drop_levels(noisy, noisy.level_entropy < 0.6))


# --- degenerate parts -----------------------------------------------------------------------------------------------


def drop_levels(valuation: Valuation, keep: np.ndarray) -> Valuation:
    """The valuation on the points of some levels only."""
    counts = valuation.level_counts[keep]
    points = np.isin(np.abs(valuation.entropy[:, None] - valuation.level_entropy).argmin(axis=1), np.flatnonzero(keep))
    return replace(
        valuation,
        values=counts @ valuation.level_values[keep] / counts.sum(),
        entropy=valuation.entropy[points],
        boundary=valuation.boundary[points],
        level_entropy=valuation.level_entropy[keep],
        level_values=valuation.level_values[keep],
        level_counts=counts,
        matrix=valuation.matrix[:, points] if valuation.matrix is not None else None,
    )


@pytest.mark.parametrize("gone", ["boundary", "nonboundary"])
def test_a_part_missing_on_one_side(pair: list[Valuation], gone: str) -> None:
    clean, noisy = pair

    def without(valuation: Valuation) -> Valuation:
        return drop_levels(valuation, (valuation.level_entropy > 0) != (gone == "boundary"))

    with pytest.warns(CorrectionWarning, match=f"clean validation set has no {gone} points.*are not rescaled"):
        corrected = BoundaryCorrector().fit(without(clean)).transform(noisy)
    assert corrected.parameters["correction"]["groups"][gone]["alpha"] == 1.0
    assert (corrected.values > 0).sum() == (without(clean).values > 0).sum()
    with pytest.warns(CorrectionWarning, match=f"noisy validation set has no {gone} points"):
        corrected = BoundaryCorrector().fit(clean).transform(without(noisy))
    assert gone not in corrected.parameters["correction"]["groups"]
    # Missing on both sides there is nothing to say.
    BoundaryCorrector().fit(without(clean)).transform(without(noisy))


def test_parts_without_spread(pair: list[Valuation]) -> None:
    clean, noisy = pair

    def flat(valuation: Valuation) -> Valuation:
        levels = valuation.level_values.copy()
        levels[valuation.level_entropy > 0] = 1e-3
        return replace(valuation, values=valuation.level_counts @ levels / valuation.n_val, level_values=levels)

    with pytest.warns(CorrectionWarning, match="boundary points of the noisy set. These are not rescaled"):
        corrected = BoundaryCorrector().fit(clean).transform(flat(noisy))
    assert corrected.parameters["correction"]["groups"]["boundary"]["alpha"] == 1.0
    with pytest.warns(CorrectionWarning, match="boundary points of the clean set"):
        corrected = BoundaryCorrector().fit(flat(clean)).transform(noisy)
    assert corrected.parameters["correction"]["groups"]["boundary"]["alpha"] == pytest.approx(0, abs=1e-9)


def test_one_point_per_part_and_one_training_row() -> None:
    X = np.array([[0.0], [0.1], [0.2], [0.3], [0.4], [5.0], [5.1], [5.2], [5.3], [5.4]])
    model = KNNShapley().fit(X, [0] * 5 + [1] * 5)
    clean, noisy = model.value([[0.2], [2.6]], [0, 1]), model.value([[0.25], [2.9]], [0, 1])
    assert clean.level_counts.tolist() == noisy.level_counts.tolist() == [1, 1]
    published = BoundaryCorrector(positive="nearest", min_points=1)
    assert np.isfinite(published.fit(clean).transform(noisy).values).all()
    single = KNNShapley().fit([[0.0]], ["a"])
    with pytest.warns(UserWarning, match="never seen"):
        wrong = single.value([[1.0]], ["b"])
    right = single.value([[1.0]], ["a"])
    with pytest.warns(CorrectionWarning):
        BoundaryCorrector(min_points=1).fit(right).transform(wrong)


def few_boundary(valuation: Valuation, count: int) -> Valuation:
    """The valuation on all points that are not on a boundary and the first few that are."""
    keep = np.concatenate([np.flatnonzero(~valuation.boundary), np.flatnonzero(valuation.boundary)[:count]])
    level = np.abs(valuation.entropy[keep, None] - valuation.level_entropy).argmin(axis=1)
    present, counts = np.unique(level, return_counts=True)
    return replace(
        valuation,
        values=valuation.matrix[:, keep].mean(axis=1),
        entropy=valuation.entropy[keep],
        boundary=valuation.boundary[keep],
        level_entropy=valuation.level_entropy[present],
        level_values=np.stack([valuation.matrix[:, keep[level == at]].mean(axis=1) for at in present]),
        level_counts=counts,
        matrix=valuation.matrix[:, keep],
    )


@pytest.mark.parametrize("side", ["clean", "noisy"])
def test_a_part_of_few_points_is_not_rescaled(pair: list[Valuation], side: str) -> None:
    whole = dict(zip(("clean", "noisy"), pair, strict=True))
    sizes = {name: int(valuation.boundary.sum()) for name, valuation in whole.items()}
    for count, rescaled in ((1, False), (4, False), (5, True)):
        given = whole | {side: few_boundary(whole[side], count)}
        counts = sizes | {side: count}
        corrector = BoundaryCorrector().fit(given["clean"])
        if rescaled:
            corrector.transform(given["noisy"])
        else:
            message = f"too few boundary points .* {counts['clean']} in the clean and {counts['noisy']} in the noisy"
            with pytest.warns(CorrectionWarning, match=message):
                corrector.transform(given["noisy"])
        part = corrector.report_.groups["boundary"]
        assert (part["points_clean"], part["points_noisy"]) == (counts["clean"], counts["noisy"])
        assert (part["alpha"] == 1.0) is not rescaled
        assert f"{counts['noisy']} points (clean: {counts['clean']})" in str(corrector.report_)
        # The published formula is one parameter away, and wild.
        published = BoundaryCorrector(min_points=1).fit(given["clean"])
        published.transform(given["noisy"])
        expected = published.group_std_["boundary"] / given["noisy"].boundary_values.std()
        assert published.report_.groups["boundary"]["alpha"] == pytest.approx(expected)


def test_the_spread_of_a_part_falls_with_its_size(pair: list[Valuation]) -> None:
    spreads = [BoundaryCorrector().fit(few_boundary(pair[0], k)).group_std_["boundary"] for k in (1, 5, 15)]
    assert spreads[0] > 1.5 * spreads[1] > 1.5 * spreads[2]


def test_bins_do_not_pool_points_of_which_the_clean_set_has_none(pair: list[Valuation]) -> None:
    clean, noisy = pair
    for keep, name in (
        (clean.level_entropy == 0, "entropy 0.000000 to up"),
        (clean.level_entropy > 0, "entropy 0 to 0"),
    ):
        normalizer = EntropyNormalizer(bins=3).fit(drop_levels(clean, keep))
        with pytest.warns(CorrectionWarning, match=f"clean validation set has no {name}.* points, the noisy one has"):
            normalizer.transform(noisy)
        (alpha,) = (part["alpha"] for group, part in normalizer.report_.groups.items() if group.startswith(name))
        assert alpha == 1.0


def test_a_correction_is_made_once(pair: list[Valuation]) -> None:
    clean, noisy = pair
    corrector = BoundaryCorrector().fit(clean)
    corrected = corrector.transform(noisy)
    with pytest.raises(ValueError, match=r"'noisy' .*transform has been corrected already, by BoundaryCorrector"):
        corrector.transform(corrected)
    with pytest.raises(ValueError, match=r"'clean' .*EntropyNormalizer.fit has been corrected already"):
        EntropyNormalizer().fit(corrected)


def test_evaluation_compares_like_with_like(pair: list[Valuation]) -> None:
    clean, noisy = pair
    for options, name in (({"utility": "hard"}, "utility"), ({"n_neighbors": 3}, "n_neighbors")):
        with pytest.raises(ValueError, match=f"'noisy' was computed with {name}="):
            evaluate(clean, clean, make(**options)[1])
    with pytest.raises(ValueError, match="'corrected' was computed with method='Other'"):
        evaluate(replace(noisy, parameters={**noisy.parameters, "method": "Other"}), clean)


# --- the shift and the sum ------------------------------------------------------------------------------------------


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=30), st.data())
def test_exact_shift_meets_every_possible_count(scores: list[float], data: st.DataObject) -> None:
    array = np.array(scores)
    wanted = data.draw(st.integers(0, array.size))
    possible = {int((array > cut).sum()) for cut in [*scores, -2.0]}
    reached = int((array + exact_shift(array, wanted) > 0).sum())
    best = min(abs(count - wanted) for count in possible)
    if not np.all(array == 0):  # all-zero scores have no scale to shift by
        assert abs(reached - wanted) == best
        assert reached == min(count for count in possible if abs(count - wanted) == best)


def test_exact_shift_between_neighbouring_numbers() -> None:
    low = 0.1
    high = np.nextafter(low, 1)
    assert ((np.array([low, high]) + exact_shift(np.array([low, high]), 1)) > 0).tolist() == [False, True]


def test_ties_at_the_cut_warn(pair: list[Valuation]) -> None:
    clean, noisy = pair
    tied = replace(
        noisy,
        values=np.repeat(noisy.values[::2], 2),
        level_values=np.repeat(noisy.level_values[:, ::2], 2, axis=1),
    )
    odd = replace(clean, values=np.where(np.arange(150) < 75, 1.0, -1.0))
    with pytest.warns(CorrectionWarning, match="75 values should be positive, but 74 are"):
        corrected = BoundaryCorrector().fit(odd).transform(tied)
    assert (corrected.values > 0).sum() == 74
    np.testing.assert_array_equal(corrected.values[::2], corrected.values[1::2])


@pytest.mark.parametrize("corrector", [BoundaryCorrector(preserve_sum=True), EntropyNormalizer(preserve_sum=True)])
def test_preserve_sum_keeps_sum_signs_and_order(pair: list[Valuation], corrector: BoundaryCorrector) -> None:
    clean, noisy = pair
    plain = clone(corrector).set_params(preserve_sum=False).fit(clean).transform(noisy)
    kept = corrector.fit(clean).transform(noisy)
    assert abs(plain.values.sum() - noisy.values.sum()) > 0.01 * abs(noisy.values.sum())
    assert kept.values.sum() == pytest.approx(noisy.values.sum(), rel=1e-12)
    assert (kept.values > 0).sum() == (clean.values > 0).sum()
    np.testing.assert_array_equal(kept.values > 0, plain.values > 0)
    np.testing.assert_array_equal(np.argsort(kept.values), np.argsort(plain.values))


@given(st.lists(st.floats(-10, 10).filter(lambda x: abs(x) > 1e-3), min_size=1, max_size=20), st.floats(-50, 50))
@example([2.0], 5e-324)
@example([-2.0], -5e-324)
def test_sum_factor(values: list[float], target: float) -> None:
    array = np.array(values)
    factor = sum_factor(array, target)
    possible = (array > 0).any() if target > 0 else (array < 0).any() if target < 0 else np.ptp(np.sign(array)) > 0
    assert (factor is not None) == possible
    if factor is not None:
        assert factor > 0
        total = math.fsum(v * factor if v > 0 else v / factor for v in values)
        assert total == pytest.approx(target, rel=1e-9, abs=1e-9 * np.abs(array).sum() * max(factor, 1 / factor))


def test_a_sum_out_of_reach_warns(pair: list[Valuation]) -> None:
    clean, noisy = pair
    all_negative = replace(clean, values=-np.abs(clean.values))
    assert noisy.values.sum() > 0
    with pytest.warns(CorrectionWarning, match="all have one sign"):
        corrected = BoundaryCorrector(preserve_sum=True).fit(all_negative).transform(noisy)
    assert (corrected.values > 0).sum() == 0


# --- rules and switches ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [BoundaryCorrector, EntropyNormalizer])
def test_the_rule_of_the_paper(pair: list[Valuation], kind: type[BoundaryCorrector]) -> None:
    clean, noisy = few_boundary(pair[0], 2), few_boundary(pair[1], 3)
    published = kind(rule="paper").fit(clean)
    found, same = published.transform(noisy), kind(positive="nearest", min_points=1).fit(clean).transform(noisy)
    assert found.values.tobytes() == same.values.tobytes()
    assert any(part["alpha"] != 1 for name, part in published.report_.groups.items() if not name.endswith("0.000000"))
    applied = published.report_.to_dict()
    assert [applied[name] for name in ("rule", "positive", "min_points")] == ["paper", "nearest", 1]
    assert "rule 'paper'" in str(published.report_)
    overridden = kind(rule="paper", positive="exact").fit(clean)
    assert (overridden.transform(noisy).values > 0).sum() == overridden.positive_count_
    with pytest.warns(CorrectionWarning, match="too few"):
        kind(rule="paper", min_points=4).fit(clean).transform(noisy)


@pytest.mark.parametrize("rescale", ["all", "boundary", "nonboundary", "none"])
@pytest.mark.parametrize("shift", [True, False])
def test_switches_against_the_formula(pair: list[Valuation], rescale: str, shift: bool) -> None:
    clean, noisy = pair
    total, fraction = np.zeros(noisy.n_train), noisy.boundary.mean()
    for name, inside, weight in (("boundary", True, fraction), ("nonboundary", False, 1 - fraction)):
        scores = group_scores(noisy.matrix, noisy.boundary == inside)
        alpha = group_scores(clean.matrix, clean.boundary == inside).std() / scores.std()
        alpha = alpha if rescale in ("all", name) else 1.0
        total += weight * (scores.mean() + alpha * (scores - scores.mean()))
    if shift:
        total -= nearest_quantile(total, 1 - (clean.values > 0).mean())
    corrector = BoundaryCorrector(rule="paper", rescale=rescale, shift=shift).fit(clean)
    np.testing.assert_allclose(corrector.transform(noisy).values, total, rtol=1e-10, atol=1e-15)
    report = corrector.report_
    assert (report.rescale, report.shifted) == (rescale, shift)
    assert shift or report.shift == 0
    assert [part["alpha"] != 1 for part in report.groups.values()] == [
        rescale in ("all", name) for name in report.groups
    ]


def test_nothing_to_do_is_nothing_done(pair: list[Valuation]) -> None:
    noisy = pair[1]
    found = EntropyNormalizer(rescale="none", shift=False).fit(pair[0]).transform(noisy)
    np.testing.assert_allclose(found.values, noisy.values, rtol=1e-12, atol=1e-18)


@pytest.mark.parametrize("bins", [None, 1, 2])
def test_one_side_of_the_levels(pair: list[Valuation], bins: int | None) -> None:
    """No part has points of both kinds, also where one bin would hold all."""
    clean, noisy = pair
    corrector = EntropyNormalizer(bins=bins, rescale="nonboundary", min_points=1).fit(clean)
    corrector.transform(noisy)
    rescaled = [name for name, part in corrector.report_.groups.items() if part["alpha"] != 1]
    assert rescaled == ["entropy 0.000000" if bins is None else "entropy 0 to 0.000000"]
    assert corrector.report_.groups[rescaled[0]]["points_noisy"] == (~noisy.boundary).sum()


class Spread:
    def fit(self, clean):
        self.std = clean.values.std()
        return self

    def transform(self, noisy):
        return replace(noisy, values=self.std / noisy.values.std() * noisy.values)


def test_an_object_of_the_users_own() -> None:
    X, y = make_gaussian_quantiles(n_samples=230, n_features=2, n_classes=2, random_state=3)
    model = KNNShapley().fit(X[:150], y[:150])
    clean, X_noisy = model.value(X[150:], y[150:]), X[150:] + 0.5
    own = Spread().fit(clean)
    found = model.value(X_noisy, y[150:], correction=own)
    noisy = model.value(X_noisy, y[150:])
    np.testing.assert_array_equal(found.values, own.transform(noisy).values)
    np.testing.assert_allclose(np.average(found.level_values, axis=0, weights=found.level_counts), found.values)
    assert found.standard_error is None
    assert found.error_bound is None
    assert found.parameters["correction"] == {"corrector": "Spread"}
    assert evaluate(found, clean, noisy).distribution["corrected"]["std_ratio"] == pytest.approx(1)
    with pytest.raises(ValueError, match="corrected already, by Spread"):
        BoundaryCorrector().fit(found)
    owners = ["ann", "bob", "cid"] * 50
    audit = audit_payouts(model, X[150:], y[150:], 100, owners=owners, noise=[0.5], repeats=2, corrector=own)
    plain = audit_payouts(model, X[150:], y[150:], 100, owners=owners, noise=[0.5], repeats=2)
    np.testing.assert_array_equal(audit.cents, plain.cents)  # a factor changes no share
    assert audit.parameters["corrector"] == "Spread"


def test_what_an_object_of_the_users_own_must_return() -> None:
    model = KNNShapley(n_neighbors=1).fit([[0.0], [1.0], [3.0]], ["a", "b", "b"])
    own = Spread()
    for returned, why in [
        (3, "returns int"),
        (lambda noisy: replace(noisy, values=noisy.values[:2]), r"returns values of shape \(2,\)"),
        (lambda noisy: replace(noisy, values=noisy.values * np.nan), "not finite"),
        (lambda noisy: replace(noisy, values=noisy.values * 1j), "not real numbers"),
        (lambda noisy: replace(noisy, values=["x", "y", "z"]), "not real numbers"),
        (lambda noisy: replace(noisy, ids=noisy.ids[::-1]), "other rows .* or in another order"),
        (lambda noisy: replace(noisy, fingerprint="another"), "other rows"),
    ]:
        own.transform = returned if callable(returned) else lambda noisy: 3
        with pytest.raises(ValueError, match=why):
            model.value([[0.9], [0.2]], ["b", "a"], correction=own)


def test_what_an_object_of_the_users_own_changes_keeps_nothing_stale(pair: list[Valuation]) -> None:
    clean, noisy = pair
    bounded, own, built_in = replace(noisy, error_bound=np.full(noisy.n_train, 1e-3)), Spread(), BoundaryCorrector()
    own.transform = lambda given: replace(given, values=list(2 * given.values))
    found = corrected_by("test", own, bounded)
    assert found.values.dtype == np.float64
    assert np.isinf(found.error_bound).all()
    own.transform = lambda given: given
    assert (corrected_by("test", own, bounded).error_bound == 1e-3).all()
    own.transform = lambda given: replace(built_in.transform(given), values=2 * built_in.transform(given).values)
    built_in.fit(clean)
    found = corrected_by("test", own, noisy)
    np.testing.assert_allclose(np.average(found.level_values, axis=0, weights=found.level_counts), found.values)
    assert corrected_by("test", built_in, noisy).values.tobytes() == built_in.transform(noisy).values.tobytes()


def test_a_part_with_both_kinds_is_not_rescaled_by_kind(pair: list[Valuation]) -> None:
    normalizer = EntropyNormalizer(bins=1).fit(pair[0]).set_params(rescale="boundary")
    with pytest.raises(ValueError, match=r"'rescale' .* has both boundary and other points.*Fit it again"):
        normalizer.transform(pair[1])
    normalizer.fit(pair[0]).transform(pair[1])


# --- refusals -------------------------------------------------------------------------------------------------------


def test_refusals(pair: list[Valuation]) -> None:
    clean, noisy = pair
    corrector = BoundaryCorrector().fit(clean)
    with pytest.raises(NotFittedError):
        BoundaryCorrector().transform(noisy)
    with pytest.raises(NotFittedError):
        EntropyNormalizer().save("nowhere.json")
    with pytest.raises(ValueError, match="fingerprints differ"):
        corrector.transform(make(n=140)[1])
    with pytest.raises(ValueError, match="'noisy' was computed with utility='hard', the clean valuation with utility="):
        corrector.transform(make(utility="hard")[1])
    with pytest.raises(ValueError, match="n_neighbors=3"):
        corrector.transform(make(n_neighbors=3)[1])
    with pytest.raises(TypeError, match=r"'clean' parameter of BoundaryCorrector.fit must be a Valuation.*ndarray"):
        BoundaryCorrector().fit(clean.values)
    with pytest.raises(TypeError, match=r"'noisy' parameter of BoundaryCorrector.transform"):
        corrector.transform(noisy.values)
    with pytest.raises(ValueError, match="'positive' parameter of BoundaryCorrector must be one of"):
        BoundaryCorrector(positive="median").fit(clean)
    with pytest.raises(TypeError, match="'preserve_sum'"):
        BoundaryCorrector(preserve_sum="yes").fit(clean)
    with pytest.raises(ValueError, match="'min_points' parameter of BoundaryCorrector must be at least 1"):
        BoundaryCorrector(min_points=0).fit(clean)
    with pytest.raises(ValueError, match="'rule' parameter of BoundaryCorrector must be one of"):
        BoundaryCorrector(rule="published").fit(clean)
    with pytest.raises(ValueError, match="'rescale' parameter of EntropyNormalizer must be one of"):
        EntropyNormalizer(rescale="both").fit(clean)
    with pytest.raises(TypeError, match="'shift'"):
        BoundaryCorrector(shift=0.5).fit(clean)
    with pytest.raises(ValueError, match="'bins' parameter of EntropyNormalizer must be at least 1"):
        EntropyNormalizer(bins=0).fit(clean)
    with pytest.raises(ValueError, match="'corrected' has values of other training rows"):
        evaluate(make(n=140)[1], clean)
    with pytest.raises(TypeError, match="'noisy' parameter of evaluate"):
        evaluate(noisy, clean, noisy.values)


UNSET = {"rule": "default", "rescale": "all", "shift": True, "positive": None, "min_points": None}


def test_scikit_learn_idiom(pair: list[Valuation]) -> None:
    corrector = EntropyNormalizer(bins=2, preserve_sum=True)
    copy = clone(corrector.fit(pair[0]))
    assert copy.get_params() == {"bins": 2, **UNSET, "preserve_sum": True}
    assert not hasattr(copy, "group_std_")
    assert copy.set_params(positive="nearest").positive == "nearest"


# --- files ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "corrector", [BoundaryCorrector(), EntropyNormalizer(), EntropyNormalizer(bins=np.int64(2), positive="nearest")]
)
def test_saved_numbers_correct_alike(pair: list[Valuation], corrector: BoundaryCorrector, tmp_path: Path) -> None:
    clean, noisy = pair
    path = tmp_path / "corrector.json"
    corrector.fit(clean).save(path)
    loaded = type(corrector).load(path)
    assert loaded.get_params() == corrector.get_params()
    assert loaded.positive_ratio_ == corrector.positive_ratio_
    assert loaded.transform(noisy).values.tobytes() == corrector.transform(noisy).values.tobytes()
    assert len(path.read_text()) < 2000  # a handful of numbers
    with pytest.raises(ValueError, match="fingerprints differ"):
        loaded.transform(make(n=140)[1])


def test_damaged_and_foreign_files(pair: list[Valuation], tmp_path: Path) -> None:
    path = tmp_path / "corrector.json"
    BoundaryCorrector().fit(pair[0]).save(path)
    text = path.read_text()

    def refused(content: str, why: str, kind: type = BoundaryCorrector) -> None:
        path.write_text(content)
        with pytest.raises(ValueError, match=why):
            kind.load(path)

    refused(text[:-30], "not a whole shapshift.BoundaryCorrector file")
    refused(text, "it holds a shapshift.BoundaryCorrector", EntropyNormalizer)
    refused(text.replace('"n_train_": 150', '"n_train_": 151'), "checksum")
    refused(text.replace('"version": 3', '"version": 9'), "format version 9")
    refused("[1, 2]", "not a whole")
    refused("{}", "not a whole")
    body = json.loads(text)
    assert body["format"] == "shapshift.BoundaryCorrector"
    with pytest.raises(ValueError, match="There is no file"):
        BoundaryCorrector.load(tmp_path / "nothing.json")


def test_files_of_the_first_release_correct_as_before(pair: list[Valuation], tmp_path: Path) -> None:
    clean, noisy = pair
    path = tmp_path / "corrector.json"
    fitted = BoundaryCorrector(positive="nearest", min_points=2).fit(clean)
    fitted.save(path)
    body = json.loads(path.read_text())
    del body["checksum"]
    body |= {"version": 2, "parameters": {"positive": "nearest", "preserve_sum": False, "min_points": 2}}
    path.write_text(json.dumps({**body, "checksum": _checksum(body)}))
    assert BoundaryCorrector.load(path).transform(noisy).values.tobytes() == fitted.transform(noisy).values.tobytes()


# --- evaluation -----------------------------------------------------------------------------------------------------


def test_evaluation_is_side_by_side(pair: list[Valuation]) -> None:
    clean, noisy = pair
    corrected = BoundaryCorrector().fit(clean).transform(noisy)
    result = evaluate(corrected, clean, noisy, top=0.2)
    for name, valuation in (("noisy", noisy), ("corrected", corrected)):
        expected = agreement(valuation.values, clean.values, top=0.2)
        expected["sign_agreement"] = float(np.mean((valuation.values > 0) == (clean.values > 0)))
        assert result.rows[name] == pytest.approx(expected)
        assert result.distribution[name] == distribution(valuation.values, clean.values)
    assert result.rows["clean"]["spearman"] == pytest.approx(1)
    assert result.distribution["clean"]["wasserstein"] == 0
    frame = result.to_frame("pandas").set_index("statistic")
    assert list(frame.columns) == ["aspect", "clean", "noisy", "corrected"]
    assert frame.loc["spearman", "noisy"] == result.rows["noisy"]["spearman"]
    assert result.to_frame("polars").shape == (16, 5)
    assert "noisy" not in evaluate(corrected, clean).to_frame("pandas").columns
    assert "spearman" in repr(result)


def test_plot(pair: list[Valuation]) -> None:
    plt = pytest.importorskip("matplotlib.pyplot")
    clean, noisy = pair
    result = evaluate(BoundaryCorrector().fit(clean).transform(noisy), clean, noisy)
    axes = result.plot()
    assert [ax.get_title(loc="left").split(":")[0] for ax in axes] == ["Distribution", "Rows, noisy", "Rows, corrected"]
    with pytest.raises(ValueError, match="must be an array of 3 matplotlib Axes"):
        result.plot(ax=axes[:2])
    plt.close("all")
