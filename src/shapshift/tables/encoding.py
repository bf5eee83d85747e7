"""Columns to one matrix: fill in, encode and scale, each fitted on the training rows."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, RobustScaler, StandardScaler

from shapshift._validation import some
from shapshift.tables.columns import Column, problem

Floats = npt.NDArray[np.float64]
Array = npt.NDArray[Any]
Block = tuple[Floats, Floats, list[str]]


def check_values(columns: Sequence[Column], impute: str | bool) -> None:
    """Refuse infinities, columns without any training value and, unless they are to be filled in, missing values."""
    problems, gaps = [], []
    for column in columns:
        if column.kind == "number":
            infinite = int(np.isinf(column.train).sum()), int(np.isinf(column.val).sum())
            if any(infinite):
                problems.append(
                    f"Column {column.name!r} holds infinity ({infinite[0]} training and {infinite[1]} validation "
                    f"entries). Correct them, or leave it out: --drop {column.name}"
                )
            if np.isnan(column.train).all(axis=0).any():
                problems.append(
                    f"Column {column.name!r} has no value in any training row. Leave it out: --drop {column.name}"
                )
                continue
        missing = column.missing()
        if any(missing):
            gaps.append(f"{column.name!r} ({missing[0]} training and {missing[1]} validation rows)")
    if problems:
        raise problem(problems)
    if gaps and impute is False:
        listed = ", ".join(gaps[:8]) + (f" and {len(gaps) - 8} more columns" if len(gaps) > 8 else "")
        raise ValueError(
            f"Values are missing in {listed}. Distances need all of them: fill them in with --impute median (or mean, "
            "or most_frequent), leave columns out with --drop, or remove the rows."
        )


def encode(
    columns: Sequence[Column], scale: str, categorical: str, impute: str | bool, notes: list[str]
) -> tuple[Floats, Floats, list[str]]:
    """Fill in, encode, scale and put the columns side by side in their order.

    Returns
    -------
    X_train, X_val : ndarray of float64
    feature_names : list of str
    """
    numbers = [column for column in columns if column.kind == "number"]
    filled = [column.name for column in columns if any(column.missing())]
    blocks: dict[str, Block] = {}
    if numbers:
        train = np.hstack([column.train for column in numbers])
        val = np.hstack([column.val for column in numbers])
        if np.isnan(train).any() or np.isnan(val).any():
            filler = SimpleImputer(strategy=impute).fit(train)
            train, val = filler.transform(train), filler.transform(val)
        blocks.update(_split(train, val, [(column.name, column.names) for column in numbers]))
    for column in columns:
        if column.kind == "category":
            blocks[column.name] = _encoded(column, categorical, notes)
        elif column.kind == "text":
            blocks[column.name] = _embedded(column, notes)
    if filled:
        texts = [column for column in columns if column.kind == "text" and any(column.missing())]
        notes.append(
            f"filled in missing values of {len(filled)} columns ({some(filled)}): numbers by the {impute!s} of the "
            "training rows, categories by the most frequent one" + (", texts by the empty text" if texts else "")
        )
    # Numbers in order of categories are as arbitrary in size as any; columns of 0 and 1 are not.
    scaled = [c.name for c in columns if c.kind == "number" or (c.kind == "category" and categorical == "ordinal")]
    if scaled:
        train, val = (np.hstack([blocks[name][side] for name in scaled]) for side in (0, 1))
        flat = [name for key in scaled for name in blocks[key][2]]
        train, val = _scaled(train, val, flat, scale, notes)
        blocks.update(_split(train, val, [(key, blocks[key][2]) for key in scaled]))
    elif scale != "none":
        notes.append("nothing was scaled: there is no column of numbers")
    order = [blocks[column.name] for column in columns]
    whole = [np.ascontiguousarray(np.hstack([block[side] for block in order]), dtype=np.float64) for side in (0, 1)]
    return whole[0], whole[1], _distinct([name for block in order for name in block[2]])


def _split(train: Floats, val: Floats, layout: list[tuple[str, list[str]]]) -> dict[str, Block]:
    ends = np.cumsum([len(names) for _, names in layout])[:-1]
    pieces = zip(layout, np.split(train, ends, axis=1), np.split(val, ends, axis=1), strict=True)
    return {key: (left, right, names) for (key, names), left, right in pieces}


def _encoded(column: Column, categorical: str, notes: list[str]) -> Block:
    train, val = column.train[:, None], column.val[:, None]
    if any(column.missing()):
        filler = SimpleImputer(strategy="most_frequent", missing_values=None).fit(train)
        train, val = filler.transform(train), filler.transform(val)
    categories = column.order if column.order is not None else sorted(set(train[:, 0].tolist()))
    unknown = [entry for entry in dict.fromkeys(val[:, 0].tolist()) if entry not in set(categories)]
    if unknown:
        rows = int(sum(entry in set(unknown) for entry in val[:, 0]))
        fate = "they match no category" if categorical == "onehot" else "they become -1"
        notes.append(
            f"{rows} validation rows have values of {column.name!r} unseen in training ({some(unknown)}): {fate}"
        )
    known = [np.array(categories, dtype=object)]
    if categorical == "onehot":
        encoder = OneHotEncoder(categories=known, handle_unknown="ignore", sparse_output=False, dtype=np.float64)
        names = [f"{column.name}={category}" for category in categories]
        notes.append(f"made {column.name!r} into {len(names)} columns of 0 and 1, one for each category")
    else:
        encoder = OrdinalEncoder(
            categories=known, handle_unknown="use_encoded_value", unknown_value=-1, dtype=np.float64
        )
        names = [column.name]
        by = "their own" if column.order is not None else "sorted"
        notes.append(f"made the {len(categories)} categories of {column.name!r} into numbers, in {by} order")
    encoder.fit(train)
    return encoder.transform(train), encoder.transform(val), names


def _embedded(column: Column, notes: list[str]) -> Block:
    from shapshift import data

    try:
        train, val = (
            data.embed_texts(["" if text is None else text for text in side]).astype(np.float64)
            for side in (column.train, column.val)
        )
    except ImportError as error:
        raise ImportError(
            f"Embedding the column {column.name!r} needs the sentence-transformers package. Install it with: "
            f'pip install "shapshift[embed]". Or leave the column out: --drop {column.name}.'
        ) from error
    names = [f"{column.name}[{j}]" for j in range(train.shape[1])]
    notes.append(f"embedded {column.name!r} as {len(names)} columns with {data.EMBEDDING_MODEL}, not scaled")
    return train, val, names


def _scaled(train: Floats, val: Floats, names: list[str], scale: str, notes: list[str]) -> tuple[Floats, Floats]:
    constant = train.max(axis=0) == train.min(axis=0)
    if constant.any():
        listed = some([name for name, same in zip(names, constant, strict=True) if same])
        # It adds the same to the distance from a validation point to every training row.
        notes.append(
            f"{int(constant.sum())} columns have one value in all training rows ({listed}) and cannot tell neighbours "
            "apart" + ("" if scale == "none" else "; set to 0")
        )
    if scale == "none":
        notes.append(f"did not scale {len(names)} numeric columns: the ones with large numbers dominate the distances")
        return train, val
    with np.errstate(over="ignore", invalid="ignore"):
        scaler = (StandardScaler() if scale == "standard" else RobustScaler()).fit(train)
        if scale == "robust":
            # Where half the rows or more share a value, the range between the quartiles says nothing.
            low, high = np.percentile(train, [25, 75], axis=0)
            narrow = (low == high) & ~constant
            scaler.scale_ = np.where(narrow, train.std(axis=0), scaler.scale_)
            if narrow.any():
                listed = some([name for name, flat in zip(names, narrow, strict=True) if flat])
                notes.append(
                    f"scaled {int(narrow.sum())} columns by their standard deviation, as their quartiles coincide: "
                    f"{listed}"
                )
        train, val = (np.where(constant, 0.0, scaler.transform(side)) for side in (train, val))
    usable = np.isfinite(train).all(axis=0) & np.isfinite(val).all(axis=0) & (constant | (train != 0).any(axis=0))
    if not usable.all():
        listed = some([name for name, good in zip(names, usable, strict=True) if not good])
        raise ValueError(
            f"Scaling overflows in {listed}: the numbers are too large for their spread to be computed. Correct the "
            "entries, or leave the columns out with --drop."
        )
    notes.append(f"scaled {len(names)} numeric columns with {type(scaler).__name__} fitted on the training rows")
    return train, val


def _distinct(names: list[str]) -> list[str]:
    """Names with a number where two would be alike, as with a column "a=b" beside category "b" of column "a"."""
    taken: set[str] = set()
    result = []
    for name in names:
        number, fresh = 2, name
        while fresh in taken:
            fresh, number = f"{name} ({number})", number + 1
        taken.add(fresh)
        result.append(fresh)
    return result
