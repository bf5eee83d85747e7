"""Interactions of pairs agree with enumeration to 1e-12, and add up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import naive
import numpy as np
import pytest

mpl.use("Agg")
import matplotlib.pyplot as plt
from test_exact import CIRCLE, LABELS, VALIDATION, distances, neighbor_counts, utilities, validation_labels

from shapshift import Interactions, KNNShapley, ThresholdKNNShapley, knn_interactions

TOLERANCE = 1e-12


def whole_matrix(found: Interactions) -> np.ndarray:
    matrix = found.to_sparse().toarray()
    matrix[np.diag_indices(found.ids.size)] = found.main
    return matrix


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("ties", ["average", "index"])
@pytest.mark.parametrize("utility", ["soft", "hard"])
def test_interactions_are_the_enumerated_ones(utility: str, ties: str, n_classes: int) -> None:
    for n_rows in range(1, 8):
        labels = LABELS[n_classes][:n_rows]
        y_val = validation_labels(labels)
        points = np.tile(VALIDATION, (len(set(labels)), 1))
        for k in neighbor_counts(n_rows):
            table = utilities(n_rows, labels, k, utility, ties)
            expected = np.mean([naive.taylor_interactions(column.tolist()) for column in table.T], axis=0)
            model = KNNShapley(k, utility=utility, ties=ties).fit(CIRCLE[:n_rows], list(labels))
            found = knn_interactions(model, points, y_val, top=n_rows)
            np.testing.assert_allclose(whole_matrix(found), expected, rtol=0, atol=TOLERANCE)
            off_diagonal = expected[np.triu_indices(n_rows, 1)].sum()
            assert found.total == pytest.approx(off_diagonal, abs=TOLERANCE)


def test_the_layout_of_this_test_has_ties() -> None:
    assert any(len(set(row)) < 7 for row in distances(7).tolist())


@pytest.fixture
def problem() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    X, X_val = rng.integers(0, 8, size=(60, 2)).astype(float), rng.normal(4, 2, size=(25, 2))
    y = (X.sum(axis=1) > 7).astype(int)
    return {"X": X, "y": y, "X_val": X_val, "y_val": (X_val.sum(axis=1) > 7).astype(int)}


@pytest.mark.parametrize("utility", ["soft", "hard"])
def test_pairs_and_single_rows_add_up_to_the_whole(problem: dict[str, Any], utility: str) -> None:
    model = KNNShapley(4, utility=utility).fit(problem["X"], problem["y"])
    found = knn_interactions(model, problem["X_val"], problem["y_val"])
    values = model.value(problem["X_val"], problem["y_val"]).values
    assert found.total + found.main.sum() == pytest.approx(values.sum(), abs=1e-12)


def test_owners_are_sums_over_all_pairs(problem: dict[str, Any]) -> None:
    model = KNNShapley(3).fit(problem["X"], problem["y"])
    owners = np.array(["ann", "bob", "cid"])[np.arange(60) % 7 % 3]
    everyone = knn_interactions(model, problem["X_val"], problem["y_val"], top=59).to_sparse().toarray()
    found = knn_interactions(model, problem["X_val"], problem["y_val"], top=2, owners=owners)
    for a, first in enumerate(found.owners):
        for b, second in enumerate(found.owners):
            block = everyone[np.ix_(owners == first, owners == second)]
            assert found.owner_totals[a, b] == pytest.approx(block.sum() / (2 if a == b else 1), abs=1e-12)
            n = (owners == first).sum(), (owners == second).sum()
            assert found.owner_pairs[a, b] == (n[0] * (n[0] - 1) // 2 if a == b else n[0] * n[1])
    table = found.owners_frame("pandas")
    assert len(table) == 6
    assert table["interaction"].abs().is_monotonic_decreasing
    assert table["interaction"].sum() == pytest.approx(found.total)
    assert set(table["reading"][table["interaction"] < 0]) <= {"redundant"}
    assert set(table["reading"][table["interaction"] > 0]) <= {"complementary"}


def test_the_plot_shows_every_pair_of_owners(problem: dict[str, Any]) -> None:
    model = KNNShapley(3).fit(problem["X"], problem["y"])
    owners = np.array(["ann", "bob", "cid"])[np.arange(60) % 7 % 3]
    found = knn_interactions(model, problem["X_val"], problem["y_val"], owners=owners)
    for per_pair in (False, True):
        ax = found.plot(per_pair=per_pair)
        expected = found.owner_totals / (found.owner_pairs if per_pair else 1)
        (image,) = ax.get_images()
        np.testing.assert_array_equal(image.get_array(), expected)
        assert image.get_clim() == (-np.abs(expected).max(), np.abs(expected).max())
        assert [label.get_text() for label in ax.get_xticklabels()] == list(found.owners)
        assert [text.get_text() for text in ax.texts] == [f"{entry:.2g}" for entry in expected.ravel()]
        plt.close(ax.figure)
    with pytest.raises(ValueError, match=r"There are no owners to draw. Pass 'owners' to knn_interactions"):
        knn_interactions(model, problem["X_val"], problem["y_val"]).plot()


def test_the_strongest_partners_are_kept(problem: dict[str, Any]) -> None:
    model = KNNShapley(3).fit(problem["X"], problem["y"], ids=[f"r{i}" for i in range(60)])
    everyone = knn_interactions(model, problem["X_val"], problem["y_val"], top=59).to_sparse().toarray()
    found = knn_interactions(model, problem["X_val"], problem["y_val"], top=4)
    assert found.partners.shape == (60, 4)
    for row in range(60):
        assert row not in found.partners[row]
        assert len(set(found.partners[row])) == 4
        strongest = np.sort(np.abs(np.delete(everyone[row], row)))[::-1][:4]
        np.testing.assert_allclose(np.abs(found.interactions[row]), strongest, rtol=0, atol=1e-15)
        np.testing.assert_allclose(found.interactions[row], everyone[row][found.partners[row]], rtol=0, atol=1e-15)
    assert found.to_frame("pandas").shape == (240, 3)
    assert found.to_frame("pandas").loc[0, "id"] == "r0"


def test_blocks_tiles_and_threads_change_nothing(problem: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    model = KNNShapley(3).fit(problem["X"], problem["y"])
    whole = knn_interactions(model, problem["X_val"], problem["y_val"], owners=np.arange(60) % 4)
    monkeypatch.setattr("shapshift.knn.interactions.BLOCK_PAIRS", 60 * 7)
    monkeypatch.setattr("shapshift.knn.interactions.TILE_PAIRS", 60 * 3)
    parts = knn_interactions(
        KNNShapley(3, n_jobs=3).fit(problem["X"], problem["y"]),
        problem["X_val"],
        problem["y_val"],
        owners=np.arange(60) % 4,
    )
    assert np.array_equal(whole.partners, parts.partners)
    assert np.array_equal(whole.interactions, parts.interactions)
    np.testing.assert_allclose(whole.owner_totals, parts.owner_totals, rtol=0, atol=1e-15)


def test_row_order_changes_nothing(problem: dict[str, Any]) -> None:
    shuffled = np.random.default_rng(1).permutation(60)
    X, y = problem["X"], problem["y"]
    found = knn_interactions(KNNShapley(3).fit(X, y), problem["X_val"], problem["y_val"], top=59)
    again = knn_interactions(KNNShapley(3).fit(X[shuffled], y[shuffled]), problem["X_val"], problem["y_val"], top=59)
    expected = found.to_sparse().toarray()[np.ix_(shuffled, shuffled)]
    np.testing.assert_allclose(again.to_sparse().toarray(), expected, rtol=0, atol=1e-14)


def test_saved_and_loaded(problem: dict[str, Any], tmp_path: Path) -> None:
    model = KNNShapley(3).fit(problem["X"], problem["y"])
    found = knn_interactions(model, problem["X_val"], problem["y_val"], owners=["a", "b"] * 30)
    found.save(tmp_path / "pairs.npz")
    loaded = Interactions.load(tmp_path / "pairs.npz")
    assert np.array_equal(loaded.interactions, found.interactions)
    assert loaded.owners == found.owners
    assert loaded.owners_frame("pandas").equals(found.owners_frame("pandas"))
    assert repr(loaded) == repr(found)


def test_bad_input_is_refused(problem: dict[str, Any]) -> None:
    model = KNNShapley(3).fit(problem["X"], problem["y"])
    with pytest.raises(TypeError, match=r"must be a fitted KNNShapley.* Got ThresholdKNNShapley"):
        knn_interactions(ThresholdKNNShapley(1.0).fit(problem["X"], problem["y"]), problem["X_val"], problem["y_val"])
    banzhaf = KNNShapley(3, semivalue="banzhaf").fit(problem["X"], problem["y"])
    with pytest.raises(ValueError, match=r"semivalue='shapley'. Got 'banzhaf'"):
        knn_interactions(banzhaf, problem["X_val"], problem["y_val"])
    with pytest.raises(ValueError, match="'top' parameter of knn_interactions must be at least 1"):
        knn_interactions(model, problem["X_val"], problem["y_val"], top=0)
    with pytest.raises(ValueError, match="'owners' must have one"):
        knn_interactions(model, problem["X_val"], problem["y_val"], owners=["a"] * 61)
    with pytest.raises(ValueError, match="no owners to tabulate"):
        knn_interactions(model, problem["X_val"], problem["y_val"]).owners_frame()
