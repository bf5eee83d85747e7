"""``shapshift demo``: the full workflow on data that ships with scikit-learn, and a page to open.

Five sellers offer measurements of tumours to somebody who wants to tell benign from malignant ones. One of them, Delta,
got 15% of its labels wrong. What is each seller paid?
"""

import shlex
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from rich.text import Text

from shapshift._facts import audit_facts, payout_facts, value_facts
from shapshift.cli._commands import command
from shapshift.cli._data import sentence
from shapshift.cli._options import Output
from shapshift.cli._run import Run
from shapshift.io.files import write_atomically
from shapshift.trust import sampling_facts, sure_signs

if TYPE_CHECKING:
    from shapshift.price import Allocation

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
    """Rows for sale with their sellers, and the buyer's validation set."""

    train: Any
    val: Any
    X: Array
    y: Array
    X_val: Array
    y_val: Array
    sellers: Array
    wrong: Array


@command(
    "demo",
    Output,
    replaces_own=True,
    panel="Get started",
    examples=["shapshift demo", "shapshift demo --out tour --json"],
)
def demo(run: Run) -> None:
    """Run the full workflow on data that ships with it: value, audit, correct, price, report.

    Takes seconds and needs no files. Replaces results of an earlier demo; other files only with --force.
    """
    import pyarrow as pa
    import pyarrow.csv as csv

    from shapshift.audit import ShiftStream
    from shapshift.correct import BoundaryCorrector, evaluate
    from shapshift.knn.shapley import KNNShapley
    from shapshift.perturb import GaussianNoise
    from shapshift.price import Policy, allocate_budget, audit_payouts, random_blocks, write_statements
    from shapshift.price.sampling import without_blocks
    from shapshift.report import build_report
    from shapshift.report._words import correction

    run.use_page(run.out / PAGE)
    run.will_write(*FILES)
    market, progress = make_market(run.seed), run.terminal.progress
    X_val, y_val = market.X_val, market.y_val
    drawn: dict[str, Any] = {"noise": NOISE, "repeats": REPEATS, "random_state": run.seed, "progress": progress}

    model = KNNShapley(n_neighbors=5, n_jobs=-1, progress=progress).fit(market.X, market.y)
    stream = ShiftStream(model, X_val, y_val, groups=random_blocks(len(y_val), len(market.y)), **drawn)
    in_blocks = next(stream)
    clean = without_blocks(in_blocks)
    worst = np.argsort(clean.values)[: market.wrong.sum()]
    _step(
        run,
        "1 Value",
        f"{clean.n_train} training rows on {clean.n_val} validation points. {market.wrong.sum()} labels are wrong; "
        f"{market.wrong[worst].sum()} of these are among the {worst.size} least valuable rows. "
        f"{sentence(sure_signs(sampling_facts(clean)))}",
    )

    payment: dict[str, Any] = {"owners": market.sellers, "policy": Policy(negatives="carry")}
    # The payouts reuse the valuations of the audit.
    drawn["valuations"] = chain([in_blocks], stream)
    intervals = audit_payouts(model, X_val, y_val, BUDGET, **payment, **drawn)
    audit = stream.audit()
    _step(
        run,
        "2 Audit",
        f"{sentence(audit.sampling_finding)} With noise on the validation set, the values are: {audit.noise_finding}.",
    )

    noisy = model.value(*GaussianNoise(NOISE[-1], random_state=run.seed)(X_val, y_val))
    corrected = BoundaryCorrector().fit(clean).transform(noisy)
    judged = evaluate(corrected, clean, noisy)
    before, after = (judged.distribution[which] for which in ("noisy", "corrected"))
    positive = [one.stats()["positive_count"] for one in (clean, noisy, corrected)]
    _step(
        run,
        "3 Correct",
        f"Noise {NOISE[-1]:g} changes the spread of the values to {before['std_ratio']:.0%} and the number of "
        f"positive values from {positive[0]} to {positive[1]}; correction makes that {after['std_ratio']:.0%} and "
        f"{positive[2]}. {correction(judged)}",
    )

    pay = allocate_budget(in_blocks, BUDGET, **payment, audit=intervals)
    _step(
        run,
        "4 Price",
        f"{BUDGET:,} {pay.currency} are shared out among {len(SELLERS)} sellers. {pay.sampling_note()}",
    )
    _show_payouts(run, pay, market)

    write_atomically(run.path("train.csv"), partial(csv.write_csv, market.train))
    write_atomically(run.path("val.csv"), partial(csv.write_csv, market.val))
    run.write_table("values.parquet", clean.to_frame("pyarrow").append_column("wrong_label", pa.array(market.wrong)))
    clean.save(run.path("valuation.npz"))
    audit.save(run.path("audit.npz"))
    pay.save(run.path("allocation.npz"))
    write_statements(pay, run.path("statements/payouts.csv").parent)
    build_report(
        run.page_path(),
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
    _step(run, "5 Report", "One page shows all of this; its path is printed at the end.")
    levels = ",".join(f"{level:g}" for level in NOISE)
    files = [shlex.quote(str(run.out / name)) for name in ("train.csv", "val.csv")]
    run.terminal.line(
        f"The same from files: shapshift report {' '.join(files)} --label diagnosis --owner seller "
        f"--budget {BUDGET} --pay-by rows --noise {levels} --repeats {REPEATS} --raw-features"
        + (f" --seed {run.seed}" if run.seed else "")
    )
    run.parameters = {"valuation": dict(clean.parameters), "audit": dict(audit.parameters)}
    run.result = {"values": value_facts(clean), "audit": audit_facts(audit), "payouts": payout_facts(pay)}


def make_market(seed: int) -> Market:
    """Split the data, assign the training rows to sellers, and make some labels of one of them wrong."""
    import pyarrow as pa
    from sklearn.datasets import load_breast_cancer
    from sklearn.model_selection import train_test_split
    from sklearn.preprocessing import StandardScaler

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

    def table(rows: Array, labels: Array, **more: Array) -> Any:
        columns = {name.replace(" ", "_"): rows[:, j] for j, name in enumerate(data.feature_names)}
        return pa.table({**more, **columns, "diagnosis": data.target_names[labels]})

    scaler = StandardScaler().fit(X)
    tables = table(X, y, seller=sellers), table(X_val, y_val)
    return Market(*tables, scaler.transform(X), y, scaler.transform(X_val), y_val, sellers, wrong)


def _step(run: Run, name: str, text: str) -> None:
    run.terminal.line(Text.assemble((f"{name:<11}", "bold"), text))


def _show_payouts(run: Run, pay: "Allocation", market: Market) -> None:
    rows, styles = [], []
    for i in np.argsort(-pay.cents, kind="stable"):
        bounds = pay.sampling_low, pay.sampling_high, pay.low, pay.high
        least, most, low, high = (pay.show(bound[i], label=False) for bound in bounds if bound is not None)
        wrong = market.wrong[market.sellers == pay.owners[i]].sum()
        row = {"seller": pay.owners[i], ">rows": pay.row_counts[i], ">wrong labels": wrong}
        row |= {">paid": pay.show(pay.cents[i]), ">95% interval": f"{least} to {most}"}
        rows.append(row | {f">range under {pay.interval}": f"{low} to {high}"})
        styles.append("red" if wrong else "")
    run.terminal.table("Payouts", rows, styles)
