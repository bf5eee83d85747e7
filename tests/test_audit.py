"""The audit: every statistic against a direct computation on the full matrix, and what an audit promises."""

from __future__ import annotations

import dataclasses
import functools
import io
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tracemalloc
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats
from scipy.spatial.distance import cdist
from sklearn.exceptions import NotFittedError

from shapshift import KNNShapley
from shapshift.agreement import AGREEMENT, Baseline
from shapshift.audit import ShiftAudit, Thresholds, audit_shift
from shapshift.audit._levels import read_levels
from shapshift.audit._result import SAMPLING_ROWS
from shapshift.audit._statistics import ROW_STATISTICS, STATISTICS, Running
from shapshift.io.archive import write_archive
from shapshift.perturb import FlipLabels, GaussianNoise, LaplaceNoise, Perturbation, Round, ShiftPriors, Subsample

Floats = npt.NDArray[np.float64]

RNG = np.random.default_rng(0)
N, M, K = 60, 30, 5
X = np.round(4 * RNG.normal(size=(N, 2))) / 4  # quarters: ties in distance, and no rounding
Y = (X[:, 0] + 0.5 * RNG.normal(size=N) > 0).astype(int) + (X[:, 1] > 1)
X_VAL = np.round(4 * RNG.normal(size=(M, 2))) / 4
Y_VAL = (X_VAL[:, 0] > 0).astype(int) + (X_VAL[:, 1] > 1)
IDS = [f"row{i}" for i in range(N)]


def fitted(**options: Any) -> KNNShapley:
    return KNNShapley(K, **options).fit(X, Y, ids=IDS)


class Recorder:
    """A plain function that adds noise and keeps what it returned."""

    def __init__(self, scale: float) -> None:
        self.scale = scale
        self.seen: list[tuple[Floats, Any]] = []
        self.__name__ = f"recorder_{scale}"

    def __call__(self, X_val: Floats, y_val: Any, rng: np.random.Generator) -> tuple[Floats, Any]:
        noisy = X_val + np.round(4 * rng.normal(scale=self.scale, size=X_val.shape)) / 4
        self.seen.append((noisy, y_val))
        return noisy, y_val


# --- against a direct computation -----------------------------------------------------------------------------------


def ranks_and_nearest(points: Floats) -> tuple[Floats, npt.NDArray[np.int64]]:
    squared = ((points[:, None, :] - X[None, :, :]) ** 2).sum(axis=2)
    return stats.rankdata(squared, axis=1) - 1, np.argsort(squared, axis=1, kind="stable")[:, :K]


def vote(nearest: npt.NDArray[np.int64]) -> list[int]:
    return [int(np.bincount(Y[row], minlength=3).argmax()) for row in nearest]


def entropies(nearest: npt.NDArray[np.int64], ranks: Floats) -> Floats:
    """Entropy of the labels of the five nearest; rows tied for the last seats share them."""
    found = []
    for point_ranks in ranks:
        shares = np.zeros(3)
        for rank in np.unique(point_ranks):
            rows = np.flatnonzero(point_ranks == rank)
            seats = min(max(5 - int((point_ranks < rank).sum()), 0), rows.size)
            for row in rows:
                shares[Y[row]] += seats / rows.size
        shares = shares[shares > 1e-12] / 5
        found.append(float(-(shares * np.log(shares)).sum()) if shares.size > 1 else 0.0)
    return np.array(found)


def direct(clean_matrix: Floats, clean_X: Floats, matrix: Floats, X_: Floats) -> dict[str, float]:
    clean, values = clean_matrix.mean(axis=1), matrix.mean(axis=1)
    clean_ranks, clean_nearest = ranks_and_nearest(clean_X)
    ranks, nearest = ranks_and_nearest(X_)
    clean_boundary, boundary = entropies(clean_nearest, clean_ranks) > 0, entropies(nearest, ranks) > 0
    top = round(0.1 * N)
    for each in (np.sort(clean), np.sort(values)):  # no tie at the cuts, so the top sets are plain sets
        assert each[top] > each[top - 1]
        assert each[-top] > each[-top - 1]

    def best(v: Floats) -> set[int]:
        return set(np.argsort(v)[-top:].tolist())

    found = {
        "mean": values.mean(),
        "std": values.std(),
        "positive_count": sum(v > 0 for v in values),
        "positive_ratio": sum(v > 0 for v in values) / N,
        "spearman": stats.spearmanr(clean, values).statistic,
        "kendall": stats.kendalltau(clean, values).statistic,
        "pearson": stats.pearsonr(clean, values).statistic,
        "rmse": np.sqrt(((values - clean) ** 2).mean()) / clean.std(),
        "flips_to_negative": sum(c > 0 >= v for c, v in zip(clean, values, strict=True)),
        "flips_to_positive": sum(v > 0 >= c for c, v in zip(clean, values, strict=True)),
        "top_overlap": len(best(clean) & best(values)) / top,
        "bottom_overlap": len(best(-clean) & best(-values)) / top,
        "boundary_fraction": boundary.mean(),
        "alpha_boundary": clean_matrix[:, clean_boundary].mean(axis=1).std() / matrix[:, boundary].mean(axis=1).std(),
        "alpha_nonboundary": clean_matrix[:, ~clean_boundary].mean(axis=1).std()
        / matrix[:, ~boundary].mean(axis=1).std(),
    }
    moved = np.take_along_axis(np.abs(ranks - clean_ranks), clean_nearest, axis=1)
    changed = np.array(vote(nearest)) != np.array(vote(clean_nearest))
    for part, points in (
        ("", range(M)),
        ("_boundary", np.flatnonzero(clean_boundary)),
        ("_nonboundary", np.flatnonzero(~clean_boundary)),
    ):
        sets = [(set(clean_nearest[p].tolist()), set(nearest[p].tolist())) for p in points]
        found["neighbor_jaccard" + part] = np.mean([len(a & b) / len(a | b) for a, b in sets])
        found["neighbor_displacement" + part] = np.median([moved[p] for p in points])
        found["changed_predictions" + part] = np.mean([changed[p] for p in points])
    assert found.keys() == set(STATISTICS)
    return {name: float(value) for name, value in found.items()}


@pytest.fixture(scope="module")
def recorded() -> tuple[ShiftAudit, list[list[Floats]], list[list[dict[str, float]]], Floats]:
    model, recorders = fitted(), [Recorder(0.2), Recorder(1.0)]
    audit = audit_shift(model, X_VAL, Y_VAL, perturbations=recorders, repeats=4, keep_rows=True)
    clean = model.value(X_VAL, Y_VAL, matrix=True).matrix
    assert clean is not None
    values, found = [], []
    for recorder in recorders:
        assert len(recorder.seen) == 4
        matrices = [model.value(X_, y_, matrix=True).matrix for X_, y_ in recorder.seen]
        values.append([matrix.mean(axis=1) for matrix in matrices if matrix is not None])
        found.append(
            [
                direct(clean, X_VAL, matrix, X_)
                for (X_, _), matrix in zip(recorder.seen, matrices, strict=True)
                if matrix is not None
            ]
        )
    return audit, values, found, clean.mean(axis=1)


@pytest.mark.parametrize("name", STATISTICS)
def test_statistics_agree_with_the_full_matrix(recorded: Any, name: str) -> None:
    audit, _, found, _ = recorded
    means, lows, highs = audit.statistic(name)
    for level in range(2):
        runs = np.array([run[name] for run in found[level]])
        np.testing.assert_allclose(means[level], runs.mean(), rtol=1e-9, atol=1e-12)
        half = stats.t.ppf(0.975, 3) * runs.std(ddof=1) / 2
        np.testing.assert_allclose([lows[level], highs[level]], [runs.mean() - half, runs.mean() + half], atol=1e-9)


@pytest.mark.parametrize("level", [None, 0, 1])
def test_rows_agree_with_the_full_matrix(recorded: Any, level: int | None) -> None:
    audit, values, _, clean = recorded
    runs = np.array(values[0] + values[1] if level is None else values[level])
    ranks = np.array([stats.rankdata(-run) for run in runs])
    clean_rank = stats.rankdata(-clean)
    flips = ((runs > 0) != (clean > 0)).mean(axis=0)
    low, high = (ranks.mean(axis=0) + sign * stats.norm.ppf(0.95) * ranks.std(axis=0, ddof=1) for sign in (-1, 1))
    at_random = np.array([np.abs(np.arange(1, N + 1) - rank).mean() for rank in clean_rank])
    kept = 1 - np.abs(ranks - clean_rank).mean(axis=0) / at_random
    expected = {
        "clean": clean,
        "clean_rank": clean_rank,
        "mean": runs.mean(axis=0),
        "std": runs.std(axis=0, ddof=1),
        "flip_probability": flips,
        "rank_low": np.maximum(low, ranks.min(axis=0)),
        "rank_high": np.minimum(high, ranks.max(axis=0)),
        "stability": (1 - flips) * np.clip(kept, 0, None),
    }
    frame = audit.rows_frame(None if level is None else audit.levels[level])
    assert frame.index.tolist() == IDS
    assert [name for name in frame.columns if name not in SAMPLING_ROWS] == list(expected)
    for name, column in expected.items():
        np.testing.assert_allclose(frame[name], column, rtol=1e-9, atol=1e-12, err_msg=name)
    assert frame["stability"].between(0, 1).all()
    assert frame["stability"].min() < frame["stability"].max()


def naive_counts(a: Floats, b: Floats) -> tuple[int, int]:
    discordant = joint = 0
    for i in range(a.size):
        for j in range(i):
            signs = np.sign(a[i] - a[j]), np.sign(b[i] - b[j])
            discordant += signs[0] * signs[1] < 0
            joint += signs == (0, 0)
    return discordant, joint


few = st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=1, max_size=40)


@given(few)
def test_ranks_and_kendall_against_pair_counts(pairs: list[tuple[int, int]]) -> None:
    a, b = np.array(pairs, dtype=float).T
    found, ranks = Baseline(b, 0.1).compare(a)
    np.testing.assert_array_equal(ranks, stats.rankdata(-a))
    discordant, joint = naive_counts(a, b)
    pairs_of = a.size * (a.size - 1) // 2
    untied_a, untied_b = (pairs_of - naive_counts(column, column)[1] for column in (a, b))
    if untied_a and untied_b:
        concordant = untied_a + untied_b - pairs_of + joint - discordant
        assert found["kendall"] == pytest.approx((concordant - discordant) / np.sqrt(untied_a * untied_b))
    else:
        assert np.isnan(found["kendall"])


@given(st.lists(st.lists(st.floats(-1e3, 1e3) | st.just(np.nan), min_size=3, max_size=3), max_size=12))
def test_running_mean_and_interval(runs: list[list[float]]) -> None:
    running = Running(3)
    for run in runs:
        running.add(np.array(run))
    low, high = running.interval()
    for j in range(3):
        known = np.array([run[j] for run in runs if not np.isnan(run[j])])
        if known.size:
            np.testing.assert_allclose(running.mean[j], known.mean(), atol=1e-9)
        assert np.isnan(running.mean[j]) == (known.size == 0)
        assert np.isnan(low[j]) == np.isnan(high[j]) == (known.size < 2)
        if known.size > 1:
            half = stats.t.ppf(0.975, known.size - 1) * stats.sem(known)
            np.testing.assert_allclose([low[j], high[j]], [known.mean() - half, known.mean() + half], atol=1e-6)


# --- seeds and levels -----------------------------------------------------------------------------------------------


def contents(audit: ShiftAudit) -> dict[str, Any]:
    return {field.name: getattr(audit, field.name) for field in dataclasses.fields(audit)}


def assert_same(a: ShiftAudit, b: ShiftAudit) -> None:
    left, right = contents(a), contents(b)
    for name, one in left.items():
        other = right[name]
        if isinstance(one, np.ndarray):
            np.testing.assert_array_equal(one, other, err_msg=name)
            assert one.dtype == other.dtype
        elif name in ("rows", "level_rows", "sampling_rows") and one is not None:
            assert one.keys() == other.keys()
            for key in one:
                np.testing.assert_array_equal(one[key], other[key], err_msg=key)
        else:
            assert one == other, name


def test_same_seed_same_audit() -> None:
    audits = [audit_shift(fitted(), X_VAL, Y_VAL, noise=[0.1, 1], repeats=2, random_state=s) for s in (3, 3, 4)]
    assert_same(audits[0], audits[1])
    assert (audits[0].means[:, 0] != audits[2].means[:, 0]).all()


def test_a_level_does_not_depend_on_the_others() -> None:
    model = fitted()
    alone = audit_shift(model, X_VAL, Y_VAL, noise=[0.5], repeats=3)
    first = audit_shift(model, X_VAL, Y_VAL, noise=[0.5, 2.0], repeats=3)
    last = audit_shift(model, X_VAL, Y_VAL, noise=[0.1, 2.0, 0.5], repeats=3)
    named = audit_shift(model, X_VAL, Y_VAL, perturbations=[GaussianNoise(0.5, random_state=9)], repeats=3)
    np.testing.assert_array_equal(alone.means[0], first.means[0])
    np.testing.assert_array_equal(alone.means[0], last.means[2])
    np.testing.assert_array_equal(alone.means[0], named.means[0])


def test_levels_and_repeats_draw_different_noise() -> None:
    audit = audit_shift(fitted(), X_VAL, Y_VAL, noise=[0.5, 0.5000001], repeats=2)
    assert audit.statistic("mean")[1][0] < audit.statistic("mean")[2][0]
    assert not np.allclose(audit.means[0], audit.means[1], equal_nan=True)


@dataclass(frozen=True)
class Shift(Perturbation):
    """Any parameter will do: it is not used, but it tells levels apart."""

    by: Any = None

    def apply(self, X_val: Any, y_val: Any, rng: np.random.Generator) -> tuple[Any, Any]:
        return X_val + rng.normal(size=np.shape(X_val)), y_val


def scaled(X_val: Any, y_val: Any, scale: float, rng: np.random.Generator) -> tuple[Any, Any]:
    return X_val + scale * rng.normal(size=X_val.shape), y_val


PARAMETERS = [
    np.tanh, scaled, functools.partial(scaled, scale=2.0), [1, np.arange(3)], {"b", "a", "c"}, Recorder(1.0),
    np.arange(5000.0), np.array([object()]), Round(1), pd.Series([1.0, 2.0]), pathlib.PurePosixPath("a"), 1 + 2j,
]  # fmt: skip
IN_ANOTHER_PROCESS = """
import sys
import numpy as np
from test_audit import PARAMETERS, Shift, scaled
from shapshift.audit._levels import read_levels
levels = read_levels(None, [Shift(parameter) for parameter in PARAMETERS] + [scaled, lambda X, y: (X, y)], False)
for level in levels:
    print(level.name, next(level.seeds(0, 1)))
"""


def test_seeds_are_the_same_in_every_process() -> None:
    folders = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    seen = [
        subprocess.run(
            [sys.executable, "-c", IN_ANOTHER_PROCESS],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": folders},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
        for seed in ("1", "2")
    ]
    assert len(seen[0]) == len(PARAMETERS) + 2
    assert seen[0] == seen[1]
    assert len({line.rsplit(maxsplit=1)[1] for line in seen[0]}) == len(seen[0])


def seeds_of(*perturbations: Any) -> list[int]:
    return [next(level.seeds(0, 1)) for level in read_levels(None, list(perturbations), False)]


def test_seeds_go_by_what_a_parameter_is_worth() -> None:
    for one, other in [
        (GaussianNoise(1), GaussianNoise(1.0)),
        (GaussianNoise(np.float64(1)), GaussianNoise(1)),
        (Shift(np.arange(5000.0)), Shift(np.arange(5000.0))),
        (Shift([1, 2]), Shift((1.0, 2.0))),
        (functools.partial(scaled, scale=2), functools.partial(scaled, scale=2.0)),
    ]:
        assert seeds_of(one) == seeds_of(other)
    long = np.arange(5000.0)
    other = long.copy()
    other[2500] = 0  # where NumPy would write dots
    for one, two in [
        (Shift(long), Shift(other)),
        (Shift(long), Shift(long.astype(np.float32))),
        (Shift(long), Shift(long[:, None])),
        (Shift(np.tanh), Shift(np.sinh)),
        (Shift(special.expit), Shift(special.logit)),
        (Shift(1), Shift(True)),
        (functools.partial(scaled, scale=2), functools.partial(scaled, scale=3)),
    ]:
        assert seeds_of(one) != seeds_of(two)


def test_equal_levels_are_numbered_and_draw_for_themselves() -> None:
    first, second = (lambda X, y, rng: (X + rng.normal(size=X.shape), y) for _ in range(2))
    audit = audit_shift(
        fitted(), X_VAL, Y_VAL, perturbations=[first, second, GaussianNoise(1), GaussianNoise(1)], repeats=2,
        keep_rows=True,
    )  # fmt: skip
    assert audit.levels == ("<lambda>", "<lambda> #2", "GaussianNoise(sigma=1)", "GaussianNoise(sigma=1) #2")
    frames = [audit.rows_frame(level)["mean"].to_numpy() for level in audit.levels]
    for one, other in itertools.combinations(frames, 2):
        assert not np.array_equal(one, other)
    alone = audit_shift(fitted(), X_VAL, Y_VAL, perturbations=[second], repeats=2)
    np.testing.assert_array_equal(alone.means[0], audit.means[0])  # alone it is the first of its name


def test_partial_functions_keep_their_arguments() -> None:
    steps = [functools.partial(scaled, scale=scale) for scale in (0.5, 2.0)]
    audit = audit_shift(fitted(), X_VAL, Y_VAL, perturbations=steps, repeats=2, keep_rows=True)
    assert audit.levels == ("scaled(scale=0.5)", "scaled(scale=2.0)")
    assert (audit.axis, audit.positions.tolist()) == ("scale", [0.5, 2.0])
    assert audit.perturbations[0] == {"name": "scaled", "scale": 0.5}
    assert not audit.rows_frame("scaled(scale=0.5)").equals(audit.rows_frame("scaled(scale=2.0)"))


def test_messages_name_the_function_that_was_called() -> None:
    with pytest.raises(ValueError, match="audit_payouts takes either 'noise'"):
        read_levels(None, None, False, caller="audit_payouts")
    with pytest.raises(ValueError, match="'noise' parameter of audit_payouts"):
        read_levels([-1], None, False, caller="audit_payouts")
    with pytest.raises(TypeError, match="'relative' parameter of audit_payouts must be True or False"):
        read_levels([1], None, "yes", caller="audit_payouts")


def test_a_drawn_seed_is_kept() -> None:
    audit = audit_shift(fitted(), X_VAL, Y_VAL, noise=[0.5], repeats=2, random_state=None)
    again = audit_shift(fitted(), X_VAL, Y_VAL, noise=[0.5], repeats=2, random_state=audit.parameters["random_state"])
    assert_same(audit, again)


def test_nothing_moves_without_noise() -> None:
    audit = audit_shift(fitted(), X_VAL, Y_VAL, noise=[0], repeats=2)
    expected = {
        **dict.fromkeys(AGREEMENT, 1.0), "rmse": 0, "flips_to_negative": 0, "flips_to_positive": 0,
        "alpha_boundary": 1, "alpha_nonboundary": 1, "neighbor_jaccard": 1, "neighbor_displacement": 0,
        "neighbor_displacement_boundary": 0, "changed_predictions": 0, **audit.clean,
    }  # fmt: skip
    for name, value in expected.items():
        np.testing.assert_allclose(audit.statistic(name), [[value]] * 3, rtol=1e-12, err_msg=name)
    assert audit.verdicts == ("stable",)
    rows = audit.rows_frame()
    assert (rows["stability"] == 1).all()
    assert (rows["rank_low"] == rows["clean_rank"]).all()


def test_relative_noise_is_in_units_of_each_feature() -> None:
    wide = KNNShapley(K).fit(X * [1, 1000], Y)
    audit = audit_shift(wide, X_VAL * [1, 1000], Y_VAL, noise=[0.1], relative=True, repeats=2)
    named = audit_shift(wide, X_VAL * [1, 1000], Y_VAL, perturbations=[GaussianNoise(0.1, relative=True)], repeats=2)
    np.testing.assert_array_equal(audit.means, named.means)
    absolute = audit_shift(wide, X_VAL * [1, 1000], Y_VAL, noise=[0.1], repeats=2)
    assert audit.statistic("neighbor_jaccard")[0] < absolute.statistic("neighbor_jaccard")[0]


def test_levels_are_named_and_placed() -> None:
    model = fitted()

    def levels(*perturbations: Any) -> tuple[Any, str, list[float]]:
        audit = audit_shift(model, X_VAL, Y_VAL, perturbations=perturbations, repeats=1)
        return audit.levels, audit.axis, audit.positions.tolist()

    assert levels(LaplaceNoise(2.0), LaplaceNoise(0.5)) == (
        ("LaplaceNoise(epsilon=2.0)", "LaplaceNoise(epsilon=0.5)"), "epsilon", [2.0, 0.5],
    )  # fmt: skip
    assert levels(GaussianNoise(0.5) | Round(1), lambda X, y: (X, y)) == (
        ("GaussianNoise(sigma=0.5) | Round(decimals=1)", "<lambda>"), "perturbation", [0, 1],
    )  # fmt: skip
    assert levels(GaussianNoise(0.5), GaussianNoise(0.5, relative=True))[1] == "perturbation"


# --- points that stay in place, and models that know no neighbours --------------------------------------------------

NEIGHBOURS = [name for name in STATISTICS if name.startswith(("neighbor", "changed"))]


@dataclass(frozen=True)
class Reverse(Perturbation):
    pointwise: bool | None = None

    def apply(self, X_val: Any, y_val: Any, rng: np.random.Generator) -> tuple[Any, Any]:
        return X_val[::-1], y_val[::-1]


@dataclass(frozen=True)
class Relabel(Reverse):
    def apply(self, X_val: Any, y_val: Any, rng: np.random.Generator) -> tuple[Any, Any]:
        return X_val, 1 - y_val


def relabel_in_place(X_val: Any, y_val: Any, by: int = 1) -> tuple[Any, Any]:
    return X_val, by - y_val


relabel_in_place.pointwise = True  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("perturbation", "in_place"),
    [
        (GaussianNoise(0.1), True),
        (FlipLabels(0.3), True),
        (GaussianNoise(0.1) | FlipLabels(0.3), True),
        (Subsample(0.5), False),
        (ShiftPriors({0: 0.5}), False),  # as many points, with the same labels
        (GaussianNoise(0.1) | ShiftPriors({0: 0.5}), False),
        (Reverse(), False),  # other labels: taken to be other points
        (Reverse(False), False),
        (Reverse(True), True),  # as declared
        (Relabel(), False),
        (Relabel(True), True),
        (lambda X_val, y_val: (X_val + 0.1, y_val), True),
        (lambda X_val, y_val: (X_val[:10], y_val[:10]), False),
        (lambda X_val, y_val: (X_val, 1 - y_val), False),
        (relabel_in_place, True),  # as its attribute says
        (functools.partial(relabel_in_place, by=1), True),
    ],
)
def test_neighbours_are_compared_only_where_points_stay_in_place(perturbation: Any, in_place: bool) -> None:
    y_val = np.arange(M) % 2
    audit = audit_shift(fitted(), X_VAL, y_val, perturbations=[perturbation], repeats=2)
    for name in STATISTICS:
        assert np.isnan(audit.statistic(name)[0][0]) == (name in NEIGHBOURS and not in_place), name


class Generic:
    """Some other valuation method: fit and value, nothing else."""

    def __init__(self, inner: KNNShapley) -> None:
        self.inner = inner

    def value(self, X_val: Any, y_val: Any) -> Any:
        return self.inner.value(X_val, y_val)


def test_any_model_can_be_audited() -> None:
    ours = audit_shift(fitted(), X_VAL, Y_VAL, noise=[0.3], repeats=3)
    generic = audit_shift(Generic(fitted()), X_VAL, Y_VAL, noise=[0.3], repeats=3)
    for name in STATISTICS:
        if name in NEIGHBOURS:
            assert np.isnan(generic.statistic(name)).all()
        else:
            np.testing.assert_array_equal(generic.statistic(name), ours.statistic(name))


def test_the_model_is_left_as_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    model = fitted(progress=True)
    audit_shift(model, X_VAL, Y_VAL, noise=[0.3], repeats=3, progress=True)
    assert model.progress is True
    shown = capsys.readouterr().err
    assert "Auditing" in shown
    assert "3/3" in shown
    assert "Valuing" not in shown


@pytest.mark.parametrize("y_val", [Y_VAL.tolist(), pd.Series(Y_VAL), pl.Series(Y_VAL), pa.array(Y_VAL)])
def test_labels_come_in_any_container(y_val: Any) -> None:
    expected = audit_shift(fitted(), X_VAL, Y_VAL, noise=[0.3], repeats=2)
    assert_same(audit_shift(fitted(), X_VAL, y_val, noise=[0.3], repeats=2), expected)


# --- small and degenerate -------------------------------------------------------------------------------------------


def test_one_training_row() -> None:
    model = KNNShapley().fit([[0.0]], ["a"])
    audit = audit_shift(model, [[1.0], [2.0]], ["a", "a"], noise=[1.0], repeats=2)
    assert np.isnan(audit.statistic("spearman")[0][0])
    assert np.isnan(audit.statistic("alpha_nonboundary")[0][0])
    assert audit.statistic("top_overlap")[0][0] == 1
    assert audit.verdict == "undefined"
    assert audit.noise_finding == "undefined at noise 1"
    assert audit.rows["stability"][0] == 1


def test_one_point_and_one_point_groups() -> None:
    model = fitted()
    entropy = model.value(X_VAL, Y_VAL).entropy
    one = np.flatnonzero(entropy > 0)[:1]
    audit = audit_shift(model, X_VAL[one], Y_VAL[one], noise=[0.01], repeats=2)
    assert np.isnan(audit.statistic("neighbor_jaccard_nonboundary")[0][0])
    assert np.isnan(audit.statistic("alpha_nonboundary")[0][0])
    assert audit.statistic("neighbor_jaccard_boundary")[0][0] == audit.statistic("neighbor_jaccard")[0][0]
    both = np.concatenate([one, np.flatnonzero(entropy == 0)[:1]])
    audit = audit_shift(model, X_VAL[both], Y_VAL[both], noise=[0.0], repeats=2)
    assert audit.statistic("alpha_boundary")[0][0] == audit.statistic("alpha_nonboundary")[0][0] == 1


def test_one_repeat_has_no_interval() -> None:
    audit = audit_shift(fitted(), X_VAL, Y_VAL, noise=[0.3], repeats=1)
    assert np.isfinite(audit.means).all()
    assert np.isnan(audit.lows).all()
    rows = audit.rows_frame()
    assert rows["std"].isna().all()
    assert (rows["rank_low"] == rows["rank_high"]).all()
    assert rows["stability"].between(0, 1).all()


def test_memory_does_not_grow_with_levels_or_repeats() -> None:
    rng = np.random.default_rng(1)
    model = KNNShapley(n_jobs=1).fit(rng.normal(size=(50_000, 2)), rng.integers(0, 2, 50_000))
    X_val, y_val = rng.normal(size=(8, 2)), rng.integers(0, 2, 8)

    def peak(n_levels: int, repeats: int) -> int:
        tracemalloc.start()
        audit_shift(model, X_val, y_val, noise=np.linspace(0, 1, n_levels), repeats=repeats)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(1, 1)
    # One more column of the training rows would be 400 kB.
    assert peak(6, 5) < peak(1, 2) + 200_000


# --- another sample -------------------------------------------------------------------------------------------------


def test_another_sample_comes_first_and_from_the_clean_run_alone() -> None:
    model = fitted()
    clean = model.value(X_VAL, Y_VAL)
    audit = audit_shift(model, X_VAL, Y_VAL, noise=[0.1], repeats=2)
    assert audit.sampling["reliability"] == clean.reliability
    assert audit.sampling["reliability_spearman"] == clean.reliability_spearman
    assert audit.sampling["points_needed"] == clean.points_needed(0.9)
    for name in ("surely_positive", "surely_negative", "open"):
        assert audit.sampling[name] == getattr(clean, name)
    first = audit.to_frame("pandas").iloc[0]
    assert (first["level"], first["verdict"]) == ("another sample", audit.sampling_verdict)
    assert (first["pearson"], first["spearman"]) == (clean.reliability, clean.reliability_spearman)
    rows = audit.rows_frame(kind="pandas")
    np.testing.assert_array_equal(rows["standard_error"], clean.standard_error)
    np.testing.assert_array_equal(rows[["low", "high"]].T, clean.interval())
    np.testing.assert_array_equal(rows["sign_probability"], clean.sign_probability)
    np.testing.assert_array_equal(rows[["best_rank", "worst_rank"]].T, clean.rank_interval())


def test_too_few_points_are_never_called_stable() -> None:
    few = with_means([0.99], reliability=0.42)
    assert few.verdicts == ("stable",)
    assert (few.sampling_verdict, few.verdict) == ("unreliable", "unreliable")
    assert few.finding == (
        "too few validation points: another sample of 30 points would agree with these values at a correlation of "
        "0.42; 190 points are needed for 0.9; stable up to noise 0.1"
    )
    assert with_means([0.99], reliability=0.8).verdict == "usable"
    assert with_means([0.8], reliability=0.8).verdict == "shifts"
    assert with_means([0.2], reliability=0.42).verdict == "unreliable"
    assert with_means([0.99], reliability=0.9).verdict == "stable"
    lenient = few.judged_by(Thresholds(reliable=0.4, usable=0.1))
    assert (lenient.sampling_verdict, lenient.verdict) == ("reliable", "stable")


def test_points_that_depend_on_each_other_are_fewer_units() -> None:
    clusters = np.arange(M) // 3
    audit = audit_shift(fitted(), X_VAL, Y_VAL, noise=[0.1], repeats=1, clusters=clusters)
    assert audit.sampling["units"] == M / 3
    assert audit.sampling["reliability"] == fitted().value(X_VAL, Y_VAL, clusters=clusters).reliability
    assert "another sample of 10 clusters of points" in audit.finding


class NoError(Generic):
    """A method whose values have no standard error."""

    def value(self, X_val: Any, y_val: Any) -> Any:
        return dataclasses.replace(super().value(X_val, y_val), standard_error=None, sampling={})


@pytest.mark.parametrize(
    ("model", "points", "why"),
    [
        (fitted(), 1, "it takes at least two validation points"),
        (NoError(fitted()), M, "these values were corrected, or come from an earlier release"),
    ],
)
def test_values_without_an_error_say_so(model: Any, points: int, why: str, tmp_path: Path) -> None:
    audit = audit_shift(model, X_VAL[:points], Y_VAL[:points], noise=[0.0], repeats=2)
    assert audit.sampling_verdict == audit.verdict == "undefined"
    assert audit.verdicts == ("stable",)
    assert f"what another sample would change is not known: {why}" in audit.finding
    assert "nan" not in audit.summary()
    assert audit.sampling["open"] is None
    assert "standard_error" not in audit.rows_frame(kind="pandas")
    audit.save(tmp_path / "audit.npz")
    assert repr(ShiftAudit.load(tmp_path / "audit.npz")) == repr(audit)


def test_audits_of_an_earlier_release_can_be_read(tmp_path: Path) -> None:
    path = saved(tmp_path)
    with zipfile.ZipFile(path) as archive:
        parts = {entry: archive.read(entry) for entry in archive.namelist() if not entry.startswith("sampling_rows")}
    header = json.loads(np.load(io.BytesIO(parts["header.npy"])).tobytes())
    del header["sampling"], header["thresholds"]["reliable"], header["thresholds"]["usable"]
    rewrite(path, parts, "header", np.frombuffer(json.dumps(header).encode(), dtype=np.uint8))
    audit = ShiftAudit.load(path)
    assert audit.sampling_verdict == "undefined"
    assert "not known: the audit comes from an earlier release" in audit.finding
    assert audit.to_frame("pandas")["verdict"][0] == "undefined"


# --- verdict --------------------------------------------------------------------------------------------------------


def with_means(
    spearman: list[float],
    *,
    flips: float = 0,
    std: float = 1.0,
    axis: str = "noise",
    half: dict[str, float] | None = None,
    repeats: int = 2,
    reliability: float | None = 0.95,
) -> ShiftAudit:
    """An audit with these means, and intervals of these half widths: 0 where none is given."""
    audit = audit_shift(fitted(), X_VAL, Y_VAL, noise=[0.1 * (i + 1) for i in range(len(spearman))], repeats=repeats)
    means = audit.means.copy()
    means[:, STATISTICS.index("spearman")] = spearman
    means[:, STATISTICS.index("flips_to_negative")] = flips * N / 2
    means[:, STATISTICS.index("flips_to_positive")] = flips * N / 2
    means[:, STATISTICS.index("std")] = std * audit.clean["std"]
    width = np.zeros(len(STATISTICS))
    for name, size in (half or {}).items():
        width[STATISTICS.index(name)] = size * (audit.clean["std"] if name == "std" else 1)
    nothing = np.full_like(means, np.nan)
    lows, highs = (nothing, nothing) if repeats == 1 else (means - width, means + width)
    sampling = dict(audit.sampling) | {"reliability": reliability, "points_needed": 190}
    return dataclasses.replace(audit, means=means, lows=lows, highs=highs, axis=axis, sampling=sampling)


@pytest.mark.parametrize(
    ("options", "verdict"),
    [
        ({"spearman": [0.95]}, "stable"),
        ({"spearman": [0.85]}, "shifts"),
        ({"spearman": [0.45]}, "unstable"),
        ({"spearman": [0.95], "flips": 0.06}, "shifts"),
        ({"spearman": [0.95], "flips": 0.26}, "unstable"),
        ({"spearman": [0.95], "std": 0.85}, "shifts"),
        ({"spearman": [0.95], "std": 1.15}, "shifts"),
        ({"spearman": [np.nan]}, "undefined"),
        ({"spearman": [np.nan], "flips": 0.3}, "unstable"),
        ({"spearman": [np.nan], "std": 0.0}, "unstable"),  # all values equal: their order is lost
        ({"spearman": [0.95, np.nan]}, "undefined"),
        ({"spearman": [0.85, np.nan]}, "shifts"),
        ({"spearman": [0.95, 0.2, 0.85]}, "unstable"),
    ],
)
def test_verdict(options: dict[str, Any], verdict: str) -> None:
    assert with_means(**options).verdict == verdict


@pytest.mark.parametrize(
    ("spearman", "finding"),
    [
        ([0.95, 0.95], "stable up to noise 0.2"),
        ([0.95, 0.8, 0.2], "stable up to noise 0.1, shifts from noise 0.2, unstable from noise 0.3"),
        ([0.95, 0.2, 0.8], "stable up to noise 0.1, unstable from noise 0.2"),
        ([0.8, 0.95], "shifts from noise 0.1"),
        ([0.2], "unstable from noise 0.1"),
        ([0.95, np.nan, 0.2], "stable up to noise 0.1, undefined at noise 0.2, unstable from noise 0.3"),
    ],
)
def test_finding_names_where_stability_ends(spearman: list[float], finding: str) -> None:
    audit = with_means(spearman)
    sample = (
        "enough validation points: another sample of 30 points would agree with these values at a correlation of 0.95"
    )
    assert audit.noise_finding == finding
    assert audit.finding == f"{sample}; {finding}"
    assert audit.summary().startswith(f"{audit.verdict}: {sample}; {audit.sampling['surely_positive']} rows are surely")
    assert audit.summary().endswith(f" open (95% each); {finding} ({audit.thresholds})")
    assert repr(audit) == (
        f"ShiftAudit(n_train=60, levels={len(spearman)}, repeats=2, verdict={audit.verdict!r}: {audit.finding})"
    )


@pytest.mark.parametrize(
    ("options", "borderline"),
    [
        ({"spearman": [0.95], "half": {"spearman": 0.04}}, False),
        ({"spearman": [0.95], "half": {"spearman": 0.06}}, True),  # 0.89 would be a shift
        ({"spearman": [0.89], "half": {"spearman": 0.02}}, True),  # 0.91 would be stable
        ({"spearman": [0.45], "half": {"spearman": 0.04}}, False),
        ({"spearman": [0.45], "half": {"spearman": 0.06}}, True),
        ({"spearman": [0.7], "half": {"spearman": 0.1}, "std": 0.5}, False),  # a shift for another reason
        ({"spearman": [0.95], "flips": 0.04, "half": {"flips_to_negative": 0.3}}, False),
        ({"spearman": [0.95], "flips": 0.04, "half": {"flips_to_negative": 0.3, "flips_to_positive": 0.4}}, True),
        ({"spearman": [0.95], "std": 0.95, "half": {"std": 0.04}}, False),
        ({"spearman": [0.95], "std": 0.95, "half": {"std": 0.06}}, True),
        ({"spearman": [0.95], "std": 0.88, "half": {"std": 0.3}}, True),  # both ends shift, what lies between does not
        ({"spearman": [np.nan]}, False),
    ],
)
def test_a_level_is_borderline_when_another_verdict_lies_within_its_intervals(
    options: dict[str, Any], borderline: bool
) -> None:
    audit = with_means(**options)
    assert audit.borderline == (borderline,)
    assert ("borderline at noise 0.1" in audit.finding) is borderline
    assert audit.to_frame("pandas")["borderline"].tolist() == [False, borderline]


def test_borderline_levels_are_named() -> None:
    wide = {"half": {"spearman": 0.06}}
    assert with_means([0.99, 0.95, 0.85], **wide).noise_finding == (
        "stable up to noise 0.2, shifts from noise 0.3; borderline at noise 0.2, 0.3"
    )
    assert with_means([0.95, 0.7], axis="perturbation", **wide).noise_finding == (
        "stable under 0.1; shifts under 0.2; borderline under 0.1"
    )


def test_one_run_per_level_is_a_verdict_with_a_caveat() -> None:
    assert with_means([0.95], std=0.85, repeats=1).borderline == (False,)
    audit = with_means([0.95, 0.2], repeats=1)
    assert audit.verdicts == ("stable", "unstable")
    assert audit.borderline == (False, False)
    assert audit.noise_finding == (
        "stable up to noise 0.1, unstable from noise 0.2; one run per level, so no confidence interval"
    )


class Collapsing(KNNShapley):
    """Gives all rows the same value as soon as the points have moved."""

    def value(self, X_val: Any, y_val: Any, **options: Any) -> Any:
        valuation = super().value(X_val, y_val, **options)
        moved = not np.array_equal(X_val, X_VAL)
        return dataclasses.replace(valuation, values=np.full(N, 0.01)) if moved else valuation


def test_values_that_collapse_are_unstable() -> None:
    audit = audit_shift(Generic(Collapsing(K).fit(X, Y)), X_VAL, Y_VAL, noise=[0.1], repeats=2)
    assert np.isnan(audit.statistic("spearman")[0][0])
    assert audit.statistic("std")[0][0] == pytest.approx(0, abs=1e-15)
    lenient = Thresholds(stable_flips=1.0, unstable_flips=1.0)
    assert audit.judged_by(lenient).verdicts == ("unstable",)


def test_clean_values_without_spread_leave_the_verdict_open() -> None:
    model = KNNShapley(1).fit([[0.0], [1.0]], [0, 0])
    audit = audit_shift(model, [[5.0], [-5.0]], [0, 0], noise=[0.1], repeats=2)
    assert audit.clean["std"] == pytest.approx(0)
    assert audit.verdict == "undefined"


def test_finding_of_other_levels_assumes_no_order_of_strength() -> None:
    assert with_means([0.2, 0.95, 0.95], axis="epsilon").noise_finding == (
        "stable at epsilon 0.2, 0.3; unstable at epsilon 0.1"
    )
    assert with_means([0.2, 0.95], axis="perturbation").noise_finding == "stable under 0.2; unstable under 0.1"


def test_finding_follows_the_level_not_the_order_given() -> None:
    audit = audit_shift(fitted(), X_VAL, Y_VAL, noise=[50.0, 0.0], repeats=2)
    assert audit.verdicts[1] == "stable" != audit.verdicts[0]
    assert audit.noise_finding.split(";")[0] == f"stable up to noise 0, {audit.verdicts[0]} from noise 50"


def test_thresholds_can_be_set() -> None:
    lenient = Thresholds(stable_spearman=0.5, unstable_spearman=0.1, stable_flips=0.5, unstable_flips=0.9)
    audit = with_means([0.6])
    assert audit.verdict == "shifts"
    assert audit.judged_by(lenient).verdict == "stable"
    assert "Spearman >= 0.5" in audit.judged_by(lenient).summary()
    assert audit_shift(fitted(), X_VAL, Y_VAL, noise=[0.1], repeats=1, thresholds=lenient).thresholds == lenient


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"stable_spearman": 1.5}, "stable_spearman"),
        ({"unstable_spearman": 0.95}, "unstable_spearman"),
        ({"stable_flips": -0.1}, "stable_flips"),
        ({"unstable_flips": 0.01}, "unstable_flips"),
        ({"stable_std_change": -1}, "stable_std_change"),
        ({"stable_std_change": "a"}, "stable_std_change"),
        ({"stable_std_change": np.nan}, "stable_std_change"),
        ({"stable_flips": True}, "stable_flips"),
        ({"reliable": 1.2}, "reliable"),
        ({"usable": 0.95}, "usable"),
        ({"usable": -0.1}, "usable"),
    ],
)
def test_bad_thresholds(options: dict[str, Any], name: str) -> None:
    with pytest.raises(ValueError, match=f"The '{name}' parameter of Thresholds must be a number from"):
        Thresholds(**options)


# --- bad input ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({}, ValueError, "either 'noise'.*or 'perturbations'.*Got neither"),
        ({"noise": [1], "perturbations": [Round(1)]}, ValueError, "Got both"),
        ({"noise": []}, ValueError, "'noise' parameter of audit_shift is empty"),
        ({"perturbations": []}, ValueError, "'perturbations' parameter of audit_shift is empty"),
        ({"noise": [0.1, -0.5]}, ValueError, "'noise' parameter.*at least 0. Got -0.5"),
        ({"noise": [np.nan]}, ValueError, "'noise' parameter.*at least 0"),
        ({"noise": [np.inf]}, ValueError, "'noise' parameter.*at least 0"),
        ({"noise": ["much"]}, TypeError, "'noise' parameter of audit_shift must be a finite number"),
        ({"noise": 0.5}, TypeError, "must be a list of levels. Got 0.5"),
        ({"noise": "0.5"}, TypeError, "must be a list of levels"),
        ({"perturbations": Round(1)}, TypeError, "must be a list of levels"),
        ({"perturbations": [3]}, TypeError, "perturbation must be"),
        ({"perturbations": [Round(1)], "relative": True}, ValueError, "'relative' parameter.*goes with 'noise'"),
        ({"noise": [1], "repeats": 0}, ValueError, "'repeats' parameter of audit_shift must be at least 1. Got 0"),
        ({"noise": [1], "repeats": 2.5}, TypeError, "'repeats' parameter"),
        ({"noise": [1], "random_state": -1}, ValueError, "'random_state' parameter"),
        ({"noise": [1], "random_state": "a"}, TypeError, "'random_state' parameter"),
        ({"noise": [1], "top": 0}, ValueError, "'top' parameter"),
        ({"noise": [1], "top": 1.5}, ValueError, "'top' parameter"),
        ({"noise": [1], "thresholds": 0.5}, TypeError, "'thresholds' parameter must be a Thresholds object"),
        ({"perturbations": [lambda X_val, y_val: X_val]}, ValueError, "must return the pair"),
    ],
)
def test_bad_parameters(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"(?s){message}"):
        audit_shift(fitted(), X_VAL, Y_VAL, **options)


def test_models_that_cannot_be_audited() -> None:
    with pytest.raises(NotFittedError):
        audit_shift(KNNShapley(), X_VAL, Y_VAL, noise=[0.1])
    with pytest.raises(TypeError, match=r"'model' parameter of audit_shift must be a fitted estimator.*Got str"):
        audit_shift("model", X_VAL, Y_VAL, noise=[0.1])

    class Bare:
        def value(self, X_val: Any, y_val: Any) -> Any:
            return np.zeros(N)

    with pytest.raises(
        TypeError, match=r"audit_shift must have a value method that returns a Valuation.*Bare.*ndarray"
    ):
        audit_shift(Bare(), X_VAL, Y_VAL, noise=[0.1])


def test_unknown_names_are_refused() -> None:
    audit = audit_shift(fitted(), X_VAL, Y_VAL, noise=[0.1], repeats=1)
    with pytest.raises(ValueError, match="'name' parameter must be one of mean, std"):
        audit.statistic("median")
    with pytest.raises(ValueError, match="keep_rows=True"):
        audit.rows_frame(0.1)
    kept = audit_shift(fitted(), X_VAL, Y_VAL, noise=[0.1], repeats=1, keep_rows=True)
    with pytest.raises(ValueError, match="'level' parameter must be one of"):
        kept.rows_frame(0.2)


def test_top_is_recorded_in_rows() -> None:
    assert audit_shift(fitted(), X_VAL, Y_VAL, noise=[0.1], repeats=1).parameters["top"] == 6
    assert audit_shift(fitted(), X_VAL, Y_VAL, noise=[0.1], repeats=1, top=7).parameters["top"] == 7


# --- tables and files -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "kind", "columns"),
    [
        (lambda rows: pd.DataFrame(rows, columns=["a", "b"], index=IDS), pd.DataFrame, lambda t: list(t.columns)),
        (lambda rows: pl.DataFrame(rows, schema=["a", "b"]), pl.DataFrame, lambda t: t.columns),
        (lambda rows: pa.table({"a": rows[:, 0], "b": rows[:, 1]}), pa.Table, lambda t: t.column_names),
    ],
)
def test_tables_are_of_the_callers_kind(make: Callable[[Floats], Any], kind: type, columns: Any) -> None:
    model = KNNShapley().fit(make(X), Y)
    X_val = make(X)[:M]
    audit = audit_shift(model, X_val, Y_VAL, noise=[0.1, 0.2], repeats=2)
    frame, rows = audit.to_frame(), audit.rows_frame()
    assert isinstance(frame, kind)
    assert isinstance(rows, kind)
    wanted = [name + end for name in STATISTICS for end in ("", "_low", "_high")]
    assert columns(frame) == ["level", "verdict", "borderline", *wanted]
    ids = [] if kind is pd.DataFrame else ["id"]
    assert columns(rows) == [*ids, "clean", "clean_rank", *SAMPLING_ROWS, *ROW_STATISTICS]
    assert isinstance(audit.to_frame("polars"), pl.DataFrame)
    for name in ("level", "spearman", "mean_low"):
        expected = [0.1, 0.2] if name == "level" else audit.statistic(name.removesuffix("_low"))[name.endswith("_low")]
        assert audit.to_frame("pandas")[name].tolist()[1:] == list(expected)


def test_arrays_cannot_be_changed() -> None:
    audit = audit_shift(fitted(), X_VAL, Y_VAL, noise=[0.1], repeats=1, keep_rows=True)
    assert audit.level_rows is not None
    for array in (audit.means, audit.clean_values, audit.ids, audit.rows["mean"], audit.level_rows["mean"]):
        with pytest.raises(ValueError, match="read-only"):
            array[:] = array


@pytest.mark.parametrize("keep_rows", [False, True])
@pytest.mark.parametrize("ids", [IDS, list(range(N)), [("a", i) for i in range(N)]])
def test_saved_and_loaded_is_the_same(tmp_path: Path, keep_rows: bool, ids: list[Any]) -> None:
    model = KNNShapley().fit(X, Y, ids=ids)
    perturbations = [GaussianNoise(0.1) | Round(1), FlipLabels(0.2), Subsample(0.5)]
    audit = audit_shift(
        model, X_VAL, Y_VAL, perturbations=perturbations, repeats=2, keep_rows=keep_rows,
        thresholds=Thresholds(stable_spearman=0.7),
    )  # fmt: skip
    audit.save(tmp_path / "audit.npz")
    loaded = ShiftAudit.load(tmp_path / "audit.npz")
    assert_same(audit, loaded)
    assert repr(loaded) == repr(audit)
    assert [path.name for path in tmp_path.iterdir()] == ["audit.npz"]


def saved(folder: Path) -> Path:
    path = folder / "audit.npz"
    audit_shift(KNNShapley(K).fit(X, Y), X_VAL, Y_VAL, noise=[0.1], repeats=1, keep_rows=True).save(path)
    return path


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    path = saved(tmp_path)
    whole = path.read_bytes()
    for cut in (0, 10, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(ValueError, match=r"is not a whole shapshift\.ShiftAudit file"):
            ShiftAudit.load(path)
    path.write_bytes(whole)
    turned = bytearray(whole)
    turned[whole.index(ShiftAudit.load(path).means.tobytes())] ^= 1
    path.write_bytes(turned)
    with pytest.raises(ValueError, match=r"is not a whole shapshift\.ShiftAudit file"):
        ShiftAudit.load(path)


@pytest.mark.parametrize("missing", ["means", "rows.stability", "level_rows.mean", "sampling_rows.low"])
def test_incomplete_files_are_refused(tmp_path: Path, missing: str) -> None:
    path = saved(tmp_path)
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    assert parts.pop(f"{missing}.npy")
    with zipfile.ZipFile(path, "w") as archive:
        for name, part in parts.items():
            archive.writestr(name, part)
    with pytest.raises(ValueError, match=r"is not a whole shapshift\.ShiftAudit file"):
        ShiftAudit.load(path)


@pytest.mark.parametrize(
    "name", ["means", "positions", "rows.std", "level_rows.std", "clean_ranks", "sampling_rows.low"]
)
def test_files_that_do_not_fit_together_are_refused(tmp_path: Path, name: str) -> None:
    path = saved(tmp_path)
    with zipfile.ZipFile(path) as archive:
        parts = {entry: archive.read(entry) for entry in archive.namelist()}
    array = np.load(io.BytesIO(parts[f"{name}.npy"]))
    buffer = io.BytesIO()
    np.save(buffer, array[..., :-1])
    parts[f"{name}.npy"] = buffer.getvalue()
    with zipfile.ZipFile(path, "w") as archive:
        for entry, part in parts.items():
            archive.writestr(entry, part)
    with pytest.raises(ValueError, match="has shape"):
        ShiftAudit.load(path)


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("parameters", {}), ("parameters", 3), ("parameters", {"repeats": "many"}), ("clean", {"mean": 0.0}),
        ("clean", {"std": "wide"}), ("perturbations", []), ("perturbations", [3]), ("perturbations", [{}]),
        ("levels", []), ("levels", [[1]]), ("axis", 3), ("fingerprint", None), ("kind", "excel"),
        ("thresholds", {"stable_spearman": 7}), ("statistics", ["mean"]),
        ("sampling", {"reliability": "high"}), ("sampling", {"unknown": 3}), ("sampling", {"more": 1}),
    ],
)  # fmt: skip
def test_headers_that_no_audit_has_are_refused(tmp_path: Path, part: str, value: Any) -> None:
    path = saved(tmp_path)
    with zipfile.ZipFile(path) as archive:
        parts = {entry: archive.read(entry) for entry in archive.namelist()}
    header = json.loads(np.load(io.BytesIO(parts["header.npy"])).tobytes())
    whole = isinstance(value, dict) and isinstance(header[part], dict) and value
    header[part] = {**header[part], **value} if whole and part != "clean" else value
    rewrite(path, parts, "header", np.frombuffer(json.dumps(header).encode(), dtype=np.uint8))
    with pytest.raises(ValueError, match=r"is not a whole shapshift\.ShiftAudit file"):
        ShiftAudit.load(path)


@pytest.mark.parametrize("name", ["means", "positions", "rows.std", "clean_values"])
def test_arrays_of_another_type_are_refused(tmp_path: Path, name: str) -> None:
    path = saved(tmp_path)
    with zipfile.ZipFile(path) as archive:
        parts = {entry: archive.read(entry) for entry in archive.namelist()}
    rewrite(path, parts, name, np.load(io.BytesIO(parts[f"{name}.npy"])).astype(np.complex128))
    with pytest.raises(ValueError, match="holds complex128, not float64"):
        ShiftAudit.load(path)


def rewrite(path: Path, parts: dict[str, bytes], name: str, array: npt.NDArray[Any]) -> None:
    buffer = io.BytesIO()
    np.save(buffer, array)
    with zipfile.ZipFile(path, "w") as archive:
        for entry, part in {**parts, f"{name}.npy": buffer.getvalue()}.items():
            archive.writestr(entry, part)


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="There is no file"):
        ShiftAudit.load(tmp_path / "none.npz")
    fitted().value(X_VAL, Y_VAL).save(tmp_path / "valuation.npz")
    with pytest.raises(ValueError, match=r"it holds a shapshift\.Valuation"):
        ShiftAudit.load(tmp_path / "valuation.npz")
    write_archive(tmp_path / "later.npz", "shapshift.ShiftAudit", 99, {}, {})
    with pytest.raises(ValueError, match="version 99"):
        ShiftAudit.load(tmp_path / "later.npz")
    write_archive(tmp_path / "empty.npz", "shapshift.ShiftAudit", 1, {}, {})
    with pytest.raises(ValueError, match="is not a whole"):
        ShiftAudit.load(tmp_path / "empty.npz")


def test_the_distances_of_this_file_are_what_it_takes_them_for() -> None:
    ranks, nearest = ranks_and_nearest(X_VAL)
    order = np.argsort(cdist(X_VAL, X), axis=1, kind="stable")
    assert (np.take_along_axis(ranks, order, axis=1)[:, 1:] >= np.take_along_axis(ranks, order, axis=1)[:, :-1]).all()
    _, hood = fitted().value_and_neighbors(X_VAL, Y_VAL, reference=nearest)
    np.testing.assert_array_equal(hood.nearest, nearest)
    np.testing.assert_array_equal(hood.reference_ranks, np.take_along_axis(ranks, nearest, axis=1))


def test_runs_side_by_side_give_the_same_bytes() -> None:
    rng = np.random.default_rng(5)
    X, y = rng.normal(size=(200, 3)), rng.integers(0, 2, 200)
    audits = [
        audit_shift(
            KNNShapley(n_jobs=n_jobs).fit(X, y), X[:40] + 0.1, y[:40], noise=[0.1, 1.0], repeats=4, keep_rows=True
        )
        for n_jobs in (1, 3)
    ]
    np.testing.assert_array_equal(audits[0].means, audits[1].means)
    for name, column in audits[0].rows.items():
        np.testing.assert_array_equal(column, audits[1].rows[name])
    assert audits[0].level_rows is not None
    for name, column in audits[0].level_rows.items():
        np.testing.assert_array_equal(column, audits[1].level_rows[name])


def test_a_perturbation_that_fails_in_the_middle_ends_the_audit() -> None:
    calls = []

    def fails_on_the_third_call(X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        calls.append(len(calls))
        if len(calls) == 3:
            raise OSError("the disk with the noise is gone")
        return X + 0.1, y

    model = KNNShapley(n_jobs=2).fit([[0.0], [1.0], [2.0]], [0, 1, 0])
    with pytest.raises(OSError, match="the disk with the noise"):
        audit_shift(model, np.array([[0.5], [1.5]]), [0, 1], perturbations=[fails_on_the_third_call], repeats=6)
