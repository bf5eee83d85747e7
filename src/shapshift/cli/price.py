"""``shapshift price``."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from shapshift.cli import _show as show
from shapshift.cli._commands import command
from shapshift.cli._data import Data, audit_arguments, blocks, clustered, fit_model, load, load_other, tell_copies
from shapshift.cli._errors import CommandError
from shapshift.cli._options import Columns, Files, Method, Noise, Output, Page, Rule, Sample, Tables, Weights, option
from shapshift.cli._run import Run
from shapshift.methods import parse_method

if TYPE_CHECKING:
    from shapshift.price import Allocation, Policy
    from shapshift.valuation import Valuation

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
    influence: bool = option(
        False, "Which validation rows decide how much money, and whether they look manipulated. Not with --pool."
    )


@command(
    "price",
    *(Files, Columns, Sample, Weights, Method, Payment, Checks, Rule, Noise, Tables, Page, Output),
    examples=[
        "shapshift price train.parquet val.parquet --label y --owner seller --budget 10000",
        "shapshift price train.csv val.csv --label y --owner seller --budget 9000 --noise 0.1,0.5 --cap 30%",
        "shapshift price train.csv val.csv --label y --owner seller --budget 500 --values run1/corrected.npz",
        "shapshift price train.csv val.csv --label y --owner seller --budget 500 --owners-as-players --replicate ann",
        "shapshift price train.csv val.csv --label y --owner seller --budget 500 --influence --clusters source",
    ],
)
def price(run: Run) -> None:
    """Share a budget out among the owners of the training rows.

    Each payout comes with the interval in which another sample of validation rows would pay, and with --noise or
    --perturb with the range in which it moves. Payouts, what is kept back and
    what cannot be allocated add up to the budget to the cent.

    Writes [bold]statements/[/] (payouts.csv and a page per owner), [bold]allocation.npz[/] (for Allocation.load),
    [bold]values.parquet[/] (the values that are paid, one line per row), with --noise or --perturb also
    [bold]intervals.csv[/] and [bold]payout_audit.npz[/], with --replicate [bold]replication.csv[/], with --influence
    [bold]influence.csv[/], [bold]influential_points.csv[/] and [bold]influence.npz[/], and [bold]manifest.json[/].
    """
    check_payment(run)
    _check_combinations(run)
    checks, table = run[Checks], run.table_name("values")
    run.will_write(table, "allocation.npz", "statements/", "intervals.csv", "payout_audit.npz", "replication.csv")
    if checks.influence:
        run.will_write("influence.csv", "influential_points.csv", "influence.npz")
    data = load(run)
    check_owners(data)
    copies = tell_copies(run, data)
    copiers = [_known_owner(data, name) for name in checks.replicate or []]
    model = fit_model(run, data)
    if not copiers:
        data = data.released(table=checks.clean_val is None and not show.shows_features(run, data))
    if checks.values is not None:
        valuation = _saved_values(run, data, model, checks.values)
    else:
        valuation = model.value(*data.points, **blocks(model, data), **clustered(model, data))
    from shapshift.price.sampling import without_blocks

    shown = without_blocks(valuation)
    run.write_table(table, show.value_table(shown, data))
    paid: dict[str, Any] = {"valuation": shown}
    corrected = None
    if checks.clean_val is not None:
        from shapshift.correct import BoundaryCorrector

        clean = model.value(*load_other(run, "clean_val", checks.clean_val, data))
        corrected = BoundaryCorrector(rule=run[Rule].rule).fit(clean).transform(shown)
        paid = {"valuation": clean, "noisy": shown, "corrected": corrected}
    allocation = pay(run, data, model, valuation, audit_arguments(run, data.classes), corrected=corrected)
    run.result = show.show_payouts(run.terminal, allocation) | {"duplicates": copies.summary()}
    if copiers:
        _replicate(run, data, model, copiers)
    if checks.influence:
        _influence(run, data, model)
    show.write_page(run, data, **paid, allocation=allocation, duplicates=copies)


def pay(
    run: Run,
    data: Data,
    model: Any,
    valuation: "Valuation",
    arguments: Mapping[str, Any] | None,
    *,
    corrected: "Valuation | None" = None,
    noisy: "Valuation | None" = None,
    valuations: "Iterator[Valuation] | None" = None,
) -> "Allocation":
    """Allocate the budget and write everything about it.

    Parameters
    ----------
    run, data, model, valuation
        What is paid, and how.
    arguments : mapping or None
        Those of the audit that the intervals come from; None for no intervals.
    corrected : Valuation, optional
        Corrected values, to say what correction changes; nothing is said about it for owners as players.
    noisy : Valuation, optional
        What was corrected, where that is not ``valuation``.
    valuations : iterator of Valuation, optional
        Those that the intervals rest on, where they are made anyway, see :func:`shapshift.price.audit_payouts`.
    """
    from shapshift.price import allocate_budget, audit_payouts, owner_values, write_statements

    payment, terms = run[Payment], _terms(run, model)
    owners, (X, y) = data.arrays.owners, data.points
    values = audit = None
    if payment.owners_as_players:
        values = owner_values(model, X, y, owners, semivalue=terms["semivalue"], progress=run.terminal.progress)
        corrected = noisy = None  # correction is about values of rows
    if arguments is not None:
        made = valuation if valuations is None else valuations
        audit = audit_payouts(model, X, y, owners=owners, valuations=made, **terms, **arguments)
        run.write_table("intervals.csv", audit.to_frame("pyarrow"))
        audit.save(run.path("payout_audit.npz"))
    allocation = allocate_budget(
        valuation,
        payment.budget,
        owners=owners,
        policy=terms["policy"],
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
    run.parameters["allocation"] = {
        "policy": terms["policy"].to_dict(),
        "basis": terms["basis"],
        **allocation.parameters,
    }
    if "point_weight" in valuation.parameters:
        run.terminal.line(show.how_points_count(valuation.parameters["point_weight"]))
    if allocation.sampling_low is not None:
        run.terminal.note(allocation.sampling_note())
    for owner, note in list(allocation.notes.items())[:NAMED]:
        run.terminal.warning(f"{owner}: {note}")
    if len(allocation.notes) > NAMED:
        more = len(allocation.notes) - NAMED
        run.terminal.warning(f"The same holds for {more:,} more owners, see statements/payouts.csv.")
    return allocation


def _terms(run: Run, model: Any) -> dict[str, Any]:
    """Terms of payment, the same wherever payouts are computed."""
    payment = run[Payment]
    terms = {"budget": payment.budget, "policy": _policy(run), "currency": payment.currency, "basis": "rows"}
    if not payment.owners_as_players:
        return terms
    return terms | {"basis": "owners", "semivalue": model.semivalue}


def _check_combinations(run: Run) -> None:
    """Refuse options that contradict each other, before anything is read."""
    payment, checks, method = run[Payment], run[Checks], run[Method]
    if payment.owners_as_players and checks.clean_val is not None:
        raise CommandError(
            "--clean-val does not go with --owners-as-players: correction acts on values of rows, and owners are paid "
            "for their rows entering together. Leave one of them out."
        )
    if payment.owners_as_players and parse_method(method.method).name != "knn":
        raise CommandError(
            f"--method {method.method} does not go with --owners-as-players: owners are valued through the utility of "
            "--method knn. Leave one of them out."
        )
    if payment.owners_as_players and method.semivalue == "calibrated":
        raise CommandError(
            "--semivalue calibrated is for values of rows. With --owners-as-players use shapley, banzhaf, "
            "banzhaf:W, loo or beta:ALPHA,BETA."
        )
    weighed = {
        "--values": checks.values,
        "--influence": checks.influence,
        "--owners-as-players": payment.owners_as_players,
    }
    if run[Weights].point_weight is not None and any(weighed.values()):
        other = next(name for name, value in weighed.items() if value)
        raise CommandError(
            f"--point-weight does not go with {other}, which does not know weights of validation rows. Leave one of "
            "them out."
        )
    if checks.influence and (payment.owners_as_players or run[Sample].pool):
        other = "--owners-as-players" if payment.owners_as_players else "--pool"
        raise CommandError(
            f"--influence does not go with {other}: it takes payouts apart by validation row, which needs plain sums "
            "of values. Leave one of them out."
        )
    if run[Rule].rule != "default" and checks.clean_val is None:
        raise CommandError("--rule goes with --clean-val: without it nothing is corrected. Leave it out.")
    others = {
        "--noise": run[Noise].noise,
        "--perturb": run[Noise].perturb,
        "--clean-val": checks.clean_val,
        "--replicate": checks.replicate,
        "--influence": checks.influence,
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


def _policy(run: Run) -> "Policy":
    from shapshift.price import Policy

    named = {name: getattr(run[Payment], name) for name in ("floor", "cap", "reserve", "odd_cents")}
    return Policy(negatives=run[Payment].policy, **named)


def check_payment(run: Run) -> None:
    """Refuse a payment without a budget, or with rules that contradict each other, before anything is read."""
    payment = run[Payment]
    if payment.budget is None:
        raise CommandError("--budget must say what to share out, such as --budget 10000.")
    from shapshift.price.policy import Terms

    _ = Terms.check("allocate_budget", payment.budget, _policy(run), payment.currency).limits


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


def _replicate(run: Run, data: Data, model: Any, owners: Sequence[Any]) -> None:
    import pyarrow as pa

    from shapshift.price import replication_gain

    found, tables, arrays = [], [], data.arrays
    terms = _terms(run, model)
    for name in owners:
        with run.terminal.busy(f"Valuing with copies of the rows of {name}"):
            result = replication_gain(model, arrays.X_train, arrays.y_train, *data.points, arrays.owners, name, **terms)
        table = result.to_frame("pyarrow")
        copier = pa.array([str(name)] * table.num_rows)
        tables.append(table.add_column(0, "copied_by", copier).set_column(1, "owner", table["owner"].cast(pa.string())))
        before, after = result.before.payouts[name], result.after.payouts[name]
        found.append({"owner": name, "before": str(before), "after": str(after), "gain": str(result.gain)})
        paid = f"{after:,} {terms['currency']}".rstrip()
        run.terminal.line(f"With a copy of each of its rows, {name} would be paid {paid} ({result.gain:+,}).")
    run.write_table("replication.csv", pa.concat_tables(tables))
    run.result["replication"] = found


def _influence(run: Run, data: Data, model: Any) -> None:
    """Say which validation rows decide how much money; for the operator, so nothing of it is in the statements."""
    from shapshift.price import audit_influence
    from shapshift.price.points import has_training_points

    tested = has_training_points(model)
    terms = {name: entry for name, entry in _terms(run, model).items() if name in ("policy", "currency")}
    with run.terminal.busy("Taking payouts apart by validation row"):
        audit = audit_influence(
            model,
            *data.points,
            run[Payment].budget,
            owners=data.arrays.owners,
            clusters=data.clusters,
            reference="train" if tested else None,
            random_state=run.seed,
            **terms,
        )
    if not tested:
        run.terminal.warning(
            "--influence leaves out the test whether validation rows look honest: it compares them with training rows, "
            "at least 2 that are in memory."
        )
    run.write_table("influence.csv", audit.to_frame("pyarrow"))
    run.write_table("influential_points.csv", audit.points_frame("pyarrow"))
    audit.save(run.path("influence.npz"))
    (run.terminal.warning if audit.alarm else run.terminal.line)(audit.finding)
    run.result["influence"] = {
        "alarm": audit.alarm,
        "suspects": list(audit.suspects),
        "p_values": {
            str(owner): float(p) if tested else None for owner, p in zip(audit.owners, audit.p_values, strict=True)
        },
        "finding": audit.finding,
    }
