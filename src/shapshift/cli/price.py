"""``shapshift price``."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from shapshift.cli import _show as show
from shapshift.cli._commands import command
from shapshift.cli._data import Data, fit_model, load, load_other
from shapshift.cli._errors import CommandError
from shapshift.cli._options import Columns, Files, Method, Noise, Output, Page, Tables, option
from shapshift.cli._run import Run
from shapshift.cli._specs import audit_arguments
from shapshift.methods import parse_method

if TYPE_CHECKING:
    from shapshift.price import Allocation, Policy
    from shapshift.valuation import Valuation

# Above this many owners, exact enumeration (2**n subsets) is not attempted.
MOST_ENUMERATED = 16
# Owners that are named one by one in the terminal.
NAMED = 3


@dataclass(frozen=True)
class Payment:
    """How the budget is shared out."""

    panel: ClassVar[str] = "Payment"
    budget: str | None = option(None, "What to share out, such as 10000 or 99.50.", metavar="AMOUNT")
    policy: Literal["clip", "carry"] = option(
        "clip", "Treat negative values of rows as zero, or let them reduce what their owner is paid."
    )
    floor: str = option("0", "Least payout of every owner.", metavar="AMOUNT")
    cap: str | None = option(None, "Largest payout: an amount, or such as 30%.", metavar="AMOUNT")
    reserve: str = option("0", "Kept back: an amount, or such as 5%.", metavar="AMOUNT")
    odd_cents: Literal["draw", "keep"] = option(
        "draw", "Cents between exactly equal owners: draw by hash, or keep back."
    )
    currency: str = option("EUR", "How amounts are labelled.", metavar="TEXT")
    owners_as_players: bool = option(False, "Pay for an owner's rows entering together, not for their sum.")
    permutations: int = option(
        2000, "With --owners-as-players and more than 16 owners: most orders to draw.", metavar="N", min=4
    )


@dataclass(frozen=True)
class Checks:
    """What else to say about the payouts."""

    panel: ClassVar[str] = Payment.panel
    clean_val: Path | None = option(
        None,
        "Clean validation rows, when VAL is noisy: say what correction changes. Not with --owners-as-players.",
        metavar="FILE",
    )
    values: Path | None = option(
        None, "Pay saved values of the training rows: the valuation.npz or corrected.npz of a run.", metavar="FILE"
    )
    replicate: list[str] | None = option(None, "What OWNER would gain by submitting copies of rows.", metavar="OWNER")


@command(
    "price",
    examples=[
        "shapshift price train.parquet val.parquet --label y --owner seller --budget 10000",
        "shapshift price train.csv val.csv --label y --owner seller --budget 9000 --noise 0.1,0.5 --cap 30%",
        "shapshift price train.csv val.csv --label y --owner seller --budget 500 --values run1/corrected.npz",
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

    Writes [bold]statements/[/] (payouts.csv and a page per owner), [bold]allocation.npz[/] (for Allocation.load),
    [bold]values.parquet[/] (the values that are paid, one line per row), with --noise or --perturb also
    [bold]intervals.csv[/] and [bold]payout_audit.npz[/], with --replicate [bold]replication.csv[/], and
    [bold]manifest.json[/].
    """
    check_payment(payment)
    _check_players(payment, checks, method)
    _check_saved(payment, checks, noise)
    table = run.table_name("values")
    run.will_write(table, "allocation.npz", "statements/", "intervals.csv", "payout_audit.npz", "replication.csv")
    data = load(run, files, columns, method)
    check_owners(data)
    copiers = [_known_owner(data, name) for name in checks.replicate or []]
    model = fit_model(run, method, data)
    if not copiers:
        data = data.released(table=checks.clean_val is None and not show.shows_features(run, data))
    if checks.values is not None:
        valuation = _saved_values(run, data, model, checks.values)
    else:
        valuation = model.value(data.arrays.X_val, data.arrays.y_val)
    run.write_table(table, show.value_table(valuation, data))
    corrected = clean = None
    if checks.clean_val is not None:
        from shapshift.correct import BoundaryCorrector

        other = load_other(run, "clean_val", checks.clean_val, files, data)
        clean = model.value(other.X_val, other.y_val)
        corrected = BoundaryCorrector().fit(clean).transform(valuation)
    allocation = pay(run, data, model, valuation, payment, noise, corrected)
    run.result = show.show_payouts(run.terminal, allocation)
    if copiers:
        _replicate(run, data, model, payment, copiers)
    if clean is None:
        show.write_page(run, data, valuation=valuation, allocation=allocation)
    else:
        show.write_page(run, data, valuation=clean, noisy=valuation, corrected=corrected, allocation=allocation)


def pay(
    run: Run,
    data: Data,
    model: Any,
    valuation: "Valuation",
    payment: Payment,
    noise: Noise,
    corrected: "Valuation | None" = None,
    default_noise: str | None = None,
    noisy: "Valuation | None" = None,
    valuations: "Iterator[Valuation] | None" = None,
) -> "Allocation":
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
    valuations : iterator of Valuation, optional
        Those that the interval rests on, see :func:`shapshift.price.audit_payouts`.
    """
    from shapshift.price import allocate_budget, audit_payouts, owner_values, write_statements

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
        common |= {"currency": payment.currency, "valuations": valuations}
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
        # Every owner reads these: nothing that occurs in a table, nor the names of files, which may be those of others.
        sources=run.digests(),
        features=data.feature_columns(),
        notes=data.preparation(),
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


def _check_saved(payment: Payment, checks: Checks, noise: Noise) -> None:
    """Refuse what would value the rows anew when saved values are paid."""
    others = {
        "--noise": noise.noise,
        "--perturb": noise.perturb,
        "--clean-val": checks.clean_val,
        "--replicate": checks.replicate,
        "--owners-as-players": payment.owners_as_players,
    }
    given = [name for name, value in others.items() if value]
    if checks.values is not None and given:
        raise CommandError(
            f"{given[0]} does not go with --values: it values the rows anew, and saved values are paid as they are. "
            "Leave one of them out."
        )


def _saved_values(run: Run, data: Data, model: Any, path: Path) -> "Valuation":
    """Values of an earlier run, of these very training rows."""
    from shapshift.valuation import Valuation

    saved = Valuation.load(run.input("values", path))
    ids = range(len(data.arrays.y_train)) if data.arrays.ids is None else data.arrays.ids.tolist()
    if saved.fingerprint != model.fingerprint_ or saved.ids.tolist() != list(ids):
        raise CommandError(
            f"--values must be values of these training rows. {str(path)!r} holds those of other rows, or of the same "
            "rows with other labels, ids, columns or scaling. Use the files and column options of the run that made it."
        )
    run.terminal.note(f"Paying the saved values of {path}; VAL is not valued.")
    return saved


def policy_of(payment: Payment) -> "Policy":
    """Rules of payment."""
    from shapshift.price import Policy

    return Policy(
        negatives=payment.policy,
        floor=payment.floor,
        cap=payment.cap,
        reserve=payment.reserve,
        odd_cents=payment.odd_cents,
    )


def check_payment(payment: Payment) -> None:
    """Refuse a payment without a budget, or with rules that contradict each other, before anything is read."""
    if payment.budget is None:
        raise CommandError("--budget must say what to share out, such as --budget 10000.")
    from shapshift.price.money import minor_digits, parse_money

    digits = minor_digits("allocate_budget", payment.currency)
    policy_of(payment).cents(parse_money("allocate_budget", "budget", payment.budget, digits), digits)


def check_owners(data: Data) -> None:
    """Refuse rows without owners."""
    if data.arrays.owners is None:
        names = ", ".join(map(repr, data.train.column_names[:8]))
        raise CommandError(f"--owner must name the owner column. The columns are: {names}.")


def _known_owner(data: Data, name: str) -> Any:
    known = {str(owner): owner for owner in data.arrays.owners.tolist()} if data.arrays.owners is not None else {}
    if name not in known:
        raise CommandError(f"--replicate must name an owner. {name!r} is none of: {', '.join(list(known)[:8])}.")
    return known[name]


def _replicate(run: Run, data: Data, model: Any, payment: Payment, owners: Sequence[Any]) -> None:
    import pyarrow as pa

    from shapshift.price import replication_gain, show_money

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
        at, digits = result.before.owners.index(name), result.before.digits
        before, after = result.before.cents[at], result.after.cents[at]
        found.append(
            {
                "owner": name,
                "before": str(Decimal(int(before)).scaleb(-digits)),
                "after": str(Decimal(int(after)).scaleb(-digits)),
                "gain": str(result.gain),
            }
        )
        run.terminal.line(
            f"With a copy of each of its rows, {name} would be paid {show_money(after, payment.currency, digits)}: "
            f"{result.gain:+,.{digits}f}."
        )
    run.write_table("replication.csv", pa.concat_tables(tables))
    run.result["replication"] = found
