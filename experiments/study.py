"""Your own studies: value, perturb, value again, correct, compare, with any data, model, perturbation and corrector.

:func:`measure` does this for one model and one validation set; :func:`run_study` for all combinations in a
:class:`Study`. A study can also be written as a TOML file, see :mod:`experiments.study_file`.
"""

import copy
import math
import os
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import clone

import shapshift
from experiments.cells import run_cells
from experiments.tables import interval, markdown_table, select, write_page, write_table
from shapshift import BoundaryCorrector, EntropyNormalizer, GaussianNoise, KNNShapley, PosteriorCorrector, Valuation
from shapshift.agreement import agreement, distribution, neighbor_jaccard
from shapshift.audit._levels import Level
from shapshift.checks import inputs as check
from shapshift.checks.identity import UndescribedError, content_hash
from shapshift.checks.labels import check_labels, check_same_order
from shapshift.correct import CorrectionWarning
from shapshift.data import PROTOCOLS, load_dataset
from shapshift.data.dataset import split_sizes
from shapshift.engine.checkpoint import digest_arrays
from shapshift.exceptions import InputError
from shapshift.perturb import Perturbation, as_perturbation
from shapshift.perturb.base import digest, keeps_points, plain, without_seeds
from shapshift.plots._figure import CLEAN, as_written, new_axes, save_figure, tidy
from shapshift.tables import TableSpec, file_digest, prepare, read_table
from shapshift.valuation import check_returned, corrected_by

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Record = dict[str, Any]

#: Statistics of a record, in the order of the tables.
STATISTICS = {
    "mean": "mean value",
    "std": "standard deviation",
    "std_ratio": "standard deviation / clean",
    "positive_count": "positive values",
    "wasserstein": "W1 to clean",
    "spearman": "Spearman with clean",
    "rmse": "RMSE to clean",
    "size": "mean size of values",
    "range": "range of values",
    "flips_to_negative": "rows that turn negative",
    "flips_to_positive": "rows that turn positive",
    "boundary_fraction": "boundary share",
    "jaccard": "shared neighbours",
}
#: Statistics on the page and in the figure.
SHOWN = ("std_ratio", "positive_count", "wasserstein", "spearman")
COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
CELL = ["data", "model", "perturbation", "version"]


# --- one model and one validation set --------------------------------------------------------------------------------


class Measured(NamedTuple):
    """One valuation of :func:`measured`, and its statistics compared with the clean values.

    Attributes
    ----------
    perturbation : str
        Name of the perturbation; empty for the clean values.
    version : str
        "clean", "noisy", or the name of the corrector.
    valuation : Valuation
    record : dict
        ``perturbation``, ``version`` and the statistics in `STATISTICS`; distances are in standard deviations of the
        clean values.
    """

    perturbation: str
    version: str
    valuation: Valuation
    record: Record


def measure(
    model: Any, X_val: Any, y_val: Any, perturbations: Mapping[str, Any], correctors: Mapping[str, Any]
) -> list[Record]:
    """Value a validation set clean, perturbed and corrected; return one record per perturbation and version.

    Parameters
    ----------
    model : fitted model
        With ``value(X_val, y_val) -> Valuation``.
    X_val, y_val
        The clean validation set.
    perturbations : mapping of str to perturbation
        Perturbations or functions, as :mod:`shapshift.perturb` takes them, by name.
    correctors : mapping of str to object
        Objects with ``fit(clean)`` and ``transform(noisy)``, both given a Valuation; ``transform`` returns one, for
        instance ``dataclasses.replace(noisy, values=...)``. :class:`~shapshift.PosteriorCorrector`, which takes points,
        may be among them. They are copied before they are fitted.

    Returns
    -------
    list of dict
        The clean values first, see :class:`Measured`.

    Examples
    --------
    >>> from shapshift import BoundaryCorrector, GaussianNoise, KNNShapley
    >>> from shapshift.data import load_dataset
    >>> data = load_dataset("gaussian", n_train=200, n_val=100)
    >>> model = KNNShapley().fit(data.X_train, data.y_train)
    >>> noise = {"noise 1": GaussianNoise(1.0, random_state=0)}
    >>> records = measure(model, data.X_val, data.y_val, noise, {"boundary": BoundaryCorrector()})
    >>> [record["version"] for record in records]
    ['clean', 'noisy', 'boundary']
    """
    return [found.record for found in measured(model, X_val, y_val, perturbations, correctors)]


def measured(
    model: Any,
    X_val: Any,
    y_val: Any,
    perturbations: Mapping[str, Any],
    correctors: Mapping[str, Any],
    *,
    matrix: bool = False,
) -> Iterator[Measured]:
    """Yield the valuations for :func:`measure` with their records; with ``matrix``, also values on single points."""
    options = {"matrix": True} if matrix else {}
    clean, near = _value(model, X_val, y_val, options)
    labels = check_labels(y_val, "y_val", clean.n_val, "X_val")
    fitted = {name: _fitted(name, corrector, clean) for name, corrector in correctors.items()}
    yield _compared("", "clean", clean, clean, 1.0)
    for name, given in perturbations.items():
        perturbation = as_perturbation(given).bind(model)
        X, y = perturbation(X_val, y_val)
        noisy, moved = _value(model, X, y, options)
        jaccard = math.nan
        if near is not None and moved is not None and keeps_points(perturbation, labels, y):
            jaccard = float(neighbor_jaccard(near.nearest, moved.nearest).mean())
        yield _compared(name, "noisy", noisy, clean, jaccard)
        for version, corrector in fitted.items():
            yield _compared(name, version, corrected(corrector, noisy, model, (X, y)), clean, jaccard)


def _value(model: Any, X_val: Any, y_val: Any, options: Mapping[str, Any]) -> tuple[Valuation, Any]:
    """Values, and the nearest rows if the model provides them."""
    if hasattr(model, "value_and_neighbors"):
        found: tuple[Valuation, Any] = model.value_and_neighbors(X_val, y_val, **options)
        return found
    return check_returned("measure", model, model.value(X_val, y_val, **options)), None


def must_be_object(what: str, given: Any, methods: tuple[str, str]) -> None:
    """Refuse a class, and an object without one of the methods."""
    if isinstance(given, type) or not all(callable(getattr(given, method, None)) for method in methods):
        hint = f" Did you mean {given.__name__}(...)?" if isinstance(given, type) else ""
        first, second = methods
        raise InputError(
            f"The {what} must be an object with {first!r} and {second!r}. Got {check.quoted(given)}.{hint}"
        )


def _fitted(name: str, corrector: Any, clean: Valuation) -> Any:
    must_be_object(f"corrector {name!r}", corrector, ("fit", "transform"))
    own = clone(corrector) if hasattr(corrector, "get_params") else copy.deepcopy(corrector)
    if not isinstance(own, PosteriorCorrector):
        own.fit(clean)
    return own


def corrected(corrector: Any, noisy: Valuation, model: Any = None, points: tuple[Any, Any] | None = None) -> Valuation:
    """Correct values by a fitted corrector; a :class:`~shapshift.PosteriorCorrector` needs model and noisy points."""
    with warnings.catch_warnings():
        # A noisy validation set can have no boundary points; the documented rule then applies.
        warnings.simplefilter("ignore", CorrectionWarning)
        if isinstance(corrector, PosteriorCorrector) and points is not None:
            return corrector.correct(model, *points)
        return corrected_by("measure", corrector, noisy)


def compare(values: Floats, clean: Floats) -> dict[str, float]:
    """Compare values with the clean ones, as distributions and row by row: every statistic in `STATISTICS` but two.

    Those two, the boundary share and the shared neighbours, describe validation points, not values.
    """
    found = distribution(values, clean) | agreement(values, clean)
    found |= {"size": float(np.abs(values).mean()), "range": float(np.ptp(values))}
    return {name: found[name] for name in STATISTICS if name in found}


def _compared(perturbation: str, version: str, valuation: Valuation, clean: Valuation, jaccard: float) -> Measured:
    record: Record = {"perturbation": perturbation, "version": version, **compare(valuation.values, clean.values)}
    record |= {"boundary_fraction": valuation.boundary_fraction, "jaccard": jaccard}
    return Measured(perturbation, version, valuation, record)


# --- studies ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Files:
    """Data of a study in files.

    Parameters
    ----------
    train : path-like
        As in :func:`shapshift.tables.read_table`.
    val : path-like, optional
        The validation rows. Without it, every seed makes its own split of the rows of ``train``.
    label : str
        Class column.
    columns : mapping, optional
        Further parameters of :class:`shapshift.tables.TableSpec`, such as ``drop`` and ``scale``.
    """

    train: str | os.PathLike[str]
    val: str | os.PathLike[str] | None = None
    label: str
    columns: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Study:
    """Definition of a study; every combination of data, model and perturbation is measured with every seed.

    Parameters
    ----------
    data : mapping of str to source
        By name: ``(X_train, y_train, X_val, y_val)``; ``(X, y)``, split by every seed; a :class:`Files`; or the name of
        a dataset of :func:`shapshift.data.load_dataset`, also split by every seed.
    perturbations : mapping of str to perturbation, optional
        See :func:`measure`. Each gets a seed derived from the run's seed and its own parameters.
    noise : sequence of float, default=()
        Levels of Gaussian noise, as additional perturbations.
    relative : bool, default=True
        Whether ``noise`` is in standard deviations of each feature over the training rows.
    models : mapping of str to model, optional
        Models, not fitted; by default :class:`~shapshift.KNNShapley` with K = 5.
    correctors : mapping of str to object, optional
        See :func:`measure`; by default the boundary correction and the entropy normalisation, as published.
    seeds : int, default=5
        Runs of each combination; intervals are over them.
    n_train, n_val : int, optional
        Sizes of splits by seed; by default those of :func:`shapshift.data.load_dataset`: 2,000 and 1,000, or
        two thirds and one third of fewer rows.
    protocol : {"natural", "balanced"}, default="natural"
        Protocol of named datasets, see :func:`shapshift.data.load_dataset`.
    name : str, default="study"
        Title of the page.
    """

    data: Mapping[str, Any]
    perturbations: Mapping[str, Any] = field(default_factory=dict)
    noise: Sequence[float] = ()
    relative: bool = True
    models: Mapping[str, Any] = field(default_factory=lambda: {"knn": KNNShapley(5, progress=False)})
    correctors: Mapping[str, Any] = field(
        default_factory=lambda: {
            "boundary": BoundaryCorrector(rule="paper"),
            "entropy": EntropyNormalizer(rule="paper"),
        }
    )
    seeds: int = 5
    n_train: int | None = None
    n_val: int | None = None
    protocol: str = "natural"
    name: str = "study"

    def __post_init__(self) -> None:
        for which in ("data", "perturbations", "models", "correctors"):
            given = getattr(self, which)
            if not isinstance(given, Mapping):
                raise check.wrong("Study", which, "a mapping from names", given)
            object.__setattr__(self, which, MappingProxyType({str(name): entry for name, entry in given.items()}))
        for which in ("data", "models"):
            if not getattr(self, which):
                raise InputError(f"The {which!r} parameter of Study is empty: at least one is needed.")
        for which, methods in (("models", ("fit", "value")), ("correctors", ("fit", "transform"))):
            for name, entry in getattr(self, which).items():
                must_be_object(f"{which.removesuffix('s')} {name!r}", entry, methods)
        check.check_count("Study", "seeds", self.seeds)
        check.check_choice("Study", "protocol", self.protocol, PROTOCOLS)
        for which in ("n_train", "n_val"):
            if getattr(self, which) is not None:
                check.check_count("Study", which, getattr(self, which))
        if {"clean", "noisy"} & set(self.correctors):
            raise InputError("The 'correctors' parameter of Study must not use the names 'clean' and 'noisy'.")
        if not self.levels():
            raise InputError("Study needs 'noise' or 'perturbations': at least one level.")

    def levels(self) -> dict[str, Perturbation]:
        """All perturbations by name, those of ``noise`` first."""
        given: Any = self.noise
        if isinstance(given, str) or not hasattr(given, "__iter__"):
            raise check.wrong("Study", "noise", "a list of numbers", given)
        noise = [GaussianNoise(sigma, relative=self.relative) for sigma in given]
        short = [f"noise {level.sigma:g}" for level in noise]
        names = short if len(set(short)) == len(short) else [f"noise {float(level.sigma)!r}" for level in noise]
        twice = [name for name, times in Counter([*names, *self.perturbations]).items() if times > 1]
        if twice:
            raise InputError(f"The levels of Study must have different names. {check.some(twice)} is there twice.")
        return dict(zip(names, noise, strict=True)) | {
            name: as_perturbation(given) for name, given in self.perturbations.items()
        }


@dataclass(frozen=True)
class StudyResult:
    """Results of a study.

    Attributes
    ----------
    study : Study
    records : DataFrame
        One row per data, model, seed, perturbation and version; columns as in `STATISTICS`.
    """

    study: Study
    records: pd.DataFrame

    def summary(self) -> pd.DataFrame:
        """Mean over seeds of every statistic, with its 95% interval: one row per combination and statistic."""
        rows = []
        for cell, here in self.records.groupby(CELL, sort=False):
            for statistic in STATISTICS:
                found = interval(here[statistic])
                rows.append(
                    dict(zip(CELL, cell, strict=True))
                    | {"statistic": statistic, "mean": found.mean, "low": found.low, "high": found.high}
                )
        return pd.DataFrame(rows)

    def plot(self) -> Any:
        """Draw the shown statistics against the perturbations, a row of panels per data and model."""
        pairs = self.records[["data", "model"]].drop_duplicates().to_numpy().tolist()
        levels = list(self.study.levels())
        axes = np.atleast_2d(new_axes(len(pairs), len(SHOWN), size=(3.4, 3.0)))
        for row, (data, model) in zip(axes, pairs, strict=True):
            here = select(self.records, data=data, model=model)
            for ax, statistic in zip(row, SHOWN, strict=True):
                clean = interval(select(here, version="clean")[statistic]).mean
                ax.axhline(clean, color=CLEAN, ls=":", label="clean")
                versions = ("noisy", *self.study.correctors)
                for number, version in enumerate(versions):
                    at = select(here, version=version)
                    curve = [interval(select(at, perturbation=level)[statistic]) for level in levels]
                    means = np.array([point.mean for point in curve])
                    ends = [means - [point.low for point in curve], [point.high for point in curve] - means]
                    places = np.arange(len(levels)) + 0.6 * ((number + 0.5) / len(versions) - 0.5)
                    style = {"color": COLOURS[number % len(COLOURS)], "label": as_written(version, 60)}
                    ax.errorbar(places, means, ends, fmt="o", ms=3.5, lw=1.2, **style)
                ax.set_xticks(range(len(levels)), [as_written(level, 24) for level in levels], rotation=30, ha="right")
                tidy(ax, title=STATISTICS[statistic])
            row[0].set_ylabel(f"{as_written(data, 24)}, {as_written(model, 30)}", fontsize=9)
        axes[0, 0].figure.legend(
            *axes[0, 0].get_legend_handles_labels(), loc="outside upper left", ncols=6, frameon=False, fontsize=9
        )
        return axes

    def write(self, folder: Path, page: Path | None = None) -> Path:
        """Write ``tables/`` (CSV and LaTeX), ``study.png`` and ``.svg``, and a page; return the page."""
        write_table(folder / "tables" / "records", self.records)
        write_table(folder / "tables" / "summary", self.summary())
        save_figure(self.plot(), folder / "study", close=True)
        page = page or folder / "study.md"
        study = self.study

        def link(file: str) -> str:
            return os.path.relpath(folder / file, page.parent).replace(os.sep, "/")

        parts = [
            f"# {study.name}\n",
            f"Means over {study.seeds} seeds with 95% intervals. *W1* is the Wasserstein distance to the clean values, "
            "in their standard deviations; *Spearman* the rank correlation with them.\n",
            f"![{', '.join(STATISTICS[name] for name in SHOWN)}]({link('study.png')})\n",
        ]
        for (data, model), here in self.records.groupby(["data", "model"], sort=False):
            parts += [f"## {data}, {model}\n", markdown_table(_rows(here))]
        parts.append(f"Every run: `{link('tables/records.csv')}`; all statistics: `{link('tables/summary.csv')}`.\n")
        return write_page(page, parts)


def _rows(here: pd.DataFrame) -> list[dict[str, str]]:
    return [
        {"perturbation": str(perturbation).replace("|", "\\|"), "values": str(version).replace("|", "\\|")}
        | {STATISTICS[name]: interval(runs[name]).show(0 if name == "positive_count" else 2) for name in SHOWN}
        for (perturbation, version), runs in here.groupby(["perturbation", "version"], sort=False)
    ]


def run_study(study: Study, folder: str | os.PathLike[str] | None = None, page: Path | None = None) -> StudyResult:
    """Run a study.

    Parameters
    ----------
    study : Study
    folder : path-like, optional
        Output folder for tables, a figure, a page, and ``cells/`` with finished runs, from which an interrupted study
        resumes. By default nothing is written.
    page : Path, optional
        Where to write the page; ``study.md`` in the folder by default.

    Returns
    -------
    StudyResult

    Notes
    -----
    A finished run is reused if data, model, perturbations, correctors and seed are the same. Your own functions and
    classes are compared by source file, defaults, closures and attributes, but not by the code that they call in other
    files: delete ``cells/`` after a change there. Runs that depend on an object without a comparable description, such
    as a random generator as an attribute, are not stored.
    """
    sources = {name: open_source(name, given, study) for name, given in study.data.items()}
    cells: dict[tuple[str, str, int], str | None] = {}
    found: dict[tuple[str, str, int], list[Record]] = {}
    work: dict[tuple[str], tuple[str, Callable[[], Any]]] = {}
    for data, source in sources.items():
        for model, estimator in study.models.items():
            for seed in range(study.seeds):
                key = _key(source.digest, estimator, seed, study)
                cells[data, model, seed] = key
                compute = partial(_run, source, estimator, seed, study)
                if key is None or folder is None:
                    found[data, model, seed] = compute()
                else:
                    work[(key,)] = key, compute
    if folder is not None:
        stored = run_cells(Path(folder) / "cells", work)
        found |= {cell: stored[(key,)] for cell, key in cells.items() if key is not None}
    records = [
        {"data": data, "model": model, "seed": seed, **record}
        for data, model, seed in cells
        for record in found[data, model, seed]
    ]
    result = StudyResult(study, pd.DataFrame(records))
    if folder is not None:
        result.write(Path(folder), page)
    return result


def _run(source: "Source", estimator: Any, seed: int, study: Study) -> list[Record]:
    split = source.split(seed)
    own = clone(estimator) if hasattr(estimator, "get_params") else copy.deepcopy(estimator)
    model = own.fit(split.X_train, split.y_train)
    levels = {
        name: given.with_seed(next(Level(name, given, without_seeds(given.parameters)).seeds(seed, 1)))
        for name, given in study.levels().items()
    }
    return measure(model, split.X_val, split.y_val, levels, study.correctors)


def _key(data: str, estimator: Any, seed: int, study: Study) -> str | None:
    """Hash of all inputs of a run's records; None if one has no description."""
    levels = {name: given.with_seed(0) for name, given in study.levels().items()}  # a run seeds them itself
    try:
        given = content_hash([estimator, levels, study.correctors])
    except UndescribedError:
        return None
    return _hash(shapshift.__version__, data, seed, given)


# --- data ------------------------------------------------------------------------------------------------------------


class Split(NamedTuple):
    """A training and a validation set."""

    X_train: Any
    y_train: Array
    X_val: Any
    y_val: Array


class Source(NamedTuple):
    """Splits of a dataset by seed, and a hash of all their inputs except the seed."""

    digest: str
    split: Callable[[int], Split]


def open_source(name: str, given: Any, study: Study) -> Source:
    """Read the data of a study."""
    sizes: dict[str, Any] = {"n_train": study.n_train, "n_val": study.n_val}
    if isinstance(given, str):

        def load(seed: int) -> Split:
            data = load_dataset(given, random_state=seed, protocol=study.protocol, **sizes)
            return Split(data.X_train, data.y_train, data.X_val, data.y_val)

        source = load_dataset(given).sha256
        return Source(_hash(given, source, study.protocol, study.n_train, study.n_val), load)
    if isinstance(given, Files):
        content, n_rows, take = _open_files(name, given)
    else:
        content, n_rows, take = _check_arrays(name, given)
    if n_rows is None:  # training and validation rows were given
        whole = take(None, None)
        return Source(content, lambda seed: whole)
    n_train, n_val = split_sizes("Study", name, n_rows, **sizes)

    def draw(seed: int) -> Split:
        order = np.random.default_rng(seed).permutation(n_rows)
        return take(order[:n_train], order[n_train : n_train + n_val])

    return Source(_hash(content, n_train, n_val), draw)


@contextmanager
def _in_keys(name: str) -> Iterator[None]:
    """Make errors about files name the data, and keys instead of command-line options."""
    try:
        yield
    except (InputError, OSError) as error:
        said = re.sub(r"--([a-z]+)", r"the key '\1'", str(error))
        raise InputError(f"The data {name!r}: {said}") from error


def _open_files(name: str, given: Files) -> tuple[str, int | None, Callable[[Any, Any], Split]]:
    known = [one.name for one in fields(TableSpec) if one.name != "label"]
    for column in given.columns:
        if column not in known:
            raise InputError(f"The files of the data {name!r} do not take {column!r}. They take {', '.join(known)}.")
    paths = [given.train] if given.val is None else [given.train, given.val]
    with _in_keys(name):
        spec = TableSpec(given.label, **given.columns)
        tables = [read_table(path, text=[column for column in (spec.label, spec.id) if column]) for path in paths]
        content = _hash(plain(spec), *(file_digest(path) for path in paths))

    def take(train: Any, val: Any) -> Split:
        first, second = tables if given.val is not None else (tables[0].take(train), tables[0].take(val))
        with _in_keys(name):
            found = prepare(first, second, spec)
        return Split(found.X_train, found.y_train, found.X_val, found.y_val)

    return content, tables[0].num_rows if given.val is None else None, take


def _check_arrays(name: str, given: Any) -> tuple[str, int | None, Callable[[Any, Any], Split]]:
    parts = list(given) if isinstance(given, Sequence) else []
    if len(parts) not in (2, 4):
        raise InputError(
            f"The data {name!r} of a study must be (X_train, y_train, X_val, y_val), (X, y), a Files, or the name of a "
            f"dataset. Got {type(given).__name__}" + (f" of {len(parts)} entries." if parts else ".")
        )
    arrays: list[Any] = []
    columns = None
    for number in range(0, len(parts), 2):
        table = check.check_features(parts[number], f"{name}[{number}]")
        if number:
            table = check.match_columns(table, columns, arrays[0].shape[1], f"{name}[{number}]")
        columns, X = table.columns, table.rows
        check_same_order(parts[number], parts[number + 1])
        arrays += [X, check_labels(parts[number + 1], f"{name}[{number + 1}]", X.shape[0], f"{name}[{number}]")]
    content = _hash(plain(columns), *(digest_arrays(X) for X in arrays[::2]), *(plain(y) for y in arrays[1::2]))
    if len(arrays) == 4:
        return content, None, lambda train, val: Split(*arrays)
    X, y = arrays
    return content, y.size, lambda train, val: Split(X[train], y[train], X[val], y[val])


def _hash(*parts: Any) -> str:
    return digest(list(parts)).hex()
