"""``shapshift price``."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pyarrow as pa

from shapshift.cli import _show as show
from shapshift.cli._commands import command
from shapshift.cli._data import Data, fit_model, load, load_other
from shapshift.cli._errors import CommandError
from shapshift.cli._options import Columns, Files, Method, Noise, Output, Page, Tables, option
from shapshift.cli._page import write_page
from shapshift.cli._run import Run
from shapshift.cli._specs import audit_arguments
from shapshift.correct import BoundaryCorrector
from shapshift.methods import parse_method
from shapshift.price import (
    Allocation,
    Policy,
    allocate_budget,
    audit_payouts,
    owner_values,
    replication_gain,
    show_money,
    write_statements,
)
from shapshift.valuation import Valuation

PANEL = "Payment"
# Beyond so many owners only some values of owners as players can be had: enumeration doubles with each.
MOST_ENUMERATED = 16
# Owners that are named one by one in the terminal.
NAMED = 3


@dataclass(frozen=True)
class Payment:
    """How the budget is shared out."""

    budget: Annotated[
        str | None, option("--budget", panel=PANEL, metavar="AMOUNT", text="What to share out, such as 10000 or 99.50.")
    ] = None
    policy: Annotated[
        Literal["clip", "carry"],
        option("--policy", panel=PANEL, text="Bad rows count nothing, or reduce what their owner is paid."),
    ] = "clip"
    floor: Annotated[str, option("--floor", panel=PANEL, metavar="AMOUNT", text="Least payout of every owner.")] = "0"
    cap: Annotated[
        str | None, option("--cap", panel=PANEL, metavar="AMOUNT", text="Largest payout: an amount, or such as 30%.")
    ] = None
    reserve: Annotated[
        str, option("--reserve", panel=PANEL, metavar="AMOUNT", text="Kept back: an amount, or such as 5%.")
    ] = "0"
    odd_cents: Annotated[
        Literal["draw", "keep"],
        option("--odd-cents", panel=PANEL, text="Cents between exactly equal owners: draw by hash, or keep back."),
    ] = "draw"
    currency: Annotated[str, option("--currency", panel=PANEL, metavar="TEXT", text="How amounts are labelled.")] = (
        "EUR"
    )
    owners_as_players: Annotated[
        bool,
        option(
            "--owners-as-players", panel=PANEL, text="Pay for an owner's rows entering together, not for their sum."
        ),
    ] = False
    permutations: Annotated[
        int,
        option(
            "--permutations",
            panel=PANEL,
            metavar="N",
            min=4,
            text="With --owners-as-players and more than 16 owners: most orders to draw.",
        ),
    ] = 2000


@dataclass(frozen=True)
class Checks:
    """What else to say about the payouts."""

    clean_val: Annotated[
        Path | None,
        option(
            "--clean-val",
            panel=PANEL,
            metavar="FILE",
            text="Clean validation rows, when VAL is noisy: say what correction changes. Not with --owners-as-players.",
        ),
    ] = None
    replicate: Annotated[
        list[str] | None,
        option("--replicate", panel=PANEL, metavar="OWNER", text="What OWNER would gain by submitting copies of rows."),
    ] = None


@command(
    "price",
    examples=[
        "shapshift price train.parquet val.parquet --label y --owner seller --budget 10000",
        "shapshift price train.csv val.csv --label y --owner seller --budget 9000 --noise 0.1,0.5 --cap 30%",
        "shapshift price train.csv val.csv --label y --owner seller --budget 500 --owners-as-players --replicate ann",
    ],
)
def price(
    run: Run,
    files: Files,
    columns: Columns,
    method: Method,
    payment: Payment,
    checks: Checks,
    noise: Noise,
    tables: Tables,
    page: Page,
    output: Output,
) -> None:
    """Share a budget out among the owners of the training rows.

    With --noise or --perturb each payout comes with the interval in which it moves. Payouts, what is kept back and
    what cannot be allocated add up to the budget to the cent.

    Writes [bold]statements/[/] (payouts.csv and a page per owner), [bold]allocation.npz[/] (for Allocation.load), with
    --noise or --perturb also [bold]intervals.csv[/] and [bold]payout_audit.npz[/], with --replicate
    [bold]replication.csv[/], and [bold]manifest.json[/].
    """
    check_payment(columns, payment)
    _check_players(payment, checks, method)
    run.will_write("allocation.npz", "statements/", "intervals.csv", "payout_audit.npz", "replication.csv")
    data = load(run, files, columns, method)
    check_owners(data)
    copiers = [_known_owner(data, name) for name in checks.replicate or []]
    model = fit_model(run, method, data)
    valuation = model.value(data.arrays.X_val, data.arrays.y_val)
    corrected = clean = None
    if checks.clean_val is not None:
        other = load_other(run, "clean_val", checks.clean_val, files, data)
        clean = model.value(other.X_val, other.y_val)
        corrected = BoundaryCorrector().fit(clean).transform(valuation)
    allocation = pay(run, data, model, valuation, payment, noise, corrected)
    run.result = describe(allocation)
    show.show_payouts(run.terminal, allocation)
    if copiers:
        _replicate(run, data, model, payment, copiers)
    if clean is None:
        write_page(run, data, valuation=valuation, allocation=allocation)
    else:
        write_page(run, data, valuation=clean, noisy=valuation, corrected=corrected, allocation=allocation)


def pay(
    run: Run,
    data: Data,
    model: Any,
    valuation: Valuation,
    payment: Payment,
    noise: Noise,
    corrected: Valuation | None = None,
    default_noise: str | None = None,
    noisy: Valuation | None = None,
) -> Allocation:
    """Allocate the budget and write everything about it.

    Parameters
    ----------
    run, data, model, valuation, payment, noise
        What is paid, and how.
    corrected : Valuation, optional
        Corrected values, to say what correction changes; nothing is said about it for owners as players.
    default_noise : str, optional
        Levels of the interval when none were asked for.
    noisy : Valuation, optional
        What was corrected, where that is not ``valuation``.
    """
    rules = policy_of(payment)
    owners, basis = data.arrays.owners, "owners" if payment.owners_as_players else "rows"
    X, y, shown = data.arrays.X_val, data.arrays.y_val, run.terminal.progress
    values, options = None, owner_options(run, data, model, payment)
    if options is not None:
        with warnings.catch_warnings():
            # allocate_budget says the same in money.
            warnings.filterwarnings("ignore", message="Owner values are sampled and not as sure")
            values = owner_values(model, X, y, owners, **options, progress=shown)
        corrected = noisy = None  # correction is about values of rows
    arguments = audit_arguments(noise, data.classes, default_noise)
    audit = None
    if arguments is not None:
        common: dict[str, Any] = {"owners": owners, "policy": rules, "basis": basis, "owner_options": options}
        audit = audit_payouts(model, X, y, payment.budget, **common, **arguments, random_state=run.seed, progress=shown)
        run.write_table("intervals.csv", audit.to_frame("pyarrow"))
        audit.save(run.path("payout_audit.npz"))
    allocation = allocate_budget(
        valuation,
        payment.budget,
        owners=owners,
        policy=rules,
        values=values,
        corrected=corrected,
        noisy=noisy,
        audit=audit,
        currency=payment.currency,
    )
    allocation.save(run.path("allocation.npz"))
    write_statements(
        allocation,
        run.path("statements/payouts.csv").parent,
        sources=run.files(),
        features=data.arrays.feature_names,
        notes=[*_encoding(data), *data.arrays.notes],
    )
    run.parameters["allocation"] = {"policy": rules.to_dict(), "basis": basis, **allocation.parameters}
    if values is not None and values.method == "sample" and values.converged:
        run.terminal.note(allocation.sampling_note())  # when not converged, a warning has said so
    for owner, note in list(allocation.notes.items())[:NAMED]:
        run.terminal.warning(f"{owner}: {note}")
    if len(allocation.notes) > NAMED:
        more = len(allocation.notes) - NAMED
        run.terminal.warning(f"The same holds for {more:,} more owners, see statements/payouts.csv.")
    return allocation


def describe(allocation: Allocation) -> dict[str, Any]:
    """Summarise payouts for JSON, with what sampling and the policy leave open."""
    said = show.describe_payouts(allocation)
    notes = allocation.notes
    for i, entry in enumerate(said["owners"]):
        if allocation.sampling_low is not None and allocation.sampling_high is not None:
            entry["sampling_low"] = show.amount(allocation.sampling_low[i])
            entry["sampling_high"] = show.amount(allocation.sampling_high[i])
        if allocation.owners[i] in notes:
            entry["note"] = notes[allocation.owners[i]]
    return said


def owner_options(run: Run, data: Data, model: Any, payment: Payment) -> dict[str, Any] | None:
    """Options of owners as players, the same wherever they are valued; None when rows are paid."""
    if not payment.owners_as_players:
        return None
    n = len(set(data.arrays.owners.tolist())) if data.arrays.owners is not None else 0
    if n > MOST_ENUMERATED and model.semivalue not in ("shapley", "loo"):
        raise CommandError(
            f"--semivalue {model.semivalue} with --owners-as-players is computed for up to {MOST_ENUMERATED} owners, "
            f"and there are {n:,}. Use --semivalue shapley, which can be sampled, or pay for rows."
        )
    return {"semivalue": model.semivalue, "n_permutations": payment.permutations, "random_state": run.seed}


def _encoding(data: Data) -> list[str]:
    spec = data.arrays.spec
    return [f"numbers scaled: {spec['scale']}", f"categories: {spec['categorical']}"]


def _check_players(payment: Payment, checks: Checks, method: Method) -> None:
    """Refuse what means nothing when owners are the players."""
    if not payment.owners_as_players:
        return
    if checks.clean_val is not None:
        raise CommandError(
            "--clean-val does not go with --owners-as-players: correction acts on values of rows, and owners are paid "
            "for their rows entering together. Leave one of them out."
        )
    if parse_method(method.method).name != "knn":
        raise CommandError(
            f"--method {method.method} does not go with --owners-as-players: owners are valued through the utility of "
            "--method knn. Leave one of them out."
        )
    if method.semivalue == "calibrated":
        raise CommandError(
            "--semivalue calibrated is for values of rows. With --owners-as-players use shapley, banzhaf, loo or "
            "beta:ALPHA,BETA."
        )


def policy_of(payment: Payment) -> Policy:
    """Rules of payment."""
    return Policy(
        negatives=payment.policy,
        floor=payment.floor,
        cap=payment.cap,
        reserve=payment.reserve,
        odd_cents=payment.odd_cents,
    )


def check_payment(columns: Columns, payment: Payment) -> None:
    """Refuse a payment without a budget, or with rules that contradict each other, before anything is read."""
    if payment.budget is None:
        raise CommandError("--budget must say what to share out, such as --budget 10000.")
    policy_of(payment)


def check_owners(data: Data) -> None:
    """Refuse rows without owners."""
    if data.arrays.owners is None:
        names = ", ".join(map(repr, data.train.column_names[:8]))
        raise CommandError(f"--owner must name the column that says whose a row is. The columns are: {names}.")


def _known_owner(data: Data, name: str) -> Any:
    known = {str(owner): owner for owner in data.arrays.owners.tolist()} if data.arrays.owners is not None else {}
    if name not in known:
        raise CommandError(f"--replicate must name an owner. {name!r} is none of: {', '.join(list(known)[:8])}.")
    return known[name]


def _replicate(run: Run, data: Data, model: Any, payment: Payment, owners: Sequence[Any]) -> None:
    found, tables = [], []
    for name in owners:
        with run.terminal.busy(f"Valuing with copies of the rows of {name}"):
            result = replication_gain(
                model,
                data.arrays.X_train,
                data.arrays.y_train,
                data.arrays.X_val,
                data.arrays.y_val,
                data.arrays.owners,
                name,
                budget=payment.budget,
                policy=policy_of(payment),
                basis="owners" if payment.owners_as_players else "rows",
                owner_options=owner_options(run, data, model, payment),
                currency=payment.currency,
            )
        table = result.to_frame("pyarrow")
        copier = pa.array([str(name)] * table.num_rows)
        tables.append(table.add_column(0, "copied_by", copier).set_column(1, "owner", table["owner"].cast(pa.string())))
        at = result.before.owners.index(name)
        before, after = result.before.cents[at], result.after.cents[at]
        found.append(
            {"owner": name, "before": show.amount(before), "after": show.amount(after), "gain": str(result.gain)}
        )
        run.terminal.line(
            f"With a copy of each of its rows, {name} would be paid {show_money(after, payment.currency)}: "
            f"{result.gain:+,.2f}."
        )
    run.write_table("replication.csv", pa.concat_tables(tables))
    run.result["replication"] = found
