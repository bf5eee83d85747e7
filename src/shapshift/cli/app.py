"""``shapshift app``."""

import contextlib
import importlib.util
import shlex
import signal
import sys
import webbrowser
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from shapshift.cli import _manifest as manifests
from shapshift.cli._commands import COMMANDS, command
from shapshift.cli._data import Data, audit_arguments, clustered, fit_model, load, load_other, make_model, ordered
from shapshift.cli._errors import Code, CommandError
from shapshift.cli._options import (
    Columns,
    Folds,
    Letter,
    Method,
    Noise,
    OneOrTwo,
    Payment,
    Sample,
    Weights,
    argument,
    option,
)
from shapshift.cli._run import Run
from shapshift.cli.market import location, without_password
from shapshift.cli.price import check_owners, clusters_of, fit_counted, payment_rule
from shapshift.cli.rerun import find_input, read_options

if TYPE_CHECKING:
    from shapshift.app.sellers import Sellers
    from shapshift.app.study import Source

#: Commands whose folders can be opened.
OPENED = ("value", "audit", "report", "price", "explain")
LEDGERS = (".db", ".sqlite", ".sqlite3")
LEVELS = "0.1,0.2,0.5,1"


@dataclass(frozen=True)
class Opened:
    """What is looked at."""

    train: Path | None = argument(
        "Folder of results of 'shapshift value', 'audit', 'price' or 'report'; or training rows, in any format that "
        "'shapshift value' reads; or a ledger, such as market.db.",
        default=None,
        metavar="[RESULT_OR_TRAIN]",
        recorded=False,
    )
    val: Path | None = argument(
        "Validation rows, where training rows are given; without them rows are valued on each other.",
        default=None,
        metavar="[VAL]",
        recorded=False,
    )


@dataclass(frozen=True)
class Server:
    """The page."""

    panel: ClassVar[str] = "App"
    decisions: Path | None = option(
        None,
        "Log of decisions, for 'shapshift clean --decisions'; appended to where it is there.",
        metavar="FILE",
        show_default="decisions.csv in the folder of results, or here",
        recorded=False,
    )
    test: Path | None = option(
        None,
        "Held-out rows on which models are compared; by default the validation rows.",
        metavar="FILE",
        recorded=False,
    )
    images: Path | None = option(
        None, "Folder of images that texts in the table name.", metavar="FOLDER", recorded=False
    )
    image_shape: str | None = option(
        None, "Show the features of a row as a picture, such as 8x8.", metavar="HxW", recorded=False
    )
    ledger: str | None = option(
        None, "Ledger whose sellers' pages are shown too: a file, a URL, or env:NAME.", metavar="LEDGER", recorded=False
    )
    port: int = option(
        0, "Port of 127.0.0.1.", metavar="N", min=0, max=65535, show_default="a free one", recorded=False
    )
    no_browser: bool = option(False, "Print the link, and open no browser.", recorded=False)


@command(
    "app",
    *(Opened, Columns, Sample, Weights, Method, Payment, Noise, Server),
    writes=False,
    examples=[
        "shapshift app shapshift-report",
        "shapshift app train.csv val.csv --label y --id row",
        "shapshift app train.parquet val.parquet --label y --owner seller --budget 10000 --test held_out.parquet",
        "shapshift app digits.parquet digits_val.parquet --label digit --image-shape 8x8 --port 8000 --no-browser",
        "shapshift app market.db",
    ],
)
def app(run: Run) -> None:
    r"""Look at rows in the browser, decide, and see values and payments change at once.

    Opens a page of this machine alone (127.0.0.1): a table and a map of all rows, the distribution of their values, and
    of each row its features, why it has its value, what label it should rather have, and its copies. Rows are kept,
    dropped, relabelled or weighted by mouse or keyboard; values, reliability, payouts and the accuracy of a model after
    that stand beside those before.

    Every decision is appended to a log at once, which [bold]shapshift clean --decisions[/] applies. Needs the extra
    [bold]app[/]: pip install "shapshift\[app]". Nothing is asked of any other machine. Ctrl-C ends it.
    """
    missing = [name for name in ("starlette", "uvicorn") if importlib.util.find_spec(name) is None]
    if missing:
        raise CommandError(f'The app needs {" and ".join(missing)}. Install them: pip install "shapshift[app]"')
    from shapshift.app.security import private_page
    from shapshift.app.server import Server as Listening
    from shapshift.app.study import Study
    from shapshift.cleaning import DecisionLog

    asked, opened = run[Server], run[Opened]
    target, ledger = opened.train, asked.ledger
    if target is not None and target.suffix in LEDGERS:
        target, ledger = None, str(target)
    if target is None and ledger is None:
        raise CommandError("Name a folder of results, tables, or a ledger. See 'shapshift app --help'.")
    shape = _shape(asked.image_shape)
    sellers = None if ledger is None else _sellers(ledger)
    study = None
    if target is not None:
        folder = target if (target / manifests.MANIFEST).is_file() else None
        inner, known = (_tables(run, target), {}) if folder is None else _results(run, folder)
        source = replace(_source(inner, run, known), images=asked.images, image_shape=shape)
        values = known.get("valuation")
        if values is not None and values.n_train != source.y.size:
            raise CommandError(
                f"The values in {str(folder)!r} are of {values.n_train} rows, and the table has {source.y.size}. "
                "Run it again, or name the tables."
            )
        log = DecisionLog(asked.decisions or (folder or Path()) / "decisions.csv")
        study = Study(source, log, run.terminal.trace)

    def print_link(link: str) -> None:
        run.terminal.line(f"Open {link}", "bold")
        sys.stdout.flush()

    try:
        server = Listening(study, sellers, asked.port, print_link)
        link = server.guard.link()
        run.terminal.document(
            {"command": "app", "url": link, "decisions": None if study is None else str(study.log.path)}
        )
        print_link(link)
        if study is not None:
            run.terminal.line(f"Decisions are written to {study.log.path}. Ctrl-C ends.")
        with contextlib.ExitStack() as files:
            if not asked.no_browser:
                webbrowser.open(files.enter_context(private_page(link)).as_uri())
            ended = server.serve_here()
    finally:
        if study is not None:
            study.close()
    run.terminal.line("Ended." if study is None else f"Ended. Your decisions are in {study.log.path}.")
    if ended == signal.SIGTERM:
        sys.exit(Code.TERMINATED)


def _sellers(ledger: str) -> "Sellers":
    from shapshift.app.sellers import Sellers

    return Sellers(location(ledger), without_password(ledger))


def _tables(run: Run, target: Path) -> Run:
    """Return a run of ``value`` on tables that were named."""
    files = OneOrTwo(target, run[Opened].val)
    groups: dict[type, Any] = {group: run[group] for group in (Columns, Sample, Weights, Method, Payment, Noise)}
    return Run("app", {OneOrTwo: files, **groups}, run.terminal)


def _results(run: Run, folder: Path) -> tuple[Run, dict[str, Any]]:
    """Return the run that left a folder of results, and what is in it that need not be computed again."""
    if run[Opened].val is not None:
        raise CommandError("A folder of results names its own validation rows. Leave VAL out.")
    given = [group.__name__ for group in (Columns, Sample, Weights, Method, Payment, Noise) if run[group] != group()]
    if given:
        raise CommandError("A folder of results has its own options: those of tables and methods do not go with it.")
    path = folder / manifests.MANIFEST
    before = manifests.read_manifest(path)
    if before.command not in OPENED:
        raise CommandError(
            f"{str(folder)!r} holds results of 'shapshift {before.command[:40]}'. The app opens those of "
            f"{', '.join(OPENED)}, or tables."
        )
    registered = COMMANDS[before.command]
    options = read_options(registered, before, path)
    inputs = {name: find_input(name, entry, path, None, []) for name, entry in before.inputs.items()}
    changed = {group: _relocated(value, inputs) for group, value in options.items()}
    files = next(value for group, value in changed.items() if hasattr(value, "train"))
    changed = {group: value for group, value in changed.items() if not hasattr(value, "train") and group is not Letter}
    inner = Run(before.command, {**changed, OneOrTwo: OneOrTwo(files.train, files.val)}, run.terminal)
    return inner, _known(folder, before)


def _relocated(group: Any, inputs: Mapping[str, Path]) -> Any:
    return replace(group, **{name: path for name, path in inputs.items() if hasattr(group, name)})


def _known(folder: Path, before: manifests.Manifest) -> dict[str, Any]:
    """Read the values and the audit of a folder, unless they were changed since."""
    from shapshift.audit import ShiftAudit
    from shapshift.valuation import Valuation

    found: dict[str, Any] = {}
    for name, kind in (("valuation", Valuation), ("audit", ShiftAudit)):
        path = folder / f"{name}.npz"
        if before.outputs.get(path.name) is None or not path.is_file():
            continue
        if manifests.digest(path) != before.outputs[path.name]:
            raise CommandError(f"{str(path)!r} was changed after the run. Run it again, or name the tables.")
        found[name] = kind.load(path)
    return found


def _source(run: Run, outer: Run, known: Mapping[str, Any]) -> "Source":
    """Read the tables, and say how their rows are valued."""
    from shapshift.app.study import Source
    from shapshift.duplicates import find_duplicates

    asked, files = outer[Server], run[OneOrTwo]
    if run[Payment].budget is not None and files.val is None:
        raise CommandError("--budget needs VAL: payouts are for rows that are valued on validation rows.")
    if run[Folds].time is not None:
        raise CommandError("Results of 'value --time' have rows without a value. The app opens those without --time.")
    data = load(run)
    arrays, one_table = data.arrays, files.val is None
    value, fit, pay = _valuing(run, data)
    raw = data.train.select(data.feature_columns())
    raw_val = None if one_table else data.val.select(data.feature_columns())
    noise = audit_arguments(run, data.classes, LEVELS) or {}
    test = None if asked.test is None else load_other(run, "test", asked.test, data)

    def suspect() -> Any:
        from shapshift.suspects.find import suspects_of
        from shapshift.tables.preparing import Features

        rows = Features(arrays.X_train, None, "pyarrow")
        options = {"model": None, "ids": arrays.ids, "error": 0.1, "task": arrays.spec["target"], "random_state": 0}
        return suspects_of(rows, arrays.y_train, None, (rows.X, None), **options, progress=None)

    def copies() -> Any:
        split: dict[str, Any] = (
            {} if one_table else {"X_val": raw_val, "y_val": arrays.y_val, "ids_val": arrays.ids_val}
        )
        return find_duplicates(raw, arrays.y_train, owners=arrays.owners, ids=arrays.ids, **split)

    def audit() -> Any:
        from shapshift.audit import audit_shift

        arguments = {**noise, **clustered(fit(), data), "progress": None}
        return audit_shift(fit(), arrays.X_val, arrays.y_val, **arguments)

    return Source(
        name=files.train.name if one_table or files.val is None else f"{files.train.name} on {files.val.name}",
        train=data.train,
        features=data.feature_columns(),
        X=arrays.X_train,
        y=arrays.y_train,
        X_val=arrays.X_val,
        y_val=arrays.y_val,
        ids=arrays.ids,
        ids_val=arrays.ids_val,
        owners=arrays.owners,
        task=arrays.spec["target"],
        value=value,
        fit=fit,
        is_explained=hasattr(make_model(run), "explain") and not run[Sample].pool and data.order is None,
        is_plain=not one_table and pay is None and data.clusters is None and data.order is None,
        is_paid=pay is not None,
        pay=pay,
        suspect=suspect,
        copies=copies,
        audit=None if one_table else audit,
        test=test,
        is_one_table=one_table,
        replay=_replay(run, data),
        known=known,
        seed=run.seed,
    )


def _counted(run: Run, data: Data) -> tuple[Any, Any]:
    """Fit the model of a rule of payment."""
    rule = payment_rule(run)
    return fit_counted(run, data, rule, clusters_of(run, data, rule))


def _valuing(run: Run, data: Data) -> tuple[Callable[..., Any], Callable[[], Any], Callable[..., Any] | None]:
    """Return what values some rows, what fits the model of all rows, and what pays."""
    arrays, paid, by = data.arrays, run[Payment].budget is not None, run[Folds].groups
    whose = None if by is None else data.train[by].to_pylist()

    def part(rows: Any, labels: Any) -> Data:
        owners = None if arrays.owners is None else arrays.owners[rows]
        kept = replace(arrays, X_train=arrays.X_train[rows], y_train=labels, ids=data.ids[rows], owners=owners)
        order = None if data.order is None else [data.order[row] for row in rows.tolist()]
        return replace(data, arrays=kept, order=order)

    def value(rows: Any, labels: Any) -> Any:
        here = part(rows, labels)
        if run[OneOrTwo].val is None:
            from shapshift.cross import cross_value

            groups = None if whose is None else [whose[row] for row in rows.tolist()]
            given = {"ids": here.arrays.ids, "groups": groups, "folds": run[Folds].folds, "point_weight": data.weights}
            return cross_value(make_model(run), here.arrays.X_train, labels, **given)
        model = _counted(run, here)[1] if paid else fit_model(run, here)
        joining = {} if paid else ordered(model, here)  # a rule of payment knows the order itself
        return model.value(*data.points, **clustered(model, here), **joining)

    def pay(valuation: Any, rows: Any) -> Any:
        from shapshift.price import allocate_budget, owner_values

        here, rule = (
            part(rows, valuation.labels if valuation.labels is not None else arrays.y_train[rows]),
            payment_rule(run),
        )
        values = None
        if rule.pay_by == "owners":
            rule, model = _counted(run, here)
            options = {"semivalue": rule.semivalue, "progress": None}
            values = model.owner_values(owner_values, *data.points, here.arrays.owners, **options)
        payment = run[Payment]
        terms: dict[str, Any] = {"policy": rule.policy, "currency": payment.currency, "values": values}
        return allocate_budget(valuation, payment.budget, owners=here.arrays.owners, **terms)

    if paid:
        check_owners(data)
    return value, cache(lambda: _counted(run, data)[1] if paid else fit_model(run, data)), pay if paid else None


def _replay(run: Run, data: Data) -> str:
    """Return the command that applies the decisions, as it is written in a shell."""
    words = ["shapshift", "clean", str(run[OneOrTwo].train)]
    columns, usual = vars(run[Columns]), vars(Columns())
    for name, entry in columns.items():
        if entry != usual[name] and entry is not None and entry != []:
            for one in entry if isinstance(entry, list) else [entry]:
                words += [f"--{name.replace('_', '-')}", str(one)]
    own = [name for name in data.train.column_names if name not in set(data.feature_columns())]
    apart = {data.arrays.spec[name] for name in ("label", "id", "owner")} | set(run[Columns].drop or ())
    if run[Columns].features is None:
        for name in own:
            if name not in apart:
                words += ["--drop", name]
    if data.arrays.spec["target"] == "number":
        words += ["--task", "number"]
    return shlex.join(words)


def _shape(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    height, _, width = text.lower().partition("x")
    if not (height.isdecimal() and width.isdecimal() and 0 < int(height) <= 512 and 0 < int(width) <= 512):
        raise CommandError(f"--image-shape must be such as 8x8, up to 512x512. Got {text!r}.")
    return int(height), int(width)
