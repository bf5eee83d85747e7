"""``shapshift value``, ``audit`` and ``report``."""

import inspect
from dataclasses import dataclass
from itertools import chain
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
    make_model,
    ordered,
    tell_copies,
)
from shapshift.cli._errors import CommandError
from shapshift.cli._options import (
    Columns,
    Files,
    Folds,
    Letter,
    Method,
    Noise,
    OneOrTwo,
    Order,
    Output,
    Page,
    Payment,
    Restart,
    Rule,
    Sample,
    Tables,
    Weights,
    option,
)
from shapshift.cli._run import Run
from shapshift.cli.correct import evaluate_correction, write_correction
from shapshift.cli.price import (
    check_owners,
    check_payment,
    correct_counted,
    fit_counted,
    list_copies,
    pay,
    payment_rule,
)

if TYPE_CHECKING:
    from shapshift.audit import ShiftAudit
    from shapshift.valuation import Valuation

LEVELS = "0.1,0.2,0.5,1"


@dataclass(frozen=True)
class NoisySet:
    """A real noisy set to correct."""

    panel: ClassVar[str] = Noise.panel
    noisy_val: Path | None = option(
        None,
        "A noisy version of VAL to correct; by default, VAL with the strongest noise of the audit.",
        metavar="FILE",
    )


@command(
    "value",
    *(OneOrTwo, Folds, Columns, Order, Sample, Weights, Method, Restart, Tables, Page, Output),
    examples=[
        "shapshift value train.parquet val.parquet --label y",
        "shapshift value table.parquet --label y",
        "shapshift value visits.csv --label outcome --groups patient --drop date",
        "shapshift value train.csv val.csv --label class --id row --drop date,notes --report out.html",
        "shapshift value 'parts/*.parquet' val.feather --label y -k 10 --semivalue beta:4,1 --out run1",
        "shapshift value train.csv readings.csv --label y --clusters patient",
        "shapshift value train.parquet few.parquet --label y --pool",
        "shapshift value loans.csv recent.csv --label default --point-weight balanced",
        "shapshift value offers.csv val.csv --label y --owner seller --order submitted",
        "shapshift value train.parquet val.parquet --label y --checkpoint progress --cluster dask://10.0.0.1:8786",
    ],
)
def value(run: Run) -> None:
    """Value every training row on a validation set, or the rows of one table on each other.

    With one table, every row is valued on all other rows and never on itself.

    Reports how reliable the values are: their agreement with values on another sample of equally many validation rows,
    the number of rows needed for a correlation of 0.9, and the number of rows whose sign is certain.

    Writes [bold]values.parquet[/] (one line per row, with its 95% interval), [bold]valuation.npz[/] (for
    Valuation.load) and [bold]manifest.json[/] (to repeat the run).
    """
    run.will_write(run.table_name("values"), "valuation.npz")
    if run[OneOrTwo].val is not None and run[Folds] != Folds():
        raise CommandError("--groups, --time and --folds are for one table. Leave VAL out, or leave them out.")
    if run[OneOrTwo].val is None and run[Sample].pool:
        raise CommandError("--pool needs VAL. With one table, every row is already valued on all others.")
    if run[Order].order is not None and (run[OneOrTwo].val is None or run[Sample].pool):
        raise CommandError("--order needs VAL, and does not go with --pool. Leave it out, or change that.")
    data = load(run)
    model = None
    if run[OneOrTwo].val is None:
        valuation, data = _value_one_table(run, data)
    else:
        model = fit_model(run, data)
        data = data.released(table=not show.shows_features(run, data))
        asked = _checkpoint(run, model) | clustered(model, data) | ordered(model, data)
        valuation = model.value(*data.points, **asked)
    _write_values(run, data, valuation)
    show.write_page(run, data, model, valuation=valuation)
    run.result = show.show_values(run.terminal, valuation, data)


def _value_one_table(run: Run, data: Data) -> tuple["Valuation", Data]:
    """Value the rows of one table on each other; returns the data with the rows that have a value."""
    from shapshift.cross import cross_value, time_blocks

    folds, arrays = run[Folds], data.arrays
    groups, times = (None if name is None else data.train[name].to_pylist() for name in (folds.groups, folds.time))
    valuation = cross_value(
        make_model(run),
        arrays.X_train,
        arrays.y_train,
        ids=arrays.ids,
        groups=groups,
        times=times,
        folds=folds.folds,
        point_weight=data.weights,
        checkpoint=run[Restart].checkpoint,
    )
    if times is not None:
        block_of = time_blocks(times, folds.folds, len(times))
        data = data.chosen((block_of < block_of.max()).nonzero()[0], (block_of > 0).nonzero()[0])
    return valuation, data


@command(
    "audit",
    *(Files, Columns, Sample, Weights, Method, Noise, Tables, Page, Output),
    examples=[
        "shapshift audit train.parquet val.parquet --label y",
        "shapshift audit train.csv val.csv --label y --noise 0.1,0.2,0.5 --repeats 50 --report out.html",
        "shapshift audit train.csv val.csv --label y --perturb laplace:epsilon=1 --perturb laplace:epsilon=4",
        "shapshift audit train.csv val.csv --label y --perturb 'round:1 | flip:0.05'",
    ],
)
def audit(run: Run) -> None:
    """Measure how far the values move when the validation set changes.

    Reports what another sample of validation rows would change. Then values the rows on perturbed versions of VAL
    (by default Gaussian noise 0.1, 0.2, 0.5 and 1; see --noise and --perturb), and reports what noise changes.

    Writes [bold]audit.npz[/] (for ShiftAudit.load), [bold]shift.csv[/] (one line for another sample, then one per
    level), [bold]rows.parquet[/]
    (how reliable each row's value is) and [bold]manifest.json[/].
    """
    from shapshift.audit import ShiftStream

    run.will_write("audit.npz", "shift.csv", run.table_name("rows"))
    data = load(run)
    model = fit_model(run, data)
    data = data.released(table=not show.shows_features(run, data))
    arguments = (audit_arguments(run, data.classes, LEVELS) or {}) | clustered(model, data)
    stream = ShiftStream(model, *data.points, **arguments)
    valuation, found = next(stream), stream.audit()
    _write_audit(run, found)
    show.write_page(run, data, model, valuation=valuation, audit=found)
    run.parameters["perturbations"] = list(found.perturbations)
    run.result = show.show_audit(run.terminal, found)


@command(
    "report",
    *(Files, Columns, Sample, Weights, Method, Noise, NoisySet, Rule, Payment, Letter, Tables, Page, Output),
    examples=[
        "shapshift report train.parquet val.parquet --label y",
        "shapshift report train.csv val.csv --label y --owner seller --budget 10000 --report page.html",
    ],
)
def report(run: Run) -> None:
    """Value, audit, correct and price in one run, on one page.

    VAL is the clean validation set. The audit perturbs it (by default with noise 0.1, 0.2, 0.5 and 1; see --noise and
    --perturb); the correction is shown on a noisy version of it. With --owner and --budget the page also shows payouts,
    and its values are those that are paid, see 'shapshift price'.

    Writes [bold]report.html[/] in the folder (or where --report says), and everything that value, audit, correct and
    price write.
    """
    from shapshift.audit import ShiftStream
    from shapshift.correct import BoundaryCorrector
    from shapshift.price.sampling import without_blocks

    if run.page is None:
        run.use_page(run.out / "report.html")
    names = [run.table_name(stem) for stem in ("values", "rows", "corrected")]
    names += ["valuation.npz", "audit.npz", "shift.csv", "corrected.npz", "corrector.json", "evaluation.csv"]
    paid = run[Payment].budget is not None
    run.will_write(
        *names, *(["allocation.npz", "duplicates.csv", "intervals.csv", "payout_audit.npz", "statements/"] * paid)
    )
    if paid:
        check_payment(run)
    data = load(run)
    if paid:
        check_owners(data)
    copies = tell_copies(run, data)
    model: Any
    rule: Any = None
    clusters: Any = None
    if paid:
        # The page is about the values that are paid.
        rule = payment_rule(run)
        clusters = list_copies(run, data, rule)
        rule, model = fit_counted(run, data, rule, clusters)
    else:
        model = fit_model(run, data)
    noisy_val = run[NoisySet].noisy_val
    data = data.released(table=noisy_val is None and not show.shows_features(run, data))
    arguments = audit_arguments(run, data.classes, LEVELS) or {}

    # Each validation set is valued once: the payouts reuse the valuations of the audit.
    asked = clustered(model, data) | (blocks(model, data) if paid else {})
    stream = ShiftStream(model, *data.points, **(arguments | asked))
    with run.terminal.busy("Valuing the rows"):
        in_blocks = next(stream)
    valuation = without_blocks(in_blocks)
    _write_values(run, data, valuation)

    if noisy_val is not None:
        noisy = model.value(*load_other(run, "noisy_val", noisy_val, data))
    else:
        noisy = model.value(*_strongest(arguments).bind(model).with_seed(run.seed)(*data.points))
    corrector = BoundaryCorrector(rule=run[Rule].rule)
    corrected = correct_counted(corrector, model, valuation, noisy)
    corrector.save(run.path("corrector.json"))
    write_correction(run, data, corrected, noisy)
    evaluation = evaluate_correction(run, corrected, valuation, noisy)

    allocation = None
    if paid:
        shown = {"corrected": corrected, "noisy": noisy}
        made = chain([in_blocks], stream)
        allocation = pay(run, data, rule, model, in_blocks, arguments, **shown, valuations=made)
    audit = stream.audit()
    _write_audit(run, audit)
    show.write_page(
        run,
        data,
        model,
        valuation=valuation,
        audit=audit,
        noisy=noisy,
        corrected=corrected,
        allocation=allocation,
        duplicates=copies,
    )
    run.parameters["correction"] = corrector.report_.to_dict()
    run.result = {
        "values": show.show_values(run.terminal, valuation, data),
        "audit": show.show_audit(run.terminal, audit),
        "evaluation": show.show_evaluation(run.terminal, evaluation),
        "payouts": None if allocation is None else show.show_payouts(run.terminal, allocation),
        "duplicates": copies.summary(),
    }
    if rule is not None and allocation is not None:
        run.result |= show.show_rule(run.terminal, rule, allocation)
        run.result["duplicates"] |= show.copies_facts(clusters)


def _checkpoint(run: Run, model: Any) -> dict[str, Any]:
    """Pass the checkpoint to a model that can use it; return arguments of its ``value``."""
    checkpoint = run[Restart].checkpoint
    if checkpoint is None:
        return {}
    if all("checkpoint" in inspect.signature(one.value).parameters for one in (model, getattr(model, "model", model))):
        return {"checkpoint": checkpoint}
    if "checkpoint" in model.get_params(deep=False):
        model.set_params(checkpoint=checkpoint)
        return {}
    raise CommandError(
        f"--checkpoint does not go with --method {run[Method].method}, whose runs are short. Leave it out, or choose "
        "--method knn or --method sampled."
    )


def _write_values(run: Run, data: Data, valuation: "Valuation") -> None:
    run.write_table(run.table_name("values"), show.value_table(valuation, data))
    valuation.save(run.path("valuation.npz"))
    run.parameters["valuation"] = dict(valuation.parameters)


def _write_audit(run: Run, audit: "ShiftAudit") -> None:
    audit.save(run.path("audit.npz"))
    run.write_table("shift.csv", audit.to_frame("pyarrow"))
    run.write_table(run.table_name("rows"), audit.rows_frame(kind="pyarrow"))
    run.parameters["audit"] = dict(audit.parameters)


def _strongest(arguments: dict[str, Any]) -> Any:
    """Choose the perturbation whose result is corrected: the strongest noise, or the last perturbation."""
    from shapshift.perturb import GaussianNoise

    if "noise" not in arguments:
        return arguments["perturbations"][-1]
    if max(arguments["noise"]) == 0:
        raise CommandError("--noise must hold a level above 0.")
    return GaussianNoise(max(arguments["noise"]), relative=arguments["relative"])
