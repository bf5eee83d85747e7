"""The full workflow on data that ships with scikit-learn: value, audit, correct, price, and a page to open.

Five sellers offer measurements of tumours to somebody who wants to tell benign from malignant ones. One of them, Delta,
got 15% of its labels wrong. What is each seller paid? Run it with ``shapshift demo``.
"""

import runpy
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
from rich.text import Text
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from shapshift.audit import ShiftAudit, ShiftStream
from shapshift.correct import BoundaryCorrector, evaluate
from shapshift.io.files import write_atomically
from shapshift.knn.shapley import KNNShapley
from shapshift.perturb import GaussianNoise
from shapshift.price import Allocation, Policy, allocate_budget, audit_payouts, write_statements
from shapshift.report import build_report
from shapshift.report._words import correction
from shapshift.valuation import Valuation

SELLERS = ("Alpha", "Bravo", "Charlie", "Delta", "Echo")
CARELESS, WRONG = "Delta", 0.15
BUDGET = 10_000
NOISE = (0.1, 0.2, 0.5, 1.0)
REPEATS = 10
PAGE = "report.html"
FILES = ("train.csv", "val.csv", "values.parquet", "valuation.npz", "audit.npz", "allocation.npz", "statements/")

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Market:
    """What is on offer: rows with their sellers, and the buyer's validation set."""

    train: Any
    val: Any
    X: Array
    y: Array
    X_val: Array
    y_val: Array
    sellers: Array
    wrong: Array


def make_market(seed: int = 0) -> Market:
    """Split the data, hand the training rows out to sellers, and spoil some labels of one of them."""
    data = load_breast_cancer()
    X, X_val, y, y_val = train_test_split(
        data.data, data.target, test_size=0.3, random_state=seed, stratify=data.target
    )
    rng = np.random.default_rng(seed)
    sellers = rng.choice(SELLERS, size=len(y))
    careless = np.flatnonzero(sellers == CARELESS)
    wrong = np.zeros(len(y), dtype=bool)
    wrong[rng.choice(careless, size=round(WRONG * careless.size), replace=False)] = True
    y = np.where(wrong, 1 - y, y)
    names = [name.replace(" ", "_") for name in data.feature_names]

    def table(rows: Array, labels: Array, **more: Array) -> Any:
        columns = {name: rows[:, j] for j, name in enumerate(names)}
        return pa.table({**more, **columns, "diagnosis": data.target_names[labels]})

    scaler = StandardScaler().fit(X)
    return Market(
        table(X, y, seller=sellers),
        table(X_val, y_val),
        scaler.transform(X),
        y,
        scaler.transform(X_val),
        y_val,
        sellers,
        wrong,
    )


class Teller(Protocol):
    """Where the story is told."""

    def line(self, text: str | Text = "", style: str = "") -> None:
        """Say a line."""

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], styles: Any = None) -> None:
        """Show a table."""


@dataclass(frozen=True)
class Story:
    """What came out."""

    market: Market
    clean: Valuation
    audit: ShiftAudit
    pay: Allocation


def tell(path: Callable[[str], Path], page: Path, *, say: Teller, seed: int = 0, progress: bool | None = None) -> Story:
    """Run the demo.

    Parameters
    ----------
    path : callable
        Gives the place to write the file of a name to.
    page : Path
        Where to write the page.
    say : Teller
        Where the story is told.
    seed : int, default=0
    progress : bool or None, default=None
        Whether to show progress bars; by default, in a terminal.

    Returns
    -------
    Story
    """
    market = make_market(seed)
    X_val, y_val = market.X_val, market.y_val
    drawn: dict[str, Any] = {"noise": NOISE, "repeats": REPEATS, "random_state": seed, "progress": progress}

    model = KNNShapley(n_neighbors=5, n_jobs=-1, progress=progress).fit(market.X, market.y)
    stream = ShiftStream(model, X_val, y_val, **drawn)
    clean = next(stream)
    worst = np.argsort(clean.values)[: market.wrong.sum()]
    _step(
        say,
        "1 Value",
        f"{clean.n_train} training rows on {clean.n_val} validation points. {market.wrong.sum()} labels are wrong; "
        f"{market.wrong[worst].sum()} of these are among the {worst.size} least valuable rows.",
    )

    payment: dict[str, Any] = {"owners": market.sellers, "policy": Policy(negatives="carry")}
    # The payouts take the valuations of the audit as they are made.
    intervals = audit_payouts(model, X_val, y_val, BUDGET, **payment, **drawn, valuations=chain([clean], stream))
    audit = stream.audit()
    _step(say, "2 Audit", f"With noise on the validation set, the values are: {audit.finding}.")

    noisy = model.value(*GaussianNoise(NOISE[-1], random_state=seed)(X_val, y_val))
    corrected = BoundaryCorrector().fit(clean).transform(noisy)
    judged = evaluate(corrected, clean, noisy)
    before, after = (judged.distribution[which] for which in ("noisy", "corrected"))
    positive = [one.stats()["positive_count"] for one in (clean, noisy, corrected)]
    _step(
        say,
        "3 Correct",
        f"Noise {NOISE[-1]:g} changes the spread of the values to {before['std_ratio']:.0%} and the number of helpful "
        f"rows from {positive[0]} to {positive[1]}; correction makes that {after['std_ratio']:.0%} and {positive[2]}. "
        f"{correction(judged)}",
    )

    pay = allocate_budget(clean, BUDGET, **payment, audit=intervals)
    _step(say, "4 Price", f"{BUDGET:,} {pay.currency} are shared out among {len(SELLERS)} sellers.")
    _show_payouts(say, pay, market)

    _write(path("train.csv"), lambda file: csv.write_csv(market.train, file))
    _write(path("val.csv"), lambda file: csv.write_csv(market.val, file))
    rows = clean.to_frame("pyarrow").append_column("wrong_label", pa.array(market.wrong))
    _write(path("values.parquet"), lambda file: pq.write_table(rows, file, write_page_checksum=True))
    clean.save(path("valuation.npz"))
    audit.save(path("audit.npz"))
    pay.save(path("allocation.npz"))
    write_statements(pay, path("statements/payouts.csv").parent)
    build_report(
        page,
        title="Five sellers, one of them careless",
        valuation=clean,
        audit=audit,
        noisy=noisy,
        corrected=corrected,
        payout_audit=intervals,
        allocation=pay,
        X_train=market.train.drop_columns(["seller", "diagnosis"]),
        y_train=market.train["diagnosis"],
        X_val=market.val.drop_columns(["diagnosis"]),
        notes=[f"{CARELESS} got {WRONG:.0%} of its labels wrong, on purpose: this is a demonstration."],
    )
    _step(say, "5 Report", "All of this is on one page; it is named at the end.")
    return Story(market, clean, audit, pay)


def _step(say: Teller, name: str, text: str) -> None:
    say.line(Text.assemble((f"{name:<11}", "bold"), text))


def _show_payouts(say: Teller, pay: Allocation, market: Market) -> None:
    rows, styles = [], []
    for i in np.argsort(-pay.cents, kind="stable"):
        low, high = (pay.show(bound[i], label=False) for bound in (pay.low, pay.high) if bound is not None)
        wrong = market.wrong[market.sellers == pay.owners[i]].sum()
        paid = pay.show(pay.cents[i])
        rows.append([pay.owners[i], int(pay.row_counts[i]), int(wrong), paid, f"{low} to {high}"])
        styles.append("red" if wrong else "")
    columns = ["seller", ">rows", ">wrong labels", ">paid", f">between, under {pay.interval}"]
    say.table("Payouts", columns, rows, styles)


def _write(path: Path, write: Any) -> None:
    def to(file: BinaryIO) -> None:
        write(file)

    write_atomically(path, to)


if __name__ == "__main__":
    # The command keeps watch over what is written where; this is another name for it.
    sys.argv[1:] = ["demo", *(["--out"] if sys.argv[1:] and not sys.argv[1].startswith("-") else []), *sys.argv[1:]]
    runpy.run_module("shapshift", run_name="__main__")
