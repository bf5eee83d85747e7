"""Perturbations: that seeds decide everything, that the caller's data stays as it was, and how they combine."""

from __future__ import annotations

import copy
import functools
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sample_points import MODEL, X, Y
from scipy import sparse

from shapshift.perturb import (
    BoundaryCoverage,
    Compose,
    FlipLabels,
    GaussianNoise,
    LaplaceNoise,
    MaskFeatures,
    OnPoints,
    Perturbation,
    Quantize,
    Round,
    ShiftPriors,
    Subsample,
    as_perturbation,
)
from shapshift.perturb.base import digest
from shapshift.perturb.containers import count_rows, take_rows

EVERY = [
    GaussianNoise(0.5),
    GaussianNoise(0.5, relative=True).bind(MODEL),
    LaplaceNoise(2.0),
    Round(0),
    Quantize(0.5),
    Quantize(bins=4),
    MaskFeatures(0.3),
    MaskFeatures(0.7, fill="zero", by="feature"),
    FlipLabels(0.4),
    FlipLabels(rates={0: 0.9}, targets={0: {1: 1.0, 2: 3.0}}),
    Subsample(0.5),
    Subsample(n=7),
    ShiftPriors({0: 0.2, 1: 0.2}),
    BoundaryCoverage(0.4).bind(MODEL),
    OnPoints(GaussianNoise(0.5), "boundary").bind(MODEL),
    OnPoints(FlipLabels(0.4) | MaskFeatures(0.3), "nonboundary").bind(MODEL),
    GaussianNoise(0.5) | FlipLabels(0.2) | Subsample(0.8),
]
RANDOM = [step for step in EVERY if not isinstance(step, Round | Quantize)]


def named(step: Perturbation) -> str:
    return repr(step)[:60]


# --- what holds for all ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", EVERY, ids=named)
def test_the_same_seed_gives_the_same_bytes_and_nothing_is_changed_in_place(step: Perturbation) -> None:
    before = X.copy(), Y.copy()
    first, again = step.with_seed(3)(X, Y), step.with_seed(3)(X, Y)
    for one, two in zip(first, again, strict=True):
        assert one.tobytes() == two.tobytes()
    assert X.tobytes() == before[0].tobytes()
    assert Y.tobytes() == before[1].tobytes()
    assert first[1].dtype == Y.dtype
    assert first[0].dtype == X.dtype
    assert len(first[0]) == len(first[1])
    assert not np.shares_memory(first[0], X) or first[0] is X


@pytest.mark.parametrize("step", RANDOM, ids=named)
def test_other_seeds_give_other_results(step: Perturbation) -> None:
    results = {b"".join(part.tobytes() for part in step.with_seed(seed)(X, Y)) for seed in range(8)}
    assert len(results) > 4 or (isinstance(step, MaskFeatures) and len(results) == 3)


@pytest.mark.parametrize("step", EVERY, ids=named)
def test_parameters_are_json(step: Perturbation) -> None:
    parameters = json.loads(json.dumps(step.with_seed(2**90).parameters))
    assert parameters["name"] == type(step).__name__
    assert parameters == step.with_seed(2**90).parameters


@pytest.mark.parametrize("step", EVERY, ids=named)
def test_binding_survives_a_new_seed(step: Perturbation) -> None:
    bound = step.bind(MODEL)
    assert type(bound) is type(step)
    one, two = bound.with_seed(5)(X, Y), step.with_seed(5).bind(MODEL)(X, Y)
    np.testing.assert_array_equal(one[0], two[0])
    np.testing.assert_array_equal(one[1], two[1])


@pytest.mark.parametrize("step", EVERY, ids=named)
@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow", "list", "csr", "float32"])
def test_containers_come_back_as_they_were(step: Perturbation, kind: str) -> None:
    features: Any = {"a": X[:, 0], "b": X[:, 1], "c": X[:, 2]}
    index = np.arange(100, 160)
    as_kind: Any = {
        "pandas": lambda: (pd.DataFrame(features, index=index), pd.Series(Y.astype("int8"), index=index, name="y")),
        "polars": lambda: (pl.DataFrame(features), pl.Series("y", Y.astype(np.int16))),
        "pyarrow": lambda: (pa.table(features), pa.chunked_array([Y[:20], Y[20:]])),
        "list": lambda: (X.tolist(), Y.tolist()),
        "csr": lambda: (sparse.csr_array(X), Y),
        "float32": lambda: (X.astype(np.float32), Y.astype(np.uint8)),
    }[kind]
    table, labels = as_kind()
    kept = copy.deepcopy((table, labels))
    step = step.with_seed(1)
    new_table, new_labels = step(table, labels)
    plain_table, plain_labels = step(X, Y)
    if kind != "list":
        assert type(new_table) is type(table)
    assert type(new_labels) is type(labels)

    def dense(rows: Any) -> Any:
        if sparse.issparse(rows):
            return rows.toarray()
        return np.asarray(rows) if kind != "pyarrow" else rows.to_pandas().to_numpy()

    np.testing.assert_allclose(dense(new_table), plain_table, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(np.asarray(new_labels), plain_labels)
    np.testing.assert_array_equal(dense(table), dense(kept[0]))
    np.testing.assert_array_equal(np.asarray(labels), np.asarray(kept[1]))
    if kind == "pandas":
        assert list(new_table.columns) == ["a", "b", "c"]
        assert (new_table.index == new_labels.index).all()
        assert set(new_table.index) <= set(index)
        assert new_labels.name == "y"
        np.testing.assert_array_equal(new_labels.dtype, labels.dtype)
    if kind == "polars":
        assert new_labels.dtype == labels.dtype
    if kind == "float32":
        assert (new_table.dtype, new_labels.dtype) == (table.dtype, labels.dtype)


@pytest.mark.parametrize(
    "make",
    [
        lambda rows: rows,
        lambda rows: rows.tolist(),
        lambda rows: tuple(rows.tolist()),
        pd.DataFrame,
        lambda rows: pd.DataFrame(rows, index=list("edcba")),
        lambda rows: pl.DataFrame(rows, schema=["a", "b"]),
        lambda rows: pa.table({"a": rows[:, 0], "b": rows[:, 1]}),
        sparse.csr_array,
        sparse.coo_matrix,
        lambda rows: pd.Series(rows[:, 0], index=list("edcba")),
        lambda rows: pl.Series("a", rows[:, 0]),
        lambda rows: pa.chunked_array([rows[:2, 0], rows[2:, 0]]),
    ],
)
def test_rows_are_taken_by_position_with_repeats(make: Any) -> None:
    rows = np.arange(10.0).reshape(5, 2)
    container = make(rows)
    assert count_rows(container) == 5
    taken = take_rows(container, np.array([4, 0, 0]))
    assert count_rows(taken) == 3
    plain = taken.toarray() if sparse.issparse(taken) else np.asarray(taken)
    expected = rows[[4, 0, 0]]
    np.testing.assert_array_equal(plain, expected if plain.ndim == 2 else expected[:, 0])
    if isinstance(container, pd.DataFrame | pd.Series):
        assert taken.index.tolist() == container.index[[4, 0, 0]].tolist()
    if not isinstance(container, tuple | sparse.coo_matrix):
        assert type(taken) is type(container)


def test_pandas_with_numbered_columns() -> None:
    made, y = (GaussianNoise(0.0) | Subsample(n=5, random_state=0))(pd.DataFrame(X), pd.Series(Y))
    assert made.columns.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(made.to_numpy(), X[made.index])
    np.testing.assert_array_equal(y.to_numpy(), Y[made.index])


def test_steps_that_share_a_seed_do_not_share_their_numbers() -> None:
    kept = Subsample(0.5, random_state=0)(np.arange(4000.0)[:, None], np.zeros(4000, int))[0].ravel().astype(int)
    flipped = FlipLabels(0.5, random_state=0)(np.zeros((4000, 1)), np.arange(4000) % 2)[1] != np.arange(4000) % 2
    masked = MaskFeatures(0.5, fill="zero", random_state=0)(np.ones((4000, 1)), np.zeros(4000))[0].ravel() == 0
    chosen = np.zeros(4000, dtype=bool)
    chosen[kept] = True
    for one, two in ((chosen, flipped), (chosen, masked), (flipped, masked)):
        assert abs(np.corrcoef(one, two)[0, 1]) < 0.06


@pytest.mark.parametrize("step", RANDOM, ids=named)
def test_without_a_seed_each_call_differs(step: Perturbation) -> None:
    results = {b"".join(part.tobytes() for part in step(X, Y)) for _ in range(8)}
    assert len(results) > 1


# --- points in place -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", EVERY, ids=named)
def test_a_perturbation_says_whether_points_stay_in_place(step: Perturbation) -> None:
    marked = np.arange(60.0)
    steps = step.steps if isinstance(step, Compose) else (step,)
    resampled = any(isinstance(part, Subsample | ShiftPriors | BoundaryCoverage) for part in steps)
    assert step.pointwise is not resampled  # type: ignore[attr-defined]
    assert step.with_seed(3).pointwise is not resampled  # type: ignore[attr-defined]
    if isinstance(step, FlipLabels | Subsample | ShiftPriors):
        rows, y = step.with_seed(3)(marked[:, None], Y)
        assert np.array_equal(rows.ravel(), marked) is not resampled
        assert len(y) == len(rows)


def test_a_composition_is_pointwise_if_all_its_steps_are() -> None:
    def shift(X_val: Any, y_val: Any) -> tuple[Any, Any]:
        return X_val + 1, y_val

    assert not hasattr(as_perturbation(shift), "pointwise")
    assert (GaussianNoise(0.1) | FlipLabels(0.2)).pointwise is True
    assert Compose().pointwise is True
    assert (Round(1) | Subsample(0.5) | shift).pointwise is False
    assert (Round(1) | shift).pointwise is None


# --- composition and functions -----------------------------------------------------------------------------------


def test_a_pipe_applies_from_left_to_right() -> None:
    first, second = GaussianNoise(0.5, random_state=1), Round(0)
    np.testing.assert_array_equal((first | second)(X, Y)[0], second(*first(X, Y))[0])
    assert not np.array_equal((second | first)(X, Y)[0], (first | second)(X, Y)[0])
    assert (first | second | first) == Compose(first, Compose(second, first)) == Compose(first, second, first)
    assert Compose()(X, Y)[0] is X


def test_equal_steps_of_a_seeded_composition_draw_independently() -> None:
    zero = np.zeros((4000, 1))
    twice = (GaussianNoise(1.0) | GaussianNoise(1.0)).with_seed(0)
    seeds = [step.random_state for step in twice.steps]
    assert len(set(seeds)) == 2
    assert abs(twice(zero, np.zeros(4000))[0].var() - 2.0) < 0.2  # 4 if both added the same noise
    assert twice == (GaussianNoise(1.0) | GaussianNoise(1.0)).with_seed(0)


def test_steps_of_one_kind_draw_independently_whatever_their_seeds() -> None:
    zero, labels = np.zeros((4000, 1)), np.zeros(4000)
    alone = GaussianNoise(1.0, random_state=0)
    twice = alone | alone
    assert abs(twice(zero, labels)[0].std() - np.sqrt(2)) < 0.05  # 2 if both added the same noise
    np.testing.assert_array_equal(twice(zero, labels)[0], twice(zero, labels)[0])
    first = (alone | Subsample(1.0))(zero, labels)[0]
    np.testing.assert_array_equal(first, alone(zero, labels)[0])
    np.testing.assert_array_equal((Subsample(1.0) | alone)(zero, labels)[0], first)
    thrice = alone | Subsample(1.0) | alone | alone
    assert abs(thrice(zero, labels)[0].std() - np.sqrt(3)) < 0.08

    def jitter(X_val: Any, y_val: Any, rng: np.random.Generator) -> tuple[Any, Any]:
        return X_val + rng.normal(size=X_val.shape), y_val

    step = as_perturbation(jitter)._with(random_state=0)
    assert abs((step | step)(zero, labels)[0].std() - np.sqrt(2)) < 0.05


def test_composition_binds_its_steps() -> None:
    step = GaussianNoise(0.1, relative=True) | BoundaryCoverage(0.5)
    made, y = step.bind(MODEL).with_seed(0)(X, Y)
    assert MODEL.value(made, y).boundary_fraction == 0.5
    assert [part["name"] for part in step.parameters["steps"]] == ["GaussianNoise", "BoundaryCoverage"]


def test_plain_functions() -> None:
    def clear(X_val: Any, y_val: Any) -> tuple[Any, Any]:
        X_val[:] = 0  # in place: it works on a copy
        return X_val, y_val

    def jitter(X_val: Any, y_val: Any, rng: np.random.Generator) -> tuple[Any, Any]:
        return X_val + rng.normal(size=X_val.shape), y_val

    before = X.copy()
    assert not as_perturbation(clear)(X, Y)[0].any()
    np.testing.assert_array_equal(X, before)
    step = as_perturbation(jitter)
    assert step.parameters["name"] == "jitter"
    np.testing.assert_array_equal(step.with_seed(1)(X, Y)[0], step.with_seed(1)(X, Y)[0])
    assert not np.array_equal(step.with_seed(1)(X, Y)[0], step.with_seed(2)(X, Y)[0])
    assert as_perturbation(step) is step
    assert step.bind(MODEL) is step
    for composed in (clear | Round(1), Round(1) | clear):
        assert not composed(X, Y)[0].any()


def test_an_own_class_needs_one_method() -> None:
    @dataclass(frozen=True)
    class Shift(Perturbation):
        by: float

        def apply(self, X_val: Any, y_val: Any, rng: np.random.Generator) -> tuple[Any, Any]:
            return X_val + self.by, y_val

    np.testing.assert_array_equal(Shift(2.0)(X, Y)[0], X + 2.0)
    assert Shift(2.0).with_seed(4).parameters == {"name": "Shift", "by": 2.0, "random_state": 4}


@pytest.mark.parametrize("result", [None, (X,), (X, Y[:-1]), [X, Y], (X, None), (3, 4), X])
def test_perturbations_must_return_a_pair(result: Any) -> None:
    def broken(X_val: Any, y_val: Any) -> Any:
        return result

    @dataclass(frozen=True)
    class Broken(Perturbation):
        def apply(self, X_val: Any, y_val: Any, rng: np.random.Generator) -> Any:
            return result

    with pytest.raises(ValueError, match="'broken' must return the pair"):
        as_perturbation(broken)(X, Y)
    with pytest.raises(ValueError, match="'Broken' must return the pair"):
        (Round(1) | Broken())(X, Y)


@pytest.mark.parametrize("make", [np.array, pd.DataFrame, lambda rows: rows.tolist(), sparse.csr_array])
def test_what_an_own_class_changes_in_place_is_a_copy(make: Any) -> None:
    @dataclass(frozen=True)
    class Clear(Perturbation):
        def apply(self, X_val: Any, y_val: Any, rng: np.random.Generator) -> tuple[Any, Any]:
            if isinstance(X_val, list):
                X_val[0][0] = 99.0
            elif isinstance(X_val, pd.DataFrame):
                X_val.iloc[0, 0] = 99.0
            else:
                X_val[0, 0] = 99.0
            y_val[0] = 9
            return X_val, y_val

    table, labels = make(X), Y.copy()
    kept = copy.deepcopy(table)
    changed, flipped = Clear()(table, labels)
    assert flipped[0] == 9
    np.testing.assert_array_equal(labels, Y)
    for part in (table, kept):
        plain = part.toarray() if sparse.issparse(part) else np.asarray(part)
        np.testing.assert_array_equal(plain, X)
    assert np.asarray(changed.toarray() if sparse.issparse(changed) else changed)[0, 0] == 99.0


# --- identity ------------------------------------------------------------------------------------------------------


def shift(X_val: Any, y_val: Any, by: Any, name: str = "") -> tuple[Any, Any]:
    return X_val + by, y_val


def test_bound_arguments_are_parameters() -> None:
    step = as_perturbation(functools.partial(shift, by=2.0, name="far"))
    assert step.parameters == {"name": "shift", "random_state": None, "by": 2.0, "name_": "far"}
    assert as_perturbation(functools.partial(shift, by=np.zeros(3))).parameters["by"].startswith("float64 array of")
    np.testing.assert_array_equal(step(X, Y)[0], X + 2.0)


def test_parameters_of_any_kind_are_plain_and_tell_values_apart() -> None:
    @dataclass(frozen=True)
    class Step(Perturbation):
        what: Any

        def apply(self, X_val: Any, y_val: Any, rng: np.random.Generator) -> tuple[Any, Any]:
            return X_val, y_val

    @dataclass
    class Point:
        x: float

    long = np.zeros(5000)
    long[2500] = 1
    different = [
        1, True, "1", None, [1], {1: 2}, np.zeros(5000), long, np.zeros(5000, np.float32), np.zeros((2, 2500)),
        np.array(["a", None], dtype=object), np.tanh, np.sinh, shift, functools.partial(shift, by=1),
        functools.partial(shift, by=2), Point(1.0), Point(2.0), Point, b"a", float("nan"), {3}, pd.Series([1, 2]),
        pa.array(["a", "b"]), pl.Series([1, 3]),
    ]  # fmt: skip
    told = [json.dumps(Step(what).parameters) for what in different]
    assert len(set(told)) == len(told)
    assert not any("0x" in text for text in told)
    assert Step(object()).parameters["what"] == "object"
    assert Step(lambda: None).parameters["what"].endswith("<lambda>")
    digests = {digest(Step(what).parameters) for what in (1, 1.0, np.int8(1), np.float32(1))}
    assert len(digests) == 1
    assert digest(0.0) == digest(-0.0) == digest(0)
    assert digest(2**70) != digest(2**70 + 1)


# --- refusals ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: GaussianNoise(-0.1),
            ValueError,
            "'sigma' parameter of GaussianNoise must be .* of at least 0. Got -0.1",
        ),
        (lambda: GaussianNoise(float("nan")), ValueError, "finite number"),
        (lambda: GaussianNoise("1"), TypeError, "finite number"),  # type: ignore[arg-type]
        (lambda: GaussianNoise(True), TypeError, "finite number"),
        (lambda: GaussianNoise(1.0, relative="yes"), TypeError, "'relative' parameter of GaussianNoise must be True"),  # type: ignore[arg-type]
        (lambda: GaussianNoise(0.1, random_state=-1), ValueError, "'random_state' parameter of GaussianNoise"),
        (lambda: GaussianNoise(0.1, random_state="x"), TypeError, "'random_state'"),  # type: ignore[arg-type]
        (lambda: GaussianNoise(0.1).with_seed(-1), ValueError, "'seed' parameter of GaussianNoise"),
        (lambda: Compose().with_seed(1.5), TypeError, "'seed' parameter of Compose"),  # type: ignore[arg-type]
        (lambda: LaplaceNoise(0.0), ValueError, "'epsilon' parameter of LaplaceNoise .* above 0"),
        (lambda: LaplaceNoise(1.0, sensitivity=0), ValueError, "'sensitivity'"),
        (lambda: LaplaceNoise.from_scale(-1.0), ValueError, "'scale'"),
        (lambda: Round(1.5), TypeError, "'decimals' parameter of Round must be an integer"),  # type: ignore[arg-type]
        (lambda: Quantize(), ValueError, "either 'step' or 'bins'"),
        (lambda: Quantize(0.5, bins=3), ValueError, "either 'step' or 'bins'"),
        (lambda: Quantize(0.0), ValueError, "'step' parameter of Quantize .* above 0"),
        (lambda: Quantize(bins=0), ValueError, "'bins' parameter of Quantize must be at least 1"),
        (lambda: MaskFeatures(1.1), ValueError, "at most 1. Got 1.1"),
        (
            lambda: MaskFeatures(0.1, fill="median"),
            ValueError,
            "'fill' parameter of MaskFeatures must be one of 'mean'",
        ),
        (lambda: MaskFeatures(0.1, fill=float("inf")), ValueError, "'fill'"),
        (lambda: MaskFeatures(0.1, by="row"), ValueError, "'by' parameter of MaskFeatures must be one of 'entry'"),
        (lambda: FlipLabels(), ValueError, "either 'rate' or 'rates'"),
        (lambda: FlipLabels(0.1, rates={0: 0.1}), ValueError, "either 'rate' or 'rates'"),
        (lambda: FlipLabels(1.5), ValueError, "'rate' parameter of FlipLabels"),
        (lambda: FlipLabels(rates={0: -0.5}), ValueError, "'rates' parameter of FlipLabels"),
        (lambda: FlipLabels(rates=0.5), TypeError, "'rates' parameter of FlipLabels must map labels"),  # type: ignore[arg-type]
        (lambda: FlipLabels(0.5, targets={0: 0}), ValueError, "must map 0 to another label"),
        (lambda: FlipLabels(0.5, targets={0: {1: 0.0}}), ValueError, "must map 0 to another label"),
        (lambda: FlipLabels(0.5, targets={0: {1: -1}}), ValueError, "'targets' parameter of FlipLabels"),
        (lambda: Subsample(), ValueError, "either 'fraction' or 'n'"),
        (lambda: Subsample(0.0), ValueError, "above 0 and at most 1"),
        (lambda: Subsample(n=0), ValueError, "'n' parameter of Subsample must be at least 1"),
        (lambda: ShiftPriors({}), TypeError, "must map labels to shares"),
        (lambda: ShiftPriors({0: 0.7, 1: 0.7}), ValueError, "sum to at most 1"),
        (lambda: ShiftPriors({0: 0.5}, n=0), ValueError, "'n' parameter of ShiftPriors"),
        (lambda: BoundaryCoverage(-0.1), ValueError, "'fraction' parameter of BoundaryCoverage"),
        (lambda: BoundaryCoverage(0.1, n=0), ValueError, "'n' parameter of BoundaryCoverage"),
        (lambda: as_perturbation(0.5), TypeError, r"Got 0\.5\. For instance GaussianNoise"),
        (lambda: as_perturbation(Round), TypeError, r"Did you mean Round\(\.\.\.\)"),
        (lambda: Round(1) | 3, TypeError, "unsupported operand"),  # type: ignore[operator]
        (lambda: GaussianNoise(1.0)([["a"]], [0]), ValueError, "'X_val'"),
        (lambda: GaussianNoise(1.0)([[np.nan]], [0]), ValueError, "X_val contains NaN"),
        (lambda: FlipLabels(0.5)(X, Y[:-1]), ValueError, "one label for each of the 60 rows"),
    ],
)
def test_refusals(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()
