"""Reading of tables in all common formats, and conversion of their columns to features and labels.

:func:`read_table` reads Parquet, CSV, Feather and Arrow, JSON lines and ``.npz``, and directories and globs of parts.
:func:`prepare` takes a training and a validation table and fits everything it needs (categories, fill values, scales)
on the training rows alone. :func:`file_digest` identifies the input of a run.
"""

from shapshift.tables.embedding import Embedder
from shapshift.tables.features import TableSpec
from shapshift.tables.files import file_digest
from shapshift.tables.images import Images
from shapshift.tables.preparing import Prepared, prepare
from shapshift.tables.reading import read_table

__all__ = ["Embedder", "Images", "Prepared", "TableSpec", "file_digest", "prepare", "read_table"]
