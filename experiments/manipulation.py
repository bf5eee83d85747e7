"""Manipulated validation sets: an attacker's gain from a share of the points, its bound, and its detection.

The test of points was designed on scikit-learn's digits and on synthetic data; no data of this experiment was used.
"""

import contextlib
import io
import textwrap
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from experiments.cells import Settings, run_cells
from experiments.tables import interval, markdown_table, select, write_page, write_tables
from shapshift import KNNShapley, Policy, attack_validation, audit_influence
from shapshift.data import Dataset
from shapshift.price.manipulation import ATTACKS

Record = dict[str, Any]

BUDGET = 1000
POLICIES = ("clip", "carry")
#: Assignment of rows to sellers: at random, or by position along the direction of largest variance.
SELLERS = ("random", "regional")
KINDS = {
    "choose": "leave points out",
    "duplicate": "copy other points",
    "labels": "change labels",
    "points": "move points",
}

PAGE = """\
# Manipulated validation sets

Values, and so payouts, are means over the validation points. Whoever decides which points there are, or what they
look like, decides about money. This page is about an attacker who controls a share of the points and wants to lift
one owner: by leaving points out, by replacing them with copies of others, by changing labels, or by moving points
anywhere.

## What any attacker can gain

`audit_influence` bounds it from the values of all rows on single points, which one pass gives.

- *Leaving out* k points. With negative totals carried, an owner's share is a ratio of two sums over the points that
  stay: the best choice comes from sorting (Dinkelbach's method), and is exact while no owner's total changes its
  sign. With negative rows clipped, a row with total x that loses the values v on k points keeps at most the sum of
  the positive parts of x/k - v, which is additive in the points again: a bound, exact for one point.
- *Replacing* k points by any others. On one point, m rows of an owner that match its label are worth at most F(m) +
  nβ together, n all its rows, F(m) the sum over k = 1..m of max over ranks j of c_j - (k - 1)(c_(j-1) - c_j): the
  owner's k-th row gains c_j and takes c_(j-1) - c_j from each of its own rows before it. For Shapley values F(m) is
  about 1 + ln(m/K)/4: a seller can be worth more than the whole vote on a point, when rows of others that do not
  match stand between its own. The least that others are worth follows in the same way. Features cannot put rows into
  any order, so this bound is far from what attacks reach.

## How to run it

```python
{example}```

```text
{printed}```

`to_frame()` has the owners (payout, p-value, flagged points, payout without them, bounds), `points_frame()` the
validation points and what each brings whom, `plot()` draws them. `clusters=` names where points come from, and tests
each source. On the command line: `shapshift price train.csv val.csv --label y --owner seller --budget 1000
--influence`. All of it is for the operator: it names all sellers, and no statement shows any of it.

## The test

Honest points are needed for comparison: the training rows, each valued without itself (validation points then leave
out a row of their label too, so that the games are alike), or a trusted sample (`reference=(X, y)`). A point's effect
on an owner is what it adds to the owner's contribution beyond the owner's share in what it adds to all. If validation
points are an honest sample, any division of both sets together is as likely as the actual one. The test compares each
owner's mean effect, and the numbers of points in twelve tails of the effects, with random divisions, and the largest
excess over all owners decides: at `alpha=0.05`, one honest set in twenty raises an alarm. Validation points of
another population than the training rows raise one too, with no attacker at work.

## Measured

"""

EXAMPLE = """\
from sklearn.datasets import make_moons

from shapshift import KNNShapley, Policy, attack_validation, audit_influence

X, y = make_moons(1200, noise=0.3, random_state=0)
sellers = ["ann", "bob", "cid", "dee"] * 150
model = KNNShapley().fit(X[:600], y[:600])
terms = {"owners": sellers, "policy": Policy(negatives="clip")}
print(audit_influence(model, X[600:], y[600:], 1000, **terms))
attack = attack_validation(model, X[600:], y[600:], 1000, **terms, owner="ann", share=0.1)
print(attack)
found = audit_influence(model, attack.X, attack.y, 1000, **terms)
print(found.finding.replace(". ", ".\\n"))
"""


@dataclass(frozen=True, kw_only=True)
class ManipulationSettings(Settings):
    """Sizes of the experiment.

    Attributes
    ----------
    shares : tuple of float
        Shares of the points that an attacker controls.
    n_owners : int
    assignments : int
        Number of assignments of rows to sellers, for honest sets.
    draws : int
        Random divisions of a test.
    first_seed : int
        No split with a lower seed was looked at.
    """

    shares: tuple[float, ...] = (0.01, 0.05, 0.1)
    n_owners: int = 10
    assignments: int = 4
    draws: int = 199
    first_seed: int = 100


FULL = ManipulationSettings(n_train=1000, n_val=1000, seeds=5, processes=2)
QUICK = ManipulationSettings(name="quick", n_train=300, n_val=200, seeds=1, shares=(0.1,), assignments=1, draws=99)


def assign(data: Dataset, n_owners: int, sellers: str, seed: int) -> npt.NDArray[np.int64]:
    """Assign every training row to an owner."""
    rng = np.random.default_rng([seed, SELLERS.index(sellers)])
    n = len(data.y_train)
    if sellers == "random":
        return rng.permutation(n) % n_owners
    X = np.asarray(data.X_train, dtype=np.float64)
    centred = X - X.mean(axis=0)
    place = centred @ np.linalg.svd(centred, full_matrices=False)[2][0]
    # Regions overlap: positions are blurred by half their standard deviation.
    return np.asarray((place + rng.normal(size=n) * place.std() / 2).argsort().argsort() * n_owners // n)


def manipulate(dataset: str, seed: int, settings: ManipulationSettings) -> dict[str, list[Record]]:
    """Attack and audit one split.

    Returns
    -------
    dict
        ``attacks``, one record per policy, kind and share; ``honest``, one per policy and way to choose sellers.
    """
    data = settings.load(dataset, "balanced", settings.first_seed + seed)
    model = KNNShapley(5, progress=False).fit(data.X_train, data.y_train)
    owner, attacks, honest = seed % settings.n_owners, [], []
    for policy in POLICIES:
        terms: dict[str, Any] = {"policy": Policy(negatives=policy)}
        test = terms | {"shares": (), "draws": settings.draws}
        for sellers in SELLERS:
            for number in range(settings.assignments):
                owners = assign(data, settings.n_owners, sellers, number)
                found = audit_influence(model, data.X_val, data.y_val, BUDGET, owners=owners, **test)
                honest.append({"policy": policy, "sellers": sellers, "assignment": number, "alarm": int(found.alarm)})
        owners = assign(data, settings.n_owners, "random", 0)
        for kind in ATTACKS:
            for share in settings.shares:
                attack = attack_validation(
                    model, data.X_val, data.y_val, BUDGET, owners=owners, owner=owner, kind=kind, share=share, **terms
                )
                found = audit_influence(model, attack.X, attack.y, BUDGET, owners=owners, **test)
                at = found.owners.index(owner)
                flagged = found.flagged[:, at]
                hits = int((flagged & attack.changed).sum())
                attacks.append(
                    {
                        "policy": policy,
                        "kind": kind,
                        "share": share,
                        "before": attack.before[at] / 100,
                        "gain": float(attack.gain),
                        "bound": float(attack.bound),
                        "detected": int(owner in found.suspects),
                        "first": int(found.suspects[:1] == (owner,)),
                        "p_value": float(found.p_values[at]),
                        "changed": int(attack.changed.sum()),
                        "flagged": int(flagged.sum()),
                        "flagged_and_changed": hits,
                    }
                )
    return {"attacks": attacks, "honest": honest}


def manipulation_tables(folder: Path, settings: ManipulationSettings) -> dict[str, pd.DataFrame]:
    """Run the experiment, cells stored under the folder.

    Returns
    -------
    dict of DataFrame
        ``attacks`` and ``honest``, every seed; ``summary``, means over datasets with 95% intervals over seeds.
    """
    keys = settings.keys()
    work = {
        (name, seed): (keys[name], partial(manipulate, name, seed, settings))
        for name in settings.datasets
        for seed in range(settings.seeds)
    }
    found = run_cells(folder / "cells", work, settings.processes)
    tables = {
        kind: pd.DataFrame(
            [
                {"dataset": name, "seed": settings.first_seed + seed, **record}
                for (name, seed), result in found.items()
                for record in result[kind]
            ]
        )
        for kind in ("attacks", "honest")
    }
    return tables | {"summary": summarize(tables["attacks"])}


def summarize(attacks: pd.DataFrame) -> pd.DataFrame:
    """Means over datasets, with intervals over seeds, for each policy, kind of attack and share."""
    rows = []
    for (policy, kind, share), part in attacks.groupby(["policy", "kind", "share"], sort=False):
        by_seed = part.assign(relative=part["gain"] / part["before"]).groupby("seed")
        row: Record = {"policy": policy, "kind": kind, "share": share}
        for name in ("before", "gain", "relative", "bound", "detected"):
            found = interval(by_seed[name].mean())
            row |= {name: found.mean, f"{name}_low": found.low, f"{name}_high": found.high}
        flagged, changed = part["flagged_and_changed"].sum(), part["changed"].sum()
        row["precision"] = flagged / part["flagged"].sum() if part["flagged"].sum() else np.nan
        row["recall"] = flagged / changed if changed else np.nan
        rows.append(row)
    return pd.DataFrame(rows)


def false_alarms(honest: pd.DataFrame, sellers: str) -> str:
    """Write how many honest sets raised an alarm."""
    alarms = select(honest, sellers=sellers)["alarm"]
    return f"{alarms.sum()} of {alarms.size} ({alarms.mean():.1%})"


def measured(tables: dict[str, pd.DataFrame], policy: str) -> str:
    """Write gain, bound and detection for one policy as a Markdown table, one row per attack."""
    rows = []
    for kind, title in KINDS.items():
        row = {"attack": title}
        for line in select(tables["summary"], policy=policy, kind=kind).itertuples():
            row[f"{line.share:.0%}: gain (bound)"] = f"{line.gain:.1f} ({line.bound:.1f})"
            row[f"{line.share:.0%}: found"] = f"{line.detected:.0%}"
        rows.append(row)
    return markdown_table(rows)


def run_manipulation(folder: Path, settings: ManipulationSettings = FULL, page: Path | None = None) -> Path:
    """Attack and audit; write ``tables/`` (CSV) and a page (``manipulation.md``).

    Parameters
    ----------
    folder : Path
        Gets ``tables/`` and ``cells/``.
    settings : ManipulationSettings, default=FULL
    page : Path, optional
        Where to write the page; ``manipulation.md`` in the folder by default.

    Returns
    -------
    Path
        The page.
    """
    tables = manipulation_tables(folder, settings)
    write_tables(folder, {name: table.round(6) for name, table in tables.items()})
    return write_page(page or folder / "manipulation.md", [_page(tables, settings)])


def _page(tables: dict[str, pd.DataFrame], settings: ManipulationSettings) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(EXAMPLE, {})
    honest, attacks = tables["honest"], tables["attacks"]
    strong = select(attacks, share=max(settings.shares))
    replaced = strong[strong["kind"] != "choose"]
    hits = replaced["flagged_and_changed"].sum()
    said = (
        f"{attacks['dataset'].nunique()} datasets with balanced classes, soft utility, K = 5, {settings.n_train:,} "
        f"training rows, {settings.n_val:,} validation points, {settings.n_owners} sellers with rows at random, "
        f"{settings.seeds} seeds. A seller is honestly paid about {BUDGET // settings.n_owners} of {BUDGET:,}. Each "
        "cell: the mean gain found, in brackets the bound on any attack of that kind (for moved points, on any points "
        "whatever), and how often the audit names the seller (`alpha=0.05`). How points are tested was chosen on other "
        "data. `make reproduce ARGS=manipulation` makes these tables."
    )
    alarms = (
        f"Honest sets that raise an alarm: {false_alarms(honest, 'random')} with sellers at random, "
        f"{false_alarms(honest, 'regional')} with sellers of one region each. Of the points that are flagged when "
        f"{max(settings.shares):.0%} are replaced, {hits / max(replaced['flagged'].sum(), 1):.0%} were manipulated, "
        f"and of the manipulated ones {hits / max(replaced['changed'].sum(), 1):.0%} are flagged. An attack on one "
        "point in a hundred is often not found: take more validation points, or points whose source is known "
        "(`clusters=`). Nothing is tested against an attacker who also controls the training rows that points are "
        "compared with."
    )
    return PAGE.replace("{example}", EXAMPLE).replace("{printed}", printed.getvalue()) + "\n".join(
        [
            textwrap.fill(said, 120) + "\n",
            'Negative rows clipped (`Policy(negatives="clip")`):\n',
            measured(tables, "clip"),
            'Negative rows carried (`Policy(negatives="carry")`, the default):\n',
            measured(tables, "carry"),
            textwrap.fill(alarms, 120) + "\n",
            "Every seed is in `attacks.csv` and `honest.csv`, means with 95% intervals over seeds in `summary.csv`, "
            "all in [manipulation/tables](manipulation/tables).\n",
        ]
    )


def section(tables: dict[str, pd.DataFrame]) -> str:
    """Write the section for the page of the reproduction."""
    attacks, honest = tables["attacks"], tables["honest"]
    before = select(tables["summary"], policy="clip")["before"].mean()
    said = (
        "An attacker controls a share of the points and lifts one "
        f"of ten sellers, honestly paid {before:.0f} of {BUDGET:,}: what the attack gains, in brackets the bound on "
        "any attack of its kind (for moved points, on any points whatever), and how often the audit of influence names "
        f"that seller. Means over {attacks['dataset'].nunique()} datasets and {attacks['seed'].nunique()} seeds. Of "
        f"honest sets, {false_alarms(honest, 'random')} raise an alarm with sellers at random and "
        f"{false_alarms(honest, 'regional')} with sellers of one region each; 5% are intended. Intervals, and the "
        "policy that carries negative rows: [manipulated validation sets](manipulation.md)."
    )
    return "\n".join(["## Manipulated validation sets\n", textwrap.fill(said, 120) + "\n", measured(tables, "clip")])
