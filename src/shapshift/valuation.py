"""The one result type: what every valuation returns and every later step takes."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from shapshift._archive import Arrays, Saved, from_json, to_json

Floats = npt.NDArray[np.float64]

QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)

_ARRAYS = (
    "values",
    "ids",
    "entropy",
    "boundary",
    "level_entropy",
    "level_values",
    "level_counts",
    "group_means",
    "matrix",
    "error_bound",
    "standard_error",
)


@dataclass(frozen=True, eq=False, repr=False)
class Valuation(Saved):
    """What each training row is worth on one validation set.

    Attributes
    ----------
    values : ndarray of shape (n_train,)
        Value of each training row, averaged over the validation points.
    ids : ndarray of shape (n_train,)
        The caller's index or ids, in the order of ``values``.
    entropy : ndarray of shape (n_val,)
        Entropy (nats) of the labels of each validation point's five nearest training rows.
    boundary : ndarray of shape (n_val,)
        Whether the point is a boundary point: entropy above 0.
    level_entropy, level_values, level_counts : ndarray
        The entropies that occur, the mean values over the points at each, and how many points those are. Values are
        additive over validation points, so these few rows carry every split by boundary.
    group_means : ndarray of shape (n_groups, n_train)
        Mean values per validation group, see ``group_values``.
    group_names, group_sizes : tuple
        Group names in order of first appearance, and their numbers of validation points.
    matrix : ndarray of shape (n_train, n_val) or None
        Value of each row on each validation point alone, when it was asked for.
    error_bound : ndarray of shape (n_train,) or None
        How far each of ``values`` can be from the exact one, in units of the utility; infinite where nothing is known.
        None when the values are exact, up to rounding.
    parameters : mapping
        What made the values: method, its parameters, sizes.
    fingerprint : str
        Hash of the training rows and labels. Valuations can be compared when their fingerprints agree.
    kind : {"numpy", "pandas", "polars", "pyarrow"}
        The caller's kind of table, which ``to_frame`` returns.
    id_names : tuple
        Names of the levels of the caller's index.
    standard_error : ndarray of shape (n_train,) or None
        Standard error of each value where values are estimates; None where they are exact.
    """

    archive_kind: ClassVar[str] = "shapshift.Valuation"
    archive_version: ClassVar[int] = 1

    values: Floats
    ids: npt.NDArray[Any]
    entropy: Floats
    boundary: npt.NDArray[np.bool_]
    level_entropy: Floats
    level_values: Floats
    level_counts: npt.NDArray[np.int64]
    group_means: Floats
    group_names: tuple[Any, ...]
    group_sizes: tuple[int, ...]
    matrix: Floats | None
    parameters: Mapping[str, Any]
    fingerprint: str
    kind: str = "numpy"
    id_names: tuple[Any, ...] = ("id",)
    error_bound: Floats | None = None
    standard_error: Floats | None = None

    def __post_init__(self) -> None:
        for name in _ARRAYS:
            array = getattr(self, name)
            if array is not None:
                object.__setattr__(self, name, _locked(array))
        object.__setattr__(self, "parameters", MappingProxyType(dict(self.parameters)))

    def __getstate__(self) -> dict[str, Any]:
        # For copies and worker processes; files are written by save.
        return {**self.__dict__, "parameters": dict(self.parameters)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__post_init__()

    @property
    def n_train(self) -> int:
        """Number of training rows."""
        return self.values.size

    @property
    def n_val(self) -> int:
        """Number of validation points."""
        return self.entropy.size

    @property
    def group_values(self) -> dict[Any, Floats]:
        """Mean values per group name."""
        return dict(zip(self.group_names, self.group_means, strict=True))

    @property
    def group_counts(self) -> dict[Any, int]:
        """Number of validation points per group name."""
        return dict(zip(self.group_names, self.group_sizes, strict=True))

    @property
    def boundary_fraction(self) -> float:
        """Share of boundary points in the validation set."""
        return float(self.boundary.mean())

    @property
    def boundary_values(self) -> Floats | None:
        """Mean values over the boundary points; None when there are none."""
        return self._mean_over(self.level_entropy > 0)

    @property
    def nonboundary_values(self) -> Floats | None:
        """Mean values over the points that are not on a boundary; None when there are none."""
        return self._mean_over(self.level_entropy == 0)

    def _mean_over(self, levels: npt.NDArray[np.bool_]) -> Floats | None:
        counts = self.level_counts[levels]
        if counts.sum() == 0:
            return None
        mean: Floats = counts @ self.level_values[levels] / counts.sum()
        return mean

    def stats(self) -> dict[str, Any]:
        """Summarise the distribution of the values.

        Returns
        -------
        dict
            ``mean``, ``std``, ``positive_count``, ``positive_ratio`` and ``quantiles`` (probability to value).
        """
        return {
            **summarize(self.values),
            "quantiles": {q: float(v) for q, v in zip(QUANTILES, np.quantile(self.values, QUANTILES), strict=True)},
        }

    def interval(self, confidence: float = 0.95) -> tuple[Floats, Floats]:
        """Return both ends of a confidence interval of each value, where values are estimates.

        Parameters
        ----------
        confidence : float, default=0.95
            Between 0 and 1, of each value by itself.

        Returns
        -------
        low, high : ndarray of shape (n_train,)
            Student's t times ``standard_error`` to both sides, with the degrees of freedom of the mean of fewest
            observations. The interval covers what a sampler is right about on average, see
            :class:`shapshift.SampledShapley`.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from shapshift import SampledShapley
        >>> X, y = load_iris(return_X_y=True)
        >>> model = SampledShapley("naive_bayes", max_fits=300, progress=False).fit(X[::10], y[::10])
        >>> low, high = model.value(X[1::2], y[1::2]).interval()
        >>> bool((low < high).all())
        True
        """
        if not 0 < confidence < 1:
            raise ValueError(
                f"The 'confidence' parameter of Valuation.interval must be above 0 and below 1. Got {confidence!r}."
            )
        if self.standard_error is None:
            raise ValueError(
                "There is no interval: these values have no standard error. They are exact but for their "
                "'error_bound', or were corrected, which leaves none."
            )
        observed = self.parameters.get("n_observations")
        freedom = np.inf if observed is None else max(int(observed) - 1, 1)
        half = stdtrit(freedom, (1 + confidence) / 2) * self.standard_error
        return self.values - half, self.values + half

    def to_frame(self, kind: str | None = None) -> Any:
        """Tabulate the values in the caller's kind of table.

        Parameters
        ----------
        kind : {"pandas", "polars", "pyarrow"}, optional
            Defaults to the kind that was fitted; after NumPy input, pandas if it is installed, else pyarrow.

        Returns
        -------
        table
            One row per training row: its id (the index in pandas), ``value``, ``value_boundary``,
            ``value_nonboundary``, one ``value[name]`` per validation group, ``error_bound`` where values are not exact,
            and ``standard_error`` where there is one.
        """
        nothing = np.full(self.n_train, np.nan)
        columns: dict[str, npt.NDArray[Any]] = {"value": self.values}
        if self.error_bound is not None:
            columns["error_bound"] = self.error_bound
        for name, part in (("boundary", self.boundary_values), ("nonboundary", self.nonboundary_values)):
            columns[f"value_{name}"] = nothing if part is None else part
        printed = Counter(str(name) for name in self.group_names)
        for group, means in self.group_values.items():
            # Names that print alike, such as 1 and "1", are told apart by how Python writes them.
            columns[f"value[{group}]" if printed[str(group)] == 1 else f"value[{group!r}]"] = means
        if self.standard_error is not None:
            columns["standard_error"] = self.standard_error
        return to_table(columns, self.ids, kind or self.kind, self.id_names)

    def plot(self, *, ax: Any = None) -> Any:
        """Draw the distribution of the values; returns the Axes.

        Parameters
        ----------
        ax : Axes, optional
            Where to draw; a new figure by default.
        """
        from shapshift.plots.valuation import plot_values

        return plot_values(self, ax=ax)

    def _to_archive(self) -> tuple[dict[str, Any], Arrays]:
        header = {
            "parameters": dict(self.parameters),
            "fingerprint": self.fingerprint,
            "kind": self.kind,
            "id_names": [to_json(name, "an index name") for name in self.id_names],
            "group_names": [to_json(name, "a group name") for name in self.group_names],
            "group_sizes": list(self.group_sizes),
        }
        arrays = {name: getattr(self, name) for name in _ARRAYS if getattr(self, name) is not None}
        return header, arrays

    @classmethod
    def _from_archive(cls, header: dict[str, Any], arrays: Arrays) -> Self:
        optional: dict[str, Any] = {"matrix": None, "standard_error": None}
        loaded = cls(
            **{**optional, **arrays},
            group_names=tuple(from_json(name) for name in header["group_names"]),
            group_sizes=tuple(header["group_sizes"]),
            parameters=header["parameters"],
            fingerprint=header["fingerprint"],
            kind=header["kind"],
            id_names=tuple(from_json(name) for name in header["id_names"]),
        )
        loaded._check_shapes()
        return loaded

    def _check_shapes(self) -> None:
        n, m, levels = self.values.size, self.entropy.size, self.level_entropy.size
        expected: dict[str, tuple[int, ...]] = dict.fromkeys(("values", "ids"), (n,))
        expected |= dict.fromkeys(("entropy", "boundary"), (m,))
        expected |= dict.fromkeys(("level_entropy", "level_counts"), (levels,))
        expected |= {"level_values": (levels, n), "group_means": (len(self.group_names), n)}
        if self.matrix is not None:
            expected["matrix"] = (n, m)
        if self.error_bound is not None:
            expected["error_bound"] = (n,)
        if self.standard_error is not None:
            expected["standard_error"] = (n,)
        for name, shape in expected.items():
            if getattr(self, name).shape != shape:
                raise ValueError(f"{name!r} has shape {getattr(self, name).shape}, not {shape}")
        if len(self.group_sizes) != len(self.group_names):
            raise ValueError("group names and sizes do not match")

    def _repr_html_(self) -> str:
        from shapshift._notebook import valuation_html

        return valuation_html(self)

    def __repr__(self) -> str:
        s = self.stats()
        error = "" if self.error_bound is None else f", error_bound={self.error_bound.max():.3g}"
        return (
            f"Valuation(n_train={self.n_train}, n_val={self.n_val}, mean={s['mean']:.3g}, std={s['std']:.3g}, "
            f"positive={s['positive_count']}, boundary_fraction={self.boundary_fraction:.3g}{error})"
        )


def summarize(values: Floats) -> dict[str, Any]:
    """Mean, standard deviation, positive count and positive share of values: what every summary here starts from.

    Examples
    --------
    >>> summarize(np.array([1.0, 0.0, -1.0, 2.0]))
    {'mean': 0.5, 'std': 1.118, 'positive_count': 2, 'positive_ratio': 0.5}
    """
    positive = int(np.count_nonzero(values > 0))
    return {
        "mean": float(values.mean()),
        "std": float(values.std()),
        "positive_count": positive,
        "positive_ratio": positive / values.size,
    }


def check_returned(owner: str, model: object, returned: object) -> Valuation:
    """Refuse what a model's value method should not return: anything but a Valuation."""
    if not isinstance(returned, Valuation):
        raise TypeError(
            f"The 'model' parameter of {owner} must have a value method that returns a Valuation. That of "
            f"{type(model).__name__} returns {type(returned).__name__}; wrap its values in shapshift.Valuation."
        )
    return returned


def to_table(
    columns: dict[str, npt.NDArray[Any]], ids: npt.NDArray[Any] | None, kind: str, id_names: tuple[Any, ...] = ("id",)
) -> Any:
    """Make a table of the asked kind; ids become the index in pandas and the first column elsewhere.

    Parameters
    ----------
    columns : dict of ndarray
    ids : ndarray or None
    kind : {"pandas", "polars", "pyarrow", "numpy"}
        "numpy" means: pandas if it is installed, else pyarrow.
    id_names : tuple
        Names of the levels of the index; more than one makes a pandas MultiIndex.
    """
    if kind == "numpy":
        kind = "pandas" if find_spec("pandas") is not None else "pyarrow"
    if kind == "pandas":
        import pandas as pd

        if ids is None:
            return pd.DataFrame(columns)
        if len(id_names) > 1:
            return pd.DataFrame(columns, index=pd.MultiIndex.from_tuples(ids.tolist(), names=list(id_names)))
        return pd.DataFrame(columns, index=pd.Index(ids, name=id_names[0], tupleize_cols=False))
    if ids is not None:
        columns = {"id" if id_names[0] is None or len(id_names) > 1 else str(id_names[0]): ids} | columns
    plain = {name: _column_entries(column) for name, column in columns.items()}
    if kind == "polars":
        import polars as pl

        return pl.DataFrame(plain)
    if kind == "pyarrow":
        import pyarrow as pa

        return pa.table({name: pa.array(column) for name, column in plain.items()})
    raise ValueError(f"The 'kind' parameter must be one of 'pandas', 'polars', 'pyarrow'. Got {kind!r} instead.")


def _column_entries(column: npt.NDArray[Any]) -> Any:
    """Hand over what polars and Arrow can type: objects as a list, and as text where their kinds differ."""
    if column.dtype.kind not in "OU":
        return column
    entries = column.tolist()
    simple = len({type(entry) for entry in entries if entry is not None}) <= 1
    return entries if simple and not isinstance(entries[0], tuple) else [str(entry) for entry in entries]


def _locked(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a view that cannot be written to nor unlocked: its base is locked too."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base.flags.writeable = False
        base = base.base
    return array.view()
