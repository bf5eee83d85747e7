"""The whole way on data that ships with scikit-learn: value, audit, correct, price, and a page to open.

Five sellers offer measurements of tumours to somebody who wants to tell benign from malignant ones. One of them, Delta,
got 15% of its labels wrong. What is each seller paid? Run it with ``python -m shapshift.demo`` or ``shapshift demo``.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from shapshift._files import write_atomically
from shapshift.audit import audit_shift
from shapshift.correct import BoundaryCorrector, evaluate
from shapshift.estimators import KNNShapley
from shapshift.perturb import GaussianNoise
from shapshift.price import Allocation, Policy, allocate_budget, audit_payouts, write_statements
from shapshift.price._money import show_money
from shapshift.report import build_report

SELLERS = ("Alpha", "Bravo", "Charlie", "Delta", "Echo")
CARELESS, WRONG = "Delta", 0.15
BUDGET = 10_000
NOISE = (0.1, 0.2, 0.5, 1.0)
REPEATS = 10
PAGE = "report.html"

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


def make_market() -> Market:
    """Split the data, hand the training rows out to sellers, and spoil some labels of one of them."""
    data = load_breast_cancer()
    X, X_val, y, y_val = train_test_split(data.data, data.target, test_size=0.3, random_state=0, stratify=data.target)
    rng = np.random.default_rng(0)
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


def main(folder: str | Path = "shapshift-demo") -> Path:
    """Run the demo.

    Parameters
    ----------
    folder : path-like
        Where the results go. Those of an earlier demo are replaced.

    Returns
    -------
    pathlib.Path
        The page to open.
    """
    out, console = _own_folder(folder), Console(highlight=False)
    market = make_market()
    X_val, y_val = market.X_val, market.y_val

    model = KNNShapley(n_neighbors=5, n_jobs=-1).fit(market.X, market.y)
    clean = model.value(X_val, y_val)
    worst = np.argsort(clean.values)[: market.wrong.sum()]
    console.print(
        f"[bold]1 Value[/]    {clean.n_train} training rows on {clean.n_val} validation points. {market.wrong.sum()} "
        f"labels are wrong; {market.wrong[worst].sum()} of these are among the {worst.size} least valuable rows."
    )

    audit = audit_shift(model, X_val, y_val, noise=NOISE, repeats=REPEATS)
    console.print(f"[bold]2 Audit[/]    With noise on the validation set, the values are: {audit.finding}.")

    noisy = model.value(*GaussianNoise(NOISE[-1], random_state=0)(X_val, y_val))
    corrected = BoundaryCorrector().fit(clean).transform(noisy)
    before, after = (evaluate(corrected, clean, noisy).distribution[which] for which in ("noisy", "corrected"))
    positive = [one.stats()["positive_count"] for one in (clean, noisy, corrected)]
    console.print(
        f"[bold]3 Correct[/]  Noise {NOISE[-1]:g} changes the spread of the values to {before['std_ratio']:.0%} and "
        f"the number of helpful rows from {positive[0]} to {positive[1]}; correction makes that "
        f"{after['std_ratio']:.0%} and {positive[2]}."
    )

    policy = Policy(negatives="carry")
    payment: dict[str, Any] = {"owners": market.sellers, "policy": policy}
    intervals = audit_payouts(model, X_val, y_val, BUDGET, **payment, noise=NOISE, repeats=REPEATS)
    pay = allocate_budget(clean, BUDGET, **payment, audit=intervals)
    console.print("[bold]4 Price[/]    ", _payouts(pay, market), sep="\n")

    _write(out / "train.csv", lambda file: csv.write_csv(market.train, file))
    _write(out / "val.csv", lambda file: csv.write_csv(market.val, file))
    rows = clean.to_frame("pyarrow").append_column("wrong_label", pa.array(market.wrong))
    _write(out / "values.parquet", lambda file: pq.write_table(rows, file))
    clean.save(out / "valuation.npz")
    audit.save(out / "audit.npz")
    pay.save(out / "allocation.npz")
    write_statements(pay, out / "statements", overwrite=True)
    page = build_report(
        out / PAGE,
        title="Five sellers, one of them careless",
        valuation=clean,
        audit=audit,
        noisy=noisy,
        corrected=corrected,
        allocation=pay,
        X_train=market.train.drop_columns(["seller", "diagnosis"]),
        y_train=market.train["diagnosis"],
        X_val=market.val.drop_columns(["diagnosis"]),
        notes=[f"{CARELESS} got {WRONG:.0%} of its labels wrong, on purpose: this is a demonstration."],
    )
    console.print(f"[bold]5 Report[/]   Open in a browser: [bold]{page.resolve()}[/]", soft_wrap=True)
    console.print(
        f"\nThe same from files: shapshift report {out}/train.csv {out}/val.csv --label diagnosis --owner seller "
        f"--budget {BUDGET} --policy carry",
        soft_wrap=True,
        markup=False,
    )
    return page


def _payouts(pay: Allocation, market: Market) -> Table:
    table = Table("seller", "rows", "wrong labels", "paid", f"between, under {pay.interval}", box=None, padding=(0, 2))
    for column in table.columns[1:]:
        column.justify = "right"
    for i in np.argsort(-pay.cents, kind="stable"):
        low, high = (show_money(bound[i]) for bound in (pay.low, pay.high) if bound is not None)
        wrong = market.wrong[market.sellers == pay.owners[i]].sum()
        row = (
            pay.owners[i],
            str(pay.row_counts[i]),
            str(wrong),
            show_money(pay.cents[i], pay.currency),
            f"{low} to {high}",
        )
        table.add_row(*row, style="red" if wrong else "")
    return table


def _own_folder(folder: str | Path) -> Path:
    out = Path(folder)
    if out.exists() and not (out.is_dir() and (not any(out.iterdir()) or (out / PAGE).is_file())):
        raise FileExistsError(f"{str(out)!r} is there and is no earlier demo. Name another folder.")
    out.mkdir(parents=True, exist_ok=True)
    return out


def _write(path: Path, write: Any) -> None:
    def to(file: BinaryIO) -> None:
        write(file)

    write_atomically(path, to)


if __name__ == "__main__":
    main(*sys.argv[1:2])
