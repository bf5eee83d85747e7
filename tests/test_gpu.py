"""Values that torch computes: on the CPU always, in Triton's interpreter and on a GPU where there are such."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from decimal import Decimal, localcontext
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import shapshift
from shapshift import (
    Banzhaf,
    Beta,
    KNNShapley,
    Valuation,
    audit_shift,
)
from shapshift.cli._errors import in_options
from shapshift.cli._options import Method
from shapshift.engine import gpu
from shapshift.knn import shapley


def with_torch() -> Any:
    return pytest.importorskip("torch", reason="torch is not installed")


def devices() -> list[str]:
    try:
        import torch
    except ImportError:
        return ["cpu"]
    return ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


@pytest.fixture(params=devices())
def gpu_name(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Torch's device in the place of a GPU: the CPU plays one, and its tensors count as being there."""
    with_torch()
    where = str(request.param)
    monkeypatch.setattr(shapley, "torch_device", lambda owner, device: None if device == "cpu" else where)
    if where == "cpu":
        monkeypatch.setattr(shapley, "is_on_gpu", lambda data: type(data).__module__ == "torch")
    return where


def points(n_train: int = 400, n_val: int = 30, features: int = 4, classes: int = 3, seed: int = 0) -> tuple[Any, ...]:
    rng = np.random.default_rng(seed)
    X, X_val = rng.normal(size=(n_train, features)), rng.normal(size=(n_val, features))
    return X, rng.integers(classes, size=n_train), X_val, rng.integers(classes, size=n_val)


def assert_same(one: Valuation, other: Valuation) -> None:
    for name in ("values", "level_values", "group_means", "entropy", "matrix", "standard_error", "group_errors"):
        mine, yours = getattr(one, name), getattr(other, name)
        assert (mine is None) == (yours is None)
        if mine is not None:
            scale = 1e-9 * max(float(np.abs(yours[np.isfinite(yours)]).max(initial=0.0)), 1e-300)
            np.testing.assert_allclose(mine, yours, rtol=1e-9, atol=1e-4 * scale, err_msg=name)
    np.testing.assert_array_equal(one.level_counts, other.level_counts)
    np.testing.assert_array_equal(one.boundary, other.boundary)
    assert one.fingerprint == other.fingerprint


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean", "manhattan", "cosine"])
@pytest.mark.parametrize("ties", ["average", "index"])
@pytest.mark.parametrize("grid", [False, True])
def test_values_are_those_of_the_cpu(gpu_name: str, metric: str, ties: str, grid: bool) -> None:
    X, y, X_val, y_val = points()
    if grid:  # hundreds of ties, and zero rows
        X, X_val = X.round(), X_val.round()
    options: dict[str, Any] = {"metric": metric, "ties": ties}
    groups = np.arange(len(y_val)) % 3
    right = KNNShapley(**options).fit(X, y).value(X_val, y_val, groups=groups, matrix=True)
    found = KNNShapley(**options, device="cuda").fit(X, y).value(X_val, y_val, groups=groups, matrix=True)
    assert_same(found, right)


@pytest.mark.parametrize(
    "options",
    [
        {"n_neighbors": 1},
        {"n_neighbors": 1000, "utility": "hard"},
        {"semivalue": "banzhaf"},
        {"semivalue": "loo", "utility": "hard"},
        {"semivalue": "calibrated"},
        {"semivalue": Beta(4, 1)},
        {"semivalue": Banzhaf(0.1)},
    ],
    ids=str,
)
def test_every_semivalue(gpu_name: str, options: dict[str, Any]) -> None:
    X, y, X_val, y_val = points(seed=1)
    y_val = np.where(np.arange(len(y_val)) % 7 == 0, 99, y_val)  # a label that no row has
    with pytest.warns(UserWarning, match="99"):
        right = KNNShapley(**options).fit(X, y).value(X_val, y_val)
    with pytest.warns(UserWarning, match="99"):
        assert_same(KNNShapley(**options, device="cuda").fit(X, y).value(X_val, y_val), right)


@pytest.mark.parametrize("method", ["exact", "certified"])
@pytest.mark.parametrize("rule", [(1, 0.0), (2, 0.8), (10, 0.9), (300, 0.69)], ids=str)
def test_every_boundary_rule(gpu_name: str, rule: tuple[int, float], method: str) -> None:
    X, y, X_val, y_val = points(seed=2, classes=2 if rule[0] == 300 else 3)
    options: dict[str, Any] = {"boundary_neighbors": rule[0], "boundary_entropy": rule[1]}
    for rows, there in ((X, X_val), (X.round(), X_val.round())):  # without ties, and with hundreds
        right = KNNShapley(**options).fit(rows, y).value(there, y_val)
        found = KNNShapley(**options, method=method, device="cuda").fit(rows, y).value(there, y_val)
        np.testing.assert_array_equal(found.boundary, right.boundary)
        np.testing.assert_array_equal(found.level_counts, right.level_counts)
        np.testing.assert_allclose(found.entropy, right.entropy, atol=1e-12)
        assert found.level_counts[found.boundary_levels].sum() == found.boundary.sum()


def test_neighbors_references_and_excluded_rows(gpu_name: str) -> None:
    X, y, X_val, y_val = points(n_train=120, features=2)
    X, X_val = X.round(1), np.concatenate([X_val, X[:5]])
    y_val = np.concatenate([y_val, y[:5]])
    reference = np.arange(2 * len(y_val)).reshape(-1, 2) % 120
    models = [KNNShapley(7, device=device).fit(X, y) for device in ("cpu", "cuda")]
    (right, near), (found, here) = (model.value_and_neighbors(X_val, y_val, reference=reference) for model in models)
    assert_same(found, right)
    np.testing.assert_array_equal(here.nearest, near.nearest)
    np.testing.assert_array_equal(here.reference_ranks, near.reference_ranks)
    exclude = np.full(len(y_val), -1)
    exclude[-5:] = np.arange(5)
    assert_same(*(model.value(X_val, y_val, exclude=exclude) for model in models[::-1]))


@pytest.mark.parametrize("method", ["exact", "certified"])
def test_distances_that_are_given(gpu_name: str, method: str) -> None:
    torch = with_torch()
    X, y, X_val, y_val = points(n_train=60)
    distances = np.abs(X_val[:, None] - X[None]).sum(2).round(1)
    right = KNNShapley(metric="precomputed").fit(X, y).value(distances, y_val)
    model = KNNShapley(metric="precomputed", method=method, device="cuda").fit(X, y)
    given = torch.tensor(distances, device=gpu_name)
    assert_same(model.value(distances, y_val), right)
    assert_same(model.value(given, y_val), right)
    assert float(given.min()) == distances.min()  # nothing is written into what was given
    given[2, 3] = -1
    with pytest.raises(ValueError, match=r"-1\.0 at row 2, column 3 .*at least 0"):
        model.value(given, y_val)
    with pytest.raises(ValueError, match=r"60 columns, one for each training row\. Got shape \(30, 59\)"):
        model.value(given[:, 1:], y_val)


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_small_games_with_many_ties(data: st.DataObject) -> None:
    torch = with_torch()

    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    n_train, n_val, width = (data.draw(st.integers(1, most)) for most in (12, 4, 3))
    X, X_val = (rng.integers(0, 3, size=(rows, width)).astype(float) for rows in (n_train, n_val))
    y, y_val = rng.integers(3, size=n_train), rng.integers(3, size=n_val)
    model = KNNShapley(int(rng.integers(1, 15)), ties=str(rng.choice(["average", "index"])))
    model.fit(X, y)
    seen = np.isin(y_val, y)
    if not seen.all():
        y_val = np.full_like(y_val, y[0])
    right = model.value(X_val, y_val, matrix=True)
    model._check_device = lambda *given: "cpu"  # type: ignore[method-assign]
    assert_same(model.value(X_val, y_val, matrix=True), right)
    assert torch is not None


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize(("scale", "kind"), [(1.0, "float64"), (1e-200, "float64"), (1e200, "float64"), (1, "float32")])
def test_tensors_stay_where_they_are(
    gpu_name: str, metric: str, scale: float, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    torch = with_torch()
    X, y, X_val, y_val = points()
    X, X_val = (scale * X).astype(kind), (scale * X_val).astype(kind)
    X[7] = 0  # which has no direction
    right = KNNShapley(metric=metric).fit(X, y).value(X_val, y_val)
    model = KNNShapley(metric=metric, device="cuda").fit(torch.tensor(X, device=gpu_name), torch.tensor(y))
    placed = model._derived.made[gpu_name]  # laid out from the tensor, at once
    # To the bit on a GPU; torch's roots on the CPU are not always the nearest float.
    np.testing.assert_allclose(placed.train.columns.cpu().numpy().T, model._index.table(), rtol=4e-16)

    def refuse(data: Any) -> Any:
        assert getattr(data, "ndim", 0) < 2, "a table went through the host"
        return np.asarray(data)

    monkeypatch.setattr(shapshift.checks.inputs, "tensor_to_numpy", refuse)
    assert_same(model.value(torch.tensor(X_val, device=gpu_name), y_val), right)


def test_tensors_are_checked(gpu_name: str) -> None:
    torch = with_torch()
    X, y, X_val, y_val = points()
    model = KNNShapley(device="cuda").fit(X, y)
    bad = torch.tensor(X_val, device=gpu_name)
    bad[3, 1] = float("nan")
    with pytest.raises(ValueError, match=r"Input X_val contains nan at row 3, column 1 \(1 such"):
        model.value(bad, y_val)
    with pytest.raises(ValueError, match=r"the 4 features of training\. Got shape \(30, 3\)"):
        model.value(bad[:, :3], y_val)


def test_rows_that_are_all_equal(gpu_name: str) -> None:
    X, y, X_val, y_val = points(n_train=20)
    right = KNNShapley().fit(0 * X, y).value(X_val, y_val)
    assert_same(KNNShapley(device="cuda").fit(0 * X, y).value(X_val, y_val), right)


def test_tiles_change_rounding_at_most(gpu_name: str) -> None:
    X, y, X_val, y_val = points()
    whole = KNNShapley(device="cuda").fit(X, y).value(X_val, y_val, matrix=True)
    parts = KNNShapley(device="cuda", max_memory="100KB").fit(X, y).value(X_val, y_val, matrix=True)
    # On a GPU, torch chooses by the shape of a tile in which order it adds up.
    allowed = 1e-16 if gpu_name == "cuda" else 0.0
    np.testing.assert_allclose(parts.values, whole.values, rtol=0, atol=allowed)
    np.testing.assert_allclose(parts.matrix, whole.matrix, rtol=0, atol=4 * allowed)


def test_certified(gpu_name: str) -> None:
    X, y, X_val, y_val = points()
    exact = KNNShapley().fit(X, y).value(X_val, y_val)
    found = KNNShapley(method="certified", device="cuda").fit(X, y).value(X_val, y_val)
    assert found.error_bound is not None
    assert (np.abs(found.values - exact.values) <= found.error_bound).all()
    assert found.error_bound.max() <= 1e-3 * exact.values.std()
    assert found.standard_error is not None
    np.testing.assert_allclose(found.standard_error, exact.standard_error, rtol=1e-3)
    with_matrix = KNNShapley(method="certified", device="cuda").fit(X, y).value(X_val, y_val, matrix=True)
    assert_same(with_matrix, KNNShapley().fit(X, y).value(X_val, y_val, matrix=True))


@pytest.mark.parametrize("method", ["exact", "certified"])
def test_sampling_errors_of_clusters(gpu_name: str, method: str) -> None:
    X, y, X_val, y_val = points()
    options: dict[str, Any] = {"groups": np.arange(30) % 2, "clusters": np.arange(30) // 4}
    right = KNNShapley().fit(X, y).value(X_val, y_val, **options)
    found = KNNShapley(method=method, device="cuda").fit(X, y).value(X_val, y_val, **options)
    assert_same(found, right)
    assert found.standard_error is not None
    assert found.standard_error.min() > 0
    for name, fact in right.sampling.items():
        assert found.sampling[name] == pytest.approx(fact, rel=1e-9), name


def test_an_audit_runs_on_the_gpu(gpu_name: str) -> None:
    X, y, X_val, y_val = points(n_train=80)
    audits = [
        audit_shift(KNNShapley(device=device, n_jobs=2).fit(X, y), X_val, y_val, noise=[0.1, 0.5], repeats=3)
        for device in ("cpu", "cuda")
    ]
    np.testing.assert_allclose(audits[1].means, audits[0].means, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(audits[1].clean_values, audits[0].clean_values, rtol=1e-9, atol=1e-15)


def test_a_copy_leaves_the_gpu_behind(gpu_name: str) -> None:
    X, y, X_val, y_val = points()
    model = KNNShapley(device="cuda").fit(X, y)
    first = model.value(X_val, y_val)
    assert gpu_name in model._derived.made
    copy = pickle.loads(pickle.dumps(model))
    assert not copy._derived.made
    np.testing.assert_array_equal(copy.value(X_val, y_val).values, first.values)


def test_auto_is_the_cpu_without_a_card(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, X_val, y_val = points()
    monkeypatch.setattr(shapley, "torch_device", lambda owner, device: None)
    found = KNNShapley(device="auto").fit(X, y).value(X_val, y_val)
    np.testing.assert_array_equal(found.values, KNNShapley().fit(X, y).value(X_val, y_val).values)


def test_auto_leaves_to_the_cpu_what_a_gpu_cannot_do(gpu_name: str) -> None:
    X, y, X_val, y_val = points()
    thin = sparse.csr_array(X.round())
    found = KNNShapley(device="auto").fit(thin, y).value(sparse.csr_array(X_val.round()), y_val)
    right = KNNShapley().fit(thin, y).value(sparse.csr_array(X_val.round()), y_val)
    np.testing.assert_array_equal(found.values, right.values)
    options: dict[str, Any] = {"method": "truncated", "tol": 0.01}
    found = KNNShapley(device="auto", **options).fit(X, y).value(X_val, y_val)
    np.testing.assert_array_equal(found.values, KNNShapley(**options).fit(X, y).value(X_val, y_val).values)


def test_what_a_gpu_cannot_do_is_refused_by_name(gpu_name: str) -> None:
    X, y, X_val, y_val = points()
    with pytest.raises(TypeError, match="'device' parameter of KNNShapley must be 'cpu' or 'auto' for sparse"):
        KNNShapley(device="cuda").fit(sparse.csr_array(X), y)
    with pytest.raises(ValueError, match=r"'device' parameter .* for method='truncated'.*method='certified'"):
        KNNShapley(device="cuda", method="truncated").fit(X, y)
    with pytest.raises(
        ValueError, match=r"'device' parameter of KNNShapley must be .* for a checkpoint, which is for the CPU"
    ):
        KNNShapley(device="cuda").fit(X, y).value(X_val, y_val, checkpoint="run")
    model = KNNShapley().fit(sparse.csr_array(X), y).set_params(device="cuda")
    with pytest.raises(TypeError, match="sparse training rows"):
        model.value(X_val, y_val)


def test_a_device_that_there_is_not() -> None:
    X, y, _, _ = points()
    with pytest.raises(ValueError, match=r"'device' parameter of KNNShapley must be .*'cuda'.* Got 'gpu'"):
        KNNShapley(device="gpu").fit(X, y)


def test_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, _, _ = points()
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r"'device' parameter of KNNShapley is 'cuda'.*'shapshift\[torch\]'"):
        KNNShapley(device="cuda").fit(X, y)
    assert gpu.torch_device("KNNShapley", "auto") is None


def test_without_a_card(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = with_torch()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match=r"must be 'cpu' or 'auto' where torch sees no CUDA GPU .* Got 'cuda'"):
        gpu.torch_device("KNNShapley", "cuda")
    assert gpu.torch_device("KNNShapley", "auto") is None
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert gpu.torch_device("KNNShapley", "auto") == gpu.torch_device("KNNShapley", "cuda") == "cuda"


def test_the_command_line_names_the_option() -> None:
    assert in_options("The 'device' parameter of KNNShapley is 'cuda'") == "--device is 'cuda'"
    assert Method().device == "cpu"


def test_how_coarse() -> None:
    with_torch()
    from shapshift.engine.gpu.certify import MOST_BUCKETS, choose

    wide, narrow = choose(10**6, 1e-7, 0, 8192), choose(10**6, 5e-9, 0, 8192)
    assert wide is not None
    assert narrow is not None
    assert wide.first * wide.buckets < narrow.first * narrow.buckets
    assert narrow.buckets <= MOST_BUCKETS < 2**15
    assert choose(10**6, 0.0, 0, 8192) is None  # all values are equal
    assert choose(10**6, 1e-13, 0, 8192) is None  # no buckets are fine enough
    assert choose(1000, 1e-6, 0, 512) is None  # a sort is cheaper


HARD = ("any", "near-ties", "far away", "one huge feature", "copies", "nearly parallel", "tiny", "zeros")


def hard_rows(kind: str, n: int, d: int, rng: np.random.Generator) -> Any:
    X = rng.normal(size=(n, d)) + 0.5
    if kind == "near-ties":  # closer to each other than products can tell
        X[n // 2 :] = X[: n - n // 2] * (1 + 1e-15 * np.arange(n - n // 2)[:, None])
    if kind == "far away":
        X += 1e6
    if kind == "one huge feature":
        X[:, 3] *= 1e8
    if kind == "copies":
        X[n // 2 :] = X[: n - n // 2]
    if kind == "nearly parallel":
        X = 1.0 + 1e-15 * rng.integers(-3, 4, size=X.shape)
    if kind == "tiny":  # with squares below the smallest normal number
        X *= 1e-158
    if kind == "zeros":
        X[:3], X[3] = 0.0, 1e-160
    return X


def true_distance(x: list[float], p: list[float], metric: str) -> Fraction:
    """From the definition, in whole numbers; with 80 digits where there are roots."""
    rows, point = ([Fraction(one) for one in side] for side in (x, p))
    if metric == "euclidean":
        return sum(((a - b) ** 2 for a, b in zip(rows, point, strict=True)), Fraction(0))
    inner = sum((a * b for a, b in zip(rows, point, strict=True)), Fraction(0))
    squared = sum(a * a for a in rows) * sum(b * b for b in point)
    if not squared:
        return Fraction(1)
    with localcontext(prec=80):
        cosine = inner * inner / squared
        root = (Decimal(cosine.numerator) / Decimal(cosine.denominator)).sqrt()
    return 1 - (Fraction(root) if inner > 0 else -Fraction(root))


def products_of_slices(part: Any, points: Any, norms: Any) -> tuple[Any, Any]:
    """Distances from the sums that the kernel adds up, and their largest errors."""
    from shapshift.engine.gpu.products import Slices

    own, rows = Slices.of(points), part.slices
    x, y = (some.numbers.view(4, -1, some.numbers.shape[1]).long() for some in (own, rows))
    sums = [sum(x[j] @ y[k - j].T for j in range(k + 1)) for k in range(4)]
    high = (sums[0] << 8) + sums[1]
    assert int(high.abs().max()) < 2**31
    assert max(int(some.abs().max()) for some in sums[2:]) < 2**31 - 128
    product = (high.double() * 256 + (sums[2] + ((sums[3] + 128) >> 8)).double()) * (own.scale[:, None] * rows.scale)
    error = part.error(part.norms + norms[:, None]) + 2 * part.unit * own.weight[:, None] * rows.weight
    return part.unit * (part.norms + norms[:, None]) - 2 * part.unit * 2.0**32 * product, error


@pytest.mark.parametrize("d", [96, 487, 2000, 32768])
def test_sums_of_slices_have_32_bits(d: int) -> None:
    torch = with_torch()
    from shapshift.engine.gpu.products import MOST_SLICED, Slices

    assert d <= MOST_SLICED
    # All features of one size; all slices but the first at their least; sizes of which nothing is left when squared.
    flat, low = torch.ones(2, d, dtype=torch.float64), 15.0 * 2**24 - 128.0 * (2**16 + 2**8 + 1)
    flat[1, ::2] = -1.0
    vectors = torch.cat([flat, low * flat, flat * torch.rand(d, dtype=torch.float64), 1e-160 * flat])
    vectors[2:4, 0] = torch.maximum(vectors[2:4, 0], torch.tensor(127.0 * 2**24)) if d < 487 else vectors[2:4, 0]
    given = Slices.of(vectors)
    x = given.numbers.view(4, 8, -1).double()  # sums are exact in either
    sums = [sum(x[j] @ x[k - j].T for j in range(k + 1)) for k in range(4)]
    high = 256.0 * sums[0] + sums[1]
    assert max(float(some.abs().max()) for some in (high, sums[2], sums[3])) < 2**31 - 2**24
    product = (256.0 * high + sums[2] + ((sums[3] + 128.0) / 256.0).floor()) * 2.0**32
    for p in range(8):
        for i in range(p + 1):
            right = sum(
                Fraction(a) * Fraction(b) for a, b in zip(vectors[p].tolist(), vectors[i].tolist(), strict=True)
            )
            found = Fraction(float(product[p, i])) * Fraction(float(given.scale[p])) * Fraction(float(given.scale[i]))
            assert abs(found - right) <= Fraction(float(given.weight[p])) * Fraction(float(given.weight[i])), (p, i)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("kind", HARD)
@pytest.mark.parametrize("d", [16, 130])
def test_products_tell_distances_up_to_their_error(kind: str, metric: str, d: int) -> None:
    torch = with_torch()
    from shapshift.engine.gpu.core import Train
    from shapshift.engine.gpu.products import Products, settle
    from shapshift.engine.gpu.values import COSINE, EUCLIDEAN, distances, short_rows

    rng = np.random.default_rng(d)
    rows, points = (torch.tensor(hard_rows(kind, n, d, rng)) for n in (240, 8))
    points[0], points[1] = rows[5], rows[130]
    code = EUCLIDEAN
    if metric == "cosine":
        rows, points, code = short_rows(rows), short_rows(points), COSINE
    columns, labels = rows.T.contiguous(), torch.tensor(rng.integers(3, size=240))
    part = Products.of(Train(columns, labels, code, None))
    there, norms = part.points(points)
    found = part.distances(there @ part.columns, part.norms, norms)
    direct = distances(columns, points, code)
    allowed = part.error(part.norms + norms[:, None])
    # Neither is far from the truth, and they are no farther from each other.
    for p in range(8):
        for i in range(0, 240, 7):
            one, other, most = (Fraction(float(part[p, i])) for part in (found, direct, allowed))
            right = true_distance(rows[i].tolist(), points[p].tolist(), metric)
            assert abs(one - other) <= most, (p, i, float(abs(one - other) / most))
            assert abs(one - right) <= most, (p, i, float(abs(one - right) / most))
            assert abs(other - right) <= most, (p, i, float(abs(other - right) / most))
    assert ((found - direct).abs() <= allowed).all()
    if part.slices is not None:
        found, allowed = products_of_slices(part, there, norms)
        assert ((found - direct).abs() <= allowed).all()
        for p, i in ((p, i) for p in range(8) for i in range(0, 240, 17)):
            right = true_distance(rows[i].tolist(), points[p].tolist(), metric)
            assert abs(Fraction(float(found[p, i])) - right) <= Fraction(float(allowed[p, i])), (p, i)
        found = part.distances(there @ part.columns, part.norms, norms)
    # Settled by direct distances, labels come in the order that these have.
    near, order = found.sort(dim=1, stable=True)
    match = labels[order] == 0
    mixed = (match[:, 1:] != match[:, :-1]) & (near[:, 1:] - near[:, :-1] <= part.open_gap(norms[:, None], near[:, 1:]))
    at, rank = torch.nonzero(mixed).unbind(1)
    elements = 2 * order + match
    too_long, tied = settle(
        lambda p, far: part.open_gap(norms[p][:, None], far),
        lambda p, row: direct[p, row],
        elements,
        near,
        at,
        rank + 1,
    )
    truly, ordered = direct.sort(dim=1, stable=True)
    fits = labels[ordered] == 0
    equal = (truly[:, 1:] == truly[:, :-1]) & (fits[:, 1:] != fits[:, :-1])
    for p in torch.nonzero(~too_long).squeeze(1).tolist():
        assert bool(tied[p]) == bool(equal[p].any())
        torch.testing.assert_close(labels[elements[p] >> 1] == 0, fits[p], rtol=0, atol=0)
    # All rows are one chain where products of unit vectors cannot tell them apart; a sort by direct distances is left.
    assert too_long.all() == (metric == "cosine" and kind in ("one huge feature", "nearly parallel"))
    if kind == "near-ties":
        assert (match != fits).any() or mixed.any()


def test_what_is_behind_the_last_row_of_a_list_stays_there() -> None:
    torch = with_torch()
    from shapshift.engine.gpu.core import Train
    from shapshift.engine.gpu.products import Products, settle

    rng = np.random.default_rng(0)
    part = Products.of(Train(torch.tensor(0.1 * rng.normal(size=(16, 40))), torch.zeros(40), 2, None))  # of angles
    near = torch.tensor([[3.0, 5.0, 5.0, torch.inf, torch.inf]], dtype=torch.float64)
    elements = torch.tensor([[2 * 9, 2 * 7, 2 * 4 + 1, 0, 0]])
    direct = torch.full((1, 40), 0.5, dtype=torch.float64)
    direct[0, 4], direct[0, 7] = 5.0, 5.0 + 1e-15
    one = torch.ones(1, dtype=torch.int64)
    too_long, tied = settle(
        lambda p, far: part.open_gap(one.double()[:, None], far),
        lambda p, row: direct[p, row],
        elements,
        near,
        one - 1,
        2 * one,
    )
    assert elements.tolist() == [[2 * 9, 2 * 4 + 1, 2 * 7, 0, 0]]
    assert near[0, 3:].isinf().all()
    assert not too_long.any()
    assert not tied.any()


def test_scans_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = with_torch()
    from shapshift.engine.gpu import values

    random = torch.Generator().manual_seed(0)
    for k in (17, 18, 100, 127):
        equal = torch.rand(3, k - 1, generator=random) < 0.4
        terms = torch.rand(3, k, generator=random, dtype=torch.float64)
        whole, sums = values._group_ends(equal), values._tail_sums(terms)
        with monkeypatch.context() as patched:
            patched.setattr(values, "PIECE", 4)
            assert all(torch.equal(*ends) for ends in zip(values._group_ends(equal), whole, strict=True))
            torch.testing.assert_close(values._tail_sums(terms), sums, rtol=1e-14, atol=0)


def test_kernels_in_the_interpreter() -> None:
    with_torch()
    own = (
        os.environ.get("SHAPSHIFT_TRITON") or None
    )  # a folder with Triton 3.6 and a NumPy that its interpreter works with
    if own is None:
        triton = pytest.importorskip("triton", reason="Triton is not installed")
        if not triton.__version__.startswith("3.6.") or np.lib.NumpyVersion(np.__version__) >= "2.4.0":
            pytest.skip("the interpreter is that of Triton 3.6, which needs a NumPy below 2.4")
    program = Path(__file__).parent / "gpu_kernels.py"
    path = os.pathsep.join(filter(None, (own, str(Path(shapshift.__file__).parents[1]))))
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": path}
    done = subprocess.run([sys.executable, program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("within its bounds") == 7
    assert done.stdout.count("exact") == 5
    assert done.stdout.count("the same distances") == 6


def with_cuda() -> None:
    if not with_torch().cuda.is_available():
        pytest.skip("there is no CUDA card")


def test_kernels_on_a_card() -> None:
    with_cuda()
    import gpu_checks

    assert gpu_checks.main() == 0


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean", "manhattan", "cosine"])
@pytest.mark.parametrize("ties", ["average", "index"])
@pytest.mark.parametrize("kind", ["any", "whole numbers", "copies"])
def test_kernels_give_the_values_of_the_cpu(metric: str, ties: str, kind: str) -> None:
    with_cuda()
    X, y, X_val, y_val = points(n_train=3000, features=20 if kind == "any" else 3)
    if kind == "whole numbers":
        X, X_val = X.round(), X_val.round()
    if kind == "copies":
        X[1500:], y[1500:] = X[:1500], y[:1500]
    options: dict[str, Any] = {"metric": metric, "ties": ties}
    models = [KNNShapley(**options, device=device).fit(X, y) for device in ("cpu", "cuda")]
    assert models[1]._gpu_rows(None).kernels
    groups = np.arange(len(y_val)) % 3
    right, found = (model.value(X_val, y_val, groups=groups, matrix=True) for model in models)
    assert_same(found, right)
    (_, near), (_, here) = (model.value_and_neighbors(X_val, y_val) for model in models)
    np.testing.assert_array_equal(here.nearest, near.nearest)
    assert_same(*(model.value(X_val, y_val) for model in models[::-1]))  # few rows are kept, and no groups
    bounded = models[1].set_params(method="certified", tol=0.1).value(X_val, y_val)
    assert (np.abs(bounded.values - right.values) <= bounded.error_bound).all()


def test_certified_with_buckets_on_a_card() -> None:
    with_cuda()
    X, y, X_val, y_val = points(n_train=60_000, n_val=200, features=20)
    right = KNNShapley(n_jobs=-1).fit(X, y).value(X_val, y_val)
    found = KNNShapley(method="certified", tol=0.05, device="cuda").fit(X, y).value(X_val, y_val)
    assert found.parameters["buckets"] > 0
    assert (np.abs(found.values - right.values) <= found.error_bound).all()
    np.testing.assert_allclose(found.standard_error, right.standard_error, rtol=0.01)


def test_equal_angles_tie(gpu_name: str) -> None:
    rows = np.array([[-1, 1, 0], [0, 1, 1]]).repeat(1500, axis=0) * np.arange(1, 3001)[:, None]
    found = KNNShapley(1, metric="cosine", device="cuda").fit(rows, np.arange(3000) // 1500).value([[-1, 1, 1]], [0])
    matching, others = np.unique(found.values[:1500]), np.unique(found.values[1500:])
    assert matching.size == others.size == 1
    right = KNNShapley(1, metric="cosine").fit(rows, np.arange(3000) // 1500).value([[-1, 1, 1]], [0])
    np.testing.assert_allclose(found.values, right.values, rtol=1e-12)


def test_the_gpu_is_found_where_there_is_one() -> None:
    with_cuda()
    X, y, X_val, y_val = points(n_train=5000, n_val=40, features=20)
    right = KNNShapley().fit(X, y).value(X_val, y_val)
    assert_same(KNNShapley(device="auto").fit(X, y).value(X_val, y_val), right)
