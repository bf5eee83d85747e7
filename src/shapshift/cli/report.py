"""``shapshift report``."""

from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

from shapshift.cli import _show as show
from shapshift.cli._commands import command
from shapshift.cli._data import Data, fit_model, load, load_other
from shapshift.cli._errors import CommandError
from shapshift.cli._options import Columns, Files, Method, Noise, Output, Page, Tables, option
from shapshift.cli._run import Run
from shapshift.cli._specs import audit_arguments
from shapshift.cli.audit import LEVELS
from shapshift.cli.price import Payment, check_owners, check_payment, pay


@dataclass(frozen=True)
class NoisySet:
    """A real noisy set to correct."""

    panel: ClassVar[str] = Noise.panel
    noisy_val: Path | None = option(
        None, "A noisy version of VAL to correct; by default one with the strongest noise of the audit.", metavar="FILE"
    )


@command(
    "report",
    examples=[
        "shapshift report train.parquet val.parquet --label y",
        "shapshift report train.csv val.csv --label y --owner seller --budget 10000 --report page.html",
    ],
)
def report(
    run: Run,
    files: Files,
    columns: Columns,
    method: Method,
    noise: Noise,
    noisy_set: NoisySet,
    payment: Payment,
    tables: Tables,
    page: Page,
    output: Output,
) -> None:
    """Value, audit, correct and price in one go, on one page.

    VAL is the clean validation set. The audit perturbs it (0.1, 0.2, 0.5 and 1 unless --noise or --perturb says
    otherwise); the correction is shown on a noisy version of it. With --owner and --budget the page shows payouts too.

    Writes [bold]report.html[/] in the folder (or where --report says), and everything that value, audit, correct and
    price write.
    """
    from shapshift.audit import ShiftStream
    from shapshift.correct import BoundaryCorrector, evaluate

    names = [run.table_name(stem) for stem in ("values", "rows", "corrected")]
    if run.page is None:
        run.use_page(run.out / "report.html")
    paid = ("allocation.npz", "intervals.csv", "payout_audit.npz", "statements/")
    run.will_write(
        *names,
        "valuation.npz",
        "audit.npz",
        "shift.csv",
        "corrected.npz",
        "corrector.json",
        "evaluation.csv",
        *(paid if payment.budget is not None else ()),
    )
    if payment.budget is not None:
        check_payment(payment)
    data = load(run, files, columns, method)
    if payment.budget is not None:
        check_owners(data)
    model = fit_model(run, method, data)
    data = data.released(table=noisy_set.noisy_val is None and not show.shows_features(run, data))
    X, y = data.arrays.X_val, data.arrays.y_val
    arguments = audit_arguments(noise, data.classes, LEVELS)
    assert arguments is not None  # there is a default

    # Each validation set is valued once: the payouts take the valuations of the audit as they are made.
    stream = ShiftStream(model, X, y, **arguments, random_state=run.seed, progress=run.terminal.progress)
    with run.terminal.busy("Valuing the rows"):
        valuation = next(stream)
    run.write_table(names[0], show.value_table(valuation, data))
    valuation.save(run.path("valuation.npz"))

    noisy = model.value(*_noisy_set(run, files, data, model, noisy_set, arguments))
    corrector = BoundaryCorrector().fit(valuation)
    corrected = corrector.transform(noisy)
    run.write_table(names[2], show.value_table(corrected, data, noisy=noisy.values))
    corrected.save(run.path("corrected.npz"))
    corrector.save(run.path("corrector.json"))
    evaluation = evaluate(corrected, valuation, noisy)
    run.write_table("evaluation.csv", evaluation.to_frame("pyarrow"))

    allocation = None
    if payment.budget is not None:
        valuations = chain([valuation], stream)
        allocation = pay(run, data, model, valuation, payment, noise, corrected, LEVELS, noisy, valuations)
    audit = stream.audit()
    audit.save(run.path("audit.npz"))
    run.write_table("shift.csv", audit.to_frame("pyarrow"))
    run.write_table(names[1], audit.rows_frame(kind="pyarrow"))
    show.write_page(
        run, data, valuation=valuation, audit=audit, noisy=noisy, corrected=corrected, allocation=allocation
    )
    run.parameters |= {"valuation": dict(valuation.parameters), "audit": dict(audit.parameters)}
    run.parameters["correction"] = corrector.report_.to_dict()
    run.result = {
        "values": show.show_values(run.terminal, valuation, data),
        "audit": show.show_audit(run.terminal, audit),
        "evaluation": show.show_evaluation(run.terminal, evaluation),
        "payouts": None if allocation is None else show.show_payouts(run.terminal, allocation),
    }


def _noisy_set(
    run: Run, files: Files, data: Data, model: Any, noisy_set: NoisySet, arguments: dict[str, Any]
) -> tuple[Any, Any]:
    if noisy_set.noisy_val is not None:
        other = load_other(run, "noisy_val", noisy_set.noisy_val, files, data)
        return other.X_val, other.y_val
    from shapshift.perturb import GaussianNoise

    if "noise" in arguments:
        strongest = max(arguments["noise"])
        if strongest == 0:
            raise CommandError("--noise must hold a level above 0.")
        perturbation: Any = GaussianNoise(strongest, relative=arguments["relative"])
    else:
        perturbation = arguments["perturbations"][-1]
    noisy: tuple[Any, Any] = perturbation.bind(model).with_seed(run.seed)(data.arrays.X_val, data.arrays.y_val)
    return noisy
