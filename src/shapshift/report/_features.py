"""The caller's table of features, read only where it is shown."""

from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
import numpy.typing as npt
from scipy import sparse

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Features:
    """Named columns over any container of rows.

    Attributes
    ----------
    names : tuple of str
    n_rows : int
    source : frame, ndarray or sparse matrix
    """

    names: tuple[str, ...]
    n_rows: int
    source: Any

    def column(self, place: int, rows: Ints) -> list[Any]:
        """Entries of one column in some rows."""
        if isinstance(self.source, nw.DataFrame):
            return list(self.source[:, place][rows.tolist()].to_list())
        if sparse.issparse(self.source):
            return list(self.source[rows][:, [place]].toarray().ravel().tolist())
        return list(self.source[rows, place].tolist())

    def numeric(self, rows: Ints) -> Any:
        """Numeric columns of some rows, as a dense or sparse matrix; None where there are fewer than two."""
        if sparse.issparse(self.source):
            return self.source[rows] if len(self.names) > 1 else None
        places = self.numeric_places()
        if len(places) < 2:
            return None
        if isinstance(self.source, nw.DataFrame):
            columns = [self.source[:, place][rows.tolist()].to_list() for place in places]
            return np.array([[np.nan if x is None else float(x) for x in column] for column in columns]).T
        return np.asarray(self.source[rows], dtype=np.float64)

    def numeric_places(self) -> list[int]:
        """Places of the columns that hold numbers."""
        if isinstance(self.source, nw.DataFrame):
            return [i for i, name in enumerate(self.source.columns) if self.source.schema[name].is_numeric()]
        return list(range(len(self.names))) if self.source.dtype.kind in "biuf" else []


def read_features(X: Any, parameter: str, n_rows: int, of: str, names: Any = None) -> Features:
    """Check a table of features.

    Parameters
    ----------
    X : table
        Anything a model was fitted on, or the table it was made from: texts are welcome here.
    parameter : str
        How messages call it.
    n_rows : int
        How many rows it must have.
    of : str
        What has so many, for the message.
    names : sequence of str, optional
        Names of the columns; by default the table's own, or numbers.
    """
    source = nw.from_native(X, eager_only=True, pass_through=True)
    if isinstance(source, nw.DataFrame):
        own: list[Any] = list(source.columns)
    else:
        source = X.tocsr() if sparse.issparse(X) else _array(X)
        if source.ndim != 2:
            raise ValueError(f"{parameter!r} must be a table of rows and columns. Got shape {source.shape}.")
        own = [f"feature {i}" for i in range(source.shape[1])]
    if source.shape[0] != n_rows:
        raise ValueError(
            f"{parameter!r} must have the {n_rows} rows of {of}, in the same order. Got {source.shape[0]} rows."
        )
    if names is not None:
        given = list(names)
        if len(given) != len(own):
            raise ValueError(
                f"'feature_names' must name the {len(own)} columns of {parameter!r}. Got {len(given)} names."
            )
        own = given
    return Features(tuple(str(name) for name in own), n_rows, source)


def _array(X: Any) -> npt.NDArray[Any]:
    if type(X).__module__.split(".")[0] == "torch":
        X = X.detach().cpu().numpy()
    return np.asarray(X)
