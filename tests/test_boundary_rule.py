"""Which points are boundary points: how many neighbours decide, and above which entropy of their labels."""

from __future__ import annotations

import warnings
from pathlib import Path

import naive
import numpy as np
import pytest
from cli_files import run
from sklearn.base import clone
from sklearn.naive_bayes import GaussianNB

from shapshift import (
    BoundaryCorrector,
    BoundaryCoverage,
    BoundaryStratifiedSplit,
    EntropyNormalizer,
    GaussianNoise,
    KNNProxy,
    KNNRegressionShapley,
    KNNShapley,
    PosteriorCorrector,
    SampledShapley,
    ThresholdKNNShapley,
    Valuation,
    ValuationStore,
    WeightedKNNShapley,
    case_one,
    cross_value,
    entropy_profile,
)
from shapshift.engine.boundary import entropy_levels, level_edges, nearest_level
from shapshift.mechanism import pick_points
from shapshift.perturb import OnPoints

RNG = np.random.default_rng(8)
# Few distinct places, so that distances tie and labels count in fractions.
X, X_VAL = RNG.integers(0, 5, size=(90, 2)).astype(float), RNG.integers(0, 5, size=(40, 2)) + 0.0
Y, Y_VAL = RNG.integers(0, 3, size=90), RNG.integers(0, 3, size=40)
SMOOTH, SMOOTH_VAL = X + 0.3 * RNG.normal(size=X.shape), X_VAL + 0.3 * RNG.normal(size=X_VAL.shape)
RULES = [(1, 0.0), (2, 0.8), (3, 0.0), (3, 0.64), (10, 0.0), (10, 0.9), (5, 0.5004024235381879), (5, 9.0)]


def naive_entropy(X_val: np.ndarray, rows: np.ndarray, labels: np.ndarray, neighbors: int) -> np.ndarray:
    distances = naive.distance_matrix(X_val, rows, "euclidean")
    return np.array([naive.neighbor_entropy(row, labels.tolist(), "average", neighbors) for row in distances])


def check(found: Valuation, entropy: np.ndarray, threshold: float) -> None:
    """The entropies are these, and all that is split by the boundary is split where they pass the threshold."""
    np.testing.assert_allclose(found.entropy, entropy, rtol=0, atol=1e-12)
    boundary = entropy > threshold + 1e-9 * (threshold > 0)
    assert found.boundary.tolist() == boundary.tolist()
    assert found.boundary_fraction == boundary.mean()
    assert found.parameters["boundary_entropy"] == found.boundary_entropy == threshold
    assert found.level_counts[found.boundary_levels].sum() == boundary.sum()
    assert found.level_counts.sum() == found.n_val
    if found.matrix is not None:
        for part, values in ((boundary, found.boundary_values), (~boundary, found.nonboundary_values)):
            assert (values is None) == (not part.any())
            if values is not None:
                np.testing.assert_allclose(values, found.matrix[:, part].mean(axis=1), rtol=0, atol=1e-10)


MODELS = {
    "exact": KNNShapley(4),
    "duplicates": KNNShapley(2, utility="hard"),
    "certified": KNNShapley(4, method="certified"),
    "truncated": KNNShapley(4, method="truncated", tol=0.05),
    "weighted": WeightedKNNShapley(3, bits=2),
    "threshold": ThresholdKNNShapley(1.0),
}


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_rule_against_the_definition(name: str, rule: tuple[int, float]) -> None:
    neighbors, threshold = rule
    model = clone(MODELS[name]).set_params(boundary_neighbors=neighbors, boundary_entropy=threshold, progress=False)
    for rows, points in ((X, X_VAL), (SMOOTH, SMOOTH_VAL)):
        found = model.fit(rows, Y).value(points, Y_VAL, matrix=name not in ("certified", "truncated"))
        assert found.parameters["boundary_neighbors"] == neighbors
        check(found, naive_entropy(points, rows, Y, neighbors), threshold)


def test_values_do_not_depend_on_the_rule() -> None:
    plain = KNNShapley(4).fit(SMOOTH, Y).value(SMOOTH_VAL, Y_VAL, matrix=True)
    other = KNNShapley(4, boundary_neighbors=9, boundary_entropy=1.0).fit(SMOOTH, Y)
    found = other.value(SMOOTH_VAL, Y_VAL, matrix=True)
    assert found.matrix.tobytes() == plain.matrix.tobytes()
    np.testing.assert_allclose(found.values, plain.values, rtol=0, atol=1e-15)
    assert found.boundary.tolist() != plain.boundary.tolist()


@pytest.mark.parametrize("in_file", [False, True])
def test_buckets_of_many_rows(tmp_path: Path, in_file: bool) -> None:
    rng = np.random.default_rng(1)
    rows, points = rng.integers(0, 40, size=(4000, 2)) + 0.0, rng.integers(0, 40, size=(50, 2)) + 0.0
    labels = (rows.sum(axis=1) + rng.normal(size=4000) > 40).astype(int)
    exact = KNNShapley(boundary_neighbors=10, boundary_entropy=0.45, progress=False).fit(rows, labels)
    expected = exact.value(points, labels[:50])
    assert 0 < expected.boundary.sum() < np.count_nonzero(expected.entropy)
    if in_file:
        memory = np.memmap(tmp_path / "rows.dat", dtype=np.float64, mode="w+", shape=rows.shape)
        memory[:] = rows
        memory.flush()
        rows = memory
    model = clone(exact).set_params(method="certified", max_memory="20MB" if in_file else None)
    found = model.fit(rows, labels).value(points, labels[:50])
    assert found.boundary.tolist() == expected.boundary.tolist()
    assert found.level_counts.tolist() == expected.level_counts.tolist()
    assert found.level_counts[found.boundary_levels].sum() == found.boundary.sum()


def test_rows_in_a_file(tmp_path: Path) -> None:
    memory = np.memmap(tmp_path / "rows.dat", dtype=np.float64, mode="w+", shape=SMOOTH.shape)
    memory[:] = SMOOTH
    memory.flush()
    rule = {"boundary_neighbors": 7, "boundary_entropy": 0.6}
    for method in ("exact", "certified"):
        model = KNNShapley(4, method=method, max_memory="100MB", progress=False, **rule).fit(memory, Y)
        check(model.value(SMOOTH_VAL, Y_VAL), naive_entropy(SMOOTH_VAL, SMOOTH, Y, 7), 0.6)


def test_a_table_on_itself() -> None:
    found = cross_value(KNNShapley(4, boundary_neighbors=3, boundary_entropy=0.64), SMOOTH, Y)
    entropy = [naive_entropy(SMOOTH[[i]], np.delete(SMOOTH, i, 0), np.delete(Y, i), 3)[0] for i in range(len(SMOOTH))]
    check(found, np.array(entropy), 0.64)


def test_sampled_values_and_proxies() -> None:
    rule = {"boundary_neighbors": 3, "boundary_entropy": 0.64, "progress": False}
    entropy = naive_entropy(SMOOTH_VAL, SMOOTH[:30], Y[:30], 3)
    model = SampledShapley(GaussianNB(), max_fits=80, **rule).fit(SMOOTH[:30], Y[:30])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(model.value(SMOOTH_VAL, Y_VAL, matrix=True), entropy, 0.64)
    proxy = KNNProxy(GaussianNB(), embed=lambda model, rows: rows, **rule).fit(SMOOTH[:30], Y[:30])
    check(proxy.value(SMOOTH_VAL, Y_VAL, matrix=True), entropy, 0.64)


def test_regression_has_neighbours_alone() -> None:
    targets = SMOOTH[:, 0]
    found = KNNRegressionShapley(boundary_neighbors=2).fit(SMOOTH, targets).value(SMOOTH_VAL, SMOOTH_VAL[:, 0])
    order = np.argsort(naive.distance_matrix(SMOOTH_VAL, SMOOTH, "euclidean"), axis=1)[:, :2]
    expected = targets[order].std(axis=1) > 0.5 * targets.std()
    assert found.boundary.tolist() == expected.tolist()
    assert found.parameters["boundary_neighbors"] == 2
    assert "whose 2 nearest" in found.parameters["boundary_rule"]


@pytest.mark.parametrize("method", ["exact", "truncated"])
def test_store(method: str, tmp_path: Path) -> None:
    model = KNNShapley(2, method=method, tol=0.1, boundary_neighbors=8, boundary_entropy=0.7).fit(SMOOTH, Y)
    store = ValuationStore(model)
    store.add(SMOOTH_VAL[:20], Y_VAL[:20], groups=["a"] * 20)
    store.add(SMOOTH_VAL[20:], Y_VAL[20:], groups=["b"] * 20)
    check(store.valuation(), naive_entropy(SMOOTH_VAL, SMOOTH, Y, 8), 0.7)
    store.save(tmp_path / "store.npz")
    again = ValuationStore.load(tmp_path / "store.npz")
    again.remove_rows(list(range(80, 90)))
    check(again.valuation(), naive_entropy(SMOOTH_VAL, SMOOTH[:80], Y[:80], 8), 0.7)
    with pytest.raises(ValueError, match="'boundary_neighbors' parameter of KNNShapley must be at most"):
        again.remove_rows(list(range(75)))
    assert again.valuation().n_train == 80


def test_levels_keep_to_their_side() -> None:
    levels = entropy_levels(5, 2)
    between = np.array([0.0, 1e-12, 0.1, 0.3, 0.5, 0.55, 0.6, 0.673])
    assert nearest_level(between, level_edges(levels)).tolist() == [0, 1, 1, 1, 1, 1, 2, 2]
    assert nearest_level(between, level_edges(levels, 0.5)).tolist() == [0, 0, 0, 0, 0, 1, 2, 2]
    assert nearest_level(between, level_edges(levels, 0.55)).tolist() == [0, 0, 0, 1, 1, 1, 2, 2]
    assert nearest_level(between, level_edges(levels, 0.51)).tolist() == [0, 0, 0, 1, 1, 2, 2, 2]
    assert nearest_level(between, level_edges(np.zeros(1))).tolist() == [0] * 8


# --- what is done with values ---------------------------------------------------------------------------------------


def noisy_pair(**rule: float) -> tuple[KNNShapley, Valuation, Valuation]:
    model = KNNShapley(4, progress=False, **rule).fit(SMOOTH, Y)
    moved = SMOOTH_VAL + np.random.default_rng(2).normal(size=SMOOTH_VAL.shape)
    return model, model.value(SMOOTH_VAL, Y_VAL, matrix=True), model.value(moved, Y_VAL, matrix=True)


def test_corrections_split_where_the_model_does(tmp_path: Path) -> None:
    _, clean, noisy = noisy_pair(boundary_neighbors=10, boundary_entropy=0.9)
    total = np.zeros(noisy.n_train)
    for side in (True, False):
        own, theirs = (v.matrix[:, v.boundary == side].mean(axis=1) for v in (noisy, clean))
        total += (noisy.boundary == side).mean() * (own.mean() + theirs.std() / own.std() * (own - own.mean()))
    corrector = BoundaryCorrector(rule="paper", shift=False).fit(clean)
    np.testing.assert_allclose(corrector.transform(noisy).values, total, atol=1e-12)
    corrector.save(tmp_path / "corrector.json")
    loaded = BoundaryCorrector.load(tmp_path / "corrector.json")
    assert loaded.parameters_["boundary_entropy"] == 0.9
    halves = EntropyNormalizer(bins=1, rescale="boundary", min_points=1).fit(clean)
    halves.transform(noisy)
    counts = [part["points_noisy"] for part in halves.report_.groups.values()]
    assert counts == [(~noisy.boundary).sum(), noisy.boundary.sum()]
    for other, match in (
        ({"boundary_neighbors": 10}, "boundary_entropy=0.0, the clean valuation with boundary_entropy=0.9"),
        ({"boundary_neighbors": 9, "boundary_entropy": 0.9}, "boundary_neighbors=9"),
    ):
        with pytest.raises(ValueError, match=match):
            loaded.transform(noisy_pair(**other)[2])


def test_a_corrector_from_before_knows_no_threshold() -> None:
    corrector = BoundaryCorrector().fit(noisy_pair()[1])
    del corrector.parameters_["boundary_entropy"]
    corrector.transform(noisy_pair()[2])
    with pytest.raises(ValueError, match=r"boundary_entropy=0\.5"):
        corrector.transform(noisy_pair(boundary_entropy=0.5)[2])


def test_perturbations_and_cases_follow_the_model() -> None:
    model, clean, _ = noisy_pair(boundary_neighbors=10, boundary_entropy=0.9)
    assert 3 < clean.boundary.sum() < 37
    changed, _ = OnPoints(GaussianNoise(0.5), "boundary").bind(model)(SMOOTH_VAL, Y_VAL)
    assert (changed != SMOOTH_VAL).any(axis=1).tolist() == clean.boundary.tolist()
    half = BoundaryCoverage(0.5, random_state=0).bind(model)
    assert model.value(*half(SMOOTH_VAL, Y_VAL)).boundary_fraction == 0.5
    for kind in ("boundary", "nonboundary"):
        chosen = pick_points(model, SMOOTH_VAL, Y_VAL, kind=kind, n_points=40)
        assert (clean.boundary[chosen] == (kind == "boundary")).all()
    inside = int(np.flatnonzero(~clean.boundary & (clean.entropy > 0))[0])  # a boundary point by default
    case = case_one(model, SMOOTH_VAL, Y_VAL, kind="nonboundary", point=inside, noise=[0.5], repeats=2)
    assert case.kind == "nonboundary"
    with pytest.raises(ValueError, match="must name boundary points only"):
        case_one(model, SMOOTH_VAL, Y_VAL, kind="boundary", point=inside, noise=[0.5], repeats=2)


def test_posterior_and_pooled_values() -> None:
    model, _, noisy = noisy_pair(boundary_entropy=0.7)
    found = model.value(SMOOTH_VAL, Y_VAL, correction=PosteriorCorrector(0.3, draws=2, random_state=0))
    assert found.boundary_entropy == 0.7
    assert found.boundary.tolist() == model.value(SMOOTH_VAL, Y_VAL).boundary.tolist()
    BoundaryCorrector(min_points=1).fit(noisy).transform(found)


def test_design() -> None:
    profile = entropy_profile(SMOOTH, Y, SMOOTH_VAL, Y_VAL, n_neighbors=3, boundary_entropy=0.64, draws=20)
    entropy = naive_entropy(SMOOTH_VAL, SMOOTH, Y, 3)
    assert profile.validation.boundary_fraction == (entropy > 0.64).mean()
    splits = [
        np.concatenate([test for _, test in BoundaryStratifiedSplit(3, random_state=0, **rule).split(SMOOTH, Y)])
        for rule in ({}, {"boundary_entropy": 0.0}, {"boundary_entropy": 0.9})
    ]
    assert splits[0].tolist() == splits[1].tolist() != splits[2].tolist()


# --- refusals and the command line ----------------------------------------------------------------------------------


def test_refusals() -> None:
    for given, match in (
        ({"boundary_neighbors": 0}, "'boundary_neighbors' parameter of KNNShapley must be at least 1"),
        ({"boundary_neighbors": 2.5}, "'boundary_neighbors'"),
        ({"boundary_neighbors": 91}, "must be at most the number of training rows, 90. Got 91"),
        ({"boundary_entropy": -0.1}, "'boundary_entropy' parameter of KNNShapley"),
        ({"boundary_entropy": float("nan")}, "'boundary_entropy' parameter of KNNShapley"),
        ({"boundary_entropy": "high"}, "'boundary_entropy' parameter of KNNShapley"),
    ):
        with pytest.raises(ValueError, match=match):
            KNNShapley(**given).fit(X, Y)
    model = KNNShapley().fit(X, Y).set_params(boundary_neighbors=91)
    with pytest.raises(ValueError, match="must be at most the number of training rows"):
        model.value(X_VAL, Y_VAL)
    many = KNNShapley(boundary_neighbors=40).fit(X, np.arange(90) % 20)
    with pytest.raises(ValueError, match="can split in more than 256 ways"):
        many.value(X_VAL, np.arange(40) % 20)
    with pytest.raises(ValueError, match="'boundary_entropy' parameter of entropy_profile"):
        entropy_profile(X, Y, X_VAL, Y_VAL, boundary_entropy=-1)
    assert KNNShapley().fit(X[:2], [0, 1]).value(X[:1], [0]).entropy[0] == pytest.approx(np.log(2))


def test_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, rows, labels in (("train", SMOOTH, Y), ("val", SMOOTH_VAL, Y_VAL)):
        lines = [f"{a!r},{b!r},{'abc'[label]}" for (a, b), label in zip(rows.tolist(), labels.tolist(), strict=True)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["u,v,label", *lines]) + "\n")
    rule = ("--boundary-neighbors", "10", "--boundary-entropy", "0.9")
    ran = run("value", "train.csv", "val.csv", "--label", "label", "--scale", "none", *rule)
    assert ran.code == 0, ran.err
    found = Valuation.load("shapshift-value/valuation.npz")
    check(found, naive_entropy(SMOOTH_VAL, SMOOTH, Y, 10), 0.9)
    refused = run("value", "train.csv", "val.csv", "--label", "label", "--boundary-neighbors", "500", "--out", "no")
    assert refused.code != 0
    assert "--boundary-neighbors must be at most the number of training rows" in refused.err
