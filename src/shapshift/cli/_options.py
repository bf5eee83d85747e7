"""The options that several commands share, in groups. A command takes whole groups; see ``_commands.command``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

COLUMNS = "Columns"
METHOD = "Method"
NOISE = "Perturbations"
OUTPUT = "Output"

Format = Literal["parquet", "csv"]


def option(*names: str, panel: str, text: str, **more: Any) -> Any:
    """Describe an option that stands in a panel of the help."""
    return typer.Option(*names, rich_help_panel=panel, help=text, **more)


@dataclass(frozen=True)
class Files:
    """The training and the validation table."""

    train: Annotated[
        Path,
        typer.Argument(
            metavar="TRAIN",
            help="Training rows: Parquet, CSV, Feather/Arrow, JSON lines, .npz; a folder or a quoted pattern of parts.",
            show_default=False,
        ),
    ]
    val: Annotated[
        Path, typer.Argument(metavar="VAL", help="Validation rows, with the same columns.", show_default=False)
    ]


@dataclass(frozen=True)
class Columns:
    """Which columns mean what, and how features are made of them."""

    label: Annotated[
        str | None,
        option("--label", "-y", metavar="COLUMN", panel=COLUMNS, text="Column of the class. Not needed for .npz."),
    ] = None
    id: Annotated[str | None, option("--id", metavar="COLUMN", panel=COLUMNS, text="Column that names the rows.")] = (
        None
    )
    owner: Annotated[
        str | None, option("--owner", metavar="COLUMN", panel=COLUMNS, text="Column that says whose a row is.")
    ] = None
    drop: Annotated[
        list[str] | None,
        option(
            "--drop",
            metavar="COLUMN",
            panel=COLUMNS,
            text="Columns to leave out: repeat the option, or separate by commas.",
        ),
    ] = None
    features: Annotated[
        list[str] | None,
        option("--features", metavar="COLUMN", panel=COLUMNS, text="The feature columns; by default all that remain."),
    ] = None
    scale: Annotated[
        Literal["standard", "robust", "none"],
        option("--scale", panel=COLUMNS, text="Scale numbers, fitted on the training rows."),
    ] = "standard"
    categorical: Annotated[
        Literal["onehot", "ordinal"], option("--categorical", panel=COLUMNS, text="How categories become numbers.")
    ] = "onehot"
    impute: Annotated[
        Literal["median", "mean", "most_frequent"] | None,
        option("--impute", panel=COLUMNS, text="Fill in missing values; they are refused without this."),
    ] = None
    embed: Annotated[
        list[str] | None,
        option("--embed", metavar="COLUMN", panel=COLUMNS, text="Text columns to embed with sentence-transformers."),
    ] = None


@dataclass(frozen=True)
class Method:
    """How rows are valued."""

    method: Annotated[
        str,
        option(
            "--method",
            metavar="NAME",
            panel=METHOD,
            text="knn, regression (the label is a number), threshold:radius=R, weighted, or another of "
            "'shapshift methods'; parameters follow as in weighted:weights=gaussian,bits=4.",
        ),
    ] = "knn"
    neighbors: Annotated[
        int, option("--neighbors", "-k", metavar="K", min=1, panel=METHOD, text="K of the KNN classifier.")
    ] = 5
    utility: Annotated[
        Literal["soft", "hard"], option("--utility", panel=METHOD, text="Votes divided by the voters, or by K.")
    ] = "soft"
    semivalue: Annotated[
        str,
        option(
            "--semivalue",
            metavar="NAME",
            panel=METHOD,
            text="shapley, banzhaf, loo, calibrated, or beta:ALPHA,BETA such as beta:4,1; with --method sampled also "
            "distributional:N such as distributional:50.",
        ),
    ] = "shapley"
    metric: Annotated[
        Literal["euclidean", "sqeuclidean", "manhattan", "cosine"],
        option("--metric", panel=METHOD, text="Distance between rows."),
    ] = "euclidean"
    ties: Annotated[
        Literal["average", "index"],
        option("--ties", panel=METHOD, text="Rows at equal distance: average over orders, or by row number."),
    ] = "average"
    device: Annotated[
        Literal["cpu", "cuda", "auto"],
        option(
            "--device",
            panel=METHOD,
            text="Where values are computed: cuda is a graphics card, auto is one where there is one.",
        ),
    ] = "cpu"
    jobs: Annotated[
        int,
        option(
            "--jobs", "-j", metavar="N", panel=METHOD, text="Threads; -1 is all processors. Never changes a result."
        ),
    ] = -1
    cluster: Annotated[
        str,
        option(
            "--cluster",
            metavar="ADDRESS",
            panel=METHOD,
            text="Who does the work: local, dask://host:port or ray://host:port. Never changes a result.",
        ),
    ] = "local"
    max_memory: Annotated[
        str | None,
        option(
            "--max-memory",
            metavar="SIZE",
            panel=METHOD,
            text="Bound on working memory, such as 2GB. Never changes a result.",
        ),
    ] = None


@dataclass(frozen=True)
class Restart:
    """What a run that was killed goes on from."""

    checkpoint: Annotated[
        Path | None,
        option(
            "--checkpoint",
            metavar="PATH",
            panel=METHOD,
            text="Keep progress here; the same command goes on from it after a crash. Never changes a result. With "
            "--method sampled it is a file.",
        ),
    ] = None


@dataclass(frozen=True)
class Noise:
    """What is done to the validation set."""

    noise: Annotated[
        str | None,
        option(
            "--noise",
            metavar="LEVELS",
            panel=NOISE,
            text="Levels of Gaussian feature noise, such as 0.1,0.2,0.5 (after scaling, so in standard deviations).",
        ),
    ] = None
    relative: Annotated[
        bool,
        option("--relative", panel=NOISE, text="Read --noise in standard deviations of each feature, however scaled."),
    ] = False
    perturb: Annotated[
        list[str] | None,
        option(
            "--perturb",
            metavar="SPEC",
            panel=NOISE,
            text="Instead of --noise, one per level: laplace:epsilon=1, round:1, quantize:step=0.5, mask:0.1, "
            "flip:0.05, subsample:0.5, coverage:0.3, priors:yes=0.7, gaussian:0.5; 'round:1 | flip:0.1' does both.",
        ),
    ] = None
    repeats: Annotated[int, option("--repeats", metavar="N", min=1, panel=NOISE, text="Runs per level.")] = 20


@dataclass(frozen=True)
class Output:
    """Where results go and what is said."""

    out: Annotated[
        Path | None,
        option(
            "--out",
            "-o",
            metavar="FOLDER",
            panel=OUTPUT,
            text="Folder for the results.",
            show_default="shapshift-COMMAND",
        ),
    ] = None
    force: Annotated[bool, option("--force", "-f", panel=OUTPUT, text="Replace results that are there.")] = False
    seed: Annotated[int, option("--seed", metavar="N", min=0, panel=OUTPUT, text="Same seed, same bytes.")] = 0
    json: Annotated[bool, option("--json", panel=OUTPUT, text="Print one JSON document on stdout instead of text.")] = (
        False
    )
    quiet: Annotated[bool, option("--quiet", "-q", panel=OUTPUT, text="Say nothing but warnings and errors.")] = False
    debug: Annotated[
        bool,
        option("--debug", envvar="SHAPSHIFT_DEBUG", panel=OUTPUT, text="Show the traceback of an error."),
    ] = False


@dataclass(frozen=True)
class Page:
    """The report of a run."""

    report: Annotated[
        Path | None,
        option(
            "--report", metavar="FILE", panel=OUTPUT, text="Also write a page to open in a browser, such as out.html."
        ),
    ] = None


@dataclass(frozen=True)
class Tables:
    """How tables of results are written."""

    format: Annotated[Format, option("--format", panel=OUTPUT, text="Format of the tables of rows.")] = "parquet"
