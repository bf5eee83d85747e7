"""Federated rounds: values of owners over rounds, against their definition."""

from __future__ import annotations

import itertools
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import scale

from shapshift import FederatedRound, federated_values
from shapshift.sampled import FederatedValues


def shapley(owners: list[str], worth: Any) -> dict[str, float]:
    """Shapley values of one round: the mean over all orders of what each owner adds."""
    found = dict.fromkeys(owners, 0.0)
    for order in itertools.permutations(owners):
        for place, owner in enumerate(order):
            found[owner] += worth(order[: place + 1]) - worth(order[:place])
    return {owner: total / math.factorial(len(owners)) for owner, total in found.items()}


def some_worth(seed: int) -> Any:
    """A worth of sets of owners without any structure; it must not depend on the order of the owners."""

    def worth(owners: tuple[str, ...]) -> float:
        return float(np.random.default_rng([seed, *sorted(map(ord, owners))]).normal())

    return worth


TEAMS = [["a", "b", "c"], ["b", "d"], ["a"], ["d", "c", "b", "a"]]


def rounds() -> list[FederatedRound]:
    return [FederatedRound(team, some_worth(seed)) for seed, team in enumerate(TEAMS)]


def test_values_are_sums_of_the_shapley_values_of_the_rounds() -> None:
    found = federated_values(rounds())
    expected = dict.fromkeys(found.owners, 0.0)
    for seed, team in enumerate(TEAMS):
        by_round = shapley(team, some_worth(seed))
        for owner, part in by_round.items():
            expected[owner] += part
        line = dict(zip(found.owners, found.round_values[seed], strict=True))
        assert line == pytest.approx(dict.fromkeys(found.owners, 0.0) | by_round)
    assert dict(zip(found.owners, found.values, strict=True)) == pytest.approx(expected)
    gains = [some_worth(seed)(tuple(team)) - some_worth(seed)(()) for seed, team in enumerate(TEAMS)]
    np.testing.assert_allclose(found.gains, gains)
    assert found.standard_error.tolist() == [0.0] * 4
    assert found.owners == ("a", "b", "c", "d")


def test_drawn_orders_come_to_the_same_values() -> None:
    team = [chr(ord("a") + i) for i in range(7)]
    one = FederatedRound(team, some_worth(0))
    exact, drawn = federated_values([one]), federated_values([one], max_evaluations=100)
    assert drawn.standard_error.min() > 0
    assert np.abs((drawn.values - exact.values) / drawn.standard_error).max() < 4
    assert drawn.values.sum() == pytest.approx(exact.values.sum())
    # The order in which participants are listed changes nothing, the seed does.
    turned = federated_values([FederatedRound(team[::-1], some_worth(0))], max_evaluations=100)
    np.testing.assert_array_equal(turned.values[::-1], drawn.values)
    other = federated_values([one], max_evaluations=100, random_state=1)
    assert not np.array_equal(other.values, drawn.values)


@pytest.mark.parametrize("lists", [False, True])
def test_recorded_updates_are_averaged(lists: bool) -> None:
    before = [np.zeros(2), np.ones((1, 2))]
    sent = {"a": [np.array([1.0, 2.0]), np.zeros((1, 2))], "b": [np.array([3.0, 0.0]), np.full((1, 2), 4.0)]}
    seen: list[Any] = []

    def score(parameters: Any) -> float:
        seen.append(parameters)
        return float(sum(np.sum(part) for part in parameters))

    pick: Any = (lambda parts: parts) if lists else (lambda parts: parts[0])
    one = FederatedRound.from_updates(
        pick(before), {name: pick(parts) for name, parts in sent.items()}, score, sizes={"a": 1, "b": 3}
    )
    average = one.worth(("a", "b"))
    joined = [0.25 * a + 0.75 * b for a, b in zip(*sent.values(), strict=True)]
    assert average == pytest.approx(sum(part.sum() for part in (joined if lists else joined[:1])))
    assert one.worth(()) == pytest.approx(2.0 if lists else 0.0)
    assert isinstance(seen[0], list) == lists
    found = federated_values([one])
    expected = shapley(["a", "b"], one.worth)
    assert dict(zip(found.owners, found.values, strict=True)) == pytest.approx(expected)


def test_an_owner_of_wrong_labels_is_worth_less() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    X = scale(X)
    shared, history = np.zeros(31), []
    parts = {f"owner {k}": np.arange(k, 400, 4) for k in range(4)}
    labels = y.copy()
    labels[parts["owner 3"]] = 1 - labels[parts["owner 3"]]

    def score(w: np.ndarray) -> float:
        return float(((X[400:] @ w[:-1] + w[-1] > 0) == y[400:]).mean())

    for _ in range(3):
        sent = {}
        for name, rows in parts.items():
            local = LogisticRegression(C=0.1, max_iter=5, warm_start=True)
            local.classes_, local.coef_, local.intercept_ = (
                np.array([0, 1]),
                shared[None, :-1].copy(),
                shared[-1:].copy(),
            )
            with warnings.catch_warnings(action="ignore"):  # it is stopped early, as in federated training
                local.fit(X[rows], labels[rows])
            sent[name] = np.append(local.coef_[0], local.intercept_)
        history.append(FederatedRound.from_updates(shared, sent, score))
        shared = np.mean(list(sent.values()), axis=0)
    found = federated_values(history)
    assert found.owners[int(found.values.argmin())] == "owner 3"
    # Each round starts from the model that the last one gave.
    assert found.gains.sum() == pytest.approx(score(shared) - score(np.zeros(31)))


def test_files_and_tables(tmp_path: Path) -> None:
    found = federated_values(rounds())
    found.save(tmp_path / "values.npz")
    again = FederatedValues.load(tmp_path / "values.npz")
    np.testing.assert_array_equal(again.round_values, found.round_values)
    assert again.owners == found.owners
    table = found.to_frame("pyarrow")
    assert table["owner"].to_pylist() == ["a", "b", "c", "d"]
    assert table["rounds"].to_pylist() == [3, 3, 2, 2]
    assert "n_rounds=4" in repr(found)


def test_what_cannot_be_valued_is_said() -> None:
    for nothing in ([], [FederatedRound([], some_worth(0))], ["round"]):
        with pytest.raises(ValueError, match="'rounds' parameter of federated_values must hold FederatedRound objects"):
            federated_values(nothing)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"participants of round 1, counted from 0, must differ"):
        federated_values([FederatedRound(["a"], some_worth(0)), FederatedRound(["a", "a"], some_worth(0))])
    with pytest.raises(ValueError, match=r"'worth' of round 0.* must return one finite number. Got nan"):
        federated_values([FederatedRound(["a"], lambda owners: math.nan)])
    with pytest.raises(ValueError, match=r"'worth' of round 0.* must return one finite number. Got None"):
        federated_values([FederatedRound(["a"], lambda owners: None)])  # type: ignore[arg-type, return-value]
    with pytest.raises(ValueError, match="'rounds' parameter of federated_values must be a list"):
        federated_values(None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'participants' parameter of FederatedRound must be a list of owners"):
        FederatedRound("amy", some_worth(0))
    with pytest.raises(ValueError, match="'worth' parameter of FederatedRound must be a function"):
        FederatedRound(["amy"], 3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"'updates' of 'b' must have the shapes of 'before', \[\(2,\)\]. Got"):
        FederatedRound.from_updates(np.zeros(2), {"a": np.zeros(2), "b": np.zeros(3)}, np.sum)
    with pytest.raises(ValueError, match=r"'sizes' must have a positive number for every owner. 'a' has none"):
        FederatedRound.from_updates(np.zeros(2), {"a": np.zeros(2)}, np.sum, sizes={"b": 1})
    with pytest.raises(ValueError, match="'max_evaluations' parameter"):
        federated_values(rounds(), max_evaluations=0)


def test_a_budget_of_all_coalitions_is_enough_for_exact_values() -> None:
    asked: list[tuple[str, ...]] = []
    worth = some_worth(0)

    def counted(owners: tuple[str, ...]) -> float:
        asked.append(owners)
        return worth(owners)

    found = federated_values([FederatedRound(["a", "b", "c"], counted)], max_evaluations=8)
    assert (found.standard_error == 0).all()
    assert len(asked) == 8
