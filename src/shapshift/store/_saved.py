"""A store as plain arrays and a JSON header, and back."""

from typing import Any

import numpy as np
from scipy import sparse

from shapshift._archive import Arrays, from_json, to_json
from shapshift.boundary import BOUNDARY_NEIGHBORS
from shapshift.coefficients import Beta
from shapshift.store._chunks import Chunk, Group
from shapshift.store._near import Near
from shapshift.store._training import Training
from shapshift.store._whole import Whole, whole_orders


def store_to_archive(training: Training, groups: dict[Any, Group]) -> tuple[dict[str, Any], Arrays]:
    """Split a store whose orders are merged into a header and arrays."""
    semivalue = training.settings["semivalue"]
    beta = isinstance(semivalue, Beta)
    columns = training.columns
    header = {
        "settings": {**training.settings, "semivalue": [semivalue.alpha, semivalue.beta] if beta else semivalue},
        "known": [to_json(label, "a label") for label in training.known],
        "class_kind": training.class_kind.str,
        "exponent": training.exponent,
        "columns": None if columns is None else [to_json(name, "a column name") for name in columns],
        "kind": training.kind,
        "id_names": [to_json(name, "an index name") for name in training.id_names],
        "fingerprint": training.fingerprint(),
        "next_id": training.next_id,
        "groups": [[to_json(name, "a group name"), group.weight, len(group.chunks)] for name, group in groups.items()],
        "sparse": training.is_sparse,
        "width": training.width,
    }
    arrays: Arrays = {"codes": training.codes, "ids": training.ids, **_matrix_arrays("rows", training.rows)}
    if training.owners is not None:
        arrays["owners"] = training.owners
    k = 0
    for g, group in enumerate(groups.values()):
        arrays |= {f"sums{g}": group.sums, f"bound{g}": group.bound}
        for chunk in group.chunks:
            arrays |= _chunk_arrays(k, chunk)
            k += 1
    return header, arrays


def training_from_archive(header: dict[str, Any], arrays: Arrays) -> Training:
    """Return the training rows that were saved."""
    settings, codes = dict(header["settings"]), arrays["codes"]
    if isinstance(settings["semivalue"], list):
        settings["semivalue"] = Beta(*settings["semivalue"])
    n, columns = codes.size, header["columns"]
    training = Training(
        settings=settings,
        columns=None if columns is None else [from_json(name) for name in columns],
        kind=header["kind"],
        id_names=tuple(from_json(name) for name in header["id_names"]),
        exponent=header["exponent"],
        known={from_json(label): k for k, label in enumerate(header["known"])},
        class_kind=np.dtype(header["class_kind"]),
        rows=_matrix_from("rows", arrays, (n, header["width"])) if header["sparse"] else arrays["rows"],
        codes=codes,
        alive=np.ones(n, dtype=np.uint8),
        ids=arrays["ids"],
        owners=arrays.get("owners"),
        digest=header["fingerprint"],
        next_id=int(header["next_id"]),
    )
    _check_numbers(codes, len(training.known), "class")
    owners = training.ids if training.owners is None else training.owners
    if not training.ids.shape == owners.shape == (n,) or training.rows.shape[0 if header["sparse"] else 1] != n:
        raise ValueError("rows, ids and labels differ in number")
    return training


def groups_from_archive(header: dict[str, Any], arrays: Arrays, training: Training) -> dict[Any, Group]:
    """Return the groups that were saved."""
    groups, k = {}, 0
    for g, (name, weight, size) in enumerate(header["groups"]):
        chunks = [_chunk_from(k + i, arrays, header, training) for i in range(size)]
        groups[from_json(name)] = Group(weight, chunks, arrays[f"sums{g}"], arrays[f"bound{g}"])
        k += size
    return groups


def _matrix_arrays(name: str, rows: Any) -> Arrays:
    if not sparse.issparse(rows):
        return {name: np.ascontiguousarray(rows)}
    return {f"{name}_{part}": getattr(rows, part) for part in ("data", "indices", "indptr")}


def _matrix_from(name: str, arrays: Arrays, shape: tuple[int, int]) -> Any:
    parts = tuple(arrays[f"{name}_{part}"] for part in ("data", "indices", "indptr"))
    matrix = sparse.csr_array(parts, shape=shape)
    matrix.check_format(full_check=True)
    return matrix


def _chunk_arrays(k: int, chunk: Chunk) -> Arrays:
    orders = chunk.orders
    names = ("ends", "rows", "distances", "reach") if isinstance(orders, Near) else ("words", "distances")
    return {
        **_matrix_arrays(f"points{k}", chunk.points),
        **{f"{name}{k}": getattr(chunk, name) for name in ("targets", "entropy", "tails", "bounds")},
        **{f"{name}{k}": getattr(orders, name) for name in names},
    }


def _chunk_from(k: int, arrays: Arrays, header: dict[str, Any], training: Training) -> Chunk:
    targets, n = arrays[f"targets{k}"], training.codes.size
    b = targets.size
    _check_numbers(targets, len(training.known), "class")
    each = {"entropy": (b,), "tails": (b, 2), "bounds": (b, 3)}
    if any(arrays[f"{name}{k}"].shape != shape for name, shape in each.items()):
        raise ValueError("there is not one entry for each point")
    points = arrays.get(f"points{k}")
    if header["sparse"]:
        points = _matrix_from(f"points{k}", arrays, (b, header["width"]))
    elif points is None or points.shape != (b, header["width"]):
        raise ValueError("points have another number of features")
    is_whole = f"words{k}" in arrays
    orders = _whole_from(k, arrays, b, n) if is_whole else _near_from(k, arrays, b, n)
    return Chunk(points, targets, orders, **{name: arrays[f"{name}{k}"] for name in each})


def _whole_from(k: int, arrays: Arrays, b: int, n: int) -> Whole:
    words, distances = arrays[f"words{k}"], arrays[f"distances{k}"]
    if not words.shape == distances.shape == (b, n):
        raise ValueError("orders are not whole")
    _check_numbers(words >> 2, n, "row")
    return whole_orders(words, distances)


def _near_from(k: int, arrays: Arrays, b: int, n: int) -> Near:
    near = Near(*(arrays[f"{name}{k}"] for name in ("ends", "rows", "distances", "reach")))
    sizes = np.diff(near.ends)
    least = min(BOUNDARY_NEIGHBORS, n)
    if near.reach.shape != (b,) or near.ends.shape != (b + 1,) or near.ends[0] != 0 or sizes.min() < least:
        raise ValueError("lists are not whole")
    if not near.rows.shape == near.distances.shape == (near.ends[-1],):
        raise ValueError("lists are not whole")
    _check_numbers(near.rows, n, "row")
    return near


def _check_numbers(numbers: Any, limit: int, what: str) -> None:
    """Refuse what would be read as a place outside of an array."""
    if numbers.size and not (int(numbers.min()) >= 0 and int(numbers.max()) < limit):
        raise ValueError(f"a {what} is named that is not there")
