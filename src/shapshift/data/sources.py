"""Where rows come from: scikit-learn, a local folder of Parquet files, OpenML, and the cache of what was fetched."""

import difflib
import hashlib
import importlib
import importlib.util
import json
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from shapshift.checks import inputs as check
from shapshift.checks import labels as _labels
from shapshift.data.news20 import TEXT_FILE, TEXT_SHA256, fetch_newsgroups
from shapshift.exceptions import InputError
from shapshift.io.files import write_atomically, write_text
from shapshift.tables.features import embed_texts

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Folder = str | os.PathLike[str]

_BELOW_MEAN = {"N": 0, "P": 1}  # OpenML's binarised regression sets call a target below its mean "P"
_NOT_FEATURES = ("label", "group", "split")


@dataclass(frozen=True)
class Source:
    """What is known of a data set before it is read; ``counts`` are its class sizes in label order."""

    kind: str  # "generated", "scikit-learn", "openml" or "text"
    n_features: int
    counts: tuple[int, ...]
    description: str
    openml_id: int = 0
    labels: Mapping[str, int] | None = None
    sha256: str = ""


SOURCES = {
    "gaussian": Source("generated", 2, (), "Gaussian quantiles: a disc of one class inside a ring of the other, 2-D."),
    "phoneme": Source("openml", 5, (3818, 1586), "Nasal (0) and oral (1) vowels by five harmonics.", 1489,
                       {"1": 0, "2": 1}, "93509ec9ed0dbf0a35446c3d4370ab5ed421b27c7527570c4d6aa80ba6ba0490"),
    "2dplanes": Source("openml", 10, (20420, 20348), "2dplanes; label 1 = target below its mean.", 727, _BELOW_MEAN,
                        "be5e59e502b01dd51c74c65dcb4c421df4cb0a13a3f8329ad7bb1594b39d82f7"),
    "pol": Source("openml", 48, (5041, 9959), "pol (telecommunication); label 1 = target below its mean.", 722,
                   _BELOW_MEAN, "ad85d8417e6b9909c604d33d2933cd95c8601d6e1ab3f7d653033e6a1b6002c5"),
    "cpu": Source("openml", 21, (5715, 2477), "cpu_act (computer activity); label 1 = target below its mean.", 761,
                   _BELOW_MEAN, "21981e5b57471edf6c184cdbc4190a0992a8c32a6265e384fd48f4e5813fe1ca"),
    "news20": Source("text", 384, (3839, 4777), "20 Newsgroups, comp.* (1) against rec.* (0), as MiniLM embeddings.",
                      sha256="bac59f7bf19537c2b84a13721a374bae9adbca68954690e355d14c551543a20c"),
    "creditcard": Source("openml", 23, (23364, 6636), "Credit card clients; label 1 = default next month.", 42477,
                          {"0": 0, "1": 1}, "67111b74945f4976f0c312ed1d4eed0c4cf0d831408848de4b4437591c8bc65b"),
    "iris": Source("scikit-learn", 4, (50, 50, 50), "Iris: three species by four lengths."),
    "wine": Source("scikit-learn", 13, (59, 71, 48), "Wine: three cultivars by 13 chemical measurements."),
    "breast_cancer": Source("scikit-learn", 30, (212, 357), "Breast cancer: malignant (0) and benign (1) tumours."),
    "digits": Source("scikit-learn", 64, (178, 182, 177, 183, 181, 182, 181, 179, 174, 180), "Digits: 8x8 images."),
}  # fmt: skip


@dataclass(frozen=True)
class Rows:
    """A data set as it came: no protocol, shuffle, split or scaling yet."""

    X: Floats
    y: Ints
    feature_names: tuple[str, ...]
    groups: npt.NDArray[Any] | None = None
    source: str = ""
    verified: bool | None = None


def look_up(name: object) -> Source:
    """Return what is known of a data set, or say which names there are."""
    if isinstance(name, str) and name in SOURCES:
        return SOURCES[name]
    close = difflib.get_close_matches(str(name).lower(), list(SOURCES), n=1)
    raise InputError(
        f"The 'name' parameter of load_dataset must be one of {', '.join(map(repr, SOURCES))}. Got {name!r} instead."
        + (f" Did you mean {close[0]!r}?" if close else "")
    )


def data_folder(data_dir: Folder | None) -> Path | None:
    """Return the folder of local files that the caller or the environment names, if either does."""
    named = data_dir if data_dir is not None else os.environ.get("SHAPSHIFT_DATA") or None
    if named is None:
        return None
    folder = Path(named).expanduser()
    if not folder.is_dir():
        origin = "The 'data_dir' parameter" if data_dir is not None else "The environment variable SHAPSHIFT_DATA"
        raise FileNotFoundError(
            f"{origin} must name a folder of Parquet files. Got {str(folder)!r}, which is not a folder. Correct the "
            "path, or leave it out to download what is needed."
        )
    return folder


def cache_folder(cache_dir: Folder | None) -> Path:
    """Return the folder in which downloads are kept."""
    named = cache_dir if cache_dir is not None else os.environ.get("SHAPSHIFT_CACHE")
    return Path(named).expanduser() if named else Path.home() / ".cache" / "shapshift"


def gaussian_rows(n_rows: int, seed: int) -> Rows:
    """Generate the "gaussian" set."""
    from sklearn.datasets import make_gaussian_quantiles

    # scikit-learn takes 32-bit seeds only.
    state = int(np.random.SeedSequence(seed).generate_state(1)[0])
    X, y = make_gaussian_quantiles(n_samples=n_rows, n_features=2, n_classes=2, random_state=state)
    return Rows(X, y.astype(np.int64), ("x1", "x2"), source="scikit-learn make_gaussian_quantiles")


def bundled_rows(name: str) -> Rows:
    """Read a set that scikit-learn brings along."""
    bunch = getattr(importlib.import_module("sklearn.datasets"), f"load_{name}")()
    return Rows(
        np.asarray(bunch.data, dtype=np.float64),
        np.asarray(bunch.target, dtype=np.int64),
        tuple(str(feature) for feature in bunch.feature_names),
        source=f"scikit-learn load_{name}",
    )


def real_rows(name: str, source: Source, folder: Path | None, cache: Path) -> Rows:
    """Read a real set from the folder if one is named, else from the cache, else from where it is published."""
    if folder is None:
        if source.kind == "text":
            return _cached(cache, "news20", lambda: _embedded(*fetch_newsgroups(cache), "20 Newsgroups, embedded here"))
        return _cached(cache, f"openml-{source.openml_id}", lambda: _fetched(name, source, cache))
    path = folder / f"{name}.parquet"
    if path.is_file():
        known = _check_file(path, source.sha256)
        return replace(_read_rows(path), source=f"file {path.name}", verified=known)
    text = folder / TEXT_FILE
    if source.kind == "text" and text.is_file():
        known = _check_file(text, TEXT_SHA256)
        table = _read_parquet(text, ("text", "label", "group"))
        key = f"news20-{hashlib.sha256(text.read_bytes()).hexdigest()[:16]}"
        texts, y, groups = (table[column].to_pylist() for column in ("text", "label", "group"))
        rows = _cached(cache, key, lambda: _embedded(texts, y, groups, f"file {TEXT_FILE}, embedded here"))
        return replace(rows, verified=known)
    present = sorted(file.name for file in folder.glob("*.parquet"))
    raise FileNotFoundError(
        f"The folder {str(folder)!r} has no {path.name}"
        + (f" and no {TEXT_FILE}" if source.kind == "text" else "")
        + f". It has: {', '.join(present) or 'no Parquet file'}. Put the file there; or, to download the data set, "
        "leave out data_dir and unset SHAPSHIFT_DATA."
    )


def _check_file(path: Path, sha256: str) -> bool:
    known = hashlib.sha256(path.read_bytes()).hexdigest() == sha256
    if not known:
        warnings.warn(
            f"{path.name} is not the published file: its sha256 differs from {sha256}. It is read all the same; "
            "results may differ from published ones.",
            UserWarning,
            stacklevel=4,
        )
    return known


def _read_parquet(path: Path, required: Sequence[str]) -> Any:
    try:
        table = pq.ParquetFile(path, page_checksum_verification=True).read()
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path.name} cannot be read as Parquet ({error}). Replace the file.") from None
    missing = [column for column in required if column not in table.column_names]
    if missing:
        raise InputError(
            f"{path.name} must have the column {missing[0]!r}. It has: {', '.join(table.column_names[:8])}"
            + (" ..." if len(table.column_names) > 8 else ".")
        )
    return table


def _read_rows(path: Path) -> Rows:
    table = _read_parquet(path, ("label",))
    names = [column for column in table.column_names if column not in _NOT_FEATURES]
    if not names:
        raise InputError(f"{path.name} must have feature columns beside 'label'. It has none.")
    X = cast(Floats, check.check_features(table.select(names), path.name).rows)
    labels = _labels.check_labels(table["label"], "label", X.shape[0], path.name)
    if labels.dtype.kind not in "iub":
        raise InputError(f"Column 'label' of {path.name} must hold integers. Got {labels.dtype}; number the classes.")
    groups = np.array(table["group"].to_pylist()) if "group" in table.column_names else None
    return Rows(X, labels.astype(np.int64), tuple(names), groups)


def _cached(cache: Path, key: str, make: Callable[[], Rows]) -> Rows:
    """Rows from the cache, or made and put there; either way they must have the checksum stored at first."""
    data, note = cache / f"{key}.parquet", cache / f"{key}.json"
    stored = _read_note(cache, key) if note.is_file() else None
    fresh = stored is None or not data.is_file()
    rows = make() if fresh else _read_rows(data)
    digest = digest_of(rows)
    if stored is not None and digest != stored["sha256"]:
        what = "What was fetched now" if fresh else f"The cached file {data.name}"
        raise InputError(
            f"{what} is not what was fetched first: sha256 {digest}, expected {stored['sha256']} (from {note.name}). "
            f"Delete {key}.parquet and {key}.json in {str(cache)!r} to fetch it anew and accept what comes."
        )
    about: dict[str, Any] = (
        stored if stored is not None else {"sha256": digest, "source": rows.source, "rows": len(rows.y)}
    )
    if fresh:
        cache.mkdir(parents=True, exist_ok=True)
        columns = {name: rows.X[:, j] for j, name in enumerate(rows.feature_names)} | {"label": rows.y}
        columns |= {"group": rows.groups.tolist()} if rows.groups is not None else {}
        # The checksum first: a crash in between leaves nothing that would be read unchecked.
        write_text(note, json.dumps(about, indent=2))
        packed = {"compression": "zstd", "write_page_checksum": True}
        write_atomically(data, lambda file: pq.write_table(pa.table(columns), file, **packed))
    return replace(rows, source=about["source"], verified=stored is not None or None)


def _read_note(cache: Path, key: str) -> dict[str, Any]:
    """Read what was noted at the first fetch."""
    note = cache / f"{key}.json"
    try:
        stored: Any = json.loads(note.read_text(encoding="utf-8"))
        if not isinstance(stored, dict) or not all(isinstance(stored.get(part), str) for part in ("sha256", "source")):
            raise InputError("it must hold 'sha256' and 'source'")
    except (OSError, ValueError) as error:
        raise InputError(
            f"The note {note.name}, which tells the checksum of the cached rows, is damaged ({error}). Restore it, or "
            f"delete {key}.json and {key}.parquet in {str(cache)!r} to fetch the rows anew and accept what comes."
        ) from error
    return stored


def _fetched(name: str, source: Source, cache: Path) -> Rows:
    from sklearn.datasets import fetch_openml

    try:
        # The parser that needs no pandas.
        bunch = fetch_openml(data_id=source.openml_id, data_home=str(cache), as_frame=False, parser="liac-arff")
    except OSError as error:
        raise ConnectionError(
            f"Could not fetch {name!r} from OpenML ({error}). Without a network, put {name}.parquet into a folder and "
            "name it with data_dir or SHAPSHIFT_DATA."
        ) from error
    X = np.array(bunch.data, dtype=np.float64)
    features = [str(feature) for feature in bunch.feature_names]
    for feature, values in (bunch.get("categories") or {}).items():
        # Nominal columns arrive as positions in a list of values; these are numbers written as text.
        if feature in features:
            j = features.index(feature)
            X[:, j] = np.array(values, dtype=np.float64)[X[:, j].astype(np.int64)]
    kept = [j for j, feature in enumerate(features) if feature.lower() != "id"]
    X = X[:, kept]
    labels = cast(Mapping[str, int], source.labels)
    unknown = sorted({str(label) for label in bunch.target} - set(labels))
    y = np.array([labels.get(str(label), -1) for label in bunch.target], dtype=np.int64)
    counts = tuple(int((y == code).sum()) for code in range(len(source.counts)))
    if unknown or X.shape != (sum(source.counts), source.n_features) or counts != source.counts:
        raise InputError(
            f"OpenML {source.openml_id} is not the {name!r} that was expected: {sum(source.counts)} rows, "
            f"{source.n_features} features, class sizes {source.counts}. Got shape {X.shape}, class sizes {counts}"
            + (f", unknown labels {unknown}" if unknown else "")
            + ". Use a local file through data_dir instead."
        )
    return Rows(X, y, tuple(features[j] for j in kept), source=f"OpenML {source.openml_id}")


def _embedded(texts: list[str], labels: list[int], groups: list[str], source: str) -> Rows:
    X = embed_texts(texts).astype(np.float64)
    names = tuple(f"e{j:03d}" for j in range(X.shape[1]))
    return Rows(X, np.array(labels, dtype=np.int64), names, np.array(groups), source)


def whereabouts(name: str, source: Source, folder: Path | None, cache: Path) -> tuple[str, bool]:
    """Say where a set would be taken from now, and whether that needs no network."""
    if source.kind in ("generated", "scikit-learn"):
        return source.kind, True
    if folder is not None:
        if (folder / f"{name}.parquet").is_file():
            return f"file {name}.parquet", True
        if source.kind == "text" and (folder / TEXT_FILE).is_file():
            return f"file {TEXT_FILE}, embedded here", importlib.util.find_spec("sentence_transformers") is not None
        return f"missing: no {name}.parquet in the folder", False
    key, where = ("news20", "20 Newsgroups, embedded here") if source.kind == "text" else (
        f"openml-{source.openml_id}", f"OpenML {source.openml_id}"
    )  # fmt: skip
    kept = (cache / f"{key}.parquet").is_file() and (cache / f"{key}.json").is_file()
    return where + (" (cached)" if kept else ""), kept


def digest_of(rows: Rows) -> str:
    """Return the sha256 of column names, features and labels."""
    digest = hashlib.sha256(json.dumps([list(rows.feature_names), rows.X.shape]).encode())
    digest.update(np.ascontiguousarray(rows.X, dtype="<f8").data)
    digest.update(np.ascontiguousarray(rows.y, dtype="<i8").data)
    return digest.hexdigest()
