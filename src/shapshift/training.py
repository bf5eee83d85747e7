"""Training rows as every nearest-neighbour model keeps them: features, ids, and how validation points must look."""

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.base import BaseEstimator

from shapshift import _labels
from shapshift import _validation as check
from shapshift._warn import warn
from shapshift.distances import SPARSE_METRICS, TrainingIndex, index_rows
from shapshift.rowfile import RowFile, column_digests, feature_std, is_streamed


class TrainingRows(BaseEstimator):  # type: ignore[misc]  # scikit-learn ships no types
    """What :class:`shapshift.KNNShapley` and its relatives share; a subclass has a ``fit`` and knows its labels."""

    metric: str
    ids_: npt.NDArray[Any]
    _index: TrainingIndex

    def _read_rows(self, X: Any, y: Any) -> tuple[check.Table | None, int, npt.NDArray[Any] | None, tuple[Any, ...]]:
        """Check the features; return them (None when distances come precomputed), their number, index and its names."""
        if self.metric == "precomputed":
            return None, *_labels.count_and_index(X, y)
        table = self._table(X, "X")
        _labels.check_same_order(X, y)
        return table, table.rows.shape[0], table.index, table.index_names

    def _table(self, X: Any, name: str) -> check.Table:
        """Check features, unless they were when they were read from a file."""
        if isinstance(X, check.Table):
            return X
        if is_streamed(X) and not isinstance(X, np.memmap):
            raise TypeError(
                f"The {name!r} parameter of {type(self).__name__} must be a table in memory. Got {type(X).__name__}; "
                "load it first. (KNNShapley reads from files.)"
            )
        return check.check_features(X, name, sparse_ok=self._why_not_sparse())

    def _make_index(self, table: check.Table | None, n_rows: int) -> TrainingIndex:
        if table is None:
            return TrainingIndex("precomputed", n_rows, None, 0)
        return index_rows(table.rows, self.metric, getattr(self, "scratch", None))

    def _opened(
        self, X: Any, y: Any, extra: Any, names: tuple[str, str, str], columns: list[Any] | None
    ) -> tuple[Any, Any, Any]:
        """Open data larger than memory: return its rows as a table, its labels, and its ids or groups.

        Whatever is in memory comes back as it is. Messages call the three by ``names``.
        """
        memory = check.parse_memory(getattr(self, "max_memory", None))
        if self.metric == "precomputed" or not is_streamed(X, memory):
            return X, y, extra
        from shapshift.sources import Options, read_source  # pyarrow takes a while to load

        width = None if columns is None and names[0] == "X" else self.n_features_in_
        options = Options(
            names, columns, width, getattr(self, "scratch", None), memory, getattr(self, "progress", None)
        )
        source = read_source(X, y, extra, options)
        return source.table, source.labels, source.extra

    def _keep_features(self, table: check.Table | None) -> None:
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self, name):
                delattr(self, name)
        self.feature_std_, self._columns, self._kind = None, None, "numpy"
        if table is None:
            return
        self.n_features_in_ = table.rows.shape[1]
        self._columns, self._kind = table.columns, table.kind
        # scikit-learn's rule: names count as feature names only when all of them are strings.
        if table.columns is not None and all(isinstance(column, str) for column in table.columns):
            self.feature_names_in_ = np.array(table.columns, dtype=object)
        if not sparse.issparse(table.rows):
            self.feature_std_ = feature_std(table.rows)

    def _check_points(self, X_val: Any) -> Any:
        rows = self._index.rows
        if rows is None:
            return check.check_distances(X_val, self.ids_)
        self._check_unchanged()
        table = self._table(X_val, "X_val")
        table = check.match_columns(table, self._columns, self.n_features_in_, "X_val")
        if sparse.issparse(rows) and isinstance(table.rows, RowFile):
            raise TypeError(
                "'X_val' is too large to load, and the training rows are sparse: that is not supported. Pass the "
                "points in several calls, or dense training rows."
            )
        if sparse.issparse(rows) and not sparse.issparse(table.rows):
            return sparse.csr_array(table.rows)
        if sparse.issparse(table.rows) and not sparse.issparse(rows):
            return table.rows.toarray()
        return table.rows

    def _check_unchanged(self, points: Any = None) -> None:
        """Refuse a result of rows in a file that was changed in the meantime."""
        for name, rows in (("X", self._index.rows), ("X_val", points)):
            if isinstance(rows, RowFile):
                rows.check_unchanged(name)

    def _why_not_sparse(self) -> str | None:
        if self.metric in SPARSE_METRICS:
            return None
        return f"which metric={self.metric!r} does not support (sparse input works with {', '.join(SPARSE_METRICS)})"

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "fingerprint_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.sparse = self.metric in SPARSE_METRICS
        return tags


def warn_if_continuous(labels: npt.NDArray[Any]) -> None:
    """Warn when labels that should name classes look like measurements."""
    if labels.dtype.kind == "f" and labels.size >= 20 and np.unique(labels).size > labels.size / 2:
        warn(
            "'y' looks like a regression target: most of its values are distinct numbers. Each distinct value is "
            "treated as a class of its own."
        )


def fingerprint(index: TrainingIndex, classes: npt.NDArray[Any], codes: npt.NDArray[Any]) -> str:
    """Hash of what was fitted: features, labels and their order. For regression the targets are the codes."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(repr((index.metric, index.n_rows, index.exponent, classes.tolist())).encode())
    digest.update(codes.tobytes())
    rows: Any = index.rows
    if sparse.issparse(rows):
        for array in (rows.data, rows.indices, rows.indptr):
            digest.update(np.ascontiguousarray(array).data)
    elif rows is not None:
        digest.update(b"".join(column_digests(rows)))
    return digest.hexdigest()
