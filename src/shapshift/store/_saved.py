"""A store as plain arrays and a JSON header, and back."""

from typing import Any

import numpy as np
from scipy import sparse

from shapshift._archive import Arrays, from_json, to_json
from shapshift.coefficients import Beta
from shapshift.store._orders import Chunk, Group


def store_to_archive(store: Any) -> tuple[dict[str, Any], Arrays]:
    """Split a store whose orders are merged into a header and arrays."""
    semivalue = store._settings["semivalue"]
    beta = isinstance(semivalue, Beta)
    header = {
        "settings": {**store._settings, "semivalue": [semivalue.alpha, semivalue.beta] if beta else semivalue},
        "known": [to_json(label, "a label") for label in store._known],
        "class_kind": store._class_kind.str,
        "exponent": store._exponent,
        "columns": None if store._columns is None else [to_json(name, "a column name") for name in store._columns],
        "kind": store._kind,
        "id_names": [to_json(name, "an index name") for name in store._id_names],
        "fingerprint": store._fingerprint(),
        "groups": [
            [to_json(name, "a group name"), group.weight, len(group.chunks)] for name, group in store._groups.items()
        ],
        "sparse": sparse.issparse(store._rows),
        "width": store._width,
    }
    arrays: Arrays = {"codes": store._codes, "ids": store._ids, **_matrix_arrays("rows", store._rows)}
    if store._owners is not None:
        arrays["owners"] = store._owners
    for g, group in enumerate(store._groups.values()):
        arrays[f"sums{g}"] = group.sums
    for k, chunk in enumerate(store._chunks()):
        arrays |= _chunk_arrays(k, chunk)
    return header, arrays


def fill_from_archive(store: Any, header: dict[str, Any], arrays: Arrays) -> None:
    """Give a bare store what was saved."""
    store._settings = dict(header["settings"])
    if isinstance(store._settings["semivalue"], list):
        store._settings["semivalue"] = Beta(*store._settings["semivalue"])
    store._known = {from_json(label): k for k, label in enumerate(header["known"])}
    store._class_kind = np.dtype(header["class_kind"])
    store._exponent, store._kind, store._print = header["exponent"], header["kind"], header["fingerprint"]
    store._columns = None if header["columns"] is None else [from_json(name) for name in header["columns"]]
    store._id_names = tuple(from_json(name) for name in header["id_names"])
    store._codes, store._ids = arrays["codes"], arrays["ids"]
    n = store._codes.size
    store._rows = _matrix_from("rows", arrays, (n, header["width"])) if header["sparse"] else arrays["rows"]
    store._owners = arrays.get("owners")
    store._alive = np.ones(n, dtype=np.uint8)
    if store._ids.shape != (n,) or store._rows.shape[0 if header["sparse"] else 1] != n:
        raise ValueError("rows, ids and labels differ in number")
    store._groups, k = {}, 0
    for g, (name, weight, size) in enumerate(header["groups"]):
        chunks = [_chunk_from(k + i, arrays, header) for i in range(size)]
        store._groups[from_json(name)] = Group(weight, chunks, arrays[f"sums{g}"])
        k += size


def _matrix_arrays(name: str, rows: Any) -> Arrays:
    if not sparse.issparse(rows):
        return {name: np.ascontiguousarray(rows)}
    return {f"{name}_{part}": getattr(rows, part) for part in ("data", "indices", "indptr")}


def _matrix_from(name: str, arrays: Arrays, shape: tuple[int, int]) -> Any:
    parts = tuple(arrays[f"{name}_{part}"] for part in ("data", "indices", "indptr"))
    return sparse.csr_array(parts, shape=shape)


def _chunk_arrays(k: int, chunk: Chunk) -> Arrays:
    """Return a chunk's arrays, lists behind one another."""
    words, distances = list(chunk.words), list(chunk.distances)
    return {
        **_matrix_arrays(f"points{k}", chunk.points),
        f"targets{k}": chunk.targets,
        f"words{k}": np.concatenate(words),
        f"distances{k}": np.concatenate(distances),
        f"sizes{k}": np.array([part.size for part in words], dtype=np.int64),
        f"whole{k}": np.array(chunk.whole),
        f"reach{k}": chunk.reach,
        f"tied{k}": chunk.tied,
        f"entropy{k}": chunk.entropy,
    }


def _chunk_from(k: int, arrays: Arrays, header: dict[str, Any]) -> Chunk:
    targets, sizes = arrays[f"targets{k}"], arrays[f"sizes{k}"]
    words, distances = arrays[f"words{k}"], arrays[f"distances{k}"]
    if words.size and int(words.max() >> 2) >= arrays["codes"].size:
        raise ValueError("an order names a row that is not there")
    if words.size != sizes.sum() or words.shape != distances.shape or sizes.size != targets.size:
        raise ValueError("orders are not whole")
    points = arrays.get(f"points{k}")
    if header["sparse"]:
        points = _matrix_from(f"points{k}", arrays, (targets.size, header["width"]))
    whole, cuts = bool(arrays[f"whole{k}"]), np.cumsum(sizes)[:-1]
    parts = [a.reshape(targets.size, -1) if whole else np.split(a, cuts) for a in (words, distances)]
    chunk = Chunk(points, targets, parts[0], parts[1], arrays[f"reach{k}"], arrays[f"tied{k}"])
    chunk.clear_added()
    chunk.entropy = arrays[f"entropy{k}"]
    return chunk
