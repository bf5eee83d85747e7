"""The result type: frozen, tabulated, and saved so that nobody can load anything else than what was saved."""

from __future__ import annotations

import dataclasses
import errno
import io
import os
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from shapshift import Beta, KNNShapley, Valuation
from shapshift.io.archive import read_archive, write_archive

RNG = np.random.default_rng(0)
X = np.round(RNG.normal(size=(40, 3)), 1)
Y = RNG.integers(0, 3, size=40)
X_VAL = np.round(RNG.normal(size=(15, 3)), 1)
Y_VAL = RNG.integers(0, 3, size=15)
GROUPS = ["north", "south", "east"] * 5
COLUMNS = ["height", "width", "depth"]


def make(*, ids: object = None, groups: object = GROUPS, matrix: bool = True, **options: object) -> Valuation:
    return KNNShapley(**options).fit(X, Y, ids=ids).value(X_VAL, Y_VAL, groups=groups, matrix=matrix)


def same(a: object, b: object) -> bool:
    """Equal to the last bit and of the same kind."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        if a.dtype == object:
            return a.dtype == b.dtype and a.tolist() == b.tolist()
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return type(a) is type(b) and a == b


def contents(valuation: Valuation) -> dict[str, object]:
    found = {field.name: getattr(valuation, field.name) for field in dataclasses.fields(valuation)}
    found["parameters"] = dict(valuation.parameters)
    return found


def assert_same(a: Valuation, b: Valuation) -> None:
    left, right = contents(a), contents(b)
    assert left.keys() == right.keys()
    different = [name for name in left if not same(left[name], right[name])]
    assert not different


# --- frozen ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["values", "ids", "entropy", "matrix", "parameters", "fingerprint"])
def test_attributes_cannot_be_replaced(name: str) -> None:
    with pytest.raises(AttributeError):
        setattr(make(), name, None)


@pytest.mark.parametrize("origin", ["computed", "loaded"])
def test_contents_cannot_be_changed(origin: str, tmp_path: Path) -> None:
    found = make()
    if origin == "loaded":
        found.save(tmp_path / "v")
        found = Valuation.load(tmp_path / "v")
    arrays = [value for value in contents(found).values() if isinstance(value, np.ndarray)]
    assert len(arrays) >= 8
    for array in (*arrays, *found.group_values.values()):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = array[0]
    with pytest.raises(TypeError):
        found.parameters["utility"] = "hard"
    found.group_values.clear()
    assert list(found.group_values) == ["north", "south", "east"]


def test_what_made_the_values_is_told() -> None:
    found = make(n_neighbors=3, utility="hard", semivalue=Beta(4, 1), metric="manhattan", ties="index")
    told = found.parameters
    assert (told["n_neighbors"], told["utility"], told["metric"], told["ties"]) == (3, "hard", "manhattan", "index")
    assert "4" in str(told["semivalue"])
    assert found.n_val == 15
    assert found.values.shape == found.ids.shape == (40,)
    assert found.matrix.shape == (40, 15)
    assert found.entropy.shape == found.boundary.shape == (15,)


def test_fingerprint_tells_training_sets_apart() -> None:
    def fingerprint(X: object = X, y: object = Y, **options: object) -> str:
        return KNNShapley(**options).fit(X, y).value(X_VAL, Y_VAL).fingerprint

    original = fingerprint()
    assert original == fingerprint() == fingerprint(X.tolist(), Y.tolist())
    # Which validation set and how it is valued does not belong to the training set.
    assert original == fingerprint(n_neighbors=2, utility="hard")
    for other_X, other_y in ((X + 1, Y), (X[::-1], Y), (X, (Y + 1) % 3), (X[:-1], Y[:-1]), (X * 2, Y)):
        assert fingerprint(other_X, other_y) != original


def test_stats() -> None:
    found = make()
    stats = found.stats()
    assert stats["mean"] == pytest.approx(found.values.mean())
    assert stats["std"] == pytest.approx(found.values.std())
    assert stats["positive_count"] == sum(value > 0 for value in found.values.tolist())
    assert stats["positive_ratio"] == stats["positive_count"] / 40
    for probability, quantile in stats["quantiles"].items():
        assert quantile == pytest.approx(np.quantile(found.values, probability))
    assert {0.25, 0.5, 0.75} <= set(stats["quantiles"])


def test_repr_is_short_and_says_the_size() -> None:
    text = repr(make())
    assert "40" in text
    assert "15" in text
    assert len(text) < 300


# --- tables ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
def test_to_frame_has_ids_values_and_groups(kind: str) -> None:
    ids = [f"row-{i}" for i in range(40)]
    found = make(ids=ids)
    frame = found.to_frame(kind)
    assert type(frame) is {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.Table}[kind]
    assert len(frame) == 40
    column = {
        "pandas": lambda name: frame[name].tolist(),
        "polars": lambda name: frame[name].to_list(),
        "pyarrow": lambda name: frame[name].to_pylist(),
    }[kind]
    assert (frame.index.tolist() if kind == "pandas" else column("id")) == ids
    assert column("value") == found.values.tolist()
    for name in ("north", "south", "east"):
        assert column(f"value[{name}]") == found.group_values[name].tolist()


@pytest.mark.parametrize(
    ("fitted", "returned"),
    [
        (X, pd.DataFrame),
        (pd.DataFrame(X, columns=COLUMNS), pd.DataFrame),
        (pl.DataFrame(X, schema=COLUMNS, orient="row"), pl.DataFrame),
        (pa.table(dict(zip(COLUMNS, X.T.copy(), strict=True))), pa.Table),
    ],
    ids=["numpy", "pandas", "polars", "pyarrow"],
)
def test_to_frame_returns_the_kind_of_table_that_was_fitted(fitted: object, returned: type, tmp_path: Path) -> None:
    found = KNNShapley().fit(fitted, Y).value(X_VAL.tolist(), Y_VAL) if fitted is X else None
    if found is None:
        with pytest.warns(UserWarning, match="feature names"):
            found = KNNShapley().fit(fitted, Y).value(X_VAL, Y_VAL)
    assert type(found.to_frame()) is returned
    found.save(tmp_path / "v")
    assert type(Valuation.load(tmp_path / "v").to_frame()) is returned


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
def test_values_that_are_not_exact_say_how_far_they_can_be_off(kind: str) -> None:
    def columns(valuation: Valuation) -> list[str]:
        frame = valuation.to_frame(kind)
        return list(frame.column_names if kind == "pyarrow" else frame.columns)

    exact = make()
    bounds = np.linspace(0.25, 0.5, 40)
    bounded = dataclasses.replace(exact, error_bound=bounds)
    assert "error_bound" not in columns(exact)
    after = columns(bounded).index("value") + 1
    assert columns(bounded)[after] == "error_bound"
    assert np.array_equal(np.asarray(bounded.to_frame(kind)["error_bound"]), bounds)


def test_summaries_show_the_largest_error_bound() -> None:
    exact = make()
    assert "error" not in repr(exact) + exact._repr_html_()
    bounded = dataclasses.replace(exact, error_bound=np.linspace(0, 0.125, 40))
    assert "error_bound=0.125" in repr(bounded)
    assert "at most 0.125" in bounded._repr_html_()
    unbounded = dataclasses.replace(exact, error_bound=np.full(40, np.inf))
    assert "error_bound=inf" in repr(unbounded)
    assert "not bounded" in unbounded._repr_html_()


def test_to_frame_joins_with_the_callers_frame() -> None:
    frame = pd.DataFrame(X, columns=COLUMNS, index=[f"row-{i}" for i in range(40)])
    joined = frame.join(KNNShapley().fit(frame, Y).value(frame.iloc[:-1], Y[:-1]).to_frame())
    assert joined["value"].notna().all()


def test_to_frame_refuses_an_unknown_kind() -> None:
    with pytest.raises(ValueError, match=r"kind.*'pandas'.*'duckdb'"):
        make().to_frame("duckdb")


# --- files ----------------------------------------------------------------------------------------------------------

IDS: dict[str, object] = {
    "numbers": None,
    "strings": [f"row-{i}" for i in range(40)],
    "long strings": np.array(["é" * i for i in range(40)]),
    "tuples": [("owner", i) for i in range(40)],
    "mixed": [*range(20), *(f"row-{i}" for i in range(20))],
    "dates": np.datetime64("2024-01-01") + np.arange(40),
    "floats": np.linspace(0, 1, 40),
    "bools": np.arange(40) % 2 == 0,
}


@pytest.mark.parametrize("ids", IDS)
@pytest.mark.parametrize("matrix", [False, True])
def test_save_and_load_return_every_bit(ids: str, matrix: bool, tmp_path: Path) -> None:
    found = make(ids=IDS[ids], matrix=matrix)
    found.save(tmp_path / "valuation.npz")
    assert_same(Valuation.load(tmp_path / "valuation.npz"), found)


def test_a_file_holds_its_arrays_a_header_and_nothing_else(tmp_path: Path) -> None:
    # NumPy before 2.2 takes np.savez(allow_pickle=False) for one more array.
    found = make(ids=IDS["tuples"])
    found.save(tmp_path / "valuation.npz")
    _, arrays = found._to_archive()
    with zipfile.ZipFile(tmp_path / "valuation.npz") as archive:
        assert set(archive.namelist()) == {f"{name}.npy" for name in arrays if name != "ids"} | {"header.npy"}


@pytest.mark.parametrize("kind", ["O", "T", [("name", "O"), ("rank", "i8")]], ids=["objects", "strings", "records"])
def test_no_array_of_objects_is_pickled(kind: object, tmp_path: Path) -> None:
    given = np.array([("a", 1), ("b", 2)] if isinstance(kind, list) else ["a", "b"], dtype=kind)
    write_archive(tmp_path / "a.npz", "a test", 1, {}, {"names": given})
    with np.load(tmp_path / "a.npz", allow_pickle=False) as file:
        assert [file[name].dtype for name in file.files] == [np.uint8]
    _, arrays = read_archive(tmp_path / "a.npz", "a test", 1)
    assert arrays["names"].tolist() == given.tolist()


def test_an_error_bound_is_saved_and_files_without_one_still_load(tmp_path: Path) -> None:
    exact = make()
    bounded = dataclasses.replace(exact, error_bound=np.where(np.arange(40) % 2, 0.5, np.inf))
    bounded.save(tmp_path / "bounded")
    assert_same(Valuation.load(tmp_path / "bounded"), bounded)
    exact.save(tmp_path / "exact")
    with np.load(tmp_path / "exact") as archive:
        assert "error_bound" not in archive.files
    assert Valuation.load(tmp_path / "exact").error_bound is None
    dataclasses.replace(exact, error_bound=np.zeros(39)).save(tmp_path / "short")
    with pytest.raises(ValueError, match="error_bound"):
        Valuation.load(tmp_path / "short")


@pytest.mark.parametrize("groups", [None, range(15), [("a", i % 2) for i in range(15)], np.arange(15) % 2 == 0])
def test_group_names_come_back_as_they_were(groups: object, tmp_path: Path) -> None:
    found = make(groups=groups)
    found.save(tmp_path / "v")
    assert_same(Valuation.load(tmp_path / "v"), found)


@pytest.mark.parametrize("path", ["plain", "with space.npz", "v.parquet"])
def test_the_file_gets_the_name_it_was_given(path: str, tmp_path: Path) -> None:
    make().save(str(tmp_path / path))
    assert os.listdir(tmp_path) == [path]
    assert_same(Valuation.load(str(tmp_path / path)), make())


def test_the_same_valuation_is_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make().save(tmp_path / "a")
    tomorrow = time.time() + 86_400
    monkeypatch.setattr(time, "time", lambda: tomorrow)
    make(n_jobs=2).save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failure_leaves_the_old_file_whole(step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "v"
    old, new = make(), make(n_neighbors=1)
    old.save(path)

    def fail(*args: object, **kwargs: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="disk is full"):
        new.save(path)
    monkeypatch.undo()
    assert os.listdir(tmp_path) == ["v"], "a failed write left something behind"
    assert_same(Valuation.load(path), old)
    new.save(path)
    assert_same(Valuation.load(path), new)


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match=r"No space left on device: '.*values.npz'"):
        make().save(tmp_path / "values.npz")


def test_saving_where_nothing_can_be_saved(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"path.*file"):
        make().save(tmp_path)
    with pytest.raises(ValueError, match=r"folder.*nowhere.*exist"):
        make().save(tmp_path / "nowhere" / "v")


def test_ids_that_cannot_be_saved_are_named(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"id.*frozenset"):
        make(ids=[frozenset({i}) for i in range(40)]).save(tmp_path / "v")
    assert os.listdir(tmp_path) == []


def test_the_file_holds_no_pickle(tmp_path: Path) -> None:
    path = tmp_path / "v"
    make(ids=IDS["mixed"]).save(path)
    with np.load(path, allow_pickle=False) as archive:
        assert all(archive[name].dtype != object for name in archive.files)


# --- damage ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Valuation, bytes]:
    path = tmp_path_factory.mktemp("saved") / "v"
    small = KNNShapley().fit(X[:6], Y[:6], ids=list("abcdef")).value(X_VAL[:3], Y[:3], groups=["u", "v", "u"])
    small.save(path)
    return small, path.read_bytes()


def flips(n_bytes: int) -> Iterator[tuple[int, int]]:
    """Every bit near the end, where an archive keeps its directory, and every bit's share of the rest."""
    for place in range(n_bytes):
        for bit in range(8) if place > n_bytes - 1_200 else (place % 8,):
            yield place, bit


def test_flipped_bits_never_load_as_something_else(saved: tuple[Valuation, bytes], tmp_path: Path) -> None:
    original, content = saved
    path = tmp_path / "v"
    n_refused = 0
    for place, bit in flips(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 1 << bit
        path.write_bytes(damaged)
        try:
            loaded = Valuation.load(path)
        except ValueError:
            n_refused += 1
        except Exception as error:
            pytest.fail(f"bit {bit} of byte {place} of {len(content)}: {error!r} instead of a ValueError")
        else:
            assert_same(loaded, original)
    assert n_refused > len(content) / 2


def test_a_truncated_file_is_refused(saved: tuple[Valuation, bytes], tmp_path: Path) -> None:
    _, content = saved
    path = tmp_path / "v"
    for length in (0, 1, 3, 4, 22, 100, len(content) // 2, len(content) - 30, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(ValueError, match=r"v' is not.*Valuation.*save"):
            Valuation.load(path)


def npz(**arrays: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def zipped(**members: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        b"just a text",
        b"id,value\n1,0.5\n",
        b"PAR1 and so on PAR1",
        bytes(2_000),
        npz(values=np.zeros(3)),
        npz(header=np.zeros(3)),
        npz(header=np.frombuffer(b"[1, 2]", dtype=np.uint8)),
        npz(header=np.frombuffer(b"{}", dtype=np.uint8)),
        npz(header=np.frombuffer(b'{"format": "shapshift.Valuation", "version": 1}', dtype=np.uint8)),
        npz(header=np.array([{"a": 1}], dtype=object)),
        zipped(hello="world"),
        zipped(),
    ],
    ids=["text", "csv", "parquet", "zeros", "npz", "header", "list", "object", "bare", "pickle", "zip", "empty zip"],
)
def test_a_foreign_file_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "v"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"v' is not.*Valuation.*save"):
        Valuation.load(path)


class Trap:
    """Unpickling it makes a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("name", ["header", "values", "ids"])
def test_loading_runs_no_code(name: str, saved: tuple[Valuation, bytes], tmp_path: Path) -> None:
    trap = np.array([Trap(tmp_path / "sprung")], dtype=object)
    path = tmp_path / "v"
    path.write_bytes(edited(saved[1], lambda arrays: arrays.update({name: trap})))
    with pytest.raises(ValueError, match="is not"):
        Valuation.load(path)
    assert os.listdir(tmp_path) == ["v"]


def edited(content: bytes, edit: Callable[[dict[str, np.ndarray]], None]) -> bytes:
    with np.load(io.BytesIO(content)) as archive:
        arrays = {name: archive[name] for name in archive.files}
    edit(arrays)
    return npz(**arrays)


@pytest.mark.parametrize("name", ["values", "entropy", "level_counts", "level_values"])
def test_a_file_whose_parts_do_not_fit_is_refused(name: str, saved: tuple[Valuation, bytes], tmp_path: Path) -> None:
    path = tmp_path / "v"
    path.write_bytes(edited(saved[1], lambda arrays: arrays.update({name: arrays[name][:-1]})))
    with pytest.raises(ValueError, match="is not"):
        Valuation.load(path)
    path.write_bytes(edited(saved[1], lambda arrays: arrays.__delitem__(name)))
    with pytest.raises(ValueError, match="is not"):
        Valuation.load(path)


def test_a_later_format_is_refused(saved: tuple[Valuation, bytes], tmp_path: Path) -> None:
    def raise_version(arrays: dict[str, np.ndarray]) -> None:
        text = arrays["header"].tobytes().replace(b'"version": 1', b'"version": 9')
        arrays["header"] = np.frombuffer(text, dtype=np.uint8)

    path = tmp_path / "v"
    path.write_bytes(edited(saved[1], raise_version))
    with pytest.raises(ValueError, match="version 9"):
        Valuation.load(path)


def test_no_file_at_all(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="missing"):
        Valuation.load(tmp_path / "missing")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ValueError, match="folder"):
        Valuation.load(tmp_path / "folder")


@pytest.mark.parametrize("part", ["whole", "slice", "transposed", "read-only"])
def test_arrays_that_were_given_stay_the_callers(part: str) -> None:
    found = KNNShapley(1).fit([[0.0], [1.0], [3.0]], [0, 1, 1]).value([[0.9], [2.0]], [1, 0], matrix=True)
    parent = np.arange(24.0).reshape(4, 6)
    given = {
        "whole": parent[0].copy()[:3].copy(),
        "slice": parent[1, :3],
        "transposed": parent[:2, :3].T,
        "read-only": np.broadcast_to(parent[0, :1], 3),
    }[part]
    expected, name = given.copy(), "matrix" if part == "transposed" else "values"
    made = dataclasses.replace(found, **{name: given})
    assert parent.flags.writeable
    assert given.flags.writeable == (part != "read-only")
    parent[:] = -1.0
    if given.flags.writeable:
        given[:] = -1.0
    np.testing.assert_array_equal(getattr(made, name), expected)
    with pytest.raises(ValueError, match=r"(?i)writeable"):
        getattr(made, name).flags.writeable = True


def test_no_sums_are_kept_alive_by_what_is_empty() -> None:
    found = KNNShapley(1).fit([[0.0], [1.0], [3.0]], [0, 1, 1]).value([[0.9]], [1])
    assert found.group_means.shape == (0, 3)
    assert found.group_means.base is None or found.group_means.base.size == 0
