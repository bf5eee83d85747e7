"""Payments: every cent is accounted for, and nothing but contributions decides who gets it."""

from __future__ import annotations

import copy
import csv
import dataclasses
import html.parser
import io
import itertools
import pickle
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import polars as pl
import pytest
from cli_files import run
from hypothesis import given, settings
from hypothesis import strategies as st

from shapshift import Banzhaf, KNNShapley, Valuation
from shapshift.audit import ShiftStream, audit_shift
from shapshift.correct import BoundaryCorrector
from shapshift.perturb import GaussianNoise, Round, Subsample
from shapshift.price import (
    Allocation,
    PayoutAudit,
    Policy,
    allocate_budget,
    audit_payouts,
    owner_values,
    random_blocks,
    safe_cell,
    show_money,
    write_statements,
)
from shapshift.price.money import split_cents
from shapshift.price.sampling import without_blocks
from shapshift.price.statements import page_names
from shapshift.report import build_report

mpl.use("Agg")
import matplotlib.pyplot as plt

RNG = np.random.default_rng(0)
X, X_VAL = RNG.normal(size=(80, 2)), RNG.normal(size=(40, 2))
Y, Y_VAL = (X[:, 0] > 0).astype(int), (X_VAL[:, 0] > 0).astype(int)
Y[::7] = 1 - Y[::7]
MODEL = KNNShapley().fit(X, Y)
CLEAN = MODEL.value(X_VAL, Y_VAL)
OWNERS = np.array(["ann", "bob", "cid", "dee"])[RNG.integers(0, 4, 80)]


def valued(values: Any, ids: Any = None) -> Valuation:
    """A valuation with the given row values."""
    made = np.asarray(values, dtype=float)
    return dataclasses.replace(
        CLEAN,
        values=made,
        ids=np.arange(made.size) if ids is None else np.asarray(ids),
        level_values=np.zeros((CLEAN.level_entropy.size, made.size)),
        group_means=np.empty((0, made.size)),
    )


def euros(allocation: Allocation) -> dict[Any, str]:
    return {owner: str(amount) for owner, amount in allocation.payouts.items()}


def accounted(allocation: Allocation) -> Decimal:
    return sum(allocation.payouts.values(), Decimal(0)) + allocation.reserve + allocation.unallocated


# Values with many exact ties and values over many magnitudes.
VALUES = st.one_of(
    st.sampled_from([0.0, 0.1, 0.1, 0.2, 0.3, -0.1, 1.0]),
    st.floats(-1e6, 1e6, allow_nan=False).map(lambda v: v if abs(v) > 1e-9 else 0.0),
)
BUDGETS = st.integers(0, 10**7).map(lambda cents: Decimal(cents).scaleb(-2))
TABLES = st.lists(st.tuples(VALUES, st.sampled_from("abcdefg")), min_size=1, max_size=20)


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    negatives, floor = draw(st.sampled_from(["clip", "carry"])), draw(st.sampled_from([0, 0, "0.01", 3]))
    deposit = draw(st.sampled_from([0, "0.07", 20])) if negatives == "carry" and not floor else 0
    return Policy(
        negatives=negatives,
        floor=floor,
        deposit=deposit,
        cap=draw(st.sampled_from([None, None, "30%", 50, "17.3%"])),
        reserve=draw(st.sampled_from([0, 0, "5%", "1.23"])),
        odd_cents=draw(st.sampled_from(["draw", "keep"])),
    )


# --- properties -----------------------------------------------------------------------------------------------------


@settings(max_examples=300)
@given(TABLES, BUDGETS, policies())
def test_every_cent_is_accounted_for(table: list[tuple[float, str]], budget: Decimal, policy: Policy) -> None:
    values, owners = [value for value, _ in table], [owner for _, owner in table]
    try:
        made = allocate_budget(valued(values), budget, owners=owners, policy=policy)
    except ValueError as error:
        assert any(word in str(error) for word in ("floor", "reserve"))  # noqa: PT017 - other errors fail here
        return
    assert accounted(made) == budget == made.budget
    assert all(amount >= Decimal(policy.floor) - Decimal(policy.deposit) for amount in made.payouts.values())
    assert sum(max(amount, Decimal(0)) for amount in made.payouts.values()) <= budget
    assert made.collected == -sum(min(amount, Decimal(0)) for amount in made.payouts.values()) <= made.unallocated
    if policy.cap is not None:
        percent = Fraction(policy.cap[:-1]) / 100 if policy.cap.endswith("%") else None
        largest = Fraction(policy.cap) if percent is None else Fraction(budget) * percent
        assert all(Fraction(amount) <= largest for amount in made.payouts.values())


@settings(max_examples=200)
@given(TABLES, BUDGETS)
def test_payouts_add_up_to_the_budget_whenever_somebody_contributes(
    table: list[tuple[float, str]], budget: Decimal
) -> None:
    values, owners = [value for value, _ in table], [owner for _, owner in table]
    for negatives in ("clip", "carry"):
        made = allocate_budget(valued(values), budget, owners=owners, policy=Policy(negatives=negatives))
        if (made.contributions > 0).any():
            assert sum(made.payouts.values()) == budget
        else:
            assert made.unallocated == budget


@settings(max_examples=200)
@given(TABLES, BUDGETS, policies(), st.randoms(use_true_random=False))
def test_the_order_of_rows_changes_nothing(
    table: list[tuple[float, str]], budget: Decimal, policy: Policy, random: Any
) -> None:
    policy = dataclasses.replace(policy, floor=0, reserve="5%")
    order = list(range(len(table)))
    random.shuffle(order)
    first, second = (
        allocate_budget(
            valued([table[i][0] for i in rows], ids=[f"row {i}" for i in rows]),
            budget,
            owners=[table[i][1] for i in rows],
            policy=policy,
        )
        for rows in (range(len(table)), order)
    )
    assert first.payouts == second.payouts


@settings(max_examples=200)
@given(TABLES, BUDGETS, policies(), st.permutations("abcdefg"))
def test_nobody_gains_from_renaming(
    table: list[tuple[float, str]], budget: Decimal, policy: Policy, names: list[str]
) -> None:
    policy = dataclasses.replace(policy, floor=0, reserve="5%")
    new = {old: f"{name}!" for old, name in zip("abcdefg", names, strict=True)}
    values, owners = [value for value, _ in table], [owner for _, owner in table]
    first = allocate_budget(valued(values), budget, owners=owners, policy=policy)
    second = allocate_budget(valued(values), budget, owners=[new[owner] for owner in owners], policy=policy)
    assert {new[owner]: amount for owner, amount in first.payouts.items()} == second.payouts


@settings(max_examples=300)
@given(TABLES, BUDGETS, st.sampled_from(["draw", "keep"]), st.floats(0, 1e6), st.data())
def test_a_higher_value_never_lowers_the_pay(
    table: list[tuple[float, str]], budget: Decimal, odd_cents: str, more: float, data: st.DataObject
) -> None:
    values, owners = [value for value, _ in table], [owner for _, owner in table]
    row = data.draw(st.integers(0, len(table) - 1))
    raised = [value + more * (i == row) for i, value in enumerate(values)]
    for negatives in ("clip", "carry"):
        policy = Policy(negatives=negatives, odd_cents=odd_cents)
        before, after = (
            allocate_budget(valued(v), budget, owners=owners, policy=policy).payouts[owners[row]]
            for v in (values, raised)
        )
        assert after >= before


@settings(max_examples=100)
@given(st.lists(st.integers(0, 50), min_size=1, max_size=8), st.integers(0, 400), st.integers(0, 9), st.integers(0, 60))
def test_shares_are_within_a_cent_of_water_filling(weights: list[int], total: int, floor: int, above: int) -> None:
    cap = floor + above
    floor = min(floor, total // len(weights))
    shares, left = split_cents(weights, total, floor, cap, [bytes([i]) for i in range(len(weights))])
    assert sum(shares) + left == total
    # The rate by bisection in floating point, independent of the exact search.
    low, high = 0.0, 1e9

    def at(rate: float) -> list[float]:
        return [min(max(rate * weight, floor), cap) if weight else float(floor) for weight in weights]

    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(at(middle)) <= total else (low, middle)
    assert all(abs(share - exact) < 1 + 1e-6 for share, exact in zip(shares, at(low), strict=True))
    assert all(floor <= share <= cap for share in shares)
    by_weight = sorted(zip(weights, shares, strict=True))
    assert all(one[1] <= two[1] for one, two in itertools.pairwise(by_weight) if one[0] < two[0])


@settings(max_examples=100)
@given(TABLES, BUDGETS)
def test_splitting_a_plain_contribution_gains_less_than_a_cent_per_name(
    table: list[tuple[float, str]], budget: Decimal
) -> None:
    values, owners = [value for value, _ in table], [owner for _, owner in table]
    parts = [f"{owner}{i % 2}" if owner == "a" else owner for i, owner in enumerate(owners)]
    clip = Policy(negatives="clip")
    whole = allocate_budget(valued(values), budget, owners=owners, policy=clip).payouts.get("a", Decimal(0))
    split = allocate_budget(valued(values), budget, owners=parts, policy=clip).payouts
    assert abs(split.get("a0", 0) + split.get("a1", 0) - whole) <= Decimal("0.02")


@pytest.mark.parametrize(
    ("policy", "together", "apart"), [(Policy(floor=30), "50.00", "60.00"), (Policy(cap=40), "40.00", "60.00")]
)
def test_splitting_gains_under_floors_and_caps_as_documented(policy: Policy, together: str, apart: str) -> None:
    values = [1.0, 1.0, 2.0]
    first = allocate_budget(valued(values), 100, owners=["a", "a", "b"], policy=policy).payouts
    second = allocate_budget(valued(values), 100, owners=["a1", "a2", "b"], policy=policy).payouts
    assert str(first["a"]) == together
    assert str(second["a1"] + second["a2"]) == apart


# --- policies -------------------------------------------------------------------------------------------------------

FOUR = (["a", "a", "b", "c", "d"], [0.4, -0.1, 0.2, -0.5, 0.0])


@pytest.mark.parametrize(
    ("policy", "expected", "unallocated"),
    [
        (Policy(), ["60.00", "40.00", "0.00", "0.00"], "0.00"),
        (Policy(negatives="clip"), ["66.67", "33.33", "0.00", "0.00"], "0.00"),
        (Policy(deposit=200), ["60.00", "40.00", "-99.99", "0.00"], "99.99"),
        (Policy(deposit="50.01"), ["60.00", "40.00", "-50.01", "0.00"], "50.01"),
        (Policy(deposit="50.01", reserve="75%"), ["15.00", "10.00", "-24.99", "0.00"], "24.99"),
        (Policy(deposit=200, cap=50), ["50.00", "50.00", "-99.99", "0.00"], "99.99"),
        (Policy(floor=10, negatives="clip"), ["53.33", "26.67", "10.00", "10.00"], "0.00"),
        (Policy(cap=50), ["50.00", "50.00", "0.00", "0.00"], "0.00"),
        (Policy(cap="40%"), ["40.00", "40.00", "0.00", "0.00"], "20.00"),
        (Policy(reserve="10%"), ["54.00", "36.00", "0.00", "0.00"], "0.00"),
        (Policy(reserve=35, floor=15, cap=20), ["20.00", "15.00", "15.00", "15.00"], "0.00"),
    ],
)
def test_policies(policy: Policy, expected: list[str], unallocated: str) -> None:
    owners, values = FOUR
    made = allocate_budget(valued(values), 100, owners=owners, policy=policy)
    assert list(euros(made).values()) == expected
    assert str(made.unallocated) == unallocated
    assert accounted(made) == 100


def test_row_sums_are_what_is_paid() -> None:
    made = allocate_budget(CLEAN, 1000, owners=OWNERS, policy=Policy(negatives="clip"))
    positive = {name: CLEAN.values[(name == OWNERS) & (CLEAN.values > 0)].sum() for name in made.owners}
    for name, amount in made.payouts.items():
        assert float(amount) == pytest.approx(1000 * positive[name] / sum(positive.values()), abs=0.01)
    totals = [CLEAN.values[name == OWNERS].sum() for name in made.owners]
    np.testing.assert_allclose(made.values, totals, atol=1e-15)


def test_equal_owners_and_odd_cents() -> None:
    three = valued([0.1, 0.1, 0.1], ids=["x", "y", "z"])
    made = allocate_budget(three, 100, owners=["a", "b", "c"])
    assert sorted(euros(made).values()) == ["33.33", "33.33", "33.34"]
    lucky = max(made.payouts, key=made.payouts.__getitem__)
    # The draw follows the row, not the name.
    renamed = allocate_budget(three, 100, owners=["c", "a", "b"])
    assert renamed.owners[made.owners.index(lucky)] == max(renamed.payouts, key=renamed.payouts.__getitem__)
    # Another budget, another draw: no row is always lucky.
    winners = {int(np.argmax(allocate_budget(three, 100 + 3 * i, owners=["a", "b", "c"]).cents)) for i in range(20)}
    assert winners == {0, 1, 2}
    kept = allocate_budget(three, 100, owners=["a", "b", "c"], policy=Policy(odd_cents="keep"))
    assert list(euros(kept).values()) == ["33.33"] * 3
    assert str(kept.unallocated) == "0.01"


def test_draws_and_sums_do_not_depend_on_the_order_of_rows() -> None:
    owners, values, ids = ["a", "a", "b", "b"], [0.1, 0.2, 0.2, 0.1], ["p", "q", "r", "s"]
    outcomes = set()
    for order in itertools.permutations(range(4)):
        made = [
            allocate_budget(
                valued([values[i] for i in order], ids=[ids[i] for i in order]),
                Decimal(2 * odd + 1).scaleb(-2),
                owners=[owners[i] for i in order],
            ).payouts["a"]
            for odd in range(8)
        ]
        outcomes.add(tuple(made))
    assert len(outcomes) == 1
    # Plain sums of these three depend on their order.
    sums = {
        allocate_budget(valued(v), 1, owners=["a"] * 3).contributions[0] for v in ([0.1, 0.2, 0.3], [0.3, 0.2, 0.1])
    }
    assert len(sums) == 1


def test_rows_that_nothing_tells_apart_leave_the_cent() -> None:
    made = allocate_budget(valued([0.1, 0.1, 0.1], ids=["x", "x", "x"]), 100, owners=["a", "b", "c"])
    assert list(euros(made).values()) == ["33.33"] * 3
    assert str(made.unallocated) == "0.01"


@pytest.mark.parametrize("values", [[0.0, 0.0], [-1.0, -2.0], [-1.0, 0.0]])
def test_nobody_contributes(values: list[float]) -> None:
    made = allocate_budget(valued(values), 10, owners=["a", "b"])
    assert list(euros(made).values()) == ["0.00", "0.00"]
    assert str(made.unallocated) == "10.00"
    owing = allocate_budget(valued(values), 10, owners=["a", "b"], policy=Policy(deposit=5))
    assert list(euros(owing).values()) == ["0.00", "0.00"]  # nobody is paid, so there is no rate to charge by
    floored = allocate_budget(valued(values), 10, owners=["a", "b"], policy=Policy(floor=2))
    assert list(euros(floored).values()) == ["2.00", "2.00"]
    assert str(floored.unallocated) == "6.00"


def test_extreme_values_are_shared_exactly() -> None:
    made = allocate_budget(valued([1e300, 1e-300, 5e-324]), "999999999999.99", owners=["a", "b", "c"])
    assert list(euros(made).values()) == ["999999999999.99", "0.00", "0.00"]
    huge = allocate_budget(valued([1.0, 2.0]), 10**14, owners=["a", "b"])
    assert accounted(huge) == 10**14


@pytest.mark.parametrize(
    "budget", [1250, 1250.0, "1250", "1250.00", Decimal("1250.0"), np.float64(1250), np.int32(1250)]
)
def test_budgets_of_any_kind(budget: Any) -> None:
    assert str(allocate_budget(valued([1.0]), budget, owners=["a"]).payouts["a"]) == "1250.00"


def test_what_was_written_is_what_is_paid() -> None:
    assert str(allocate_budget(valued([1.0]), 0.1, owners=["a"]).budget) == "0.10"


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        (-1, "at least 0"),
        ("10.005", "at most 2 decimals"),
        (0.1 + 0.2, "at most 2 decimals"),
        ("1e-400", "at most 2 decimals"),
        (float("nan"), "a finite one"),
        ("inf", "a finite one"),
        ("1e15", "below 10"),
        ("1e999999", "below 10"),
        ("1,000", "without thousands separators"),
        ("", "without thousands separators"),
        (True, "a number, a Decimal or a string"),
        (None, "a number, a Decimal or a string"),
        ([1], "a number, a Decimal or a string"),
    ],
)
def test_bad_budgets(budget: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=f"'budget' parameter of allocate_budget.*{message}"):
        allocate_budget(valued([1.0]), budget, owners=["a"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"negatives": "ignore"}, "'negatives' parameter of Policy must be one of"),
        ({"odd_cents": "mine"}, "'odd_cents' parameter of Policy must be one of"),
        ({"floor": -1}, "'floor' parameter of Policy must be an amount of money of at least 0"),
        ({"floor": "5%"}, "'floor' parameter of Policy"),
        ({"cap": "101%"}, "between '0%' and '100%'"),
        ({"cap": "x%"}, "between '0%' and '100%'"),
        ({"reserve": "nan%"}, "between '0%' and '100%'"),
        ({"reserve": None}, "'reserve' parameter of Policy"),
        ({"floor": 5, "cap": 4}, "must be at least the floor"),
    ],
)
def test_bad_policies(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        Policy(**arguments)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (Policy(floor=40), "floor of 40.00 for each of 3 owners needs 120.00, but the budget leaves 100.00"),
        (Policy(floor=30, reserve="20%"), "the budget leaves 80.00"),
        (Policy(reserve=101), "reserve, 101.00, is more than the budget of 100.00"),
        (Policy(floor=20, cap="10%"), "cap, 10% of the budget or 10.00, is below its floor"),
    ],
)
def test_policies_that_the_budget_cannot_meet(policy: Policy, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        allocate_budget(valued([1.0, 1.0, 1.0]), 100, owners=["a", "b", "c"], policy=policy)


def test_policies_have_one_spelling() -> None:
    assert Policy(floor=10, cap=0.5 * 100) == Policy(floor="10.00", cap=Decimal(50))
    assert Policy(cap=" 30.50% ") == Policy(cap="30.5%")
    assert Policy(**Policy(cap="7%", reserve="3.00").to_dict()) == Policy(cap="7%", reserve=3)
    words = " ".join(Policy(negatives="carry", floor=1, cap="30%", reserve=5).sentences("EUR"))
    for part in ("reduce", "1.00 EUR", "30% of the budget", "5.00 EUR is kept back"):
        assert part in words


# --- owners ---------------------------------------------------------------------------------------------------------


def test_a_series_is_matched_by_its_index() -> None:
    valuation = valued([1.0, 2.0, 3.0], ids=["x", "y", "z"])
    series = pd.Series(["c", "a", "b"], index=["z", "x", "y"])
    made = allocate_budget(valuation, 6, owners=series)
    assert euros(made) == {"a": "1.00", "b": "2.00", "c": "3.00"}
    assert euros(allocate_budget(valuation, 6, owners=series.to_frame("owner"))) == euros(made)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ([0, 1, 2], "no entry for row 'x'"),
        (["x", "y", "q"], "no entry for row 'z'"),
        (["z", "y", "x", "w"], "4 entries for 3 rows"),
    ],
)
def test_an_index_that_does_not_fit_is_refused(index: list[Any], message: str) -> None:
    series = pd.Series(["a"] * len(index), index=index)
    with pytest.raises(ValueError, match=f"{message}.*to_numpy"):
        allocate_budget(valued([1.0, 2.0, 3.0], ids=["x", "y", "z"]), 6, owners=series)


def test_repeated_ids_are_matched_only_in_order() -> None:
    valuation = valued([1.0, 2.0, 3.0], ids=["x", "x", "z"])
    assert allocate_budget(valuation, 6, owners=pd.Series(["a", "b", "c"], index=["x", "x", "z"])).cents.tolist() == [
        100,
        200,
        300,
    ]
    with pytest.raises(ValueError, match="repeated entries"):
        allocate_budget(valuation, 6, owners=pd.Series(["a", "b", "c"], index=["z", "x", "x"]))


@pytest.mark.parametrize(
    "owners", [("a", "b"), np.array(["a", "b"]), pl.Series(["a", "b"]), [1, 2], [("t", 1), None.__class__], [b"x", "x"]]
)
def test_owners_of_any_kind(owners: Any) -> None:
    assert allocate_budget(valued([1.0, 3.0]), 4, owners=owners).cents.tolist() == [100, 300]


def test_trailing_nul_makes_another_owner() -> None:
    assert len(allocate_budget(valued([1.0, 3.0]), 4, owners=["a", "a\0"]).owners) == 2


@pytest.mark.parametrize(
    ("owners", "message"),
    [
        (["a", None], "at row 1"),
        ([float("nan"), "a"], "at row 0"),
        (pd.Series(["a", pd.NA]), "at row 1"),
        (["a"], "one owner for each of the 2 rows"),
        (["a", ["b"]], "hashable"),
        (None, "one owner for each of the 2 training rows"),
        ("ab", "one owner for each of the 2 training rows"),
        (7, "one owner for each of the 2 training rows"),
    ],
)
def test_bad_owners(owners: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        allocate_budget(valued([1.0, 2.0]), 10, owners=owners)


def test_other_bad_input() -> None:
    with pytest.raises(TypeError, match="'valuation' parameter of allocate_budget must be a Valuation"):
        allocate_budget([1.0], 10, owners=["a"])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not finite, the first at row 1"):
        allocate_budget(valued([1.0, np.nan]), 10, owners=["a", "b"])
    with pytest.raises(TypeError, match="must be a Policy"):
        allocate_budget(valued([1.0]), 10, owners=["a"], policy="carry")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="'currency'"):
        allocate_budget(valued([1.0]), 10, owners=["a"], currency=3)  # type: ignore[arg-type]


# --- owners as players, correction, comparison ----------------------------------------------------------------------


def test_owners_as_players_are_paid_for_their_own_values() -> None:
    players = owner_values(MODEL, X_VAL, Y_VAL, OWNERS)
    made = allocate_budget(CLEAN, 500, owners=OWNERS, values=players)
    expected = np.maximum(players.values, 0)
    np.testing.assert_allclose(made.cents / 100, 500 * expected / expected.sum(), atol=0.01)
    assert made.basis == "owners"
    assert accounted(made) == 500
    assert made.parameters["owner_values"]["certificate"] == players.certificate < 1e-13
    with pytest.raises(ValueError, match="same training rows and owners"):
        allocate_budget(CLEAN, 500, owners=OWNERS[::-1], values=players)
    with pytest.raises(ValueError, match="Leave one of them out"):
        allocate_budget(CLEAN, 500, owners=OWNERS, values=players, corrected=CLEAN)
    with pytest.raises(TypeError, match="must be what owner_values returned"):
        allocate_budget(CLEAN, 500, owners=OWNERS, values=[1])  # type: ignore[arg-type]


def test_the_change_by_correction() -> None:
    noisy = MODEL.value(*GaussianNoise(0.5, random_state=1)(X_VAL, Y_VAL))
    fair = BoundaryCorrector().fit(CLEAN).transform(noisy)
    made = allocate_budget(noisy, 1000, owners=OWNERS, corrected=fair)
    paid = allocate_budget(fair, 1000, owners=OWNERS)
    assert made.correction_changes == allocate_budget(noisy, 1000, owners=OWNERS).compare(paid)
    assert sum(made.correction_changes.values()) == 0
    assert any(made.correction_changes.values())
    assert f"{paid.payouts['bob']:,} after correction" in made.line("bob")
    assert made.to_frame("pandas")["corrected"].tolist() == (paid.cents / 100).tolist()
    assert paid.correction_changes is None
    other = KNNShapley().fit(X + 1, Y).value(X_VAL, Y_VAL)
    with pytest.raises(ValueError, match="fingerprints differ"):
        allocate_budget(noisy, 1000, owners=OWNERS, corrected=other)


def test_comparison_with_absent_owners() -> None:
    first = allocate_budget(valued([1.0, 1.0]), 10, owners=["a", "b"])
    second = allocate_budget(valued([1.0, 1.0]), 10, owners=["b", "c"])
    assert first.compare(second) == {"a": Decimal(-5), "b": Decimal(0), "c": Decimal(5)}


# --- audit ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def audit() -> PayoutAudit:
    return audit_payouts(MODEL, X_VAL, Y_VAL, 1000, owners=OWNERS, noise=[0.1, 0.5, 2.0], repeats=6, random_state=3)


def test_the_audit_pays_each_run(audit: PayoutAudit) -> None:
    """The runs of audit_shift, made here by watching the perturbed sets go by."""
    seen: list[np.ndarray] = []

    class Watching(KNNShapley):
        def value(self, X_val: Any, y_val: Any, **options: Any) -> Valuation:
            seen.append(np.asarray(X_val))
            return super().value(X_val, y_val, **options)

        value_and_neighbors = None

    audit_shift(Watching().fit(X, Y), X_VAL, Y_VAL, noise=[0.1, 0.5, 2.0], repeats=6, random_state=3)
    assert len(seen) == 1 + 3 * 6
    runs = np.array([allocate_budget(MODEL.value(p, Y_VAL), 1000, owners=OWNERS).cents for p in seen])
    np.testing.assert_array_equal(audit.clean, runs[0])
    levels = runs[1:].reshape(3, 6, 4)
    np.testing.assert_array_equal(audit.cents[:, 0], levels.min(axis=1))
    np.testing.assert_array_equal(audit.cents[:, 4], levels.max(axis=1))
    ordered = np.sort(levels, axis=1)
    np.testing.assert_array_equal(audit.cents[:, 2], ordered[:, 2])  # the third of six
    np.testing.assert_array_equal(audit.cents[:, 1], ordered[:, 0])
    np.testing.assert_array_equal(audit.cents[:, 3], ordered[:, 5])


def test_the_audit_takes_valuations_that_are_made_anyway(audit: PayoutAudit) -> None:
    options: dict[str, Any] = {"noise": [0.1, 0.5, 2.0], "repeats": 6, "random_state": 3}
    for made in (MODEL.value(X_VAL, Y_VAL), ShiftStream(MODEL, X_VAL, Y_VAL, **options)):
        found = audit_payouts(MODEL, X_VAL, Y_VAL, 1000, owners=OWNERS, **options, valuations=made)
        np.testing.assert_array_equal(found.cents, audit.cents)
        np.testing.assert_array_equal(found.clean, audit.clean)


def test_intervals_of_an_allocation(audit: PayoutAudit) -> None:
    plain = allocate_budget(CLEAN, 1000, owners=OWNERS)
    made = plain.with_interval(audit, up_to=0.5)
    low = np.minimum(audit.cents[:2, 0].min(axis=0), plain.cents)
    np.testing.assert_array_equal(made.low, low)
    assert (made.low <= made.cents).all()
    assert (made.cents <= made.high).all()
    assert made.interval == "\N{GREEK SMALL LETTER SIGMA} \N{LESS-THAN OR EQUAL TO} 0.5"
    at = made.owners.index("cid")
    shown = f"between {made.low[at] / 100:,.2f} and {made.high[at] / 100:,.2f} under {made.interval}"
    assert shown in made.line("cid")
    wide = allocate_budget(CLEAN, 1000, owners=OWNERS, audit=audit)
    assert (wide.low <= made.low).all()
    assert wide.interval.endswith(" 2")
    narrow = plain.with_interval(audit, bounds="quantiles")
    assert (narrow.low >= wide.low).all()
    assert plain.low is None
    with pytest.raises(ValueError, match="must be one of the 4 owners"):
        made.line("zoe")


def test_intervals_contain_the_unperturbed_payout(audit: PayoutAudit) -> None:
    for moved in (-(10**5), 10**5):
        low, high = dataclasses.replace(audit, cents=audit.cents + moved).bounds()
        assert (low <= audit.clean).all()
        assert (audit.clean <= high).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"budget": 999}, "its budget differs"),
        ({"owners": OWNERS[::-1]}, "its owners differ "),
        ({"policy": Policy(cap="90%")}, "its policy differs"),
        ({"valuation": KNNShapley().fit(X + 1, Y).value(X_VAL, Y_VAL)}, "its training rows differ "),
        ({"values": owner_values(MODEL, X_VAL, Y_VAL, OWNERS)}, "its basis differs"),
    ],
)
def test_intervals_of_another_allocation_are_refused(audit: PayoutAudit, change: dict[str, Any], message: str) -> None:
    arguments = {"valuation": CLEAN, "budget": 1000, "owners": OWNERS} | change
    with pytest.raises(ValueError, match=message):
        allocate_budget(**arguments, audit=audit)


def test_other_levels_and_bases() -> None:
    common: dict[str, Any] = {"owners": OWNERS, "repeats": 2}
    mixed = audit_payouts(MODEL, X_VAL, Y_VAL, 10, perturbations=[Round(0), Subsample(0.5)], **common)
    assert mixed.condition() == "Round(decimals=0) or Subsample(fraction=0.5)"
    with pytest.raises(ValueError, match="needs levels that are numbers"):
        mixed.bounds(up_to=1)
    parts = audit_payouts(MODEL, X_VAL, Y_VAL, 10, perturbations=[Subsample(0.5), Subsample(0.8)], **common)
    assert parts.condition() == "fraction 0.5 to 0.8"
    relative = audit_payouts(MODEL, X_VAL, Y_VAL, 10, noise=[0.1], relative=True, **common)
    assert "stds of each feature" in relative.condition()
    players = audit_payouts(MODEL, X_VAL, Y_VAL, 10, noise=[0.1], basis="owners", **common)
    values = owner_values(MODEL, X_VAL, Y_VAL, OWNERS)
    np.testing.assert_array_equal(players.clean, allocate_budget(CLEAN, 10, owners=OWNERS, values=values).cents)
    assert allocate_budget(CLEAN, 10, owners=OWNERS, values=values, audit=players).low is not None


def test_an_audit_of_corrected_payouts() -> None:
    corrector = BoundaryCorrector().fit(CLEAN)
    common: dict[str, Any] = {"owners": OWNERS, "repeats": 1, "noise": [0.7]}
    plain = audit_payouts(MODEL, X_VAL, Y_VAL, 1000, **common)
    fair = audit_payouts(MODEL, X_VAL, Y_VAL, 1000, corrector=corrector, **common)
    assert (plain.clean == fair.clean).all()
    assert (plain.cents != fair.cents).any()
    assert fair.parameters["corrector"] == "BoundaryCorrector"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"noise": [-1]}, "at least 0"),
        ({"noise": []}, "at least one level"),
        ({}, "neither"),
        ({"noise": [1], "repeats": 0}, "'repeats' parameter of audit_payouts must be at least 1"),
        ({"noise": [1], "basis": "files"}, "'basis' parameter of audit_payouts must be one of"),
        ({"noise": [1], "corrector": 3}, "'corrector' parameter of audit_payouts must be a fitted corrector"),
        ({"noise": [1], "corrector": BoundaryCorrector(), "basis": "owners"}, "use basis='rows'"),
        ({"noise": [1], "random_state": -1}, "'random_state' parameter of audit_payouts must be at least 0"),
    ],
)
def test_bad_audits(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        audit_payouts(MODEL, X_VAL, Y_VAL, 10, owners=OWNERS, **arguments)


# --- owners as players ----------------------------------------------------------------------------------------------

MANY = np.array([f"owner {i}" for i in range(20)])[np.arange(80) % 20]


@pytest.mark.parametrize("semivalue", ["shapley", "banzhaf", Banzhaf(0.1)], ids=["shapley", "banzhaf", "weighted"])
def test_intervals_of_players_contain_what_is_paid(semivalue: Any) -> None:
    values = owner_values(MODEL, X_VAL, Y_VAL, MANY, semivalue=semivalue)
    common: dict[str, Any] = {"owners": MANY, "noise": [0.1], "repeats": 2, "basis": "owners"}
    same = audit_payouts(MODEL, X_VAL, Y_VAL, 1000, **common, semivalue=semivalue)
    made = allocate_budget(CLEAN, 1000, owners=MANY, values=values, audit=same)
    np.testing.assert_array_equal(same.clean, made.cents)
    assert ((made.low <= made.cents) & (made.cents <= made.high)).all()
    assert same.parameters["semivalue"] == str(semivalue)
    other = audit_payouts(MODEL, X_VAL, Y_VAL, 1000, **common, semivalue="loo")
    with pytest.raises(ValueError, match=r"unperturbed validation set it pays \d+ of 20 .* pass the semivalue"):
        allocate_budget(CLEAN, 1000, owners=MANY, values=values, audit=other)


def test_intervals_of_another_validation_set_are_refused(audit: PayoutAudit) -> None:
    noisy = MODEL.value(*GaussianNoise(0.5, random_state=1)(X_VAL, Y_VAL))
    with pytest.raises(ValueError, match="Audit the validation set and the model that made the values"):
        allocate_budget(noisy, 1000, owners=OWNERS, audit=audit)


def test_payouts_of_players_say_what_another_sample_would_pay(tmp_path: Path) -> None:
    made = allocate_budget(CLEAN, 1000, owners=OWNERS, values=owner_values(MODEL, X_VAL, Y_VAL, OWNERS))
    assert made.sampled == "validation points"
    assert made.sampling_low is not None
    assert made.sampling_high is not None
    assert ((made.sampling_low <= made.cents) & (made.cents <= made.sampling_high)).all()
    widest = max((made.cents - made.sampling_low).max(), (made.sampling_high - made.cents).max())
    assert show_money(widest, "EUR") in made.sampling_note()
    low, high = show_money(made.sampling_low[0]), show_money(made.sampling_high[0], "EUR")
    assert low in made.line(made.owners[0])
    assert made.to_frame("pandas")["sampling_high"].tolist() == (made.sampling_high / 100).tolist()
    written = write_statements(made, tmp_path)
    assert f"between {low} EUR and {high}" in _page_text(written[1])
    assert read_payouts(written[0])[0]["sampling_low"] == low
    made.save(tmp_path / "pay.npz")
    np.testing.assert_array_equal(Allocation.load(tmp_path / "pay.npz").sampling_high, made.sampling_high)
    labels = [text.get_text() for text in made.plot().get_legend().get_texts()]
    plt.close("all")
    assert labels == ["95%, validation points are a sample", "paid"]


def population() -> tuple[Any, Any]:
    rng = np.random.default_rng(7)
    points = rng.normal(size=(800, X.shape[1]))
    return points, np.where(points[:, 0] + rng.normal(size=800) > 0, *np.unique(Y)[[1, 0]])


def test_intervals_of_payouts_cover_what_the_population_pays() -> None:
    points, labels = population()
    policy, rng = Policy(negatives="carry"), np.random.default_rng(8)
    paid = allocate_budget(MODEL.value(points, labels), 1000, owners=OWNERS, policy=policy).cents
    covered, widths = [], []
    for _ in range(80):
        drawn = rng.integers(0, 800, 100)
        valuation = MODEL.value(points[drawn], labels[drawn], groups=random_blocks(100, len(Y)))
        made = allocate_budget(valuation, 1000, owners=OWNERS, policy=policy)
        assert made.sampled == "validation points"
        covered.append((made.sampling_low <= paid) & (paid <= made.sampling_high))
        widths.append((made.sampling_high - made.sampling_low).mean())
    assert 0.9 <= np.mean(covered) <= 0.99
    assert np.mean(widths) < 60_000  # not by being as wide as the budget


def test_blocks_and_single_points_tell_the_same_error() -> None:
    points, labels = population()
    by_point = allocate_budget(MODEL.value(points, labels, matrix=True), 1000, owners=OWNERS)
    in_blocks = MODEL.value(points, labels, groups=random_blocks(800, len(Y)))
    by_block = allocate_budget(in_blocks, 1000, owners=OWNERS)
    widths = [one.sampling_high - one.sampling_low for one in (by_point, by_block)]
    np.testing.assert_allclose(widths[1].mean() / widths[0].mean(), 1, atol=0.25)
    assert by_block.cents.tolist() == by_point.cents.tolist()
    plain = without_blocks(in_blocks)
    assert plain.group_names == ()
    assert allocate_budget(plain, 1000, owners=OWNERS).sampling_low is None


def test_dependent_points_stay_in_one_block() -> None:
    clusters = np.arange(300) // 3
    blocks = random_blocks(300, 100, clusters)
    assert all(len(set(blocks[clusters == one])) == 1 for one in range(100))
    assert len(set(blocks)) == 40
    assert len(set(random_blocks(300, 10**7))) == 10
    assert len(set(random_blocks(7, 100))) == 7


def test_the_only_owner_is_paid_everything_on_any_sample() -> None:
    valuation = MODEL.value(X_VAL, Y_VAL, groups=random_blocks(len(Y_VAL), len(Y)))
    made = allocate_budget(valuation, 1000, owners=["ann"] * len(Y))
    assert made.sampling_low.tolist() == made.sampling_high.tolist() == made.cents.tolist()


def test_the_sample_comes_before_noise_in_every_text(audit: PayoutAudit, tmp_path: Path) -> None:
    made = allocate_budget(CLEAN, 1000, owners=OWNERS, audit=audit)
    line, page = made.line(made.owners[0]), _page_text(write_statements(made, tmp_path)[1])
    low, high = show_money(made.sampling_low[0]), show_money(made.sampling_high[0])
    assert line.index(f"{low} to {high} for the sampling of validation points") < line.index("under")
    assert page.index(f"would be paid between {low} EUR and {high} EUR") < page.index("changed on purpose")
    others = {show_money(end[at]) for end in (made.sampling_low, made.sampling_high) for at in range(1, 4)}
    assert not any(f" {amount} " in page for amount in others - {low, high})
    np.testing.assert_array_equal(audit.sampling_low, made.sampling_low)


def test_a_statement_names_the_semivalue_that_was_paid(tmp_path: Path) -> None:
    rows = KNNShapley(semivalue="loo").fit(X, Y).value(X_VAL, Y_VAL)
    made = allocate_budget(rows, 100, owners=OWNERS, values=owner_values(MODEL, X_VAL, Y_VAL, OWNERS))
    assert "semivalue" not in made.parameters
    assert made.parameters["owner_values"]["semivalue"] == "shapley"
    assert "loo" not in _page_text(write_statements(made, tmp_path)[1]).split()


# --- the result, files and figures ----------------------------------------------------------------------------------


def test_allocations_and_audits_come_back_from_files(tmp_path: Path, audit: PayoutAudit) -> None:
    owners = [(name, i) for i, name in enumerate(["p", "q"])] * 40
    for made in (
        allocate_budget(CLEAN, 1000, owners=OWNERS, audit=audit, corrected=CLEAN, currency="CHF"),
        allocate_budget(CLEAN, "12.34", owners=owners, policy=Policy(cap="30%", odd_cents="keep")),
    ):
        made.save(tmp_path / "pay.npz")
        loaded = Allocation.load(tmp_path / "pay.npz")
        for field in dataclasses.fields(Allocation):
            one, two = getattr(loaded, field.name), getattr(made, field.name)
            assert np.array_equal(one, two) if isinstance(two, np.ndarray) else one == two
        assert repr(loaded) == repr(made)
    audit.save(tmp_path / "audit.npz")
    loaded_audit = PayoutAudit.load(tmp_path / "audit.npz")
    for field in dataclasses.fields(PayoutAudit):
        one, two = getattr(loaded_audit, field.name), getattr(audit, field.name)
        assert np.array_equal(one, two) if isinstance(two, np.ndarray) else one == two
    with pytest.raises(ValueError, match=r"holds a shapshift\.PayoutAudit"):
        Allocation.load(tmp_path / "audit.npz")
    dataclasses.replace(made, unallocated_cents=5).save(tmp_path / "wrong.npz")
    with pytest.raises(ValueError, match="do not add up to the budget"):
        Allocation.load(tmp_path / "wrong.npz")


def test_frames_and_reprs(audit: PayoutAudit) -> None:
    made = allocate_budget(CLEAN, 1000, owners=OWNERS, audit=audit, policy=Policy())
    for kind in ("pandas", "polars", "pyarrow"):
        assert made.to_frame(kind).shape == (4, 8)
        assert audit.to_frame(kind).shape == (12, 10)
    frame = made.to_frame("pandas")
    assert frame["payout"].sum() == pytest.approx(1000)
    assert frame["rows"].sum() == 80
    assert "1,000.00 EUR" in repr(made)
    assert "widest" in repr(audit)
    kept = allocate_budget(CLEAN, 1000, owners=OWNERS, policy=Policy(reserve="10%", cap="10%"))
    assert "reserve=100.00, unallocated=500.00" in repr(kept)
    assert not made.cents.flags.writeable
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.cents = audit.clean  # type: ignore[misc]


def test_the_figure_shows_payouts_intervals_and_correction(audit: PayoutAudit) -> None:
    made = allocate_budget(CLEAN, 1000, owners=OWNERS, audit=audit, corrected=CLEAN)
    ax = made.plot()
    order = np.argsort(-made.cents)
    assert [bar.get_width() for bar in ax.patches] == (made.cents[order] / 100).tolist()
    assert [label.get_text() for label in ax.get_yticklabels()] == [made.owners[i] for i in order]
    assert {text.get_text() for text in ax.get_legend().get_texts()} == {
        "paid",
        "95%, validation points are a sample",
        f"under {made.interval}",
        "after correction",
    }
    few = allocate_budget(CLEAN, 1000, owners=["$x$", "<b>", "a" * 99, "d\n"] * 20).plot(top=2)
    assert few.get_yticklabels()[-1].get_text() == "2 others"
    assert sum(bar.get_width() for bar in few.patches) == pytest.approx(1000)
    few.figure.canvas.draw()
    with pytest.raises(ValueError, match="'top' parameter"):
        made.plot(top=0)
    plt.close("all")


# --- statements -----------------------------------------------------------------------------------------------------

HOSTILE = [
    "<script>alert(1)</script>", "../../etc/passwd", "=HYPERLINK(\"x\")", "+1", "-1", "@SUM(A1)", "\tx", "\r=1", " =1",
    "CON", "con", "", ".", "a" * 5000, "\N{SNOWMAN}", "caf\N{LATIN SMALL LETTER E WITH ACUTE}", "cafe", "x\0y",
    "\N{RIGHT-TO-LEFT OVERRIDE}gnp", "\ud800", "a/b\\c:d", "1", 1, 1.5, -3, ("t", "<i>"), "\N{FULLWIDTH EQUALS SIGN}1",
    "'\"><img src=x>",
]  # fmt: skip


class Tags(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


def test_statements_of_hostile_owners_stay_text(tmp_path: Path) -> None:
    n = len(HOSTILE)
    made = allocate_budget(
        valued(np.arange(n) - 3.0, ids=np.array([f"<b>{i}" for i in range(n)])), 1000, owners=HOSTILE, currency="<u>"
    )
    written = write_statements(made, tmp_path / "out", title="<h6>")
    assert len(written) == n + 1
    assert {path.name for path in (tmp_path / "out").iterdir()} == {path.name for path in written}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    for path in written[1:]:
        assert path.name == path.name.lower()
        assert len(path.name) < 80
        assert path.name.isascii()
        page = Tags()
        page.feed(path.read_text(encoding="utf-8"))
        assert page.seen <= {
            "html",
            "head",
            "meta",
            "title",
            "style",
            "body",
            "main",
            "h1",
            "h2",
            "p",
            "dl",
            "dt",
            "dd",
            "ul",
            "li",
            "table",
            "thead",
            "tbody",
            "tr",
            "th",
            "td",
            "bdi",
            "header",
            "section",
            "details",
            "summary",
        }
        assert not page.attributes & {"src", "href", "onclick", "onerror"}
        assert "http:" not in page.text
    assert "<script>alert(1)</script>" in _page_text(written[1])
    with written[0].open(newline="", encoding="utf-8-sig") as file:
        rows = list(csv.reader(file))
    assert len(rows) == n + 1
    for owner, row in zip(HOSTILE, rows[1:], strict=True):
        assert isinstance(owner, int | float) or not row[0].lstrip().startswith(("=", "+", "-", "@"))
        assert row[0][:1] not in ("\t", "\r", " ")
        assert float(row[2]) == made.contributions[HOSTILE.index(owner)] or owner == 1
        assert row[-1] in {path.name for path in written}
    payout = rows[0].index("payout")
    assert sum(Decimal(row[payout]) for row in rows[1:]) == 1000
    assert rows[1][0] == HOSTILE[0]


def _page_text(path: Path) -> str:
    page = Tags()
    page.feed(path.read_text(encoding="utf-8"))
    return page.text


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("=1", "'=1"), ("a=1", "a=1"), (-5, -5), (-1.5, -1.5), (np.int64(-2), -2), ("-5", "'-5"), ("\n=1", "'\n=1"),
        ("  @x", "'  @x"), ("plain", "plain"), (True, "True"), (("=",), "('=',)"), ("\xa0=1", "'\xa0=1"),
    ],
)  # fmt: skip
def test_cells(entry: Any, expected: Any) -> None:
    assert safe_cell(entry) == expected


def test_page_names_differ_for_different_owners() -> None:
    names = page_names(("A", "a", "a ", "a-", 1, "1", 1.5, "\N{SNOWMAN}", "\N{COMET}"))
    assert len({name.lower() for name in names}) == 9

    class Same:
        def __repr__(self) -> str:
            return "same"

    assert len(set(page_names((Same(), Same(), Same())))) == 3


def test_a_statement_says_what_was_valued_on_what_and_how(tmp_path: Path, audit: PayoutAudit) -> None:
    made = allocate_budget(CLEAN, 1000, owners=OWNERS, audit=audit, corrected=CLEAN, policy=audit.policy)
    at = made.owners.index("cid")
    text = _page_text(write_statements(made, tmp_path, max_rows=3)[1 + at])
    own = np.flatnonzero(OWNERS == "cid")
    expected = [
        f"{made.payouts['cid']:,} EUR",
        f"between {made.low[at] / 100:,.2f} EUR and {made.high[at] / 100:,.2f} EUR",
        "After a correction",
        f"paid for {own.size} rows of data",
        "Validation points40",
        "KNNShapley",
        "soft",
        MODEL.fingerprint_,
        made.policy.sentences("EUR")[1],
        f"{own.size - 3} more rows",
    ]
    for part in expected:
        assert part in text
    assert not {"ann", "bob", "dee"} & set(text.split())


def read_payouts(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        return list(csv.DictReader(file))


def test_a_statement_says_where_values_come_from_and_what_bounds_them(tmp_path: Path, audit: PayoutAudit) -> None:
    rules = Policy(floor=230, cap="27%")
    plain = allocate_budget(CLEAN, 1000, owners=OWNERS, policy=rules)
    made = plain.with_interval(dataclasses.replace(audit, policy=rules, clean=plain.cents), up_to=0.5)
    assert {"floor", "cap"} <= set(made.bound)
    written = write_statements(
        made,
        tmp_path,
        sources={"train": "train.csv (sha256 0a1b2c)"},
        features=["width", "<b>"],
        notes=["numbers scaled: standard"],
    )
    text = _page_text(written[1])
    assert "Source: traintrain.csv (sha256 0a1b2c)" in text
    assert "2: width, <b>" in text
    assert "numbers scaled: standard" in text
    assert "12 draws, 6 at each of 2 levels (0.1, 0.5)" in text
    assert "standard deviation of Gaussian noise added to every feature" in text
    assert "in units of the features as they were valued" in text
    words = {"floor": "Raised to the agreed minimum", "cap": "Lowered to the agreed maximum"}
    for name, path in zip(made.bound, written[1:], strict=True):
        text = _page_text(path)
        assert [bound for bound, said in words.items() if said in text] == ([name] if name else [])
    rows = read_payouts(written[0])
    assert [row["bound"] for row in rows] == list(made.bound)
    assert {row["draws"] for row in rows} == {"12"}
    assert sum(float(row["contribution_share"]) for row in rows) == pytest.approx(1)
    assert [float(row["pay_share"]) for row in rows] == pytest.approx((made.cents / made.cents.sum()).tolist())
    relative = audit_payouts(MODEL, X_VAL, Y_VAL, 10, owners=OWNERS, noise=[0.1], repeats=1, relative=True)
    assert "standard deviations of each feature in the training rows" in relative.about()["sigma"]
    for bad in ({"notes": "x"}, {"features": "x"}, {"sources": ["x"]}):
        with pytest.raises(TypeError, match=f"The '{next(iter(bad))}' parameter of write_statements"):
            write_statements(made, tmp_path / "bad", **bad)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("reserve", "kept"),
    [("0.005%", True), ("0.00001%", True), ("0.01", True), ("0%", False), ("0.0%", False), (0, False)],
)
def test_rules_name_every_reserve(reserve: Any, kept: bool) -> None:
    assert any("is kept back" in said for said in Policy(reserve=reserve).sentences()) == kept


def test_text_stands_in_quotes_and_spreadsheets_know_the_encoding(tmp_path: Path) -> None:
    owners = ["a;=1+1", "b\t=2", "Zoë", 'q";=3']
    table = write_statements(allocate_budget(valued([1.0] * 4), 100, owners=owners), tmp_path)[0]
    content = table.read_bytes()
    assert content.startswith(b"\xef\xbb\xbf")
    lines = content.decode("utf-8-sig").split("\r\n")
    assert lines[1].startswith('"a;=1+1",1,1.0,')
    assert lines[4].startswith('"q"";=3",')
    # A reader that separates by semicolons or tabs finds no cell that begins with a formula.
    for separator in ";\t":
        cells = [entry for row in csv.reader(lines, delimiter=separator) for entry in row]
        assert not any(entry.startswith("=") for entry in cells)
    assert [row["owner"] for row in read_payouts(table)] == owners


def test_owners_who_are_paid_for_a_negative_total_are_told_so(tmp_path: Path) -> None:
    values, owners = [5.0, -9.0, 1.0, -2.0], ["mixed", "mixed", "good", "bad"]
    made = allocate_budget(valued(values), 600, owners=owners, policy=Policy(negatives="clip"))
    carry = allocate_budget(valued(values), 600, owners=owners, policy=Policy(negatives="carry"))
    assert euros(made) == {"mixed": "500.00", "good": "100.00", "bad": "0.00"}
    assert list(made.notes) == ["mixed"]
    assert f"Policy 'carry' would pay {carry.payouts['mixed']} EUR." in made.notes["mixed"]
    assert "rows sum to a negative value; under 'clip' only its rows with positive values count" in made.notes["mixed"]
    assert carry.notes == {}
    written = write_statements(made, tmp_path)
    assert "Taken together, your rows lowered the result." in _page_text(written[1])
    assert "Taken together" not in _page_text(written[2])
    assert [row["note"] for row in read_payouts(written[0])] == [made.notes["mixed"], "", ""]
    made.save(tmp_path / "pay.npz")
    assert Allocation.load(tmp_path / "pay.npz").notes == made.notes


def test_changes_by_correction_count_from_the_noisy_values(tmp_path: Path) -> None:
    noisy = MODEL.value(*GaussianNoise(0.5, random_state=1)(X_VAL, Y_VAL))
    fair = BoundaryCorrector().fit(CLEAN).transform(noisy)
    made = allocate_budget(CLEAN, 1000, owners=OWNERS, corrected=fair, noisy=noisy)
    before, after = (allocate_budget(one, 1000, owners=OWNERS) for one in (noisy, fair))
    assert made.payouts == allocate_budget(CLEAN, 1000, owners=OWNERS).payouts
    assert made.correction_changes == before.compare(after)
    frame = made.to_frame("pandas")
    np.testing.assert_allclose(frame["change"], frame["corrected"] - frame["uncorrected"])
    written = write_statements(made, tmp_path)
    text = _page_text(written[1 + made.owners.index("bob")])
    assert f"been paid {before.payouts['bob']} EUR, and {after.payouts['bob']} EUR after a correction" in text
    assert [Decimal(row["change"]) for row in read_payouts(written[0])] == list(made.correction_changes.values())
    with pytest.raises(ValueError, match="goes with 'corrected'"):
        allocate_budget(CLEAN, 1000, owners=OWNERS, noisy=noisy)


# --- the command ----------------------------------------------------------------------------------------------------

COMMAND = ("--label", "y", "--owner", "who", "--budget", 100)


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    train = pd.DataFrame({"p": X[:, 0], "q": X[:, 1], "y": Y, "who": OWNERS, "seller": MANY})
    train.to_csv("train.csv", index=False)
    for name, points in (("val", X_VAL), ("noisy", X_VAL + np.random.default_rng(2).normal(0, 0.7, X_VAL.shape))):
        pd.DataFrame({"p": points[:, 0], "q": points[:, 1], "y": Y_VAL}).to_csv(f"{name}.csv", index=False)
    return tmp_path


def test_the_command_pays_many_owners_as_players(tables: Path) -> None:
    options = ("--label", "y", "--owner", "seller", "--drop", "who", "--budget", 100, "--pay-by", "owners")
    ran = run("price", "train.csv", "val.csv", *options, "--noise", "0.1", "--repeats", 1, "--json")
    assert ran.code == 0, ran.err
    for entry in ran.document["result"]["owners"]:
        assert Decimal(entry["low"]) <= Decimal(entry["payout"]) <= Decimal(entry["high"])
        assert Decimal(entry["sampling_low"]) <= Decimal(entry["payout"]) <= Decimal(entry["sampling_high"])
    assert run("price", "train.csv", "val.csv", *options, "--semivalue", "banzhaf", "--out", "b").code == 0


def test_the_command_refuses_what_means_nothing_for_owners_as_players(tables: Path) -> None:
    options = (*COMMAND, "--drop", "seller", "--pay-by", "owners")
    ran = run("price", "train.csv", "noisy.csv", *options, "--clean-val", "val.csv")
    assert ran.code == 2
    assert "correction acts on values of rows" in ran.err
    ran = run("price", "train.csv", "val.csv", *options, "--semivalue", "calibrated")
    assert ran.code == 2
    assert "--semivalue calibrated is for rows that join" in ran.err
    assert run("price", "train.csv", "val.csv", *options, "--semivalue", "banzhaf").code == 0
    made = Allocation.load("shapshift-price/allocation.npz")
    assert made.parameters["owner_values"]["semivalue"] == "banzhaf"


def test_the_command_writes_sources_and_notes(tables: Path) -> None:
    ran = run("price", "train.csv", "val.csv", *COMMAND, "--drop", "seller")
    assert ran.code == 0, ran.err
    pages = list((tables / "shapshift-price" / "statements").glob("*.html"))
    text = _page_text(pages[0])
    for part in ("Source: train", "sha256 ", "Source: val", "2: p, q", "numbers scaled: standard"):
        assert part in text
    made = Allocation.load("shapshift-price/allocation.npz")
    for owner, note in made.notes.items():
        assert f"{owner}: {note}" in ran.err


def test_the_report_says_what_correction_changes(tables: Path) -> None:
    options = (*COMMAND, "--drop", "seller", "--noise", "0.5", "--repeats", 1, "--noisy-val", "noisy.csv")
    ran = run("report", "train.csv", "val.csv", *options)
    assert ran.code == 0, ran.err
    made = Allocation.load("shapshift-report/allocation.npz")
    assert made.correction_changes is not None
    assert any(made.correction_changes.values())
    row = read_payouts(tables / "shapshift-report" / "statements" / "payouts.csv")[0]
    assert Decimal(row["change"]) == Decimal(row["corrected"]) - Decimal(row["uncorrected"])


def test_statements_are_the_same_every_time_and_never_overwrite(tmp_path: Path) -> None:
    made = allocate_budget(CLEAN, 1000, owners=OWNERS)
    first = write_statements(made, tmp_path / "a" / "b")
    second = write_statements(made, tmp_path / "c")
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    with pytest.raises(FileExistsError, match="overwrite=True"):
        write_statements(made, tmp_path / "c")
    write_statements(made, tmp_path / "c", overwrite=True)
    (tmp_path / "file").write_text("x")
    with pytest.raises(ValueError, match="must name a folder"):
        write_statements(made, tmp_path / "file")
    with pytest.raises(TypeError, match="'allocation' parameter"):
        write_statements(CLEAN, tmp_path / "d")  # type: ignore[arg-type]


def test_statements_do_not_follow_planted_links(tmp_path: Path) -> None:
    made = allocate_budget(CLEAN, 1000, owners=OWNERS)
    names = [path.name for path in write_statements(made, tmp_path / "a")]
    for goal in ("precious", "nothing"):
        (tmp_path / "precious").write_text("mine")
        for name in names:
            folder = tmp_path / f"{goal}-{name}"
            folder.mkdir()
            (folder / name).symlink_to(tmp_path / goal)
            with pytest.raises(FileExistsError, match="overwrite=True"):
                write_statements(made, folder)
            assert [path.name for path in folder.iterdir()] == [name]
            write_statements(made, folder, overwrite=True)
            assert (folder / name).read_bytes() == (tmp_path / "a" / name).read_bytes()
    assert (tmp_path / "precious").read_text() == "mine"
    assert not (tmp_path / "nothing").exists()
    (tmp_path / "dangling").symlink_to("nothing")
    with pytest.raises(ValueError, match="must name a folder"):
        write_statements(made, tmp_path / "dangling")


def test_statements_leave_no_table_when_a_page_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from shapshift.price import statements

    real, calls = statements.write_text, io.StringIO()

    def failing(path: Path, text: str) -> None:
        calls.write("x")
        if len(calls.getvalue()) == 3:
            raise OSError("disk full")
        real(path, text)

    monkeypatch.setattr(statements, "write_text", failing)
    with pytest.raises(OSError, match="disk full"):
        write_statements(allocate_budget(CLEAN, 1000, owners=OWNERS), tmp_path / "out")
    assert not (tmp_path / "out" / "payouts.csv").exists()
    assert not list((tmp_path / "out").glob("*.part"))


@pytest.mark.parametrize(
    ("currency", "budget", "one", "odd", "fine"),
    [
        ("JPY", "1000", "{:,}", "1,000 JPY", "0.5"),
        ("jpy", "1000", "{:,}", "1,000 jpy", "0.5"),
        ("KWD", "100.125", "{:,.3f}", "100.125 KWD", "0.0005"),
        ("CLF", "20.0001", "{:,.4f}", "20.0001 CLF", "0.00001"),
        ("EUR", "99.50", "{:,.2f}", "99.50 EUR", "0.005"),
        ("points", "99.50", "{:,.2f}", "99.50 points", "0.005"),
    ],
)
def test_amounts_have_the_decimals_of_their_currency(
    currency: str, budget: str, one: str, odd: str, fine: str, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 2)), rng.integers(0, 2, 40)
    model = KNNShapley(progress=False).fit(X, y)
    X = X + 0.01  # points are not the training rows
    owners = np.array(["ann", "bob", "cid"])[np.arange(40) % 3]
    policy = Policy(floor="1", reserve="10%")
    audit = audit_payouts(
        model, X, y, budget, owners=owners, noise=[1.0], repeats=2, policy=policy, currency=currency, progress=False
    )
    pay = allocate_budget(model.value(X, y), budget, owners=owners, policy=policy, audit=audit, currency=currency)
    assert pay.budget == Decimal(budget)
    assert sum(pay.payouts.values()) + pay.reserve + pay.unallocated == Decimal(budget)
    assert all(amount >= 0 for amount in pay.payouts.values())
    assert pay.show(pay.budget_cents) == odd
    # The whole budget is shared out: rounding leaves less than one unit per owner, whatever a unit is.
    assert pay.unallocated == 0
    for folder in ("one", "two"):
        write_statements(pay, tmp_path / folder)
        shown = one.format(pay.payouts["ann"])
        (page,) = (tmp_path / folder).glob("owner-ann-*.html")
        text = page.read_text(encoding="utf-8")
        assert f"{shown} {currency}" in text
        assert f"No owner is paid less than {one.format(Decimal(1))} {currency}." in text
        rows = list(csv.DictReader(io.StringIO((tmp_path / folder / "payouts.csv").read_text(encoding="utf-8-sig"))))
        assert [Decimal(row["payout"]) for row in rows] == list(pay.payouts.values())
        assert rows[0]["payout"] == str(pay.payouts["ann"])
        pay.save(tmp_path / "pay.npz")
        pay = Allocation.load(tmp_path / "pay.npz")
    audit.save(tmp_path / "audit.npz")
    frame = PayoutAudit.load(tmp_path / "audit.npz").to_frame("pyarrow")
    assert frame["clean"].to_pylist() == [float(amount) for amount in pay.payouts.values()]
    assert pay.to_frame("pyarrow")["payout"].to_pylist() == [float(amount) for amount in pay.payouts.values()]
    with pytest.raises(ValueError, match="decimal"):
        allocate_budget(model.value(X, y), fine, owners=owners, currency=currency)
    with pytest.raises(ValueError, match="decimal"):
        allocate_budget(model.value(X, y), budget, owners=owners, currency=currency, policy=Policy(floor=fine))
    page = build_report(tmp_path / "page.html", valuation=model.value(X, y), allocation=pay)
    assert odd in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("currency", "digits"), [("ISK", 0), ("VND", 0), ("CHF", 2), ("TND", 3), ("UYW", 4), (" eur ", 2), ("", 2)]
)
def test_digits_of_currencies(currency: str, digits: int) -> None:
    assert allocate_budget(valued([1.0]), 10, owners=["a"], currency=currency).digits == digits


def test_results_are_copied_and_pickled_as_frozen_as_they_were(audit: PayoutAudit) -> None:
    made = allocate_budget(CLEAN, 1000, owners=OWNERS, audit=audit)
    for again in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert repr(again) == repr(made)
        assert again.parameters == made.parameters
        with pytest.raises(ValueError, match="read-only"):
            again.cents[0] = 1
        with pytest.raises(ValueError, match=r"(?i)writeable"):
            again.cents.flags.writeable = True
        with pytest.raises(TypeError):
            again.parameters["n_val"] = 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"currency": None}, "it has no 'currency'"), ({"currency": 3}, "its 'currency' has the wrong type"),
        ({"budget_cents": True}, "its 'budget_cents' has the wrong type"),
        ({"owners": "ab"}, "its 'owners' has the wrong type"),
        ({"kind": "excel"}, "unknown 'kind'"), ({"owners": ["a"]}, "has shape"),
    ],
)  # fmt: skip
def test_headers_that_no_allocation_has_are_refused(change: dict[str, Any], message: str) -> None:
    header, arrays = allocate_budget(CLEAN, 1000, owners=OWNERS)._to_archive()
    with pytest.raises(ValueError, match=message):
        Allocation._from_archive({**header, **change}, arrays)
    with pytest.raises(ValueError, match="has a part 'more' that"):
        Allocation._from_archive(header, {**arrays, "more": arrays["cents"]})


def test_an_interval_comes_with_its_facts(audit: PayoutAudit) -> None:
    made = allocate_budget(CLEAN, 1000, owners=OWNERS).with_interval(audit, up_to=0.5, bounds="quantiles")
    facts = made.parameters["interval"]
    assert facts["axis"] == "noise"
    assert facts["reach"] == [min(facts["levels"]), 0.5]
    assert (facts["bounds"], facts["up_to"], facts["relative"]) == ("quantiles", 0.5, False)
    assert facts["draws"] == facts["draws_per_level"] * len(facts["levels"])
    assert facts["random_state"] == audit.parameters["random_state"]


def test_an_audit_in_another_currency_is_refused() -> None:
    model = KNNShapley(n_neighbors=1).fit([[0.0], [1.0], [3.0]], ["a", "b", "b"])
    more = {"owners": ["ann", "bob", "cid"], "currency": "JPY"}
    audit = audit_payouts(model, [[0.9]], ["b"], 100, owners=more["owners"], noise=[0.1], repeats=2, progress=False)
    with pytest.raises(ValueError, match="currency differs"):
        allocate_budget(model.value([[0.9]], ["b"]), 100, audit=audit, **more)


def test_files_that_count_hundredths_of_every_currency_are_read_as_such(tmp_path: Path) -> None:
    model = KNNShapley(n_neighbors=1).fit([[0.0], [1.0], [3.0]], ["a", "b", "b"])
    pay = allocate_budget(model.value([[0.9]], ["b"]), 100, owners=["ann", "bob", "cid"])
    old = dataclasses.replace(pay, currency="JPY")  # as release 0.1 made it
    header, arrays = old._to_archive()
    del header["digits"]
    again = Allocation._from_archive(header, arrays)
    assert again.budget == 100
    assert again.show(again.budget_cents) == "100.00 JPY"
