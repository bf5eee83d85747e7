"""Tricks of sellers: what each does to the rows, and that what it gains is what the payment rule pays more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest
from cli_files import make_tables, run
from scipy import sparse, stats

from shapshift import KNNShapley, Policy, StressTest, stress_market
from shapshift.market.attacks import ATTACKS, Offer, play
from shapshift.price import Rule, pay_owners

RNG = np.random.default_rng(0)
N = 120
COLOURS, SIZES = RNG.integers(0, 3, N), RNG.integers(0, 2, N)
# Two numbers, a category of three, a category of two, another number.
X = np.column_stack([RNG.normal(size=(N, 2)), np.eye(3)[COLOURS], np.eye(2)[SIZES], RNG.exponential(3, size=N)])
Y = np.array(["no", "yes"])[(X[:, 0] + 0.5 * RNG.normal(size=N) > 0).astype(int)]
OWNERS = np.array(["ann", "bob", "cid", "dee"])[np.arange(N) % 4]
X_VAL = np.vstack([X[::3] + 0.1, X[1::4]])
Y_VAL = np.concatenate([Y[::3], Y[1::4]])
VALUES = RNG.normal(size=N)
MODEL = KNNShapley(3, progress=False, n_jobs=1)
CLIPPED = Rule("rows", policy=Policy(negatives="clip"))
GIVEN: tuple[Any, ...] = (MODEL, X, Y, X_VAL, Y_VAL, OWNERS, 10_000)


def offered(rows: Any = X, owners: Any = OWNERS) -> Offer:
    return Offer(rows, Y, owners, None, VALUES)


def dense(rows: Any) -> Any:
    return rows.toarray() if sparse.issparse(rows) else rows


# --- what is done to the rows ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array, sparse.csc_matrix], ids=["dense", "csr", "csc"])
@pytest.mark.parametrize("attack", ATTACKS)
def test_rows_are_added_last_or_only_change_names(attack: str, form: Any) -> None:
    after, names = play(attack, offered(form(X)), "bob", 7)
    rows, added = dense(after.X), after.y.size - N
    np.testing.assert_array_equal(rows[:N], X)
    np.testing.assert_array_equal(after.y[:N], Y)
    assert after.order is not None
    assert after.order[:N].tolist() == list(range(N))
    assert set(after.order[N:].tolist()) <= {N}
    assert added == {
        "copy x4": 120,
        "copy x10, tiny noise": 300,
        "steal": 18,
        "steal with noise": 18,
        "split": 0,
        "merge": 0,
        "hide bad rows": 0,
    }.get(attack, 30)
    if added:
        assert names == ("bob",)
        assert after.owners.tolist() == [*OWNERS, *["bob"] * added]
    # No category is in between, and each row has one of each.
    np.testing.assert_array_equal(rows[N:, 2:5].sum(axis=1), 1)
    np.testing.assert_array_equal(rows[N:, 5:7].sum(axis=1), 1)
    assert set(np.unique(rows[:, 2:7])) == {0.0, 1.0}
    again, _ = play(attack, offered(form(X)), "bob", 7)
    np.testing.assert_array_equal(dense(again.X), rows)
    assert again.owners.tolist() == after.owners.tolist()


def test_copies_and_theft() -> None:
    own = OWNERS == "bob"
    np.testing.assert_array_equal(play("copy", offered(), "bob")[0].X[N:], X[own])
    np.testing.assert_array_equal(play("copy x4", offered(), "bob")[0].X[N:], np.tile(X[own], (4, 1)))
    stolen, _ = play("steal", offered(), "bob", 1)
    lines = {(*row, label) for row, label in zip(X[~own].tolist(), Y[~own], strict=True)}
    taken = [(*row, label) for row, label in zip(stolen.X[N:].tolist(), stolen.y[N:], strict=True)]
    assert len(set(taken)) == len(taken) == 18
    assert set(taken) <= lines


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
def test_noise_is_in_standard_deviations_of_each_feature(form: Any) -> None:
    rows = np.random.default_rng(1).normal(size=(4000, 2)) * [1.0, 50.0]
    offer = Offer(form(rows), np.zeros(4000), np.arange(4000) % 2)
    moved = (dense(play("near-copy", offer, 1)[0].X)[4000:] - rows[1::2]) / rows.std(axis=0)
    np.testing.assert_allclose(moved.std(axis=0), 0.3, rtol=0.05)
    np.testing.assert_allclose(moved.mean(axis=0), 0.0, atol=0.03)


def test_random_rows_draw_each_column_by_itself() -> None:
    rows = np.random.default_rng(2).normal(size=(3000, 1)) * [1.0, 2.0]  # the second is twice the first
    offer = Offer(rows, (rows[:, 0] > 0).astype(int), np.zeros(3000))
    made, _ = play("random rows", offer, 0.0, 3)
    first, second = made.X[3000:].T
    assert set(first) <= set(rows[:, 0])
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.1
    assert abs(np.corrcoef(first, made.y[3000:])[0, 1]) < 0.1


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
def test_mixup_averages_pairs_of_equal_label(form: Any) -> None:
    made, _ = play("mixup", offered(form(X)), "cid", 3)
    own = np.flatnonzero(OWNERS == "cid")
    numbers = [0, 1, 7]
    for row, label in zip(dense(made.X)[N:], made.y[N:], strict=True):
        pairs = [(a, b) for a in own for b in own if a != b and Y[a] == Y[b] == label]
        found = [(a, b) for a, b in pairs if np.allclose(row[numbers], (X[a] + X[b])[numbers] / 2, atol=1e-12)]
        assert any(np.array_equal(row[2:7], X[a, 2:7]) for a, _ in found)


def test_names() -> None:
    split, names = play("split", offered(), "bob", 5)
    assert names == ("bob", "bob (2)")
    assert [int((split.owners == name).sum()) for name in names] == [15, 15]
    assert (split.owners[OWNERS != "bob"] == OWNERS[OWNERS != "bob"]).all()
    hidden, names = play("hide bad rows", offered(), "bob")
    np.testing.assert_array_equal(hidden.owners == "bob (2)", (OWNERS == "bob") & (VALUES < 0))
    merged, (_, partner) = play("merge", offered(), "bob", 5)
    np.testing.assert_array_equal(merged.owners == "bob", (OWNERS == "bob") | (partner == OWNERS))
    taken = np.where(OWNERS == "cid", "bob (2)", OWNERS)
    assert play("split", offered(owners=taken), "bob")[1] == ("bob", "bob (3)")
    assert play("split", offered(owners=np.arange(N) % 4), 2)[1] == (2, 4)
    dated = offered()._replace(order=np.array(["2026-01-02", "2026-01-01"], dtype="M8[D]")[np.arange(N) % 2])
    later = play("copy", dated, "bob")[0].order
    assert later is not None
    assert later.tolist() == [1, 0] * 60 + [2] * 30


@pytest.mark.parametrize(
    ("attack", "offer"),
    [
        *((name, Offer(X, Y, np.full(N, "ann"))) for name in ("steal", "steal with noise", "merge")),
        ("split", Offer(X, Y, np.where(np.arange(N) == 3, "ann", "bob"))),
        ("mixup", Offer(X, Y, np.where(np.arange(N) == 3, "ann", "bob"))),
        ("hide bad rows", offered(owners=np.full(N, "ann"))._replace(values=np.ones(N))),
        ("hide bad rows", offered(owners=np.full(N, "ann"))._replace(values=-np.ones(N))),
    ],
)
def test_what_does_not_apply_changes_nothing(attack: str, offer: Offer) -> None:
    assert play(attack, offer, "ann") == (offer, ("ann",))
    assert play(attack, offer, "ann")[0] is offer


def test_bad_moves() -> None:
    with pytest.raises(ValueError, match="'attack' parameter of play must be one of 'copy'"):
        play("bribe", offered(), "bob")
    with pytest.raises(ValueError, match="must be one of the owners: 'ann', 'bob'"):
        play("copy", offered(), "zoe")
    with pytest.raises(ValueError, match="must have the values of its rows"):
        play("hide bad rows", Offer(X, Y, OWNERS), "bob")


# --- what it gains --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rule",
    [Rule(), CLIPPED, Rule("owners"), Rule(policy=Policy(deposit=500)), Rule("precedence")],
    ids=lambda r: r.pay_by,
)
def test_gains_are_differences_of_payouts(rule: Rule) -> None:
    found = stress_market(*GIVEN, rule=rule, order=range(N), attackers=["bob"], n_repeats=1, random_state=4)
    before = pay_owners(*GIVEN, rule=rule, order=np.arange(N))
    pay = {name: float(amount) for name, amount in before.payouts.items()}
    assert found.average == pytest.approx(np.maximum(before.cents, 0).mean() / 100, abs=0.01)
    for row in found.to_frame("pandas").itertuples():
        offer = Offer(X, Y, np.unique(OWNERS, return_inverse=True)[1], np.arange(N), before.row_values)
        after, names = play(row.attack, offer, 1, [4, list(ATTACKS).index(row.attack), 1, 0])
        paid = pay_owners(MODEL, after.X, after.y, *GIVEN[3:5], after.owners, 10_000, rule=rule, order=after.order)
        called = dict(enumerate(["ann", "bob", "cid", "dee"]))
        assert row.before == pytest.approx(sum(pay.get(called.get(name), 0.0) for name in names), abs=0.011)
        assert row.after == pytest.approx(sum(float(paid.payouts.get(name, 0)) for name in names), abs=0.021)


def test_one_vote_per_cluster_closes_copies_and_rows_invite_them() -> None:
    tricks = ["copy", "copy x4", "copy x10, tiny noise", "steal"]
    safe, open_to = (stress_market(*GIVEN, rule=rule, attacks=tricks, attackers=4) for rule in (None, CLIPPED))
    assert np.abs(safe.gain).max() < 1e-6
    assert [one["gain"] for one in safe.summary()["attacks"]] == [0.0] * 4
    said = "copy, copy x4, copy x10, tiny noise or steal"
    assert safe.findings() == [f"Under this rule a seller gains nothing by {said}."]
    assert (open_to.gain > 1).all()
    assert all(one["gaining"] == 1 for one in open_to.summary()["attacks"])
    assert "A seller who adds four copies of each of its rows gains " in open_to.findings()[1]


def test_attackers_are_the_sample_and_repeats_are_not() -> None:
    found = stress_market(*GIVEN, rule=CLIPPED, attacks=["steal", "copy"], attackers=4, n_repeats=3)
    frame = found.to_frame("pandas")
    assert len(frame) == 4 * 3 + 4
    means = frame[frame["attack"] == "steal"].groupby("attacker")["gain"].mean()
    low, high = stats.t.interval(0.95, 3, means.mean(), stats.sem(means))
    one = found.summary()["attacks"][0]
    assert (one["gain"], one["low"], one["high"]) == pytest.approx((means.mean(), low, high))
    assert one["worst"] == pytest.approx(frame[frame["attack"] == "steal"]["gain"].max())
    assert one["gain_percent"] == pytest.approx(100 * means.mean() / 2500)
    alone = stress_market(*GIVEN, rule=CLIPPED, attacks="copy", attackers="cid").summary()["attacks"][0]
    assert np.isnan(alone["low"])


def test_a_game_does_not_depend_on_the_others() -> None:
    all_games = stress_market(*GIVEN, rule=CLIPPED, attackers=4, n_repeats=2).to_frame("pandas")
    some = stress_market(*GIVEN, rule=CLIPPED, attacks=["mixup"], attackers=["dee", "bob"], n_repeats=1)
    joined = some.to_frame("pandas").merge(all_games, on=["attack", "attacker", "repeat"])
    assert len(joined) == 2
    np.testing.assert_array_equal(joined["gain_x"], joined["gain_y"])
    other = stress_market(*GIVEN, rule=CLIPPED, attacks=["mixup"], attackers=["dee", "bob"], random_state=1)
    assert not np.isin(other.gain, some.gain).any()


@pytest.mark.parametrize(
    ("policy", "currency"),
    [
        (Policy(floor="100.50", cap="30%", reserve="5%"), "EUR"),
        (Policy(cap=3000, reserve="250.25"), "EUR"),
        (Policy(deposit="77.77"), "EUR"),
        (Policy(floor=2500), "EUR"),
        (Policy(floor=10, cap="30%"), "JPY"),
        (Policy(cap=10**11), "EUR"),
    ],
)
def test_amounts_of_the_policy_count_as_they_are(policy: Policy, currency: str) -> None:
    rule = Rule("rows", policy=policy)
    found = stress_market(*GIVEN, rule=rule, attacks=["copy"], attackers=4, currency=currency)
    paid = pay_owners(*GIVEN, rule=rule, currency=currency).payouts
    frame = found.to_frame("pandas")
    for seller, before in zip(frame["attacker"], frame["before"], strict=True):
        assert before == pytest.approx(float(paid[seller]), abs=1.01 * 10.0**-found.digits)


@pytest.mark.parametrize("kind", ["pandas", "sparse", "tuples"])
def test_every_kind_of_table_and_owner(kind: str) -> None:
    options: dict[str, Any] = {"rule": CLIPPED, "attackers": 4, "attacks": ["copy", "split", "hide bad rows"]}
    expected = stress_market(*GIVEN, **options)
    model, rows, labels, points, y_val, owners, budget = GIVEN
    if kind == "pandas":
        names = list("abcdefgh")
        rows, points = pd.DataFrame(X, columns=names), pd.DataFrame(X_VAL, columns=names)[names[::-1]]
        owners = pd.Series(OWNERS).sample(frac=1, random_state=0)
    elif kind == "sparse":
        rows, points = sparse.csr_array(X), sparse.csr_array(X_VAL)
    else:
        owners = [(name, 1) for name in OWNERS]
    found = stress_market(model, rows, labels, points, y_val, owners, budget, **options)
    np.testing.assert_allclose(found.gain, expected.gain, atol=1e-6)
    assert len(found.to_frame()) == len(expected.to_frame())


def test_hostile_markets() -> None:
    nobody = stress_market(*GIVEN[:5], np.full(N, "ann"), 100, attackers=3, n_repeats=1)
    facts = {one["attack"]: one for one in nobody.summary()["attacks"]}
    assert [name for name, one in facts.items() if not one["attackers"]] == ["steal", "steal with noise", "merge"]
    assert nobody.findings()[-1] == (
        "No attacker could play steal, steal with noise or merge: that does not apply to these rows."
    )
    assert np.isnan(facts["merge"]["gain"])
    one_each = stress_market(MODEL, X[:2], Y[:2], X_VAL, Y_VAL, ["a", "b"], 100, n_repeats=1, attackers=2)
    assert {name for name, one in zip(ATTACKS, one_each.summary()["attacks"], strict=True) if not one["attackers"]} == {
        "mixup",
        "split",
        "hide bad rows",
    }
    alike = stress_market(MODEL, X, np.zeros(N, int), X_VAL, np.zeros(Y_VAL.size, int), OWNERS, 100, n_repeats=1)
    assert np.isfinite(alike.after).all()
    with pytest.warns(UserWarning, match="never seen in training"):
        harmful = stress_market(MODEL, X[:4], ["a"] * 4, X_VAL, ["b"] * Y_VAL.size, ["p", "q"] * 2, 100, n_repeats=1)
    assert harmful.average == 0
    assert harmful.findings()[0].startswith("Nobody is paid anything")
    assert "copy" in repr(harmful)


def test_files_and_figures(tmp_path: Path) -> None:
    found = stress_market(*GIVEN, rule=Rule("owners"), attacks=["copy", "split"], attackers=2, n_repeats=1)
    found.save(tmp_path / "stress.npz")
    loaded = StressTest.load(tmp_path / "stress.npz")
    assert loaded.summary() == found.summary()
    assert loaded.findings() == found.findings()
    assert Rule.from_dict(loaded.rule) == Rule("owners")
    pd.testing.assert_frame_equal(loaded.to_frame("pandas"), found.to_frame("pandas"))
    assert found.to_frame("pyarrow").column_names == found.to_frame("polars").columns
    replace(found, attack=found.attack + 5).save(tmp_path / "bad.npz")
    with pytest.raises(ValueError, match="does not list"):
        StressTest.load(tmp_path / "bad.npz")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attacks": []}, "'attacks' parameter of stress_market must be a sequence of at least one trick"),
        ({"attacks": ["bribe"]}, "'attacks' parameter of stress_market must be one of 'copy'"),
        ({"attackers": 0}, "'attackers' parameter of stress_market must be at least 1"),
        (
            {"attackers": ["zoe"]},
            "some of the sellers .'ann', 'bob', 'cid', 'dee'., or a number of them. Got 'zoe'",
        ),
        ({"attackers": []}, "must be some of the sellers"),
        ({"n_repeats": 0}, "'n_repeats' parameter of stress_market"),
        ({"rule": "clusters"}, "'rule' parameter of stress_market must be a Rule"),
        ({"order": [1, 2]}, "order"),
        ({"rule": Rule("precedence")}, "needs to know when each row was submitted"),
    ],
)
def test_bad_inputs(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        stress_market(*GIVEN, **options)


def test_bad_models() -> None:
    with pytest.raises(ValueError, match="must compute distances itself"):
        stress_market(KNNShapley(metric="precomputed"), *GIVEN[1:])
    with pytest.raises(ValueError, match="'budget' parameter of stress_market"):
        stress_market(*GIVEN[:-1], -1)


# --- on the command line --------------------------------------------------------------------------------------------


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)  # a narrow terminal would break lines of tables
    for name, table in zip(("train.csv", "val.csv"), make_tables(), strict=True):
        colours = np.array(["[red]red[/]", "blue", "=cmd()"])[np.arange(table.num_rows) % 3]
        pacsv.write_csv(table.append_column("colour", pa.array(colours.tolist())), name)
    return tmp_path


COMMAND = ("market", "stress", "train.csv", "val.csv", "--label", "class", "--id", "row", "--owner", "seller")


def test_the_command(tables: Path) -> None:
    ran = run(*COMMAND, "--budget", 1000, "--repeats", 1)
    assert ran.code == 0, ran.err
    assert "3 of 3 sellers played each trick" in ran.out
    for name, attack in ATTACKS.items():
        assert name in ran.out
        assert attack.words in ran.out
    assert "Under this rule a seller gains nothing by copy, copy x4, steal" in ran.out
    folder = tables / "shapshift-market-stress"
    found = StressTest.load(folder / "stress.npz")
    assert found.attackers == ("ann", "bob", "cid")
    lines = (folder / "stress.csv").read_text(encoding="utf-8-sig").splitlines()
    assert len(lines) == 1 + found.attack.size
    assert run(*COMMAND, "--budget", 1000).code == 3
    assert run("rerun", "shapshift-market-stress").code == 0


def test_the_command_says_what_it_found_as_json(tables: Path) -> None:
    options = ("--budget", 1000, "--attack", "copy", "--attack", "hide bad rows", "--attacker", "bob", "--json")
    ran = run(*COMMAND, *options)
    assert ran.code == 0, ran.err
    result = ran.document["result"]
    assert [one["attack"] for one in result["attacks"]] == ["copy", "hide bad rows"]
    assert result["attacks"][0]["gain"] == 0
    assert result["attacks"][0]["low"] is None
    assert result["rule"]["pay_by"] == "clusters"
    assert result["findings"][0].startswith("Under this rule a seller gains nothing by copy")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "--budget must be the amount to pay out"),
        (("--budget", 100, "--attack", "bribe"), "--attack must be one of 'copy'"),
        (("--budget", 100, "--attacker", "zoe"), "--attacker must be some of the sellers ('ann', 'bob', 'cid')"),
        (("--budget", 100, "--attackers", 0), "--attackers"),
        (("--budget", "1,000"), "--budget must be"),
    ],
)
def test_mistakes_on_the_command_line(options: tuple[Any, ...], message: str, tables: Path) -> None:
    ran = run(*COMMAND, *options)
    assert (ran.code, message in ran.err) == (2, True), ran.err
    assert not (tables / "shapshift-market-stress").exists()


def test_rows_without_sellers_are_refused(tables: Path) -> None:
    ran = run(*COMMAND[:-2], "--drop", "seller", "--budget", 100)
    assert (ran.code, "--owner must name the owner column" in ran.err) == (2, True)
