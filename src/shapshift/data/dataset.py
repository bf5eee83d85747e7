"""Data sets ready for valuation: rows from any source, shuffled, split and scaled."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shapshift.checks import inputs as check
from shapshift.data import sources
from shapshift.data.sources import SOURCES, Floats, Folder, Ints
from shapshift.exceptions import InputError
from shapshift.io.files import cache_folder
from shapshift.io.results import to_table
from shapshift.io.shown import Shown

PROTOCOLS = ("natural", "balanced")

_N_TRAIN, _N_VAL = 2000, 1000


@dataclass(frozen=True, eq=False, repr=False)
class Dataset(Shown):
    """A training and a validation set, and their origin.

    Attributes
    ----------
    name, protocol : str
    X_train, X_val : ndarray of float64
    y_train, y_val : ndarray of int64
    feature_names : tuple of str
    rows_train, rows_val : ndarray of int64
        Source row of each row. Under "balanced", a number can occur more than once, also in both.
    groups_train, groups_val : ndarray or None
        The newsgroup of each row (news20 only).
    scaler_mean, scaler_scale : ndarray of shape (n_features,) or None
        Training mean and standard deviation used to scale the features, scale 0 for a constant column; None if the
        features were not scaled.
    source : str
        Source of the rows.
    sha256 : str
        Checksum of the source rows (names, features, labels) before any processing.
    verified : bool or None
        Whether a local file or a cached download has the expected checksum; None if there is none.
    description : str
    random_state : int
    """

    name: str
    X_train: Floats
    y_train: Ints
    X_val: Floats
    y_val: Ints
    feature_names: tuple[str, ...]
    protocol: str
    rows_train: Ints
    rows_val: Ints
    groups_train: npt.NDArray[Any] | None
    groups_val: npt.NDArray[Any] | None
    scaler_mean: Floats | None
    scaler_scale: Floats | None
    source: str
    sha256: str
    verified: bool | None
    description: str
    random_state: int

    @property
    def parameters(self) -> dict[str, Any]:
        """Everything needed to make the same arrays again, ready for JSON."""
        return {
            "name": self.name,
            "protocol": self.protocol,
            "n_train": len(self.y_train),
            "n_val": len(self.y_val),
            "standardize": self.scaler_mean is not None,
            "random_state": self.random_state,
            "source": self.source,
            "sha256": self.sha256,
            "verified": self.verified,
        }

    def __repr__(self) -> str:
        return (
            f"Dataset({self.name!r}, {self.protocol}, {len(self.y_train)} training and {len(self.y_val)} validation "
            f"rows, {len(self.feature_names)} features, from {self.source})"
        )


def load_dataset(
    name: str,
    *,
    data_dir: Folder | None = None,
    protocol: str = "natural",
    n_train: int | None = None,
    n_val: int | None = None,
    random_state: int = 0,
    standardize: bool | str = "auto",
    cache_dir: Folder | None = None,
) -> Dataset:
    """Load a data set, shuffle it, split it and scale it.

    Parameters
    ----------
    name : str
        One of the names in `list_datasets`.
    data_dir : path-like, optional
        Folder of Parquet files ``<name>.parquet`` with one ``label`` column (integers), all other columns being
        features (except ``group`` and ``split``); by default the folder that the environment variable
        ``SHAPSHIFT_DATA`` names. If a folder is named, it is the only source: a missing file is an error, never a
        download. A file that differs from the published one (sha256) is read with a warning, since it may be your own
        copy. Generated and bundled sets need no folder.
    protocol : {"natural", "balanced"}, default="natural"
        With "balanced", every class is enlarged to the size of the largest by drawing its rows with replacement,
        *before* the split, as the research code of Wang and Jia does. Copies of one row can therefore be in both the
        training and the validation set. This belongs to the protocol and makes the validation set easier than unseen
        data. ``rows_train`` and ``rows_val`` identify such rows.
    n_train, n_val : int, optional
        Sizes; by default 2,000 and 1,000, or two thirds and one third of a set that has fewer rows.
    random_state : int, default=0
        Seed of the shuffle, of the oversampling and of generated data.
    standardize : {"auto", True, False}, default="auto"
        Subtract the mean and divide by the standard deviation of the training rows. A column that is constant over the
        training rows becomes 0 in both sets. "auto" scales all sets but news20, whose embeddings have unit length and
        three nearly constant dimensions that scaling would turn into noise.
    cache_dir : path-like, optional
        Cache folder for downloads; by default the folder that ``SHAPSHIFT_CACHE`` names, else ``~/.cache/shapshift``.

    Returns
    -------
    Dataset

    Notes
    -----
    Without a folder, the real sets are fetched from OpenML by number. Row, column and class counts must match the known
    ones. At the first fetch a sha256 over column names, features (float64) and labels (int64) is stored beside the
    cached rows; every later read of the cache, and every later fetch, must give the same sum, or an error is raised.
    This detects changes after the first fetch, but not errors in the first fetch itself. Labels: 2dplanes, pol and cpu
    are OpenML's binarised versions, in which "P" (target below its mean) becomes 1 and "N" 0; phoneme's "1" and "2"
    become 0 and 1; creditcard's are 0 and 1 already.

    Without ``news20.parquet``, news20 is embedded with all-MiniLM-L6-v2 (see `embed_texts`) from
    ``news20_text.parquet`` in the folder, or, without a folder, from scikit-learn's 20 Newsgroups with headers, footers
    and quotes removed and empty messages dropped. Embeddings are cached and checked like downloads.

    Examples
    --------
    >>> from shapshift.data import load_dataset
    >>> data = load_dataset("gaussian", n_train=200, n_val=100)
    >>> data.X_train.shape, data.y_val.shape
    ((200, 2), (100,))
    """
    source = sources.look_up(name)
    check.check_choice("load_dataset", "protocol", protocol, PROTOCOLS)
    if not (isinstance(standardize, bool) or standardize == "auto"):
        raise check.wrong("load_dataset", "standardize", "'auto', True or False", standardize)
    seed = check.check_count("load_dataset", "random_state", random_state, at_least=0)
    for parameter, size in (("n_train", n_train), ("n_val", n_val)):
        if size is not None:
            check.check_count("load_dataset", parameter, size)
    if source.kind == "generated":
        rows = sources.gaussian_rows((n_train or _N_TRAIN) + (n_val or _N_VAL), seed)
    elif source.kind == "scikit-learn":
        rows = sources.bundled_rows(name)
    else:
        rows = sources.real_rows(name, source, sources.data_folder(data_dir), cache_folder(cache_dir))
    rng = np.random.default_rng(seed)
    order = rng.permutation(_oversample(rows.y, rng) if protocol == "balanced" else np.arange(rows.y.size))
    size_train, size_val = split_sizes("load_dataset", name, order.size, n_train, n_val)
    train, val = order[:size_train], order[size_train : size_train + size_val]
    X_train, X_val = rows.X[train], rows.X[val]
    mean = scale = None
    if name != "news20" if standardize == "auto" else standardize:
        mean, scale = _scaler(X_train)
        X_train, X_val = _scaled(X_train, mean, scale), _scaled(X_val, mean, scale)
    return Dataset(
        name=name,
        X_train=X_train,
        y_train=rows.y[train],
        X_val=X_val,
        y_val=rows.y[val],
        feature_names=rows.feature_names,
        protocol=protocol,
        rows_train=train,
        rows_val=val,
        groups_train=None if rows.groups is None else rows.groups[train],
        groups_val=None if rows.groups is None else rows.groups[val],
        scaler_mean=mean,
        scaler_scale=scale,
        source=rows.source,
        sha256=sources.digest_of(rows),
        verified=rows.verified,
        description=source.description,
        random_state=seed,
    )


def list_datasets(*, data_dir: Folder | None = None, cache_dir: Folder | None = None) -> Any:
    """Tabulate the data sets and the source that `load_dataset` would use for each now.

    Parameters
    ----------
    data_dir, cache_dir : path-like, optional
        As in `load_dataset`.

    Returns
    -------
    DataFrame
        One row per set: ``name``, ``rows`` (0: any number), ``features``, ``classes``, ``source``,
        ``offline`` (whether it loads without a network) and ``description``. A pandas frame if pandas is installed,
        else a pyarrow table.

    Examples
    --------
    >>> from shapshift.data import list_datasets
    >>> len(list_datasets())
    11
    """
    folder, cache = sources.data_folder(data_dir), cache_folder(cache_dir)
    found = [sources.whereabouts(name, source, folder, cache) for name, source in SOURCES.items()]
    columns = {
        "name": list(SOURCES),
        "rows": [sum(source.counts) for source in SOURCES.values()],
        "features": [source.n_features for source in SOURCES.values()],
        "classes": [len(source.counts) or 2 for source in SOURCES.values()],
        "source": [where for where, _ in found],
        "offline": [offline for _, offline in found],
        "description": [source.description for source in SOURCES.values()],
    }
    return to_table({name: np.array(column) for name, column in columns.items()}, None, "numpy")


def _oversample(y: Ints, rng: np.random.Generator) -> Ints:
    """Every row once, then repeated rows of each smaller class until all classes are as large as the largest."""
    classes, counts = np.unique(y, return_counts=True)
    extra = [
        rng.choice(np.flatnonzero(y == label), size=counts.max() - count, replace=True)
        for label, count in zip(classes, counts, strict=True)
    ]
    return np.concatenate([np.arange(y.size), *extra])


def split_sizes(caller: str, name: str, n_rows: int, n_train: int | None, n_val: int | None) -> tuple[int, int]:
    """Numbers of training and validation rows of a split, see :func:`load_dataset`."""
    if n_train is None and n_val is None and n_rows < _N_TRAIN + _N_VAL:
        val = max(1, n_rows // 3)
        train = n_rows - val
    else:
        train = n_train if n_train is not None else min(_N_TRAIN, n_rows - (n_val or _N_VAL))
        val = n_val if n_val is not None else min(_N_VAL, n_rows - train)
    if min(train, val) < 1 or train + val > n_rows:
        raise InputError(
            f"The 'n_train' and 'n_val' parameters of {caller} must leave room for both: {name!r} has {n_rows} "
            f"rows under this protocol. Got n_train={n_train}, n_val={n_val}; ask for fewer."
        )
    return train, val


def _scaler(X: Floats) -> tuple[Floats, Floats]:
    # Rounding can give a constant column a tiny standard deviation; minimum and maximum are exact.
    return X.mean(axis=0), np.where(X.max(axis=0) > X.min(axis=0), X.std(axis=0), 0.0)


def _scaled(X: Floats, mean: Floats, scale: Floats) -> Floats:
    scaled: Floats = np.where(scale > 0, (X - mean) / np.where(scale > 0, scale, 1.0), 0.0)
    return scaled
