"""Tables of a round: the form that the validation file sets for sellers' tables, and their conversion to it."""

import hashlib
import io
import math
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from shapshift.checks.inputs import some
from shapshift.checks.warnings import warn
from shapshift.exceptions import InputError
from shapshift.tables import Prepared, TableSpec, prepare, read_table
from shapshift.tables.files import about, did_you_mean, find_parts, marked, refused, shown
from shapshift.tables.labels import is_list, odd_entry, plain, read_names
from shapshift.tables.preparing import read_roles

Array = npt.NDArray[Any]

#: Most bytes of a file in a ledger.
MOST_BYTES = 256 * 2**20
# Larger numbers could overflow when divided by the spread of a validation column, and the round could not be closed.
_LARGEST = 1e100
# Allowed distance of a number from a validation column's range, in standard deviations, at least.
_FARTHEST = 1e6
_LABELS = {"i": "whole numbers", "u": "whole numbers", "f": "numbers", "b": "true or false", "U": "text"}


@dataclass(frozen=True)
class Form:
    """Required form of sellers' tables, and the preparation of their features.

    Attributes
    ----------
    label : str
        Class column.
    labels : tuple
        The classes.
    id : str or None
        Id column.
    types : mapping of str to str
        Feature to "number", "vector of N", "text" or "bool".
    scale : {"standard", "robust", "none"}
        Scaling of numbers, fitted on the validation rows.
    impute : str or bool
        Filling of missing values, see :class:`~shapshift.tables.TableSpec`; False refuses them.
    limits : mapping of str to int
        Numeric feature to the power of ten that its numbers must not exceed: a million standard deviations beyond the
        range of the validation column, rounded up, so that it reveals only the order of magnitude.
    """

    label: str
    labels: tuple[Any, ...]
    id: str | None
    types: Mapping[str, str]
    scale: str = "standard"
    impute: str | bool = False
    limits: Mapping[str, int] = field(default_factory=dict)

    @property
    def kinds(self) -> set[type]:
        """Types of the labels."""
        return set(map(type, self.labels))

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, ready for JSON without floats."""
        kind = np.array(self.labels).dtype.kind
        return {
            **asdict(self),
            "types": [[name, kind] for name, kind in self.types.items()],
            "limits": [[name, power] for name, power in self.limits.items()],
            "labels": [repr(label) if kind == "f" else label for label in self.labels],
            "numbers": kind == "f",
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "Form":
        """Restore a form from the result of :meth:`to_dict`."""
        labels = tuple(map(float, stored["labels"])) if stored["numbers"] else tuple(stored["labels"])
        fields = {name: stored[name] for name in ("label", "id", "scale", "impute")}
        return cls(
            **fields, labels=labels, types=dict(map(tuple, stored["types"])), limits=dict(map(tuple, stored["limits"]))
        )

    @property
    def spec(self) -> TableSpec:
        """Preparation of the features."""
        return TableSpec(self.label, features=list(self.types), scale=self.scale, impute=self.impute)

    def preparation(self) -> list[str]:
        """Describe the preparation in words, without any entry of a table."""
        by = {"standard": "the mean and standard deviation", "robust": "the median and interquartile range"}
        said = [f"numbers are scaled by {by[self.scale]} of the validation rows"] if self.scale in by else []
        return [*said, *([f"missing entries are filled in: {self.impute}"] if self.impute else [])]

    def arrays(self, content: bytes, ending: str, rows: Any = None) -> Prepared:
        """Prepare features by scales fitted on a validation file only: no seller affects a scale.

        Parameters
        ----------
        content : bytes
            Of the validation file.
        ending : str
            Of its name.
        rows : pyarrow.Table, optional
            Rows of sellers; by default those of the file.

        Returns
        -------
        Prepared
            With the validation rows as ``X_train`` and ``y_train``, and those of sellers as ``X_val`` and ``y_val``.
        """
        val = _from_bytes(content, ending, [self.label])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # already shown when the round was opened
            return prepare(val, val if rows is None else rows, self.spec)

    def read_offer(self, path: str | Path, max_memory: int | str | None = None) -> tuple[Any, str, list[str]]:
        """Read a seller's table and convert it to the form of the round.

        Returns
        -------
        table : pyarrow.Table
            Features, label and, if the round has one, id; no other content of the file.
        digest : str
            SHA-256 of the file.
        notes : list of str
            Omitted columns.
        """
        content = file_bytes(path)
        names = [name for name in (self.label, self.id) if name is not None]
        texts = [name for name, kind in self.types.items() if kind == "text"]
        table = _from_bytes(content, ending(path), [*names, *texts], path, max_memory)
        where = f"the table {about(table).source}"
        lacking = [name for name in (*self.types, *names) if name not in table.column_names]
        if lacking:
            here, one = table.column_names, len(lacking) == 1
            raise InputError(
                f"The round needs the column{'' if one else 's'} {some(lacking)}, which {where} does not have. It has "
                f"{some(here)}.{did_you_mean(lacking[0], here) if one else ''}"
            )
        columns = {name: self._feature(name, kind, table[name], where) for name, kind in self.types.items()}
        columns[self.label] = self._label(table, where)
        if self.id is not None:
            columns[self.id] = _ids(table, self.id, where)
        extra = [name for name in table.column_names if name not in columns]
        notes = [f"Left out {some(extra)}: not columns of the round."] if extra else []
        return pa.table(columns), hashlib.sha256(content).hexdigest(), notes

    def _feature(self, name: str, kind: str, stored: Any, where: str) -> Any:
        column = plain(stored)
        wrong = f"Column {name!r} of {where} must hold "
        missing = column.is_null(nan_is_null=True).to_numpy(zero_copy_only=False)
        if missing.any() and not self.impute:
            raise InputError(
                f"{wrong}a value in every row. {missing.sum():,} of {len(column):,} are missing, the first in row "
                f"{missing.argmax()} (counted from 0). Fill them in or leave those rows out."
            )
        if kind.startswith("vector"):
            width = int(kind.split()[-1])
            if not is_list(column.type) or set(pc.unique(pc.list_value_length(column)).to_pylist()) != {width}:
                raise InputError(f"{wrong}lists of {width} numbers. It holds {column.type}, or others.")
            flat = _numbers(pc.list_flatten(column), wrong, self._limit(name), width)
            if flat.null_count:
                raise InputError(f"{wrong}a number in every entry of its lists. Leave those rows out.")
            return pa.FixedSizeListArray.from_arrays(flat, width)
        if kind == "bool":
            if not pt.is_boolean(column.type) and not pt.is_string(column.type):
                raise InputError(f"{wrong}true or false. It holds {column.type}.")
            try:
                return column.cast(pa.bool_())
            except pa.ArrowException as error:
                raise InputError(f"{wrong}true or false ({error}). Correct the file.") from None
        if kind == "text":
            if not (pt.is_string(column.type) or pt.is_integer(column.type) or pt.is_boolean(column.type)):
                raise InputError(f"{wrong}text. It holds {column.type}. Write it as in the other tables.")
            return column.cast(pa.string())
        return _numbers(column, wrong, self._limit(name))

    def _limit(self, name: str) -> float:
        return min(_LARGEST, float(f"1e{self.limits[name]}")) if name in self.limits else _LARGEST

    def _label(self, table: Any, where: str) -> Any:
        found = read_names(table[self.label], f"label {self.label!r}", where, written=self.label in about(table).text)
        known = {_spelled(label): label for label in self.labels}
        unknown = [label for label in dict.fromkeys(found.tolist()) if _spelled(label) not in known]
        if unknown:
            rows = sum(_spelled(label) not in known for label in found.tolist())
            raise InputError(
                f"Labels that the round does not know, in {rows:,} of {len(found):,} rows of {where}: {some(unknown)}. "
                "Its labels are "
                f"{some(list(self.labels))}. A row with another label cannot match any point; correct its label "
                "or leave it out."
            )
        return pa.array([known[_spelled(label)] for label in found.tolist()])


def _numbers(column: Any, wrong: str, limit: float = _LARGEST, width: int = 1) -> Any:
    """Column of floats, or the entries of lists of that width; ``wrong`` begins an error."""
    kind = column.type
    if pt.is_string(kind):
        odd = odd_entry(column.to_pylist())
        try:
            column = column.cast(pa.float64())
        except pa.ArrowException:
            raise InputError(f"{wrong}numbers, but {odd or 'some entries are none'}. Correct the file.") from None
    elif not (pt.is_integer(kind) or pt.is_floating(kind) or pt.is_decimal(kind)):
        raise InputError(f"{wrong}numbers. It holds {kind}.")
    # Unsafe only because whole numbers beyond 2**53 are rounded.
    values = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    large = ~(np.abs(values) <= limit) & ~np.isnan(values)
    if large.any():
        at = int(large.argmax())
        raise InputError(
            f"{wrong}numbers between -{limit:g} and {limit:g}: others are far from all data of the round. Row "
            f"{at // width} (counted from 0) has {values[at]}. Correct it or leave the row out."
        )
    return pa.array(values, from_pandas=True)  # one kind of missing


def _spelled(label: Any) -> str:
    return str(label).lower() if isinstance(label, bool) else str(label)


def _ids(table: Any, column: str, where: str) -> Any:
    ids = read_names(table[column], f"id {column!r}", where, written=column in about(table).text).astype(str)
    names, counts = np.unique(ids, return_counts=True)
    if names.size < ids.size:
        raise InputError(
            f"The id column {column!r} of {where} must name each row differently. {(counts > 1).sum():,} ids occur "
            f"more than once: {some(names[counts > 1].tolist())}."
        )
    return pa.array(ids.tolist())


def form_of(
    content: bytes,
    path: str | Path,
    label: str | None,
    *,
    id: str | None = None,
    drop: Sequence[str] = (),
    features: Sequence[str] | None = None,
    scale: str = "standard",
    impute: str | bool = False,
) -> tuple[Form, int]:
    """Read the required form of sellers' tables from a validation file.

    Returns
    -------
    form : Form
    rows : int
        Validation rows.
    """
    table = _from_bytes(content, ending(path), [name for name in (label, id) if name is not None], path)
    apart = id if id in table.column_names else None
    spec = TableSpec(label, id=apart, drop=drop, features=features, scale=scale, impute=impute)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            roles = read_roles(table, table, spec)
            prepare(table, table, spec)
        except InputError as error:
            raise InputError(str(error).replace("training", "validation")) from None
    for warning in caught:
        if issubclass(warning.category, UserWarning):
            warn(str(warning.message).replace("training", "validation"))
    if roles.spec.owner is not None or roles.y_val.dtype.kind not in _LABELS:
        raise InputError("The validation file must be a table with a column of classes, such as Parquet or CSV.")
    types = {name: _kind(plain(table[name])) for name in roles.features}
    labels = tuple(np.unique(roles.y_val).tolist())
    return Form(str(roles.spec.label), labels, id, types, scale, impute, _limits(table, types)), table.num_rows


def _limits(table: Any, types: Mapping[str, str]) -> dict[str, int]:
    limits = {}
    for name in (name for name, kind in types.items() if kind not in ("text", "bool")):
        column = plain(table[name])
        entries = pc.list_flatten(column) if is_list(column.type) else column
        values = entries.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        size = float(np.nanmax(np.abs(values), initial=0.0))
        farthest = size + _FARTHEST * (float(np.nanstd(values)) or max(size, 1.0))
        limits[name] = math.ceil(math.log10(farthest)) if 0 < farthest < _LARGEST else 100
    return limits


def _kind(column: Any) -> str:
    if is_list(column.type):
        return f"vector of {len(column[0])}"
    return "bool" if pt.is_boolean(column.type) else "text" if pt.is_string(column.type) else "number"


def ending(path: str | Path) -> str:
    """Return the suffix of a file name, by which the reader recognises text formats."""
    return "".join(Path(path).suffixes[-2:]).lower()


def file_bytes(path: str | Path) -> bytes:
    """Content of one file within the size limit."""
    parts = find_parts(path)
    if parts.root is not None:
        raise InputError(f"A round takes one file, not a folder or a pattern. Got {parts.name}; join the parts first.")
    file = parts.files[0]
    try:
        size = file.stat().st_size
        if size <= MOST_BYTES:
            return file.read_bytes()
    except OSError as error:
        raise refused(file, error) from None
    raise InputError(
        f"{parts.name} has {size / 2**20:,.0f} MiB, and a ledger takes files of up to {MOST_BYTES / 2**20:,.0f} MiB. "
        "Write it as Parquet, or submit fewer rows."
    )


def _from_bytes(
    content: bytes,
    ending: str,
    text: Sequence[str],
    called: str | Path = "the validation file",
    max_memory: int | str | None = None,
) -> Any:
    """Read a table from bytes read once, so that it matches the known digest."""
    with tempfile.TemporaryDirectory(prefix="shapshift-") as folder:
        copy = Path(folder, f"table{ending}")
        copy.write_bytes(content)
        try:
            table = read_table(copy, text=text, max_memory=max_memory)
        except InputError as error:
            raise InputError(str(error).replace(shown(copy), shown(called))) from None
    known = about(table)
    notes = [note.replace(shown(copy), shown(called)) for note in known.notes]
    return marked(table, replace(known, source=shown(called), notes=notes))


def to_parquet(table: Any) -> bytes:
    """Bytes of a table; equal tables give equal bytes."""
    file = io.BytesIO()
    pq.write_table(table, file, compression="zstd", write_page_checksum=True)
    if file.tell() > MOST_BYTES:
        raise InputError(
            f"The table takes {file.tell() / 2**20:,.0f} MiB, and a ledger takes tables of up to "
            f"{MOST_BYTES / 2**20:,.0f} MiB. Submit fewer rows."
        )
    return file.getvalue()


def from_parquet(content: bytes) -> Any:
    """Table from the bytes returned by :func:`to_parquet`."""
    return pq.read_table(io.BytesIO(content), page_checksum_verification=True)


def row_keys(table: Any, form: Form) -> list[tuple[Any, ...]]:
    """Content of each row, features and label, in a comparable form."""
    columns = [table[name].to_pylist() for name in form.types]
    columns.append(list(map(_spelled, table[form.label].to_pylist())))  # their type can change between rounds
    lists = [j for j, kind in enumerate(form.types.values()) if kind.startswith("vector")]
    for j in lists:
        columns[j] = list(map(tuple, columns[j]))
    return list(zip(*columns, strict=True))
