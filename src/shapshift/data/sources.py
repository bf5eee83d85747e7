"""Sources of rows: scikit-learn, a local folder of Parquet files, OpenML, and the cache of downloads."""

import hashlib
import importlib
import importlib.util
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from shapshift.checks import inputs as check
from shapshift.checks import labels as _labels
from shapshift.checks.warnings import warn
from shapshift.exceptions import InputError, MissingLibraryError
from shapshift.io.files import write_atomically, write_text
from shapshift.tables.embedding import embed_texts
from shapshift.tables.files import did_you_mean, file_digest
from shapshift.tables.reading import read_table

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Folder = str | os.PathLike[str]

# Names of the classes at OpenML; its binarised regression sets call a target below its mean "P".
_P_AND_N, _ZERO_ONE, _ONE_TWO = {"N": 0, "P": 1}, {"0": 0, "1": 1}, {"1": 0, "2": 1}
_NOT_FEATURES = ("label", "group", "split")


@dataclass(frozen=True)
class Source:
    """Facts about a data set before it is read; ``counts`` are its class sizes in label order."""

    kind: str  # "generated", "scikit-learn", "openml" or "text"
    n_features: int
    counts: tuple[int, ...]
    description: str
    openml_id: int = 0
    labels: Mapping[str, int] | None = None
    sha256: str = ""


# Checksums of the published files.
_SHA256 = {
    "phoneme": "93509ec9ed0dbf0a35446c3d4370ab5ed421b27c7527570c4d6aa80ba6ba0490",
    "2dplanes": "be5e59e502b01dd51c74c65dcb4c421df4cb0a13a3f8329ad7bb1594b39d82f7",
    "pol": "ad85d8417e6b9909c604d33d2933cd95c8601d6e1ab3f7d653033e6a1b6002c5",
    "cpu": "21981e5b57471edf6c184cdbc4190a0992a8c32a6265e384fd48f4e5813fe1ca",
    "news20": "bac59f7bf19537c2b84a13721a374bae9adbca68954690e355d14c551543a20c",
    "news20_text": "e74dd8374af89d9f357f78e02b5fff910825d677fff3707e3b8c17c4129b38ce",
    "creditcard": "67111b74945f4976f0c312ed1d4eed0c4cf0d831408848de4b4437591c8bc65b",
}
_KNOWN: dict[str, tuple[Any, ...]] = {
    "gaussian": ("generated", 2, (), "Gaussian quantiles: a disc of one class inside a ring of the other, 2-D."),
    "phoneme": ("openml", 5, (3818, 1586), "Nasal (0) and oral (1) vowels by five harmonics.", 1489, _ONE_TWO),
    "2dplanes": ("openml", 10, (20420, 20348), "2dplanes; label 1 = target below its mean.", 727, _P_AND_N),
    "pol": ("openml", 48, (5041, 9959), "pol (telecommunication); label 1 = target below its mean.", 722, _P_AND_N),
    "cpu": ("openml", 21, (5715, 2477), "cpu_act (computer activity); label 1 = target below its mean.", 761, _P_AND_N),
    "news20": ("text", 384, (3839, 4777), "20 Newsgroups, comp.* (1) against rec.* (0), as MiniLM embeddings."),
    "creditcard": ("openml", 23, (23364, 6636), "Credit card clients; label 1 = default next month.", 42477, _ZERO_ONE),
    "iris": ("scikit-learn", 4, (50, 50, 50), "Iris: three species by four lengths."),
    "wine": ("scikit-learn", 13, (59, 71, 48), "Wine: three cultivars by 13 chemical measurements."),
    "breast_cancer": ("scikit-learn", 30, (212, 357), "Breast cancer: malignant (0) and benign (1) tumours."),
    "digits": ("scikit-learn", 64, (178, 182, 177, 183, 181, 182, 181, 179, 174, 180), "Digits: 8x8 images."),
}
SOURCES = {name: replace(Source(*known), sha256=_SHA256.get(name, "")) for name, known in _KNOWN.items()}
_TEXT_FILE = "news20_text.parquet"


@dataclass(frozen=True)
class Rows:
    """A data set from its source, before protocol, shuffle, split and scaling."""

    X: Floats
    y: Ints
    feature_names: tuple[str, ...]
    groups: npt.NDArray[Any] | None = None
    source: str = ""
    verified: bool | None = None


def look_up(name: object) -> Source:
    """Return the facts about a data set; raises an error with all names if there is none of that name."""
    if isinstance(name, str) and name in SOURCES:
        return SOURCES[name]
    raise InputError(
        f"The 'name' parameter of load_dataset must be one of {', '.join(map(repr, SOURCES))}. Got {name!r} instead."
        + did_you_mean(name, list(SOURCES))
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


def gaussian_rows(n_rows: int, seed: int) -> Rows:
    """Generate the "gaussian" set."""
    from sklearn.datasets import make_gaussian_quantiles

    # scikit-learn takes 32-bit seeds only.
    state = int(np.random.SeedSequence(seed).generate_state(1)[0])
    X, y = make_gaussian_quantiles(n_samples=n_rows, n_features=2, n_classes=2, random_state=state)
    return Rows(X, y.astype(np.int64), ("x1", "x2"), source="scikit-learn make_gaussian_quantiles")


def bundled_rows(name: str) -> Rows:
    """Read a set that is bundled with scikit-learn."""
    bunch = getattr(importlib.import_module("sklearn.datasets"), f"load_{name}")()
    return Rows(
        np.asarray(bunch.data, dtype=np.float64),
        np.asarray(bunch.target, dtype=np.int64),
        tuple(str(feature) for feature in bunch.feature_names),
        source=f"scikit-learn load_{name}",
    )


def real_rows(name: str, source: Source, folder: Path | None, cache: Path) -> Rows:
    """Read a real set from the folder if one is named, else from the cache, else from its publisher."""
    if folder is None:
        if source.kind == "text":
            return _cached(cache, "news20", lambda: _embedded(*_newsgroups(cache), "20 Newsgroups, embedded here"))
        return _cached(cache, f"openml-{source.openml_id}", lambda: _fetched(name, source, cache))
    path = folder / f"{name}.parquet"
    if path.is_file():
        digest = _checked_digest(path, source.sha256)
        return replace(_read_rows(path), source=f"file {path.name}", verified=digest == source.sha256)
    text = folder / _TEXT_FILE
    if source.kind == "text" and text.is_file():
        digest = _checked_digest(text, _SHA256["news20_text"])
        texts, y, groups = (c.to_pylist() for c in read_table(text, columns=("text", "label", "group")).columns)
        make = partial(_embedded, texts, y, groups, f"file {_TEXT_FILE}, embedded here")
        rows = _cached(cache, f"news20-{digest[:16]}", make)
        return replace(rows, verified=digest == _SHA256["news20_text"])
    present = sorted(file.name for file in folder.glob("*.parquet"))
    raise FileNotFoundError(
        f"The folder {str(folder)!r} has no {path.name}"
        + (f" and no {_TEXT_FILE}" if source.kind == "text" else "")
        + f". It has: {', '.join(present) or 'no Parquet file'}. Put the file there; or, to download the data set, "
        "leave out data_dir and unset SHAPSHIFT_DATA."
    )


def _checked_digest(path: Path, sha256: str) -> str:
    """Return the checksum of a file, and warn if it is not that of the published one."""
    digest = file_digest(path)
    if digest != sha256:
        warn(
            f"{path.name} is not the published file: its sha256 differs from {sha256}. It is read anyway; "
            "results may differ from published ones."
        )
    return digest


def _read_rows(path: Path) -> Rows:
    table = read_table(path)
    names = [column for column in table.column_names if column not in _NOT_FEATURES]
    if "label" not in table.column_names or not names:
        raise InputError(
            f"{path.name} must have the column 'label' and feature columns beside it. It has: "
            f"{check.some(table.column_names)}."
        )
    X = cast(Floats, check.check_features(table.select(names), path.name).rows)
    labels = _labels.check_labels(table["label"], "label", X.shape[0], path.name)
    if labels.dtype.kind not in "iub":
        raise InputError(f"Column 'label' of {path.name} must hold integers. Got {labels.dtype}; number the classes.")
    groups = np.array(table["group"].to_pylist()) if "group" in table.column_names else None
    return Rows(X, labels.astype(np.int64), tuple(names), groups)


def _cached(cache: Path, key: str, make: Callable[[], Rows]) -> Rows:
    """Rows from the cache, or fetched and stored there; their checksum must equal the one stored first."""
    data, note = cache / f"{key}.parquet", cache / f"{key}.json"
    stored = _read_note(cache, key) if note.is_file() else None
    fresh = stored is None or not data.is_file()
    rows = make() if fresh else _read_rows(data)
    digest = digest_of(rows)
    if stored is not None and digest != stored["sha256"]:
        what = "The fetched data set" if fresh else f"The cached file {data.name}"
        raise InputError(
            f"{what} differs from the first fetch: sha256 {digest}, expected {stored['sha256']} (from {note.name}). "
            f"Delete {key}.parquet and {key}.json in {str(cache)!r} to fetch it again and accept the new content."
        )
    about: dict[str, Any] = stored or {"sha256": digest, "source": rows.source, "rows": len(rows.y)}
    if fresh:
        cache.mkdir(parents=True, exist_ok=True)
        columns = {name: rows.X[:, j] for j, name in enumerate(rows.feature_names)} | {"label": rows.y}
        columns |= {"group": rows.groups.tolist()} if rows.groups is not None else {}
        # The checksum first: after a crash in between, no rows can be read unchecked.
        write_text(note, json.dumps(about, indent=2))
        packed = {"compression": "zstd", "write_page_checksum": True}
        write_atomically(data, lambda file: pq.write_table(pa.table(columns), file, **packed))
    return replace(rows, source=about["source"], verified=stored is not None or None)


def _read_note(cache: Path, key: str) -> dict[str, Any]:
    """Read the note of the first fetch."""
    note = cache / f"{key}.json"
    try:
        stored: Any = json.loads(note.read_text(encoding="utf-8"))
        if not isinstance(stored, dict) or not all(isinstance(stored.get(part), str) for part in ("sha256", "source")):
            raise InputError("it must hold 'sha256' and 'source'")
    except (OSError, ValueError) as error:
        raise InputError(
            f"The note {note.name}, which holds the checksum of the cached rows, is damaged ({error}). Restore it, or "
            f"delete {key}.json and {key}.parquet in {str(cache)!r} to fetch the rows again and accept the new content."
        ) from error
    return stored


def _fetched(name: str, source: Source, cache: Path) -> Rows:
    from sklearn.datasets import fetch_openml

    try:
        # This parser does not need pandas.
        bunch = fetch_openml(data_id=source.openml_id, data_home=str(cache), as_frame=False, parser="liac-arff")
    except OSError as error:
        raise ConnectionError(
            f"Could not fetch {name!r} from OpenML ({error}). Without a network, put {name}.parquet into a folder and "
            "name it with data_dir or SHAPSHIFT_DATA."
        ) from error
    X = np.array(bunch.data, dtype=np.float64)
    features = [str(feature) for feature in bunch.feature_names]
    for feature, values in (bunch.get("categories") or {}).items():
        # Nominal columns are positions in a list of values, which are numbers written as text.
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


def _newsgroups(cache: Path) -> tuple[list[str], list[int], list[str]]:
    """Fetch the messages of comp.* (1) and rec.* (0): texts, labels and newsgroups; empty messages are dropped."""
    from sklearn.datasets import fetch_20newsgroups

    texts, labels, groups = [], [], []
    for subset in ("train", "test"):
        try:
            bunch = fetch_20newsgroups(
                subset=subset, shuffle=False, remove=("headers", "footers", "quotes"), data_home=str(cache)
            )
        except OSError as error:
            raise ConnectionError(
                f"Could not fetch 20 Newsgroups ({error}). Without a network, put news20.parquet or {_TEXT_FILE} into "
                "a folder and name it with data_dir or SHAPSHIFT_DATA."
            ) from error
        for text, target in zip(bunch.data, bunch.target, strict=True):
            group = str(bunch.target_names[target])
            if group.startswith(("comp.", "rec.")) and text.strip():
                texts.append(text)
                labels.append(int(group.startswith("comp.")))
                groups.append(group)
    return texts, labels, groups


def _embedded(texts: list[str], labels: list[int], groups: list[str], source: str) -> Rows:
    try:
        X = embed_texts(texts).astype(np.float64)
    except MissingLibraryError as error:
        raise MissingLibraryError(
            f"{error} To do without it, put news20.parquet into the folder that data_dir or SHAPSHIFT_DATA names."
        ) from error
    names = tuple(f"e{j:03d}" for j in range(X.shape[1]))
    return Rows(X, np.array(labels, dtype=np.int64), names, np.array(groups), source)


def whereabouts(name: str, source: Source, folder: Path | None, cache: Path) -> tuple[str, bool]:
    """Name the source that would be used for a set now, and whether it works without a network."""
    if source.kind in ("generated", "scikit-learn"):
        return source.kind, True
    if folder is not None:
        if (folder / f"{name}.parquet").is_file():
            return f"file {name}.parquet", True
        if source.kind == "text" and (folder / _TEXT_FILE).is_file():
            return f"file {_TEXT_FILE}, embedded here", importlib.util.find_spec("sentence_transformers") is not None
        return f"missing: no {name}.parquet in the folder", False
    key, where = f"openml-{source.openml_id}", f"OpenML {source.openml_id}"
    if source.kind == "text":
        key, where = "news20", "20 Newsgroups, embedded here"
    kept = (cache / f"{key}.parquet").is_file() and (cache / f"{key}.json").is_file()
    return where + (" (cached)" if kept else ""), kept


def digest_of(rows: Rows) -> str:
    """Return the sha256 of column names, features and labels."""
    digest = hashlib.sha256(json.dumps([list(rows.feature_names), rows.X.shape]).encode())
    digest.update(np.ascontiguousarray(rows.X, dtype="<f8").data)
    digest.update(np.ascontiguousarray(rows.y, dtype="<i8").data)
    return digest.hexdigest()
