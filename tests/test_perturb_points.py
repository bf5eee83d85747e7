"""Perturbations of the boundary points alone, or of the others alone."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from scipy import sparse

from shapshift import KNNShapley, Valuation, audit_payouts, audit_shift
from shapshift.audit import ShiftStream
from shapshift.cli._data import parse_perturbation
from shapshift.perturb import Compose, FlipLabels, GaussianNoise, OnPoints, Round, Subsample

RNG = np.random.default_rng(4)
X, X_VAL = RNG.normal(size=(120, 3)), RNG.normal(size=(60, 3))
Y, Y_VAL = (X[:, 0] > 0).astype(int), (X_VAL[:, 0] > 0).astype(int)
MODEL = KNNShapley(progress=False).fit(X, Y)
BOUNDARY = MODEL.value(X_VAL, Y_VAL).boundary
PARTS = {"boundary": BOUNDARY, "nonboundary": ~BOUNDARY}

assert 5 < BOUNDARY.sum() < 55


def jitter(X_val, y_val, rng, by=1.0):
    return X_val + by * rng.normal(size=X_val.shape), y_val


@pytest.mark.parametrize("points", PARTS)
@pytest.mark.parametrize(
    "inner",
    [GaussianNoise(0.5), GaussianNoise(0.5, relative=True), jitter],
    ids=["absolute", "relative", "function"],
)
def test_the_chosen_points_change_as_they_would_alone(points: str, inner) -> None:
    step = OnPoints(inner, points).bind(MODEL).with_seed(7)
    changed, labels = step(X_VAL, Y_VAL)
    alone, _ = step.perturbation(X_VAL, Y_VAL)
    assert changed[PARTS[points]].tobytes() == alone[PARTS[points]].tobytes()
    assert changed[~PARTS[points]].tobytes() == X_VAL[~PARTS[points]].tobytes()
    assert (changed != X_VAL).any(axis=1).tolist() == PARTS[points].tolist()
    np.testing.assert_array_equal(labels, Y_VAL)


def test_labels_change_on_the_chosen_points_only() -> None:
    names = np.array(["no", "yes"])
    model = KNNShapley().fit(X, names[Y])
    for given in (names[Y_VAL], names[Y_VAL].tolist(), names[Y_VAL].astype(object)):
        same, flipped = OnPoints(FlipLabels(1.0), "boundary", random_state=1).bind(model)(X_VAL, given)
        assert same is X_VAL
        assert type(flipped) is type(given)
        assert (np.asarray(flipped) != np.asarray(given)).tolist() == BOUNDARY.tolist()


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow", "float32", "csr", "list"])
def test_containers(kind: str) -> None:
    step = OnPoints(GaussianNoise(0.5), "nonboundary").bind(MODEL).with_seed(3)
    names = ["a", "b", "c"]
    if kind in ("pandas", "polars", "pyarrow"):
        library = pytest.importorskip(kind)
        columns = dict(zip(names, X_VAL.T, strict=True))
        given = {"pandas": lambda: library.DataFrame(columns, index=np.arange(60) + 9)}.get(
            kind, lambda: getattr(library, "table" if kind == "pyarrow" else "DataFrame")(columns)
        )()
    else:
        given = {"float32": X_VAL.astype(np.float32), "csr": sparse.csr_array(X_VAL), "list": X_VAL.tolist()}[kind]
    changed, _ = step(given, Y_VAL)
    if kind != "list":
        assert type(changed) is type(given)
    rows, before = (
        part.toarray() if kind == "csr" else np.asarray(part.to_pandas() if kind == "pyarrow" else part)
        for part in (changed, given)
    )
    boundary = MODEL.value(before.astype(float), Y_VAL).boundary
    assert rows[boundary].tobytes() == before[boundary].tobytes()
    assert (rows[~boundary] != before[~boundary]).all()
    if kind == "pandas":
        assert changed.index.tolist() == given.index.tolist()


def test_all_is_boundary_and_nonboundary_together_also_in_an_audit() -> None:
    noise = GaussianNoise(0.7)
    levels = [noise, OnPoints(noise, "boundary"), OnPoints(noise, "nonboundary")]
    stream = ShiftStream(MODEL, X_VAL, Y_VAL, perturbations=levels, repeats=2, progress=False)
    clean, *runs = stream
    everywhere, near, inside = runs[:2], runs[2:4], runs[4:]
    for run in range(2):  # values are means over points, so that changes add up
        total = near[run].values - clean.values + inside[run].values - clean.values
        np.testing.assert_allclose(everywhere[run].values - clean.values, total, atol=1e-14)
        assert abs(near[run].values - clean.values).max() > 0
    names = list(stream.audit().levels)
    assert names == [
        "GaussianNoise(sigma=0.7)",
        "GaussianNoise(sigma=0.7) on boundary points",
        "GaussianNoise(sigma=0.7) on nonboundary points",
    ]


def test_levels_of_one_part_have_an_axis_and_files_keep_them(tmp_path) -> None:
    levels = [OnPoints(GaussianNoise(sigma), "boundary") for sigma in (0.1, 0.5)]
    audit = audit_shift(MODEL, X_VAL, Y_VAL, perturbations=levels, repeats=2, progress=False)
    assert (audit.axis, audit.positions.tolist()) == ("sigma", [0.1, 0.5])
    audit.save(tmp_path / "audit.npz")
    loaded = type(audit).load(tmp_path / "audit.npz")
    assert loaded.perturbations[0]["perturbation"]["sigma"] == 0.1
    assert loaded.perturbations[0]["points"] == "boundary"
    both = [levels[0], OnPoints(GaussianNoise(0.1), "nonboundary")]
    assert audit_shift(MODEL, X_VAL, Y_VAL, perturbations=both, repeats=1, progress=False).axis == "perturbation"


def test_payouts_on_a_part_of_the_points() -> None:
    owners = ["ann", "bob", "cid"] * 40
    arguments = {"owners": owners, "repeats": 2, "progress": False}
    audits = [
        audit_payouts(MODEL, X_VAL, Y_VAL, 1000, perturbations=[step], **arguments)
        for step in (GaussianNoise(1.0), OnPoints(GaussianNoise(1.0), "boundary"))
    ]
    np.testing.assert_array_equal(audits[0].clean, audits[1].clean)
    assert (audits[0].cents != audits[1].cents).any()


def test_compositions() -> None:
    """The points are judged as they come in, and steps of one kind draw numbers of their own."""
    step = (Round(0) | OnPoints(GaussianNoise(0.5, random_state=2), "boundary")).bind(MODEL)
    changed, _ = step(X_VAL, Y_VAL)
    rounded = Round(0)(X_VAL, Y_VAL)[0]
    moved = (changed != rounded).any(axis=1)
    assert moved.tolist() == MODEL.value(rounded, Y_VAL).boundary.tolist()
    noise = GaussianNoise(0.5, random_state=2)
    twice = Compose(noise, OnPoints(noise, "boundary")).bind(MODEL)(X_VAL, Y_VAL)[0]
    once = noise(X_VAL, Y_VAL)[0]
    again = MODEL.value(once, Y_VAL).boundary
    first, second = once[again] - X_VAL[again], twice[again] - once[again]
    assert again.any()
    assert not np.isclose(first, second).any()
    inner = OnPoints(GaussianNoise(0.5) | Round(1), "boundary").bind(MODEL).with_seed(1)(X_VAL, Y_VAL)[0]
    np.testing.assert_array_equal(inner[BOUNDARY], inner[BOUNDARY].round(1))
    assert inner[~BOUNDARY].tobytes() == X_VAL[~BOUNDARY].tobytes()


def test_the_boundary_is_looked_up_once_per_set() -> None:
    class Counting:
        calls = 0

        def value(self, X_val, y_val) -> Valuation:
            type(self).calls += 1
            return MODEL.value(X_val, y_val)

    bound = OnPoints(GaussianNoise(0.5), "boundary").bind(Counting())
    mine = X_VAL.copy()
    for seed in range(3):
        bound.with_seed(seed)(mine, Y_VAL)
    assert Counting.calls == 1
    mine[:, 0] += 1.0  # a changed set is looked at again
    changed, _ = bound.with_seed(0)(mine, Y_VAL)
    assert Counting.calls == 2
    assert (changed != mine).any(axis=1).tolist() == MODEL.value(mine, Y_VAL).boundary.tolist()


def test_one_class_has_no_boundary() -> None:
    model = KNNShapley(n_neighbors=1).fit(X[:3], [0, 0, 0])
    step = OnPoints(GaussianNoise(0.5), "boundary").bind(model)
    with pytest.warns(UserWarning, match="None of the 1 validation points is a boundary point"):
        changed, _ = step(X_VAL[:1], [0])
    assert changed.tobytes() == X_VAL[:1].tobytes()


def test_refusals() -> None:
    with pytest.raises(ValueError, match="'points' parameter of OnPoints must be one of"):
        OnPoints(GaussianNoise(1), "edge")
    with pytest.raises(ValueError, match="must keep the points, in order, which Subsample does not"):
        OnPoints(Subsample(0.5), "boundary")
    with pytest.raises(ValueError, match="must keep the points"):
        OnPoints(GaussianNoise(1) | Subsample(0.5), "boundary")
    with pytest.raises(TypeError, match="A perturbation must be"):
        OnPoints(3, "boundary")
    with pytest.raises(ValueError, match="OnPoints needs the model"):
        OnPoints(GaussianNoise(1), "boundary")(X_VAL, Y_VAL)
    with pytest.raises(ValueError, match="at least one"):
        OnPoints(GaussianNoise(1), "boundary").bind(MODEL)(X_VAL[:0], Y_VAL[:0])
    with pytest.raises(ValueError, match="NaN"):
        OnPoints(GaussianNoise(1), "boundary").bind(MODEL)(np.full_like(X_VAL, np.nan), Y_VAL)
    wider = OnPoints(lambda X_val, y_val: (np.hstack([X_val, X_val]), y_val), "boundary").bind(MODEL)
    with pytest.raises(ValueError, match="must keep the columns"):
        wider(X_VAL, Y_VAL)
    fewer = OnPoints(lambda X_val, y_val: (X_val[:9], y_val[:9]), "boundary").bind(MODEL)
    with pytest.raises(ValueError, match="must keep the points"):
        fewer(X_VAL, Y_VAL)
    distances = KNNShapley(metric="precomputed").fit(None, Y)
    with pytest.raises(ValueError, match="takes distances"):
        OnPoints(GaussianNoise(1), "boundary").bind(distances)


def test_distances_with_other_labels() -> None:
    distances = np.linalg.norm(X_VAL[:, None] - X[None], axis=2)
    model = KNNShapley(metric="precomputed").fit(None, Y)
    same, flipped = OnPoints(FlipLabels(1.0), "boundary", random_state=0).bind(model)(distances, Y_VAL)
    assert same is distances
    assert (flipped != Y_VAL).tolist() == BOUNDARY.tolist()


def test_seeds() -> None:
    assert OnPoints(GaussianNoise(1), "boundary", random_state=5).perturbation == GaussianNoise(1, random_state=5)
    assert OnPoints(GaussianNoise(1, random_state=5), "boundary").perturbation == GaussianNoise(1, random_state=5)
    assert OnPoints(functools.partial(jitter, by=2.0), "boundary").parameters["perturbation"]["by"] == 2.0


def test_on_the_command_line() -> None:
    assert parse_perturbation("gaussian:0.5@boundary", ()) == OnPoints(GaussianNoise(0.5), "boundary")
    both = parse_perturbation("round:1 | flip:0.1 @nonboundary", ())
    assert both == Round(1) | OnPoints(FlipLabels(0.1), "nonboundary")
    with pytest.raises(ValueError, match="which Subsample does not"):
        parse_perturbation("subsample:0.5@boundary", ())
