"""``shapshift price``."""

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from shapshift.cli import _show as show
from shapshift.cli._commands import command
from shapshift.cli._data import (
    Data,
    audit_arguments,
    blocks,
    clustered,
    fit_model,
    load,
    load_other,
    parse_semivalue,
    tell_copies,
)
from shapshift.cli._errors import CommandError
from shapshift.cli._options import (
    Columns,
    Files,
    Letter,
    Method,
    Noise,
    Output,
    Page,
    Payment,
    Private,
    Rule,
    Sample,
    Tables,
    Weights,
    option,
)
from shapshift.cli._run import Run
from shapshift.exceptions import InputError
from shapshift.methods import parse_method

if TYPE_CHECKING:
    from shapshift.price import Allocation, Clusters, Policy, Privacy
    from shapshift.price import Rule as PaymentRule
    from shapshift.price.clusters import Counted
    from shapshift.valuation import Valuation

# Owners that are named one by one in the terminal.
NAMED = 3


@dataclass(frozen=True)
class Checks:
    """Further results about the payouts."""

    panel: ClassVar[str] = Payment.panel
    clean_val: Path | None = option(
        None,
        "Clean validation rows, if VAL is noisy: show what correction changes. Not with --pay-by owners.",
        metavar="FILE",
    )
    values: Path | None = option(
        None,
        "Pay saved values of the training rows unchanged: the valuation.npz or corrected.npz of a run. Copies among "
        "the rows are paid too.",
        metavar="FILE",
    )
    influence: bool = option(
        False, "Show how much money each validation row decides, and whether rows look manipulated. Not with --pool."
    )


@command(
    "price",
    *(Files, Columns, Sample, Weights, Method, Payment, Private, Checks, Rule, Noise, Letter, Tables, Page, Output),
    examples=[
        "shapshift price train.parquet val.parquet --label y --owner seller --budget 10000",
        "shapshift price train.csv val.csv --label y --owner seller --budget 9000 --noise 0.1,0.5 --cap 30%",
        "shapshift price train.csv val.csv --label y --owner seller --budget 500 --values run1/corrected.npz",
        "shapshift price train.csv val.csv --label y --owner seller --budget 500 --order submitted --deposit 50",
        "shapshift price train.csv val.csv --label y --owner seller --budget 500 --pay-by rows",
        "shapshift price train.csv val.csv --label y --owner seller --budget 500 --influence --clusters source",
        "shapshift price train.csv val.csv --label y --owner seller --budget 500 --issuer 'Data Market Ltd.' --contact "
        "pay@market.example --period 'October 2026' --date 2026-11-18 --locale de",
        "shapshift price train.csv val.csv --label y --owner seller --budget 9000 --epsilon 1 --secret key",
    ],
)
def price(run: Run) -> None:
    """Divide a budget among the owners of the training rows.

    Rows of equal label that are equal or nearly equal count once, for the owner who submitted the first; owners are
    paid for the values of their rows (Shapley values over subsets of at least 2K rows), negative ones included.
    Copies, and splitting into names with positive totals, then gain nothing. The output lists who has copies of
    whose rows; --pay-by chooses another rule.

    Each payout has the interval that other samples of validation rows would give, and with --noise or --perturb the
    range in which it moves. Payouts, what is kept back and what cannot be allocated add up to the budget to the cent.

    Writes [bold]statements/[/] (payouts.csv and a page per owner), [bold]allocation.npz[/] (for Allocation.load),
    [bold]values.parquet[/] (the values that are paid, one line per row), [bold]duplicates.csv[/] (who has copies of
    whose rows), with --noise or --perturb also [bold]intervals.csv[/] and [bold]payout_audit.npz[/], with --influence
    [bold]influence.csv[/], [bold]influential_points.csv[/] and [bold]influence.npz[/], and [bold]manifest.json[/].
    """
    check_payment(run)
    _check_combinations(run)
    _check_privacy(run)
    checks, table = run[Checks], run.table_name("values")
    run.will_write(table, "allocation.npz", "statements/", "duplicates.csv", "intervals.csv", "payout_audit.npz")
    if checks.influence:
        run.will_write("influence.csv", "influential_points.csv", "influence.npz")
    data = load(run)
    check_owners(data)
    copies = tell_copies(run, data)
    clusters = list_copies(run, data, payment_rule(run))
    rule = payment_rule(run)
    if checks.values is not None:
        rule, model, valuation = _saved_values(run, data, rule, clusters, checks.values)
    else:
        rule, model = fit_counted(run, data, rule, clusters)
    data = data.released(table=checks.clean_val is None and not show.shows_features(run, data))
    if checks.values is None:
        valuation = model.value(*data.points, **blocks(model, data), **clustered(model, data))
    from shapshift.price.sampling import without_blocks

    shown = without_blocks(valuation)
    run.write_table(table, show.value_table(shown, data))
    paid: dict[str, Any] = {"valuation": shown}
    corrected = None
    if checks.clean_val is not None:
        from shapshift.correct import BoundaryCorrector

        clean = model.value(*load_other(run, "clean_val", checks.clean_val, data))
        corrected = correct_counted(BoundaryCorrector(rule=run[Rule].rule), model, clean, shown)
        paid = {"valuation": clean, "noisy": shown, "corrected": corrected}
    arguments = audit_arguments(run, data.classes)
    allocation = pay(run, data, rule, model, valuation, arguments, corrected=corrected)
    run.result = show.show_payouts(run.terminal, allocation) | show.show_rule(run.terminal, rule, allocation)
    run.result["duplicates"] = copies.summary() | show.copies_facts(clusters)
    if checks.influence:
        _influence(run, data, model)
    show.write_page(run, data, **paid, allocation=allocation, duplicates=copies)


def payment_rule(run: Run) -> "PaymentRule":
    """Return the payment rule that the options describe."""
    from shapshift.engine.coefficients import BY_SIZE
    from shapshift.price import Rule as PaymentRule

    payment, asked = run[Payment], run[Method].semivalue
    pay_by = payment.pay_by or "clusters"
    if payment.radius is not None and pay_by in ("rows", "precedence"):
        raise CommandError(
            f"--radius says which rows are copies, and --pay-by {pay_by} pays for copies too. Leave one of them out."
        )
    if pay_by == "precedence" and payment.order is None:
        raise CommandError("--pay-by precedence needs --order, the column that says when rows were submitted.")
    if payment.near_copies and pay_by in ("rows", "precedence"):
        raise CommandError(
            f"--near-copies says which rows are copies, and --pay-by {pay_by} pays for copies too. Leave one of "
            "them out."
        )
    semivalue = None if asked is None else parse_semivalue(asked)
    if asked in BY_SIZE and pay_by in ("owners", "precedence"):
        others = "" if pay_by == "precedence" else ", banzhaf, banzhaf:W, loo or beta:ALPHA,BETA"
        raise CommandError(
            f"--semivalue {asked} is for rows that join in any order. With --pay-by {pay_by} use shapley{others}."
        )
    return PaymentRule(pay_by, semivalue, payment.radius, _policy(run), payment.near_copies)


def clusters_of(run: Run, data: Data, rule: "PaymentRule") -> "Clusters":
    """Find rows that are copies of others."""
    from shapshift.price import find_clusters

    arrays = data.arrays
    return find_clusters(
        arrays.X_train,
        arrays.y_train,
        owners=arrays.owners,
        order=data.order,
        radius=run[Payment].radius,
        near_copies=rule.near_copies,
        ids=data.ids,
        progress=False,
    )


def list_copies(run: Run, data: Data, rule: "PaymentRule") -> "Clusters":
    """Find rows that are copies of others, and print and write who has copies of whose rows."""
    with run.terminal.busy("Looking for copies"):
        try:
            found = clusters_of(run, data, rule)
        except InputError as error:
            said = str(error).replace("The 'order' parameter of find_clusters", f"--order {run[Payment].order}")
            raise CommandError(said) from error
    run.write_table("duplicates.csv", found.duplicates.owners_frame("pyarrow"))
    show.show_copies(run.terminal, found, paid=not rule.votes_once or run[Checks].values is not None)
    if data.order is None and found.duplicates.across_owners.any():
        run.terminal.note("Without --order, the first of equal rows is the one that comes first in TRAIN.")
    return found


def fit_counted(run: Run, data: Data, rule: "PaymentRule", clusters: "Clusters") -> tuple["PaymentRule", "Counted"]:
    """Fit the model on the rows that count, and return it with the payment rule for it."""
    from shapshift.price.rule import counted

    arrays, own = data.arrays, clusters.representatives
    if rule.votes_once and own.size < data.ids.size:
        kept = replace(arrays, X_train=arrays.X_train[own], y_train=arrays.y_train[own], ids=data.ids[own])
        model = fit_model(run, replace(data, arrays=kept), rule.semivalue)
    else:
        model = fit_model(run, data, rule.semivalue)
    if rule.pay_by == "precedence" and "order" not in inspect.signature(model.value).parameters:
        raise CommandError(
            f"--pay-by precedence does not go with --method {run[Method].method}, which has no order. Choose "
            "--method knn."
        )
    if rule.pay_by != "owners":
        rule = replace(rule, semivalue=getattr(model, "semivalue", "shapley"))
    return rule, counted(model, data.ids, rule, clusters if rule.votes_once else None, data.order)


def correct_counted(corrector: Any, model: Any, clean: "Valuation", noisy: "Valuation") -> "Valuation":
    """Correct noisy values by clean ones; rows that do not vote keep the value 0."""
    from shapshift.price.clusters import Counted

    if not isinstance(model, Counted):
        corrected: Valuation = corrector.fit(clean).transform(noisy)
        return corrected
    return model.expand(corrector.fit(model.restrict(clean)).transform(model.restrict(noisy)))


def pay(
    run: Run,
    data: Data,
    rule: "PaymentRule",
    model: "Counted",
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
    run, data, rule, model, valuation
        What is paid, and how.
    arguments : mapping or None
        Arguments of the audit that gives the intervals; None for no intervals.
    corrected : Valuation, optional
        Corrected values, to show what correction changes; not used if owners are the players.
    noisy : Valuation, optional
        Values before correction, if these are not ``valuation``.
    valuations : iterator of Valuation, optional
        Valuations for the intervals, if they are made anyway, see :func:`shapshift.price.audit_payouts`.
    """
    from shapshift.price import allocate_budget, audit_payouts, owner_values, write_statements
    from shapshift.price.rule import marked

    payment, terms = run[Payment], _terms(run, rule)
    owners, (X, y) = data.arrays.owners, data.points
    values = audit = None
    if rule.pay_by == "owners":
        options = {"semivalue": rule.semivalue, "progress": run.terminal.progress}
        values = model.owner_values(owner_values, X, y, owners, **options)
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
        privacy=_privacy(run),
    )
    allocation = marked(allocation, rule, model)
    allocation.save(run.path("allocation.npz"))
    # A digest of VAL would confirm a correct guess of all its rows.
    hidden = {"secret", "val"} if run[Private].epsilon is not None else {"secret"}
    write_statements(
        allocation,
        run.path("statements/payouts.csv").parent,
        # Every owner reads these: nothing from a table, nor names of files, which may be those of other owners.
        sources={name: said for name, said in run.digests().items() if name not in hidden},
        features=data.feature_columns(),
        notes=data.preparation(),
        **vars(run[Letter]),
    )
    if allocation.private:
        run.terminal.note(allocation.privacy_note())
    run.parameters["allocation"] = {
        "policy": terms["policy"].to_dict(),
        "basis": allocation.basis,
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


def _privacy(run: Run) -> "Privacy | None":
    from shapshift.price import Privacy

    private = run[Private]
    if private.round_to is None and private.epsilon is None:
        return None
    seed = None if private.secret is None else run.input("secret", private.secret).read_bytes()
    return Privacy(private.round_to, private.epsilon, seed)


def _check_privacy(run: Run) -> None:
    """Refuse noise without a secret, and results that would reveal what rounding and noise hide."""
    private, noise, checks = run[Private], run[Noise], run[Checks]
    if (private.epsilon is None) != (private.secret is None):
        raise CommandError(
            "--epsilon needs --secret, a file from which the noise is made, so that the run can be repeated: such as "
            "32 bytes of /dev/urandom. Give both, or neither."
        )
    others = {"--noise": noise.noise, "--perturb": noise.perturb, "--clean-val": checks.clean_val}
    given = [name for name, value in others.items() if value]
    if given and (private.epsilon is not None or private.round_to is not None):
        asked = "--round-to" if private.epsilon is None else "--epsilon"
        raise CommandError(f"{given[0]} does not go with {asked}: it reveals what that hides. Leave one of them out.")
    _privacy(run)


def _terms(run: Run, rule: "PaymentRule") -> dict[str, Any]:
    """Terms of payment, the same wherever payouts are computed."""
    payment = run[Payment]
    terms = {"budget": payment.budget, "policy": rule.policy, "currency": payment.currency}
    if rule.pay_by != "owners":
        return terms
    return terms | {"basis": "owners", "semivalue": rule.semivalue}


def _check_combinations(run: Run) -> None:
    """Refuse options that contradict each other, before anything is read."""
    payment, checks, method = run[Payment], run[Checks], run[Method]
    as_players = payment.pay_by == "owners"
    if as_players and checks.clean_val is not None:
        raise CommandError(
            "--clean-val does not go with --pay-by owners: correction acts on values of rows, and owners are paid "
            "for their rows entering together. Leave one of them out."
        )
    if as_players and parse_method(method.method).name != "knn":
        raise CommandError(
            f"--method {method.method} does not go with --pay-by owners: owners are valued through the utility of "
            "--method knn. Leave one of them out."
        )
    weighed = {
        "--values": checks.values,
        "--influence": checks.influence,
        "--pay-by owners": as_players,
    }
    if run[Weights].point_weight is not None and any(weighed.values()):
        other = next(name for name, value in weighed.items() if value)
        raise CommandError(
            f"--point-weight does not go with {other}, which does not use weights of validation rows. Leave one of "
            "them out."
        )
    if checks.influence and (as_players or payment.pay_by == "precedence" or run[Sample].pool):
        other = "--pool" if run[Sample].pool else f"--pay-by {payment.pay_by}"
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
        "--influence": checks.influence,
        f"--pay-by {payment.pay_by}": payment.pay_by in ("owners", "precedence"),
    }
    given = [name for name, value in others.items() if value]
    if checks.values is not None and checks.values.suffix != ".npz":
        raise CommandError(
            "--values takes the valuation.npz or corrected.npz of a run, which names the rows of the values; a table "
            f"of values does not. Got {str(checks.values)!r}."
        )
    if checks.values is not None and given:
        raise CommandError(
            f"{given[0]} does not go with --values: it needs a new valuation, and saved values are paid unchanged. "
            "Leave one of them out."
        )


def _saved_values(
    run: Run, data: Data, rule: "PaymentRule", clusters: "Clusters", path: Path
) -> tuple["PaymentRule", "Counted", "Valuation"]:
    """Values of an earlier run, of these very training rows or of those of them that vote, and the rule they follow."""
    from shapshift.valuation import Valuation

    saved, asked = Valuation.load(run.input("values", path)), run[Payment].pay_by
    # Such files write Beta(alpha=4, beta=1), options beta:4,1.
    name, _, shape = str(saved.parameters.get("semivalue", "shapley")).partition("(")
    spelled = ":".join(filter(None, [name.lower(), ",".join(re.findall(r"[^\s=,()]+(?=[,)])", shape))]))
    rule = replace(rule, semivalue=parse_semivalue(spelled))
    for tried in (replace(rule, pay_by="rows", radius=None, near_copies=False), replace(rule, pay_by="clusters")):
        _, model = fit_counted(run, data, tried, clusters)
        ids = data.ids if model.clusters is None else data.ids[clusters.representatives]
        if saved.fingerprint == model.fingerprint_ and saved.ids.tolist() == ids.tolist():
            break
    else:
        raise CommandError(
            f"--values must be values of these training rows. {str(path)!r} holds those of other rows, or of the same "
            "rows with other labels, ids, columns or scaling. Use the files and column options of the run that made it."
        )
    copies = data.ids.size - clusters.representatives.size
    if asked == "clusters" and tried.pay_by == "rows" and copies:
        raise CommandError(
            f"--pay-by clusters pays for the rows that vote, and {str(path)!r} holds values of all rows: {copies:,} of "
            "them are copies of earlier rows, and the values of the others depend on them. Leave --values out, or use "
            "--pay-by rows."
        )
    if asked == "rows" and tried.pay_by == "clusters":
        raise CommandError(
            f"--pay-by rows pays for all rows, and {str(path)!r} holds values of the rows that vote alone. Leave "
            "--pay-by out."
        )
    voting = "" if tried.pay_by == "rows" else " of the rows that vote"
    run.terminal.note(f"Paying the saved values{voting} of {path} unchanged; VAL is not used.")
    if tried.pay_by == "rows" and copies:
        run.terminal.warning(
            f"Saved values of all rows are paid, copies of earlier rows ({copies:,}) too. Without --values they would "
            "not be."
        )
    return tried, model, model.expand(saved)


def _policy(run: Run) -> "Policy":
    from shapshift.price import Policy

    named = {name: getattr(run[Payment], name) for name in ("floor", "cap", "reserve", "odd_cents", "deposit")}
    return Policy(negatives=run[Payment].policy, **named)


def check_payment(run: Run) -> None:
    """Refuse a payment without a budget, or with rules that contradict each other, before anything is read."""
    payment = run[Payment]
    if payment.budget is None:
        raise CommandError("--budget must be the amount to pay out, such as --budget 10000.")
    from shapshift.price.policy import Terms
    from shapshift.price.statements import letterhead

    letterhead(**vars(run[Letter]))
    terms = Terms.check("allocate_budget", payment.budget, payment_rule(run).policy, payment.currency)
    _ = terms.limits, terms.deposit


def check_owners(data: Data) -> None:
    """Refuse rows without owners."""
    if data.arrays.owners is None:
        names = ", ".join(map(repr, data.train.column_names[:8]))
        raise CommandError(f"--owner must name the owner column. The columns are: {names}.")


def _influence(run: Run, data: Data, counted: "Counted") -> None:
    """Print how much money each validation row decides; for the operator, so it is not in the statements."""
    from shapshift.price import audit_influence
    from shapshift.price.points import has_training_points

    model: Any = counted.model
    owners: Any = data.arrays.owners
    if counted.clusters is not None:
        owners = owners[counted.clusters.representatives]
    tested = has_training_points(model)
    terms: dict[str, Any] = {"policy": _policy(run), "currency": run[Payment].currency}
    with run.terminal.busy("Taking payouts apart by validation row"):
        audit = audit_influence(
            model,
            *data.points,
            run[Payment].budget,
            owners=owners,
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
