"""The options that several commands share, in groups. A command takes whole groups; see ``_commands.command``."""

import inspect
from collections.abc import Collection, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

import typer

from shapshift.checks.names import some
from shapshift.exceptions import InputError


def option(default: Any, text: str, *names: str, recorded: bool = True, **more: Any) -> Any:
    """Describe an option of a group.

    Parameters
    ----------
    default : object
    text : str
        For the help.
    *names : str
        Such as ``-y``. The long name is made from that of the field, unless one is among these.
    recorded : bool
        Whether a manifest holds it. It holds no options that set where results go, what is shown or where work runs.
    **more
        Passed on to ``typer.Option``: ``metavar``, ``min``, ...
    """
    return field(default=default, metadata={"names": names, "recorded": recorded, "about": {"help": text, **more}})


def argument(text: str, *, default: Any = MISSING, recorded: bool = True, **more: Any) -> Any:
    """Describe an argument of a group, as :func:`option` does."""
    about = {"help": text, "show_default": False, **more}
    return field(default=default, metadata={"recorded": recorded, "about": about})


def parameters(group: type) -> list[inspect.Parameter]:
    """Parameters for typer, one for each option of a group."""
    hints, made = get_type_hints(group), []
    for each in fields(group):
        about, names = each.metadata["about"], each.metadata.get("names")
        if names is None:
            info = typer.Argument(**about)
        else:
            # Without a name of its own typer would give a flag an opposite, such as --no-force.
            long = () if any(name.startswith("--") for name in names) else (f"--{each.name.replace('_', '-')}",)
            info = typer.Option(*long, *names, **({"rich_help_panel": getattr(group, "panel", None)} | about))
        default = inspect.Parameter.empty if each.default is MISSING else each.default
        made.append(
            inspect.Parameter(
                each.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=default,
                annotation=Annotated[hints[each.name], info],
            )
        )
    return made


def recorded(group: type) -> dict[str, Any]:
    """Options of a group that a manifest holds, with their types."""
    hints = get_type_hints(group)
    return {each.name: hints[each.name] for each in fields(group) if each.metadata["recorded"]}


def to_record(options: Mapping[type, Any], inputs: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Options to record, by the name of their group.

    Parameters
    ----------
    options : mapping of type to dataclass
        Option groups with the given values.
    inputs : mapping of str to str
        Recorded path of each option that names an input.
    """
    kept = {
        group.__name__: {name: inputs.get(name, getattr(given, name)) for name in recorded(group)}
        for group, given in options.items()
    }
    return {name: given for name, given in kept.items() if given}


def read_record(group: type, given: Any, inputs: Collection[str]) -> Any:
    """Read an option group from a manifest, with the checks of the command line.

    Parameters
    ----------
    group : type
    given : object
        Options by name. A manifest may be untrusted: all of it is checked.
    inputs : collection of str
        Names of the inputs. An option that is a path must be among them.

    Raises
    ------
    ValueError
        If manifests do not record an option, or it has the wrong form.
    """
    if not isinstance(given, Mapping):
        raise InputError(f"its {group.__name__!r} must map options to values")
    known, made = recorded(group), {}
    strange = [name for name in given if name not in known]
    if strange:
        raise InputError(f"it sets {some(strange)}, which no run records")
    for each in fields(group):
        if each.name not in given:
            if each.name in known and each.default is MISSING:
                raise InputError(f"it lacks {each.name!r}")
            continue
        kind, value, least = known[each.name], given[each.name], each.metadata["about"].get("min")
        if not fits(value, kind) or (least is not None and value is not None and value < least):
            wanted = _called(kind) + ("" if least is None else f" of at least {least}")
            raise InputError(f"its {each.name!r} must be {wanted}")
        if is_path(kind) and value is not None:
            if each.name not in inputs:
                raise InputError(f"its {each.name!r} is a path that is not among its inputs")
            value = Path(value)
        made[each.name] = value
    return group(**made)


def is_path(kind: Any) -> bool:
    """Whether an option of that type names a file."""
    return Path in (kind, *get_args(kind))


def fits(value: Any, kind: Any) -> bool:
    """Whether a value of a JSON document is of a type."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(fits(value, one) for one in inner)
    if origin is Literal:
        return isinstance(value, str) and value in inner
    if origin is list:
        return isinstance(value, list) and all(fits(entry, inner[0]) for entry in value)
    if origin is Mapping:
        return isinstance(value, dict) and all(fits(entry, inner[1]) for entry in value.values())
    if kind is float:
        return type(value) in (int, float)
    return kind is Any or type(value) is (str if kind is Path else kind)


def _called(kind: Any) -> str:
    origin, inner = get_origin(kind), get_args(kind)
    if origin is not list and inner:
        return " or ".join(map(repr if origin is Literal else _called, inner))
    names = {str: "text", Path: "a path", int: "a whole number", float: "a number", bool: "true or false"}
    return names.get(kind, "a list of texts" if origin is list else "null")


@dataclass(frozen=True)
class Files:
    """The training and the validation table."""

    train: Path = argument(
        "Training rows: Parquet, CSV, Feather/Arrow, JSON lines, .npz; a folder or a quoted pattern of parts.",
        metavar="TRAIN",
    )
    val: Path = argument("Validation rows, with the same columns.", metavar="VAL")


@dataclass(frozen=True)
class OneOrTwo:
    """The training and the validation table, or one table for both."""

    train: Path = argument(
        "Training rows: Parquet, CSV, Feather/Arrow, JSON lines, .npz; a folder or a quoted pattern of parts.",
        metavar="TRAIN",
    )
    val: Path | None = argument(
        "Validation rows, with the same columns. Without VAL, every row is valued on the other rows of TRAIN.",
        default=None,
        metavar="[VAL]",
    )


@dataclass(frozen=True)
class Checked:
    """A table whose labels are checked, and rows whose labels are right."""

    train: Path = argument(
        "Rows to check: Parquet, CSV, Feather/Arrow, JSON lines, .npz; a folder or a quoted pattern of parts.",
        metavar="TABLE",
    )
    val: Path | None = option(None, "Rows whose labels are known to be correct, with the same columns.", metavar="FILE")


@dataclass(frozen=True)
class Folds:
    """Which rows of one table a row is valued on."""

    panel: ClassVar[str] = "Without VAL"
    groups: str | None = option(
        None, "Group column, such as a patient: no row is valued on rows of its own group.", metavar="COLUMN"
    )
    time: str | None = option(None, "Time column: rows are valued on later rows only.", metavar="COLUMN")
    folds: int | None = option(None, "Number of folds.", metavar="N", min=2)


@dataclass(frozen=True)
class Columns:
    """Roles of columns, and how features are made from them."""

    panel: ClassVar[str] = "Columns"
    label: str | None = option(None, "Label column. Not needed for .npz.", "-y", metavar="COLUMN")
    id: str | None = option(None, "Row id column.", metavar="COLUMN")
    owner: str | None = option(None, "Owner column.", metavar="COLUMN")
    drop: list[str] | None = option(
        None, "Columns to leave out: repeat the option, or separate by commas.", metavar="COLUMN"
    )
    features: list[str] | None = option(None, "Feature columns; by default all remaining columns.", metavar="COLUMN")
    scale: Literal["standard", "robust", "none"] = option(
        "standard", "Scaling of number columns, fitted on the training rows."
    )
    categorical: Literal["onehot", "ordinal"] = option("onehot", "How categories are encoded.")
    impute: Literal["median", "mean", "most_frequent"] | None = option(
        None, "How to fill in missing values; without this option they are an error."
    )
    text: list[str] | None = option(None, "Columns of texts to turn into vectors with --embed.", metavar="COLUMN")
    image: list[str] | None = option(
        None,
        "Columns of images to turn into vectors with --embed: bytes, or paths of files in the folder of the table.",
        metavar="COLUMN",
    )
    embed: str | None = option(
        None,
        "Folder of a model for --text (sentence-transformers) or --image (torchvision), or the name of one for texts; "
        "by default all-MiniLM-L6-v2. Vectors are cached, so a killed run resumes.",
        metavar="MODEL",
    )


@dataclass(frozen=True)
class Sample:
    """What the validation rows are a sample of."""

    panel: ClassVar[str] = Columns.panel
    clusters: str | None = option(
        None,
        "Cluster column of VAL, equal for rows that depend on each other, such as readings of one patient: "
        "sampling errors then count clusters instead of rows.",
        metavar="COLUMN",
    )
    pool: bool = option(
        False, "Also use the training rows as validation points, weighted by how well they agree with VAL."
    )


@dataclass(frozen=True)
class Weights:
    """How much each validation row counts."""

    panel: ClassVar[str] = Columns.panel
    point_weight: str | None = option(
        None,
        "Weights of the rows of VAL: 'balanced' gives all classes the same total weight; else a column of weights, "
        "such as costs. A column called 'balanced' cannot be used.",
        metavar="COLUMN|balanced",
    )


@dataclass(frozen=True)
class Order:
    """Which training rows join first."""

    panel: ClassVar[str] = Columns.panel
    order: str | None = option(
        None,
        "Column of TRAIN that orders the rows, such as a date: the value of a row is what it adds to the earlier "
        "rows. Rows with equal entries join together.",
        metavar="COLUMN",
    )


@dataclass(frozen=True)
class Method:
    """How rows are valued."""

    panel: ClassVar[str] = "Method"
    method: str = option(
        "knn",
        "knn, regression (the label is a number), threshold:radius=R, weighted, or another of 'shapshift methods'; "
        "with parameters, weighted:weights=gaussian,bits=4.",
        metavar="NAME",
    )
    neighbors: int = option(5, "K of the KNN classifier.", "-k", metavar="K", min=1)
    utility: Literal["soft", "hard"] = option("soft", "soft: divide votes by the number of voters; hard: by K.")
    semivalue: str | None = option(
        None,
        "shapley, banzhaf, loo, calibrated, filled (Shapley values over subsets of at least 2K rows), banzhaf:W like "
        "banzhaf:0.1, or beta:ALPHA,BETA like beta:4,1; "
        "with --method sampled also distributional:N such as distributional:50.",
        metavar="NAME",
        show_default="shapley; filled with --pay-by clusters",
    )
    metric: Literal["euclidean", "sqeuclidean", "manhattan", "cosine"] = option("euclidean", "Distance between rows.")
    ties: Literal["average", "index"] = option(
        "average", "Rows at equal distance: average over all orders, or order them by row number."
    )
    boundary_neighbors: int = option(
        5, "Number of nearest rows whose labels decide whether a point is a boundary point.", metavar="N", min=1
    )
    boundary_entropy: float = option(
        0.0, "Entropy of these labels (nats) above which a point is a boundary point.", metavar="NATS", min=0.0
    )
    device: Literal["cpu", "cuda", "auto"] = option(
        "cpu", "Where values are computed. cuda: a GPU; auto: a GPU if available."
    )
    jobs: int = option(-1, "Threads; -1 is all processors. Never changes a result.", "-j", metavar="N")
    cluster: str = option(
        "local",
        "Where the work runs: local, dask://host:port or ray://host:port. Never changes a result.",
        metavar="ADDRESS",
        recorded=False,
    )
    max_memory: str | None = option(
        None,
        "Memory limit for each table, and for what valuing allocates besides the rows, such as 2GB. Changes no result.",
        metavar="SIZE",
    )


@dataclass(frozen=True)
class Restart:
    """Progress from which a killed run resumes."""

    panel: ClassVar[str] = Method.panel
    checkpoint: Path | None = option(
        None,
        "Keep progress here; after a crash the same command resumes from it. Never changes a result. With --method "
        "sampled it is a file.",
        metavar="PATH",
        recorded=False,
    )


@dataclass(frozen=True)
class Noise:
    """What is done to the validation set."""

    panel: ClassVar[str] = "Perturbations"
    noise: str | None = option(
        None,
        "Levels of Gaussian feature noise, such as 0.1,0.2,0.5 (after scaling, so in standard deviations).",
        metavar="LEVELS",
    )
    relative: bool = option(False, "Take --noise in standard deviations of each feature, whatever the scaling.")
    perturb: list[str] | None = option(
        None,
        "Instead of --noise, one per level: laplace:epsilon=1, round:1, quantize:step=0.5, mask:0.1, flip:0.05, "
        "subsample:0.5, coverage:0.3, priors:yes=0.7, gaussian:0.5; gaussian:0.5@boundary (or @nonboundary) changes "
        "only these points; 'round:1 | flip:0.1' applies both.",
        metavar="SPEC",
    )
    repeats: int = option(20, "Runs per level.", metavar="N", min=1)


@dataclass(frozen=True)
class Rule:
    """Rule of the correction."""

    panel: ClassVar[str] = "Correction"
    rule: Literal["default", "paper"] = option(
        "default",
        "default: match the clean positive count exactly, and leave parts of under 5 points unchanged; paper: the "
        "published rule, with the nearest quantile and parts of any size.",
    )


@dataclass(frozen=True)
class Payment:
    """How the budget is shared out."""

    panel: ClassVar[str] = "Payment"
    budget: str | None = option(None, "Amount to pay out, such as 10000 or 99.50.", metavar="AMOUNT")
    pay_by: Literal["clusters", "rows", "owners", "precedence"] | None = option(
        None,
        "clusters: copies and near copies of a row count once, for whoever was first; invites copies too noisy for the "
        "radius. rows: all rows; invites copies. owners: an owner's rows entering together; invites splitting into two "
        "names. precedence: rows in the order of --order; invites being first, and near copies.",
        show_default="clusters; rows with --values",
    )
    radius: float | None = option(
        None,
        "Distance up to which rows of equal label are copies, in standard deviations of the features; 0: equal rows.",
        metavar="DISTANCE",
        min=0.0,
        show_default="from the data",
    )
    near_copies: bool = option(
        False,
        "Test each owner for copies with more noise than the radius: if found, the owner's rows that lie unusually "
        "near earlier rows do not vote. Honest repeated measurements look the same. Compares all rows of a label.",
    )
    order: str | None = option(
        None,
        "Column of TRAIN that says when rows were submitted: dates or numbers. The earliest of equal rows counts, so "
        "it must be your own record, not a column that sellers fill in.",
        metavar="COLUMN",
        show_default="order of the table",
    )
    policy: Literal["carry", "clip"] = option(
        "carry",
        "carry: rows with negative values reduce what their owner is paid; without --deposit that invites hiding bad "
        "rows under a second name. clip: treat negative values as zero; invites random rows.",
    )
    deposit: str = option("0", "With carry, the most that an owner with a negative total is charged.", metavar="AMOUNT")
    floor: str = option("0", "Minimum payout of every owner; invites more names.", metavar="AMOUNT")
    cap: str | None = option(
        None,
        "Maximum payout: an amount, or a share such as 30%; invites splitting into several names.",
        metavar="AMOUNT",
    )
    reserve: str = option("0", "Part of the budget to keep back: an amount, or a share such as 5%.", metavar="AMOUNT")
    odd_cents: Literal["draw", "keep"] = option(
        "draw", "Indivisible cents between exactly equal owners: draw by hash, or keep back."
    )
    currency: str = option("EUR", "How amounts are labelled.", metavar="TEXT")


@dataclass(frozen=True)
class Letter:
    """Further text on statements to owners."""

    panel: ClassVar[str] = "Statements"
    issuer: str | None = option(None, "Name of the payer.", metavar="TEXT")
    contact: str | None = option(None, "Contact for owners, such as an e-mail address.", metavar="TEXT")
    period: str | None = option(None, "Period that is paid for, such as 'October 2026'.", metavar="TEXT")
    date: str | None = option(None, "Date of the statements.", metavar="YYYY-MM-DD")
    contest_until: str | None = option(None, "Last date to contest a payment.", metavar="YYYY-MM-DD")
    locale: str = option(
        "en",
        "How amounts, numbers and dates are written, such as de, de_CH or ja. Sentences are English.",
        metavar="TEXT",
    )


@dataclass(frozen=True)
class Private:
    """Protection of the validation set against what payouts reveal."""

    panel: ClassVar[str] = "Payment"
    round_to: str | None = option(
        None, "Round payouts to multiples of an amount, against probing of VAL by resubmission.", metavar="AMOUNT"
    )
    epsilon: float | None = option(
        None,
        "Add noise to what owners are paid for: epsilon-differential privacy of the rows of VAL. Needs --secret.",
        metavar="E",
    )
    secret: Path | None = option(
        None, "File of at least 16 random bytes that only you know, from which the noise comes.", metavar="FILE"
    )


@dataclass(frozen=True)
class Output:
    """Where results go."""

    panel: ClassVar[str] = "Output"
    out: Path | None = option(
        None, "Folder for the results.", "-o", metavar="FOLDER", show_default="shapshift-COMMAND", recorded=False
    )
    force: bool = option(False, "Replace existing results.", "-f", recorded=False)
    seed: int = option(0, "Random seed; the same seed gives the same bytes.", metavar="N", min=0)


@dataclass(frozen=True)
class Said:
    """What every command prints."""

    panel: ClassVar[str] = Output.panel
    json: bool = option(False, "Print one JSON document on stdout instead of text.", recorded=False)
    quiet: bool = option(False, "Show only warnings and errors.", "-q", recorded=False)
    debug: bool = option(False, "Show the traceback of an error.", envvar="SHAPSHIFT_DEBUG", recorded=False)


@dataclass(frozen=True)
class Page:
    """The report of a run."""

    panel: ClassVar[str] = Output.panel
    report: Path | None = option(
        None, "Also write a page to open in a browser, such as out.html.", metavar="FILE", recorded=False
    )
    raw_features: bool | None = option(
        None,
        "Show feature values of single rows, and a map of all rows, on the page.",
        "--raw-features/--no-raw-features",
        show_default="only if rows have no owners",
    )


@dataclass(frozen=True)
class Tables:
    """How tables of results are written."""

    panel: ClassVar[str] = Output.panel
    format: Literal["parquet", "csv"] = option("parquet", "Format of the tables of rows.")
