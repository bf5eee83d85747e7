"""ValuationStore: after any sequence of changes it holds what a fresh fit would give."""

from __future__ import annotations

import contextlib
import copy
import threading
import warnings
from pathlib import Path
from typing import Any

import naive
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from shapshift import Banzhaf, Beta, KNNShapley, Valuation, ValuationStore
from shapshift.engine.rows import distances
from shapshift.io.archive import write_archive
from shapshift.store import _lists

SEMIVALUES = ["shapley", "banzhaf", "loo", "calibrated", "filled", Beta(4, 1), Beta(1, 4), Banzhaf(0.2)]


class Twin:
    """A store, and beside it plain lists from which everything is computed anew."""

    def __init__(self, seed: int, n_train: int, step: float, *, classes: int = 3, **parameters: Any) -> None:
        self.rng = np.random.default_rng(seed)
        self.step, self.classes, self.parameters = step, classes, parameters
        X, y = self.rows(n_train)
        self.X, self.y, self.ids = X, y, np.arange(n_train)
        self.owners = self.rng.integers(0, 8, n_train)
        self.points: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
        self.kinds: set[bool] = set()  # whether the store kept candidate lists
        self.weights: dict[str, float] = {}
        model = KNNShapley(**parameters).fit(X, y)
        self.store = ValuationStore(model, owners=self.owners)

    def rows(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        X = self.rng.normal(size=(n, 3))
        if self.step:
            X = np.round(X / self.step) * self.step
        return X, self.rng.integers(0, self.classes, n)

    def add(self) -> None:
        X_val, y_val = self.rows(int(self.rng.integers(1, 12)))
        name = f"group {self.rng.integers(0, 4)}"
        self.store.add(X_val, y_val, groups=[name] * len(y_val))
        self.points.setdefault(name, []).append((X_val, y_val))
        self.weights.setdefault(name, 1.0)

    def drop(self) -> None:
        if len(self.points) > 1:
            name = str(self.rng.choice(sorted(self.points)))
            self.store.drop(name)
            del self.points[name], self.weights[name]

    def reweight(self) -> None:
        name = str(self.rng.choice(sorted(self.points)))
        self.weights[name] = float(self.rng.choice([0.25, 1.0, 3.0]))
        self.store.reweight({name: self.weights[name]})

    def add_rows(self) -> None:
        n = int(self.rng.integers(1, max(2, len(self.y) // 4)))
        X, y = self.rows(n)
        first = self.store._now.next_id
        owners = self.rng.integers(0, 8, n)
        self.store.add_rows(X, y, ids=np.arange(first, first + n), owners=owners)
        self.X, self.y = np.vstack([self.X, X]), np.append(self.y, y)
        self.ids, self.owners = np.append(self.ids, np.arange(first, first + n)), np.append(self.owners, owners)

    def keep(self, kept: np.ndarray) -> None:
        self.X, self.y, self.ids, self.owners = self.X[kept], self.y[kept], self.ids[kept], self.owners[kept]

    def remove_rows(self) -> None:
        n = int(self.rng.integers(1, max(2, len(self.y) // 4)))
        gone = self.rng.choice(self.ids, min(n, len(self.ids) - 1), replace=False)
        self.store.remove_rows(gone)
        self.keep(~np.isin(self.ids, gone))

    def remove_owner(self) -> None:
        owner = self.rng.choice(self.owners)
        if (self.owners != owner).sum() > 0:
            self.store.remove_owner(owner)
            self.keep(self.owners != owner)

    def check(self) -> None:
        found = self.store.valuation()
        self.kinds.add("candidate lists" in repr(self.store))
        model = KNNShapley(**self.parameters).fit(self.X, self.y, ids=self.ids)
        sums, weight, fresh = np.zeros(len(self.y)), 0.0, {}
        X_val = np.vstack([x for name in found.group_names for x, _ in self.points[name]])
        y_val = np.concatenate([y for name in found.group_names for _, y in self.points[name]])
        sizes = {name: sum(len(y) for _, y in self.points[name]) for name in found.group_names}
        groups = np.repeat(list(sizes), list(sizes.values()))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # labels that no row has any more
            want = model.value(X_val, y_val, groups=groups)
        for name, means in want.group_values.items():
            fresh[name] = means
            sums += self.weights[name] * sizes[name] * means
            weight += self.weights[name] * sizes[name]
        assert found.ids.tolist() == self.ids.tolist()
        np.testing.assert_allclose(found.values, sums / weight, rtol=0, atol=1e-12)
        for name, means in found.group_values.items():
            np.testing.assert_allclose(means, fresh[name], rtol=0, atol=1e-12)
        np.testing.assert_allclose(found.entropy, want.entropy, rtol=0, atol=1e-12)
        self.check_bound(found, model, X_val, y_val, groups)
        assert found.group_sizes == want.group_sizes
        assert found.fingerprint == want.fingerprint
        if set(self.weights.values()) == {1.0}:
            assert found.level_counts.tolist() == want.level_counts.tolist()
            np.testing.assert_allclose(found.level_values, want.level_values, rtol=0, atol=1e-12)
            assert dict(found.parameters) == dict(want.parameters)

    def check_bound(self, found: Valuation, model: KNNShapley, X_val: Any, y_val: Any, groups: Any) -> None:
        if model.method == "exact":
            assert found.error_bound is None
            return
        bound, weights = np.zeros(len(self.y)), np.array([self.weights[name] for name in groups.tolist()])
        for weight in np.unique(weights).tolist():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                part = model.value(X_val[weights == weight], y_val[weights == weight])
            bound += part.error_bound * weight * (weights == weight).sum()
        np.testing.assert_allclose(found.error_bound, bound / weights.sum(), rtol=0, atol=1e-12)
        assert (found.error_bound >= 0).all()


def walk(twin: Twin, steps: int) -> None:
    twin.add()
    twin.check()
    names = ["add", "drop", "reweight", "add_rows", "add_rows", "remove_rows", "remove_rows", "remove_owner"]
    for _ in range(steps):
        getattr(twin, str(twin.rng.choice(names)))()
        twin.check()


@pytest.mark.parametrize("semivalue", SEMIVALUES, ids=str)
@pytest.mark.parametrize("step", [0.0, 0.5], ids=["distinct", "tied"])
@pytest.mark.parametrize("seed", range(3))
def test_any_sequence_of_changes_gives_what_a_fresh_fit_gives(semivalue: Any, step: float, seed: int) -> None:
    walk(Twin(seed, 60, step, semivalue=semivalue, n_neighbors=1 + 2 * seed), 12)


@pytest.mark.parametrize(
    "parameters", [{"ties": "index"}, {"utility": "hard"}, {"metric": "cosine"}, {"metric": "manhattan"}]
)
@pytest.mark.parametrize("step", [0.0, 1.0])
def test_every_setting_is_followed(parameters: dict[str, Any], step: float) -> None:
    walk(Twin(5, 50, step, **parameters), 8)


@pytest.mark.parametrize("semivalue", SEMIVALUES, ids=str)
@pytest.mark.parametrize("step", [0.0, 0.5], ids=["distinct", "tied"])
@pytest.mark.parametrize("ties", ["average", "index"])
def test_truncated_values_are_those_of_a_fresh_truncated_fit(semivalue: Any, step: float, ties: str) -> None:
    # Around 16 times as many rows as are needed, so that sequences come to values that are exact after all, and back.
    twin = Twin(11, 400, step, semivalue=semivalue, n_neighbors=3, method="truncated", tol=0.15, ties=ties)
    walk(twin, 18)
    assert True in twin.kinds


def count_searches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows by the number of points of each search."""
    searched: list[int] = []
    search = _lists._search

    def count(fill: Any, here: slice, *rest: Any) -> Any:
        searched.append(here.stop - here.start)
        return search(fill, here, *rest)

    monkeypatch.setattr(_lists, "_search", count)
    return searched


def lists_of(store: ValuationStore) -> list[_lists.Candidates]:
    parts = [part for group in store._now.groups.values() for part in group.parts]
    return [part.candidates for part in parts if part.candidates is not None]


@pytest.mark.parametrize("utility", ["soft", "hard"])
def test_long_lists_last_while_many_rows_change(utility: str, monkeypatch: pytest.MonkeyPatch) -> None:
    twin = Twin(12, 3000, 0.0, method="truncated", tol=0.02, utility=utility)
    twin.add()
    needed = twin.store.valuation().parameters["exact_ranks"]
    assert 30 < needed < 60
    searched = count_searches(monkeypatch)
    for _ in range(3):
        gone = twin.ids[::50]
        twin.store.remove_rows(gone)
        twin.keep(~np.isin(twin.ids, gone))
        twin.check()
    assert not searched
    # One point loses nearly all rows around it, and is the only one that is searched anew.
    place = twin.points[next(iter(twin.points))][0][0][0]
    gone = twin.ids[np.argsort(((twin.X - place) ** 2).sum(axis=1))[: needed + _lists.SPARE + 1]]
    twin.store.remove_rows(gone)
    twin.keep(~np.isin(twin.ids, gone))
    twin.check()
    assert 1 <= sum(searched) < twin.store.n_val


def test_lists_do_not_grow_with_the_rows() -> None:
    twin = Twin(13, 200, 0.0, method="truncated", tol=0.1)
    twin.add()
    for step in range(26):
        n = len(twin.y) // 4 if step < 25 else 100
        X, y = twin.rows(n)
        ids = np.arange(n) + int(twin.ids.max()) + 1
        twin.store.add_rows(X, y, ids=ids, owners=np.zeros(n, dtype=np.int64))
        twin.X, twin.y = np.vstack([twin.X, X]), np.append(twin.y, y)
        twin.ids, twin.owners = np.append(twin.ids, ids), np.append(twin.owners, np.zeros(n, dtype=np.int64))
    twin.check()
    needed = twin.store.valuation().parameters["exact_ranks"]
    assert len(twin.y) > 30_000
    assert lists_of(twin.store)
    for lists in lists_of(twin.store):
        assert lists.rows.size <= 2 * (1.5 * needed + _lists.SPARE) * lists.reach.size
    # A list that was cut back reaches less far: the last rows that came are on none of them unless they are near.
    place = twin.points[next(iter(twin.points))][0][0][0]
    for count in (60, 10, 10, 10, 10, 10, 10):
        gone = twin.ids[np.argsort(((twin.X - place) ** 2).sum(axis=1))[:count]]
        twin.store.remove_rows(gone)
        twin.keep(~np.isin(twin.ids, gone))
        twin.check()


def test_all_rows_around_a_point_go_at_once() -> None:
    # They are all tied, so the list holds every one of them, and nothing else.
    rng = np.random.default_rng(16)
    X, y = rng.normal(size=(2000, 2)) + 9, rng.integers(0, 2, 2000)
    X[:300] = 0.0
    model = KNNShapley(method="truncated", tol=0.1)
    store = ValuationStore(model.fit(X, y))
    store.add([[0.5, 0.5]], [1])
    assert lists_of(store)[0].rows.size == 300
    store.remove_rows(range(300))
    want = KNNShapley(method="truncated", tol=0.1).fit(X[300:], y[300:]).value([[0.5, 0.5]], [1])
    np.testing.assert_allclose(store.valuation().values, want.values, rtol=0, atol=1e-12)
    np.testing.assert_allclose(store.valuation().error_bound, want.error_bound, rtol=0, atol=1e-12)


@pytest.mark.parametrize("tol", [0.0, 0.05, 0.5])
def test_truncated_down_to_one_row_and_up_again(tol: float) -> None:
    twin = Twin(14, 150, 0.5, method="truncated", tol=tol)
    twin.add()
    twin.check()
    for left in (100, 30, 4, 1):
        gone = twin.ids[left:]
        twin.store.remove_rows(gone)
        twin.keep(~np.isin(twin.ids, gone))
        twin.check()
    for n in (2, 5, 50, 120):
        X, y = twin.rows(n)
        y += 3 * (n == 5)  # labels that were never seen
        first = 1000 * n
        twin.store.add_rows(X, y, ids=np.arange(first, first + n), owners=np.zeros(n, dtype=np.int64))
        twin.X, twin.y = np.vstack([twin.X, X]), np.append(twin.y, y)
        twin.ids = np.append(twin.ids, np.arange(first, first + n))
        twin.owners = np.append(twin.owners, np.zeros(n, dtype=np.int64))
        twin.check()


@pytest.mark.parametrize("step", [0.0, 0.5])
def test_the_order_of_rows_and_of_their_coming_changes_no_truncated_value(step: float) -> None:
    rng = np.random.default_rng(15)
    X, y = rng.normal(size=(300, 3)), rng.integers(0, 3, 300)
    X = np.round(X / step) * step if step else X
    X_val, y_val = X[::30] + (0.0 if step else 0.1), y[::30]
    found = []
    for order in (np.arange(300), rng.permutation(300)):
        store = ValuationStore(
            KNNShapley(method="truncated", tol=0.1).fit(X[order[:200]], y[order[:200]], ids=order[:200])
        )
        store.add(X_val, y_val)
        store.add_rows(X[order[200:]], y[order[200:]], ids=order[200:])
        store.remove_rows([7, 8, 9])
        back = np.argsort(store.ids)
        found.append([part[back] for part in (store.valuation().values, store.valuation().error_bound)])
    np.testing.assert_allclose(found[0], found[1], rtol=0, atol=1e-15)


@pytest.mark.parametrize("semivalue", ["loo", "banzhaf", "calibrated"])
def test_candidates_are_kept_and_filled_up_again(semivalue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_lists, "SPARE", 0)
    twin = Twin(0, 2000, 0.0, semivalue=semivalue, n_neighbors=2)
    twin.add()
    assert lists_of(twin.store)
    searched = count_searches(monkeypatch)
    for change in ("remove_rows", "add_rows", "remove_rows", "remove_rows", "remove_rows", "remove_rows", "add_rows"):
        getattr(twin, change)()
        twin.check()
    assert searched  # so many rows went that the candidates did not last


@pytest.mark.parametrize("semivalue", ["shapley", "loo"])
def test_copies_of_rows_come_and_go(semivalue: str) -> None:
    # Nothing is tied at first; then new rows are as far away as old ones, and as each other.
    twin = Twin(10, 300, 0.0, semivalue=semivalue)
    twin.add()
    for first in (1000, 2000):
        X, y = np.repeat(twin.X[[3, 50, 7]], 2, axis=0), twin.rng.integers(0, 3, 6)
        ids, owners = np.arange(first, first + 6), np.zeros(6, dtype=np.int64)
        twin.store.add_rows(X, y, ids=ids, owners=owners)
        twin.X, twin.y = np.vstack([twin.X, X]), np.append(twin.y, y)
        twin.ids, twin.owners = np.append(twin.ids, ids), np.append(twin.owners, owners)
        twin.check()
    gone = [3, 1000, 1003, 2005]
    twin.store.remove_rows(gone)
    twin.keep(~np.isin(twin.ids, gone))
    twin.check()


def test_it_begins_with_few_rows_and_classes_and_grows() -> None:
    # More classes, more levels of entropy, a label that validation points had first.
    store = ValuationStore(KNNShapley(n_neighbors=3).fit([[0.0]], ["a"]))
    store.add([[0.2], [0.9], [5.0]], ["a", "b", "c"])
    store.add_rows([[1.0], [2.0]], ["b", "b"])
    store.add_rows([[4.0], [5.5], [7.0], [8.0]], ["c", "d", "e", "a"])
    store.remove_rows([0])
    X, y = [[1.0], [2.0], [4.0], [5.5], [7.0], [8.0]], ["b", "b", "c", "d", "e", "a"]
    want = KNNShapley(n_neighbors=3).fit(X, y).value([[0.2], [0.9], [5.0]], ["a", "b", "c"])
    found = store.valuation()
    np.testing.assert_allclose(found.values, want.values, rtol=0, atol=1e-12)
    assert found.fingerprint == want.fingerprint
    assert found.ids.tolist() == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("last", [1, 3])
def test_the_id_of_a_row_that_is_gone_is_not_given_again(tmp_path: Path, last: int) -> None:
    store = ValuationStore(KNNShapley().fit([[0.0], [1.0], [2.0], [5.0], [7.0]], [0, 1, 0, 1, 1]))
    store.remove_rows(range(5 - last, 5))
    store.save(tmp_path / "store.npz")
    for one in (store, ValuationStore.load(tmp_path / "store.npz")):
        one.add_rows([[3.0]], [0])
        assert one.ids.tolist() == [*range(5 - last), 5]


@pytest.mark.parametrize("scale", [1.0, 1e5, 1e-5])
def test_equal_rows_that_are_left_have_the_fingerprint_of_a_fresh_fit(scale: float) -> None:
    rows = scale * np.array([[3.0, 0.0], [3.0, 0.0], [8.0, 1.0]])
    store = ValuationStore(KNNShapley().fit(rows, [0, 1, 1]))
    store.add(rows[:1], [0])
    store.remove_rows([2])
    assert store.valuation().fingerprint == KNNShapley().fit(rows[:2], [0, 1]).fingerprint_


@pytest.mark.parametrize("kind", ["sparse", "frame"])
def test_other_containers(kind: str) -> None:
    rng = np.random.default_rng(0)
    X, y = np.round(rng.normal(size=(40, 4))), rng.integers(0, 2, 40)
    X_val, y_val = np.round(rng.normal(size=(9, 4))), rng.integers(0, 2, 9)

    def wrap(rows: np.ndarray, first: int = 0) -> Any:
        if kind == "sparse":
            return sparse.csr_array(rows)
        index = [f"row {i}" for i in range(first, first + len(rows))]
        return pd.DataFrame(rows, columns=list("abcd"), index=index)

    store = ValuationStore(KNNShapley().fit(wrap(X[:30]), y[:30]))
    store.add(wrap(X_val), y_val)
    store.add_rows(wrap(X[30:], 30), y[30:])
    store.remove_rows([3] if kind == "sparse" else ["row 3"])
    kept = np.arange(40) != 3
    want = KNNShapley().fit(wrap(X[kept]), y[kept]).value(wrap(X_val), y_val)
    found = store.valuation()
    np.testing.assert_allclose(found.values, want.values, rtol=0, atol=1e-12)
    assert found.fingerprint == want.fingerprint
    if kind == "frame":
        assert found.to_frame().index[3] == "row 4"


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"semivalue": "loo"},
        {"semivalue": Beta(4, 1), "n_neighbors": np.int64(3)},
        {"semivalue": Banzhaf(0.2)},
        {"method": "truncated", "tol": np.float32(0.1)},
        {"method": "truncated", "tol": 0.01},
    ],
)
def test_a_store_is_saved_and_resumed(tmp_path: Path, parameters: dict[str, Any]) -> None:
    twin = Twin(1, 300, 0.0, **parameters)
    twin.add()
    twin.add_rows()
    twin.remove_rows()
    before = twin.store.valuation()
    twin.store.save(tmp_path / "store.npz")
    twin.store = ValuationStore.load(tmp_path / "store.npz")
    again = twin.store.valuation()
    np.testing.assert_array_equal(again.values, before.values)
    assert dict(again.parameters) == dict(before.parameters)
    assert (again.error_bound is None) == ("method" not in parameters)
    if again.error_bound is not None:
        np.testing.assert_array_equal(again.error_bound, before.error_bound)
    walk(twin, 6)
    before = twin.store.valuation()
    before.save(tmp_path / "values.npz")
    assert Valuation.load(tmp_path / "values.npz").fingerprint == before.fingerprint


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    twin = Twin(2, 30, 0.0)
    twin.add()
    path = tmp_path / "store.npz"
    twin.store.save(path)
    whole = bytearray(path.read_bytes())
    rng = np.random.default_rng(0)
    for place in rng.integers(0, len(whole), 40):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        loaded = None
        with contextlib.suppress(ValueError):
            loaded = ValuationStore.load(path)
        if loaded is not None:  # a byte that says nothing, such as the time of a zip entry
            np.testing.assert_array_equal(loaded.valuation().values, twin.store.valuation().values)
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="not a whole"):
        ValuationStore.load(path)


@pytest.mark.parametrize("parameters", [{}, {"method": "truncated", "tol": 0.1}])
def test_a_change_that_fails_changes_nothing(parameters: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    twin = Twin(3, 300, 0.0, **parameters)
    while len(twin.points) < 3:
        twin.add()
    calls = []
    fill = distances.Tiles.__call__

    def interrupted(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) % 3 == 0:
            raise KeyboardInterrupt
        return fill(*arguments)

    X_val, y_val = twin.rows(5)
    for change in (
        lambda: twin.store.add(X_val, y_val, groups=[*[*twin.points][:3], "new", "new"]),
        lambda: twin.store.add_rows(twin.X[:3], twin.y[:3], ids=[900, 901, 902], owners=[0, 0, 0]),
        lambda: twin.store.remove_rows(range(0, 300, 2)),
    ):
        monkeypatch.setattr(distances.Tiles, "__call__", interrupted)
        with pytest.raises(KeyboardInterrupt):
            change()
        monkeypatch.undo()
        calls.clear()
        assert twin.store.ids.tolist() == twin.ids.tolist()
        assert "new" not in twin.store.group_names
        twin.check()
    twin.remove_rows()
    twin.check()


@pytest.mark.parametrize("parameters", [{}, {"method": "truncated", "tol": 0.1}])
def test_workers_change_nothing(parameters: dict[str, Any]) -> None:
    rng = np.random.default_rng(4)
    X, y, X_val, y_val = (
        rng.normal(size=(200, 2)),
        rng.integers(0, 2, 200),
        rng.normal(size=(150, 2)),
        rng.integers(0, 2, 150),
    )
    found = []
    for n_jobs in (1, 2):
        store = ValuationStore(KNNShapley(n_jobs=n_jobs, **parameters).fit(X, y))
        store.add(X_val, y_val, groups=np.arange(150) % 3)
        store.remove_rows(range(20))
        found.append(store.valuation())
    np.testing.assert_array_equal(found[0].values, found[1].values)


@pytest.mark.parametrize("parameters", [{}, {"method": "truncated", "tol": 0.1}])
def test_only_what_is_new_is_measured(parameters: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    twin = Twin(6, 400, 0.0, **parameters)
    twin.add()
    pairs: list[int] = []
    fill = distances.Tiles.__call__

    def count(tiles: Any, here: slice, rows: slice, tile: Any) -> None:
        pairs.append(tile.size)
        fill(tiles, here, rows, tile)

    monkeypatch.setattr(distances.Tiles, "__call__", count)

    def measured() -> int:
        total = sum(pairs)
        pairs.clear()
        return total

    X_val, y_val = twin.rows(5)
    twin.store.add(X_val, y_val, groups=["new"] * 5)
    twin.points["new"], twin.weights["new"] = [(X_val, y_val)], 1.0
    assert measured() == 5 * 400
    twin.reweight()
    twin.store.valuation()
    assert measured() == 0
    n_val = twin.store.n_val
    twin.store.remove_rows([1, 2])
    twin.store.remove_rows([0])
    twin.keep(twin.ids > 2)
    assert measured() == (0 if parameters else n_val * (398 + 397))
    X, y = twin.rows(3)
    twin.store.add_rows(X, y, ids=[900, 901, 902], owners=[0, 0, 0])
    assert measured() == n_val * (3 if parameters else 400)
    twin.store.drop("new")
    del twin.points["new"], twin.weights["new"]
    assert measured() == 0
    twin.X, twin.y = np.vstack([twin.X, X]), np.append(twin.y, y)
    twin.ids, twin.owners = np.append(twin.ids, [900, 901, 902]), np.append(twin.owners, [0, 0, 0])
    twin.check()


@pytest.mark.parametrize("parameters", [{}, {"semivalue": Beta(4, 1)}, {"method": "truncated", "tol": 0.05}])
@pytest.mark.parametrize("step", [0.0, 0.5])
def test_a_store_of_one_group_has_the_bytes_of_a_fresh_fit(parameters: dict[str, Any], step: float) -> None:
    twin = Twin(17, 800, step, **parameters)
    X_val, y_val = twin.rows(150)
    twin.store.add(X_val[:100], y_val[:100])
    twin.store.add(X_val[100:], y_val[100:])
    X, y = twin.rows(40)
    twin.store.add_rows(1.9 * X, y, owners=np.zeros(40, dtype=np.int64))  # a wider range: another scale in a fresh fit
    twin.store.remove_rows(np.arange(5, 800, 7))
    kept = np.r_[~np.isin(np.arange(800), np.arange(5, 800, 7)), np.ones(40, dtype=bool)]
    model = KNNShapley(**parameters).fit(np.vstack([twin.X, 1.9 * X])[kept], np.append(twin.y, y)[kept])
    found, want = twin.store.valuation(), model.value(X_val, y_val)
    for name in ("values", "level_values", "level_counts", "entropy", "error_bound"):
        assert np.array_equal(getattr(found, name), getattr(want, name)), name


@pytest.mark.parametrize("semivalue", ["shapley", "banzhaf", "loo"])
@pytest.mark.parametrize("utility", ["soft", "hard"])
def test_values_after_changes_are_those_of_enumerated_subsets(semivalue: str, utility: str) -> None:
    twin = Twin(7, 9, 1.0, classes=2, n_neighbors=2, semivalue=semivalue, utility=utility)
    twin.add()
    twin.store.remove_rows([1, 4, 5])
    twin.keep(~np.isin(twin.ids, [1, 4, 5]))
    X, y = twin.rows(2)
    twin.store.add_rows(X, y, ids=[20, 21], owners=[1, 1])
    X, y = np.vstack([twin.X, X]), np.append(twin.y, y)
    values = [
        naive.knn_values(
            distances, (y == label).tolist(), n_neighbors=2, utility=utility, semivalue=semivalue,
            n_classes=len(set(y.tolist())), ties="average",
        )
        for (X_val, y_val) in twin.points["group 0" if "group 0" in twin.points else next(iter(twin.points))]
        for distances, label in zip(naive.distance_matrix(X_val, X, "sqeuclidean"), y_val, strict=True)
    ]  # fmt: skip
    np.testing.assert_allclose(twin.store.valuation().values, np.mean(values, axis=0), rtol=0, atol=1e-12)


def test_threads_see_the_state_before_or_after_a_change() -> None:
    twin = Twin(8, 300, 0.0)
    for _ in range(6):
        twin.add()
    states = {twin.store.valuation().values.tobytes()}
    gone = [twin.ids[k::10] for k in range(4)]
    other = copy.deepcopy(twin.store)
    for ids in gone:
        other.remove_rows(ids)
        states.add(other.valuation().values.tobytes())
    assert len(states) == 5
    seen: list[bytes] = []
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            seen.append(twin.store.valuation().values.tobytes())

    readers = [threading.Thread(target=look) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        for ids in gone:
            twin.store.remove_rows(ids)
    finally:
        done.set()
        for reader in readers:
            reader.join()
    assert set(seen) <= states
    assert twin.store.valuation().values.tobytes() == other.valuation().values.tobytes()


def test_changes_of_two_threads_are_both_made() -> None:
    twin = Twin(9, 200, 0.0)
    twin.add()
    threads = [threading.Thread(target=twin.store.remove_rows, args=([k],)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    twin.keep(twin.ids >= 8)
    twin.check()


def test_a_save_that_fails_leaves_the_last_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    twin = Twin(1, 40, 0.0)
    twin.add()
    path = tmp_path / "store.npz"
    twin.store.save(path)
    before = path.read_bytes()
    twin.remove_rows()

    def full(file: Any, **arrays: Any) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="No space"):
        twin.store.save(path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["store.npz"]
    twin.check()


PARTS = ["rows", "labels", "ids", "owners", "points0", "labels0", "values0_values", "values0_entropy"]
LIST_PARTS = ["list_rows0", "list_ends0", "list_distances0", "list_reach0", "values0_error_bound"]


@pytest.mark.parametrize("what", PARTS + LIST_PARTS)
def test_a_file_whose_parts_do_not_fit_together_is_refused(tmp_path: Path, what: str) -> None:
    parameters = {"method": "truncated", "tol": 0.2} if what in LIST_PARTS else {}
    twin = Twin(2, 120, 0.0, **parameters)
    twin.add()
    header, arrays = twin.store._to_archive()
    array = arrays[what].copy()
    if what in ("list_rows0", "list_ends0"):
        array.flat[0] = array.max() * 4 + 400
    else:
        array = array[:-1]
    arrays[what] = array
    write_archive(tmp_path / "store.npz", "shapshift.ValuationStore", 2, header, arrays)
    with pytest.raises(ValueError, match="not a whole"):
        ValuationStore.load(tmp_path / "store.npz")


def test_a_file_of_an_older_release_is_refused(tmp_path: Path) -> None:
    twin = Twin(2, 30, 0.0)
    twin.add()
    write_archive(tmp_path / "store.npz", "shapshift.ValuationStore", 1, *twin.store._to_archive())
    with pytest.raises(ValueError, match="format version 1, this release reads version 2"):
        ValuationStore.load(tmp_path / "store.npz")


def store() -> ValuationStore:
    made = ValuationStore(KNNShapley().fit([[0.0], [1.0]], [0, 1], ids=["x", "y"]), owners=["ann", "bob"])
    made.add([[0.5]], [1], groups=["g"])
    return made


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.drop("h"), r"no validation group 'h'. There are 'g'"),
        (lambda s: s.reweight({"g": -1.0}), r"'weights' parameter .* at least 0"),
        (lambda s: s.reweight({"h": 1.0}), r"no validation group 'h'"),
        (lambda s: s.remove_rows(["z"]), r"'ids' parameter .* Unknown: 'z'"),
        (lambda s: s.remove_rows(["x", "y"]), r"would remove all training rows"),
        (lambda s: s.remove_owner("cy"), r"'owner' parameter must be one of 'ann', 'bob'. Got 'cy'"),
        (lambda s: s.add_rows([[2.0]], [0], ids=["x"], owners=["ann"]), r"parameter must hold new, distinct.*'x'"),
        (lambda s: s.add_rows([[2.0]], [0], ids=["z"]), r"'owners' parameter must name an owner"),
        (lambda s: s.add_rows([[2.0]], [0], owners=["ann"]), r"'ids' parameter must name the new rows"),
        (lambda s: s.add_rows([[1e200]], [0], ids=["z"], owners=["ann"]), r"times the range of the existing rows"),
        (lambda s: s.add_rows([[1.0, 2.0]], [0], ids=["z"], owners=["ann"]), r"2 features"),
        (lambda s: s.add([[np.nan]], [0]), r"NaN"),
        (lambda s: (s.drop("g"), s.valuation()), r"no validation points"),
    ],
)  # fmt: skip
def test_bad_changes_are_refused(change: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        change(store())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.remove_rows(3), r"'ids' must be a list, array or column of ids. Got int"),
        (lambda s: s.reweight([("g", 1.0)]), r"'weights' parameter .* must map group names to weights. Got list"),
    ],
)
def test_changes_of_another_type_are_refused(change: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        change(store())


def test_models_it_cannot_serve_are_refused() -> None:
    with pytest.raises(TypeError, match="fitted KNNShapley"):
        ValuationStore(KNNShapley())
    with pytest.raises(ValueError, match="method='exact' or 'truncated'"):
        ValuationStore(KNNShapley(method="certified").fit([[0.0], [1.0]], [0, 1]))
    with pytest.raises(ValueError, match="search='exact': an index would be rebuilt"):
        ValuationStore(KNNShapley(method="truncated", search="lsh").fit([[0.0], [1.0]], [0, 1]))
    with pytest.raises(ValueError, match="precomputed"):
        ValuationStore(KNNShapley(metric="precomputed").fit(None, [0, 1]))
    with pytest.raises(ValueError, match="needs the owner of each row"):
        ValuationStore(KNNShapley().fit([[0.0], [1.0]], [0, 1])).remove_owner("ann")


def test_it_says_what_it_holds() -> None:
    assert repr(store()) == "ValuationStore(n_train=2, n_val=1, groups=1, keeps=sums)"
    assert store().group_names == ("g",)
