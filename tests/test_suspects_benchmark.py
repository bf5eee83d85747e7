"""The comparison with cleanlab: labels that are changed, measures against enumeration, bars on made-up numbers."""

from itertools import permutations, product

import numpy as np
import pandas as pd
import pytest

from benchmarks import noisy_labels, suspects


@pytest.mark.parametrize(("share", "classes"), [(0.03, 2), (0.1, 5), (0.5, 3)])
def test_uniform_flips_are_as_many_as_asked_and_never_keep_the_label(share: float, classes: int) -> None:
    y = np.arange(600) % classes
    rng = np.random.default_rng(0)
    rates = np.zeros((classes, classes))
    for _ in range(200):
        flipped = noisy_labels.flip_uniformly(y, share, rng)
        assert (flipped != y).sum() == round(share * 600)
        np.add.at(rates, (y, flipped), classes / 600 / 200)
    # Every other class gets the same part.
    others = rates[~np.eye(classes, dtype=bool)]
    np.testing.assert_allclose(others, share / (classes - 1), rtol=0.1)


def test_flips_by_confusion_follow_it() -> None:
    y = np.repeat([0, 1, 2], (600, 300, 100))
    confused = np.array([[0, 0.02, 0.06], [0.04, 0, 0], [0.03, 0.01, 0]])
    rng = np.random.default_rng(0)
    counts = np.zeros((3, 3))
    for _ in range(300):
        flipped = noisy_labels.flip_by_confusion(y, 0.02, confused, rng)
        assert (flipped != y).sum() == 20
        np.add.at(counts, (y, flipped), 1)
    np.fill_diagonal(counts, 0)
    expected = confused * [[600], [300], [100]]
    np.testing.assert_allclose(counts / counts.sum(), expected / expected.sum(), atol=0.02)


def test_no_class_loses_most_of_its_labels() -> None:
    y = np.repeat([0, 1], (950, 50))
    flipped = noisy_labels.flip_by_confusion(y, 0.1, np.array([[0, 0.01], [0.9, 0]]), np.random.default_rng(0))
    assert (flipped != y).sum() == 100
    assert (flipped != y)[y == 1].sum() == 15
    # Classes that nothing confuses are flipped too, where labels have to be changed.
    flipped = noisy_labels.flip_by_confusion(y, 0.1, np.zeros((2, 2)), np.random.default_rng(0))
    assert (flipped != y).sum() == 100


def test_confusion_is_of_classes_that_overlap() -> None:
    rng = np.random.default_rng(0)
    y = np.arange(150) % 3
    X = rng.normal(size=(150, 2)) + np.array([[0, 0], [1, 0], [20, 20]])[y]
    confused = noisy_labels.confusion(X, y)
    assert np.all(np.diag(confused) == 0)
    assert min(confused[0, 1], confused[1, 0]) > 0.1
    assert max(confused[2].max(), confused[:, 2].max()) < 0.05


@pytest.mark.parametrize("dataset", ["iris", "clusters-2-small", "rules-3-bayes"])
def test_cases_repeat_and_test_rows_are_clean(dataset: str) -> None:
    case, again, other = (noisy_labels.make_case("development", dataset, "uniform-10", seed) for seed in (0, 0, 1))
    for name, array in vars(case).items():
        np.testing.assert_array_equal(array, vars(again)[name])
    assert not np.array_equal(case.X, other.X)
    assert case.wrong.sum() == round(0.1 * case.given.size)
    assert case.X_test.shape == (case.y_test.size, case.X.shape[1])
    np.testing.assert_allclose(case.X.mean(axis=0), 0, atol=1e-9)


def test_published_training_sets_are_bounded() -> None:
    case = noisy_labels.make_case("published", "wine", "uniform-3", 0)
    assert (case.given.size, case.y_test.size) == (107, 71)
    assert set(noisy_labels.SUITES["published"]).isdisjoint(noisy_labels.SUITES["development"])


def test_precision_is_the_mean_over_orders_of_ties() -> None:
    score = np.array([0.9, 0.5, 0.5, 0.5, 0.1])
    wrong = np.array([False, True, False, True, False])
    orders = [list(order) for order in permutations(range(5)) if np.all(np.diff(score[list(order)]) <= 0)]
    found = [wrong[order[:2]].mean() for order in orders]
    assert suspects.precision_at(score, wrong) == pytest.approx(np.mean(found))


def record(
    tool: str, noise: str, seed: int, auc: float, learned: dict[str, object], right: int = 1
) -> dict[str, object]:
    mode = {"auc": auc, "precision": auc}
    if tool == "cleanlab":
        mode |= {"f1": 0.5, "flagged": 10}
    else:
        cut = {"f1": 0.6, "flagged": 10, "right": right, "expected_right": 1.0, "suggested_right": 9}
        mode["cuts"] = [cut | {"error": error} for error in suspects.ERRORS]
    result = dict.fromkeys(suspects.MODES, mode) | {"learned": learned}
    return {"suite": "published", "dataset": "a", "noise": noise, "seed": seed, "tool": tool, "result": result}


@pytest.fixture
def records() -> list[dict[str, object]]:
    def learned(accuracy: float) -> dict[str, list[float]]:
        return {name: [accuracy, accuracy / 2] for name in suspects.LEARNERS}

    found = []
    for noise, seed in product(("x", "y"), (0, 1)):
        found.append(record("cleanlab", noise, seed, 0.8, {"noisy": learned(0.7), "forest drop": learned(0.72)}))
        ours = {"forest drop": learned(0.71 - 0.02 * (noise == "y")), "forest relabel": None}
        found.append(record("shapshift", noise, seed, 0.81 if noise == "x" else 0.79, ours, right=1 + seed))
    return found


def verdicts(bars: pd.DataFrame, name: str) -> dict[str, str]:
    found = bars[bars["bar"] == name]
    return dict(zip(found["where"], found["met"], strict=True))


def test_bars_on_made_up_numbers(records) -> None:
    bars = suspects.bars_of(records, True, None)
    assert verdicts(bars, "mean AUC") == {
        f"{mode}, {noise}": verdict for mode, (noise, verdict) in product(suspects.MODES, (("x", "yes"), ("y", "NO")))
    }
    assert set(verdicts(bars, "mean F1 of the flagged rows").values()) == {"yes"}
    # Expected 0.1; 3 of 20 flagged labels are right: off by 0.05.
    off = bars[bars["bar"] == "expected error off by"]
    assert set(off["measured"]) == {0.05}
    assert set(off["where"].str.split(", ").str[-1]) == {"2 of 2 cells"}
    worst = bars[bars["bar"] == "least change of balanced accuracy"].set_index("where")
    assert worst.loc["drop, forest: a, y, logistic regression"].to_dict() == {
        "bar": "least change of balanced accuracy",
        "asked": "at least -0.005",
        "measured": -0.01,
        "met": "NO",
    }
    assert verdicts(bars, "mean change of balanced accuracy")["drop, forest"] == "NO"
    # Nothing flagged, nothing changed: no loss, and no gain either.
    assert verdicts(bars, "mean change of balanced accuracy")["relabel, forest"] == "NO"
    assert set(verdicts(bars, "least change of minority recall").values()) == {"yes"}


def test_cells_with_few_flagged_rows_say_nothing_about_the_error(records) -> None:
    cuts = suspects.cut_frame(records)
    cuts["flagged"] = suspects.FEWEST_FLAGGED - 1
    assert list(suspects.judge_cuts(cuts)) == []


def test_rounding_is_no_verdict() -> None:
    assert suspects.judge("", "", -0.02, 0.3 - 0.32)["met"] == "yes"
    assert suspects.judge("", "", 0.0, 0.1 + 0.2 - 0.3, "more than")["met"] == "NO"
    assert suspects.judge("", "", 0.05, 0.0501, "at most")["met"] == "NO"


def test_times_are_judged_together() -> None:
    times = pd.DataFrame({"mode": suspects.MODES * 2, "size": "2 datasets", "cleanlab": [1.0, 2.0] * 2})
    times["shapshift"] = [0.0, 0.0, 0.5, 0.9]
    shares = {bar["where"]: (bar["measured"], bar["met"]) for bar in suspects.judge_times(times)}
    assert shares == {
        "features against features, 2 datasets": (0.25, "NO"),
        "forest against forest, 2 datasets": (0.225, "NO"),
        "features against forest, 2 datasets": (0.125, "yes"),
    }


def test_effects_are_changes_against_the_noisy_set(records) -> None:
    effects = suspects.mean_effects(suspects.effect_frame(records))
    ours = effects[(effects["tool"] == "shapshift") & (effects["noise"] == "x")].set_index(["action", "learner"])
    assert ours.loc[("drop", "random forest"), "accuracy"] == pytest.approx(0.01)
    assert ours.loc[("drop", "random forest"), "recall"] == pytest.approx(0.005)
    assert ours.loc[("relabel", "random forest"), "accuracy"] == 0
    tables = suspects.tables_of(records, True)
    assert list(tables["rankings"].columns) == ["noise", "tool", "mode", "auc", "precision", "f1"]
    least = tables["effects"].set_index(["tool", "action"])["least"]
    assert least["shapshift", "drop"] == pytest.approx(-0.01)
    assert least["cleanlab", "drop"] == pytest.approx(0.02)
    assert tables["cuts"]["mean absolute difference"].tolist() == pytest.approx([0.05] * 6)


def test_what_is_learned_without_the_wrong_rows() -> None:
    rng = np.random.default_rng(0)
    true = np.arange(60) % 2
    X = rng.normal(size=(60, 2)) + 10 * true[:, None]
    given = true.copy()
    given[1:20:2] = 0  # a third of class 1
    case = noisy_labels.Case(X, given, true, X, true)
    found = suspects.learn_after(case, "forest", case.wrong, 1 - given)
    assert found["forest drop"]["logistic regression"] == [1.0, 1.0]
    assert found["forest relabel"]["logistic regression"] == [1.0, 1.0]
    nothing = suspects.learn_after(case, "forest", np.zeros(60, dtype=bool), 1 - given)
    assert nothing == {"forest drop": None, "forest relabel": None}
    # All rows of one class flagged: what is left predicts the other.
    assert suspects.learn(case, given, given == 0)["random forest"] == [0.5, 1.0]
