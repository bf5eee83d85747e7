"""Statements: what a seller reads, and what a seller must not."""

from __future__ import annotations

import csv
import html
import re
import shutil
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shapshift import KNNShapley, Policy, Privacy, allocate_budget, write_statements
from shapshift.exceptions import InputError
from shapshift.price import Allocation, Rule, pay_owners, random_blocks
from shapshift.price.money import round_parts
from shapshift.price.statements import Page, letterhead
from shapshift.valuation import Valuation

RNG = np.random.default_rng(11)
X, X_VAL = RNG.normal(size=(48, 2)), RNG.normal(size=(30, 2))
Y, Y_VAL = (np.where(rows[:, 0] + 0.6 * rows[:, 1] ** 2 > 0.3, "yes", "no") for rows in (X, X_VAL))
OWNERS = np.array(["ann", "bob", "cid"])[np.arange(48) % 3]
IDS = np.array([f"{who}-{i}" for i, who in enumerate(OWNERS)])
VALUES = KNNShapley(progress=False).fit(X, Y, ids=IDS).value(X_VAL, Y_VAL, groups=random_blocks(30, 48))
LETTER: dict[str, Any] = {
    "issuer": "Data Market Ltd.",
    "contact": "pay@market.example",
    "period": "October 2026",
    "round_name": "2026-10",
    "date": date(2026, 11, 18),
    "contest_until": "2026-12-18",
}


def valued(values: Any) -> Valuation:
    """Return a valuation that has these values."""
    wide = np.resize(np.asarray(values, dtype=np.float64), 48)
    wide[len(values) :] = 0
    return replace(VALUES, values=wide, group_names=(), group_sizes=(), group_means=np.empty((0, 48)))


def read(path: Path) -> str:
    """Text of a page without its markup and style."""
    page = re.sub(r"<style>.*?</style>", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", re.sub("</?bdi>", "", page))).split())


def pages(allocation: Allocation, folder: Path, **options: Any) -> dict[Any, str]:
    written = write_statements(allocation, folder, overwrite=True, **options)
    return dict(zip(allocation.owners, map(read, written[1:]), strict=True))


def test_parts_are_rounded_by_largest_remainder_and_add_up() -> None:
    from fractions import Fraction

    assert round_parts([1, 1, 1], Fraction(100, 3)) == [34, 33, 33]
    assert round_parts([5, -2, 0], Fraction(100, 3)) == [167, -67, 0]
    assert round_parts([], Fraction(1, 3)) == []
    rng = np.random.default_rng(0)
    for _ in range(200):
        weights = rng.integers(-50, 80, rng.integers(1, 30)).tolist()
        rate = Fraction(int(rng.integers(1, 999)), int(rng.integers(1, 99)))
        parts = round_parts(weights, rate)
        assert sum(parts) == round(sum(weights) * rate)
        assert all(abs(part - weight * rate) < 1 for part, weight in zip(parts, weights, strict=True))


POLICIES = [
    Policy(),
    Policy(negatives="clip"),
    Policy(floor=300),
    Policy(cap="34%"),
    Policy(deposit=40),
    Policy(deposit="0.05"),
    Policy(reserve="10%", floor=10),
]


@pytest.mark.parametrize("policy", POLICIES, ids=[f"policy{i}" for i in range(len(POLICIES))])
def test_lines_add_up_to_the_payment_to_the_cent(policy: Policy) -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        values = rng.normal(0.05, 1.0, 48) * rng.choice([1e-6, 1.0], 48)
        values[OWNERS == "cid"] -= rng.choice([0.0, 0.5, 3.0])
        made = allocate_budget(valued(values), "1000.01", owners=OWNERS, policy=policy)
        for number, owner in enumerate(made.owners):
            page = Page(made, number, letterhead(), (), 1000)
            assert sum(cents for _, cents in page.account) == made.payouts[owner] * 100
            assert sum(part for _, part, _ in page.row_lines) + page.adjustment == made.cents[number]
            # Rows are paid alike, up to rounding, and keep their signs.
            own = values[owner == OWNERS]
            rates = np.array(page.parts)[np.abs(own) > 0.1] / own[np.abs(own) > 0.1]
            if policy.negatives == "clip":
                assert min(page.parts) >= 0
            elif made.cents.any():
                assert np.ptp(rates) <= 0.03 * np.abs(rates).max() + 20


def test_floor_cap_and_deposit_have_a_line_each(tmp_path: Path) -> None:
    values = np.where(OWNERS == "ann", 4.0, np.where(OWNERS == "bob", 1.0, -0.25))
    for policy, owner, line in (
        (Policy(floor=100), "cid", "Raised to the agreed minimum 145.00 EUR"),
        (Policy(cap=600), "ann", "Lowered to the agreed maximum -1,000.00 EUR"),
        (Policy(), "cid", "A total below zero is not charged 50.00 EUR"),
        (Policy(deposit=20), "cid", "More than your deposit is not charged 30.00 EUR"),
    ):
        said = pages(allocate_budget(valued(values), 1000, owners=OWNERS, policy=policy), tmp_path)
        assert line in said[owner], (policy, said[owner])
    charged = pages(allocate_budget(valued(values), 1000, owners=OWNERS, policy=Policy(deposit=80)), tmp_path)["cid"]
    assert "-50.00 EUR" in charged
    assert "50.00 EUR are charged against your deposit; nothing is paid." in charged
    assert "Charged -50.00 EUR" in charged
    assert "is paid for" not in charged
    assert (
        "You are paid nothing for 16 rows of data."
        in pages(allocate_budget(valued(values), 1000, owners=OWNERS), tmp_path)["cid"]
    )


def test_a_statement_says_first_what_matters_most(tmp_path: Path) -> None:
    made = allocate_budget(VALUES, 1000, owners=OWNERS)
    change = {"bob": [("Your own rows", 1200), ("Rows of other sellers", -345)], "ann": [("Budget", 777)]}
    text = pages(made, tmp_path, **LETTER, change=change)["bob"]
    at = made.owners.index("bob")
    low, high = (f"{end[at] / 100:,.2f} EUR" for end in (made.sampling_low, made.sampling_high))
    order = [
        f"{made.payouts['bob']:,} EUR",
        "November 18, 2026",
        "October 2026",
        "Data Market Ltd.",
        "pay@market.example",
        "The rule",
        made.policy.sentences("EUR")[0],
        "Deductions:",
        f"between {low} and {high}; such a range is right in 19 of 20 cases",
        "Your own rows +12.00 EUR",
        "Rows of other sellers -3.45 EUR",
        "Change since the last payment +8.55 EUR",
        "Write to pay@market.example until December 18, 2026. Name the reference",
        "the round 2026-10",
        "bob-1",
        "Technical details",
    ]
    places = [text.find(part) for part in order]
    assert -1 not in places, [part for part, place in zip(order, places, strict=True) if place < 0]
    assert places == sorted(places)
    assert "7.77" not in text  # of another owner
    simple = text[: text.index("Technical details")].lower()
    for word in (
        "semivalue",
        "sigma",
        "\N{GREEK SMALL LETTER SIGMA}",
        "fingerprint",
        "epsilon",
        "e-0",
        "quantile",
        "perturb",
    ):
        assert word not in simple
    bare = pages(made, tmp_path)["bob"]
    assert "Write to whoever sent you this statement. Name the reference" in bare
    assert "Why the amount differs" not in bare


def test_the_reference_is_in_the_table_and_belongs_to_the_page(tmp_path: Path) -> None:
    made = allocate_budget(VALUES, 1000, owners=OWNERS)
    said = pages(made, tmp_path, **LETTER)
    with (tmp_path / "payouts.csv").open(newline="", encoding="utf-8-sig") as file:
        found = {row["owner"]: row["reference"] for row in csv.DictReader(file)}
    assert len(set(found.values())) == 3
    assert all(said[owner].count(f"reference {found[owner]}") == 1 for owner in found)
    assert said == pages(made, tmp_path, **LETTER)
    other = allocate_budget(VALUES, 1001, owners=OWNERS)
    write_statements(other, tmp_path / "other", **LETTER)
    assert not set(found.values()) & set(
        re.findall(r"\w{4}-\w{4}-\w{4}-\w{4}", (tmp_path / "other" / "payouts.csv").read_text())
    )


def test_copies_say_so_and_not_whose_they_are(tmp_path: Path) -> None:
    X2 = np.vstack([X, X[[1, 0]]])  # ann copies a row of bob, and one of her own
    y2, owners, ids = np.append(Y, Y[[1, 0]]), np.append(OWNERS, ["ann"] * 2), [*IDS, "ann-copy", "ann-again"]
    made = pay_owners(KNNShapley(), X2, y2, X_VAL, Y_VAL, owners, 1000, ids=ids, progress=False)
    said = pages(made, tmp_path)
    assert "ann-copy 0.00 EUR like a row that was submitted earlier, which counts instead" in said["ann"]
    assert "ann-again 0.00 EUR like your row ann-0, which counts for both" in said["ann"]
    assert "2 rows like others that count already 0.00 EUR" in said["ann"]
    assert "bob" not in said["ann"]
    assert not any(word in said["bob"] for word in ("like a row", "like your row", "like others"))
    assert Rule().sentences("EUR")[0] in said["bob"]
    with (tmp_path / "payouts.csv").open(newline="", encoding="utf-8-sig") as file:
        assert [row["copies"] for row in csv.DictReader(file)] == ["2", "0", "0"]


def test_owners_as_players_have_no_parts(tmp_path: Path) -> None:
    rule = Rule(pay_by="owners")
    made = pay_owners(KNNShapley(), X, Y, X_VAL, Y_VAL, OWNERS, 1000, ids=IDS, rule=rule, progress=False)
    text = pages(made, tmp_path)["bob"]
    assert "You are paid for all your rows together." in text
    assert "Part of the amount" not in text
    assert "bob-1" in text
    assert text.count("EUR") <= 4


SECRET = "a secret of the operator"
PRIVATE = {"step": Privacy(step=10), "epsilon": Privacy(epsilon=3.0, seed=SECRET)}


@pytest.mark.parametrize("kind", PRIVATE)
def test_private_statements_depend_on_the_points_through_the_payment_alone(kind: str, tmp_path: Path) -> None:
    made = allocate_budget(VALUES, 1000, owners=OWNERS, privacy=PRIVATE[kind])
    assert made.unprotected is not None
    other = replace(
        made,
        row_values=RNG.normal(size=48),
        values=RNG.normal(size=3),
        unprotected=made.unprotected[::-1],
        parameters={**made.parameters, "boundary_fraction": 0.123, "n_train": 7},
    )
    change = {"bob": [("Your own rows", 1234)]}
    for folder, one in (("a", made), ("b", other)):
        write_statements(one, tmp_path / folder, **LETTER, change=change)
    for page in (tmp_path / "a").glob("*.html"):
        assert page.read_bytes() == (tmp_path / "b" / page.name).read_bytes()
    text = pages(made, tmp_path / "c", **LETTER, change=change)["bob"]
    assert "12.34" not in text
    assert "19 of 20" not in text
    assert "Part of the amount" not in text
    assert "does not say which part of the amount belongs to which row" in text
    if kind == "step":
        assert "rounded to a multiple of 10.00 EUR" in text
    else:
        at = made.owners.index("bob")
        mean, high = (f"{cents[at] / 100:,.2f} EUR" for cents in (made.noise_mean, made.noise_high))
        assert f"changes a payment like yours by {mean} on average, and by more than {high} in 1 of 20 cases" in text


def test_nothing_of_others_or_of_the_points_is_on_a_page(tmp_path: Path) -> None:
    """Strings in every field, and numbers that only others and the validation set have."""
    owners = np.array(["Ownerofann", "Ownerofbob", "Ownerofcid"])[np.arange(48) % 3]
    ids = np.array([f"Idof{who[-3:]}{i}" for i, who in enumerate(owners)])
    labels = np.array([f"Labelof{who[-3:]}" for who in owners])
    made = allocate_budget(replace(VALUES, ids=ids, labels=labels), "98765.43", owners=owners)
    planted = {
        "pool": {"why": "Secretofval"},
        "correction": {"groups": "Secretofval"},
        "point_weight": "Secretofval",
        "weight_digest": "Secretofval",
        "clusters": {"radius": 0.25, "honest": 0.31337, "rows_that_vote": 31337},
        "owner_values": {"semivalue": "shapley", "n_permutations": 31337},
        "boundary_fraction": 0.31337,
        "n_classes": 31337,
        "n_train": 31337,
        "anything": "Secretofval",
        "interval": {
            "bounds": "range",
            "draws": 12,
            "draws_per_level": 6,
            "levels": ["priors={'Secretofval': 0.31337}"],
        },
    }
    made = replace(
        made,
        first=np.where(np.arange(48) == 5, 0, np.arange(48)),
        low=made.cents - 1,
        high=made.cents + 1,
        interval="priors={'Secretofval': 0.31337}",
        parameters={**made.parameters, **planted},
    )
    change = {who: [(f"Changeof{who[-3:]}", 5)] for who in made.owners}
    for who, text in pages(made, tmp_path, **LETTER, change=change).items():
        others = [
            f"{field}of{other}"
            for other in ("ann", "bob", "cid")
            if other != who[-3:]
            for field in ("Owner", "Id", "Change")
        ]
        for word in (*others, "Secretof", "Labelof", "31337", "98,765.43"):
            assert word not in text, (who, word)
        assert f"Idof{who[-3:]}" in text
        amounts = {f"{amount:,}" for owner, amount in made.payouts.items() if owner != who}
        assert not any(f" {amount} " in text for amount in amounts)
    shares = allocate_budget(VALUES, "98765.43", owners=OWNERS, policy=Policy(cap="40%"))
    assert "98,765.43" in pages(shares, tmp_path / "shares")["bob"]  # the cap is a share of it


@pytest.mark.parametrize(
    ("locale", "currency", "budget", "expected"),
    [
        ("en", "EUR", "12345.67", ["12,345.67 EUR", "November 18, 2026"]),
        ("de", "EUR", "12345.67", ["12.345,67 €", "18. November 2026"]),
        ("de_CH", "CHF", "12345.67", ["CHF 12\N{RIGHT SINGLE QUOTATION MARK}345.67"]),
        ("fr", "USD", "12345.67", ["12 345,67 $US", "18 novembre 2026"]),
        ("ja", "JPY", "12345", ["￥12,345", "2026年11月18日"]),
        ("ar", "KWD", "12345.678", ["12,345.678", "نوفمبر"]),
        ("de", "KWD", "12345.678", ["12.345,678 KWD"]),
        ("hi", "INR", "1234567.50", ["₹12,34,567.50"]),
        ("de", "points", "12345.67", ["12.345,67 points"]),
    ],
)
def test_amounts_numbers_and_dates_are_local(
    locale: str, currency: str, budget: str, expected: list[str], tmp_path: Path
) -> None:
    made = allocate_budget(VALUES, budget, owners=["solo"] * 48, currency=currency)
    assert made.payouts["solo"] == Decimal(budget)
    text = pages(made, tmp_path, locale=locale, date="2026-11-18")["solo"].replace("\u202f", " ").replace("\xa0", " ")
    for part in expected:
        assert part in text
    assert "Write to whoever" in text  # sentences are English


def test_periods_may_be_dates_and_bad_letters_are_refused(tmp_path: Path) -> None:
    made = allocate_budget(VALUES, 1000, owners=OWNERS)
    said = pages(made, tmp_path, period=(date(2026, 10, 1), "2026-12-31"), locale="de")["bob"]
    assert re.search("1\\. Okt.*31\\. Dez", said), said[:300]
    for bad, message in (
        ({"locale": "xx"}, "'locale' parameter of write_statements must be a locale"),
        ({"locale": "not a locale"}, "'locale' parameter"),
        ({"locale": None}, "'locale' parameter"),
        ({"date": "18.11.2026"}, "'date' parameter of write_statements must be a date"),
        ({"contest_until": 5}, "'contest_until' parameter"),
        ({"period": ("2026-10-31", "2026-10-01")}, "ends before it starts"),
        ({"period": 2026}, "'period' parameter"),
        ({"issuer": 5}, "'issuer' parameter"),
        ({"change": [("x", 1)]}, "'change' parameter"),
    ):
        with pytest.raises(InputError, match=message):
            write_statements(made, tmp_path / "bad", **bad)  # type: ignore[arg-type]
        assert not (tmp_path / "bad").exists()


def test_markup_in_every_field_stays_text(tmp_path: Path) -> None:
    bad = "<img src=x onerror=alert(1)>"
    made = allocate_budget(replace(VALUES, ids=np.array([f"{bad}{i}" for i in range(48)])), 1000, owners=[bad] * 48)
    letter = dict.fromkeys(("title", "issuer", "contact", "period", "round_name"), bad)
    page = write_statements(made, tmp_path, **letter, change={bad: [(bad, 1)]}, features=[bad], notes=[bad])[1]
    text = page.read_text(encoding="utf-8")
    assert "<img" not in text
    assert text.count(html.escape(bad)) > 48


def test_many_rows_and_a_long_name(tmp_path: Path) -> None:
    n = 100_000
    name = "Very " * 400 + "long"
    big = replace(
        valued([1.0]),
        values=np.random.default_rng(0).normal(1e-7, 1e-5, n),
        ids=np.arange(n),
        labels=None,
        **dict.fromkeys(("standard_error", "degrees_of_freedom", "variance", "error_bound")),
    )
    made = allocate_budget(big, 1000, owners=[name] * n)
    page = write_statements(made, tmp_path)[1]
    assert page.stat().st_size < 300_000
    text = read(page)
    assert "99,000 more rows" in text
    rows = re.findall(r"(-?[\d,]+\.\d\d) EUR", text.split("Part of the amount")[1].split("Together")[0])
    assert sum(Decimal(amount.replace(",", "")) for amount in rows) == 1000
    assert len(rows) == 1001


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium")
def test_pages_fit_a_phone_and_open_their_details_in_print(tmp_path: Path) -> None:
    sync_api = pytest.importorskip("playwright.sync_api")
    made = allocate_budget(
        VALUES, 10_000_000, owners=[("Very " * 40) + "long" if o == "bob" else "x" * 300 for o in OWNERS]
    )
    written = write_statements(made, tmp_path, **LETTER, features=["f" * 200])[1:]
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 320, "height": 600})
        for path in written:
            page.goto(path.as_uri())
            assert page.evaluate("document.documentElement.scrollWidth") <= 320
        folded = page.locator("details dl")
        assert not folded.is_visible()
        page.emulate_media(media="print")
        assert folded.is_visible()
        assert page.pdf(format="A4").startswith(b"%PDF")
        browser.close()
