"""Utilities that are known already, in bounded memory, and the file from which an interrupted run goes on."""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shapshift._archive import Arrays, read_archive, write_archive
from shapshift._files import locked
from shapshift.sampled._estimate import Estimate

Floats = npt.NDArray[np.float64]

KIND, VERSION = "shapshift.SampledShapley checkpoint", 1
# What Python adds to the bytes of a key and of its array.
ENTRY_BYTES = 250
PARTS = ("ends", "kept", "fresh")


def coalition_key(coalition: npt.NDArray[Any]) -> bytes:
    """Return a short name of a coalition: a bit per player, or a count where players can be in it more than once."""
    if coalition.dtype == np.bool_:
        return np.packbits(coalition).tobytes()
    return coalition.astype(np.int32).tobytes()


class Store:
    """Utilities by coalition.

    There are those of nobody and everybody (``ends``), those of this wave (``fresh``), and as many of earlier waves as
    memory allows, oldest dropped first (``kept``).

    Parameters
    ----------
    max_bytes : int
        Bound on what is kept from wave to wave; 0 keeps nothing.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.ends: dict[bytes, Floats] = {}
        self.kept: dict[bytes, Floats] = {}
        self.fresh: dict[bytes, Floats] = {}

    def __contains__(self, key: bytes) -> bool:
        return key in self.ends or key in self.fresh or key in self.kept

    def __getitem__(self, key: bytes) -> Floats:
        for known in (self.ends, self.fresh):
            if key in known:
                return known[key]
        return self.kept[key]

    def end_wave(self) -> None:
        """Keep what this wave found, within bounds."""
        self.kept |= self.fresh
        self.fresh = {}
        if self.kept:
            key, utilities = next(iter(self.kept.items()))
            excess = len(self.kept) - self.max_bytes // (len(key) + utilities.nbytes + ENTRY_BYTES)
            for old in list(self.kept)[: max(excess, 0)]:
                del self.kept[old]


class Checkpoint:
    """A file with everything that a run knows so far.

    Parameters
    ----------
    path : path-like or None
        None writes nothing.
    identity : mapping of str to str
        What the run is of, part by part: a file of something else is refused, and the message names the parts.
    """

    def __init__(self, path: str | os.PathLike[str] | None, identity: Mapping[str, str]) -> None:
        self.path, self.identity = path, dict(identity)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Refuse a file that another process is at work on; nobody else can begin until the end of this."""
        if self.path is None:
            yield
            return
        path = Path(os.path.abspath(self.path))
        if not path.parent.is_dir():
            raise ValueError(
                f"The 'checkpoint' parameter must name a file in a folder that is there. Got {str(self.path)!r}; make "
                f"the folder {str(path.parent)!r} first."
            )
        with locked(path.with_name(f"{path.name}.lock")) as ours:
            if not ours:
                raise ValueError(
                    f"The 'checkpoint' file {str(self.path)!r} is in use: another process is at work on this run. Wait "
                    "for it to end, or name another file."
                )
            yield

    def load(self, estimate: Estimate, store: Store) -> dict[str, Any] | None:
        """Fill in what was saved, and return the counters that came with it; None if there is no file yet."""
        if self.path is None or not Path(self.path).exists():
            return None
        header, arrays = read_archive(self.path, KIND, VERSION)
        theirs = header["identity"]
        other = [part for part in self.identity if theirs.get(part) != self.identity[part]]
        if other:
            shown = [
                f"{part} ({theirs.get(part)} there, {self.identity[part]} here)"
                if max(len(str(theirs.get(part))), len(self.identity[part])) < 80
                else part
                for part in other
            ]
            raise ValueError(
                f"The 'checkpoint' file {str(self.path)!r} belongs to another run: it differs in {', '.join(shown)}. "
                "Name another file, or delete this one to start over."
            )
        if arrays["sums"].shape != estimate.sums.shape:
            raise ValueError(
                f"The 'checkpoint' file {str(self.path)!r} does not fit this run. Delete it to start over."
            )
        estimate.rounds = header["counters"]["rounds"]
        estimate.counts, estimate.sums, estimate.squares = (arrays[name] for name in ("counts", "sums", "squares"))
        for name in PARTS:
            known = getattr(store, name)
            for key, utilities in zip(arrays[f"{name}_keys"], arrays[f"{name}_utilities"], strict=True):
                known[key.tobytes()] = utilities
        return dict(header["counters"])

    def save(self, estimate: Estimate, store: Store, counters: Mapping[str, Any]) -> None:
        """Write the file, whole or not at all."""
        if self.path is None:
            return
        arrays: Arrays = {name: getattr(estimate, name) for name in ("counts", "sums", "squares")}
        for name in PARTS:
            known: dict[bytes, Floats] = getattr(store, name)
            arrays[f"{name}_keys"] = _rows((np.frombuffer(key, dtype=np.uint8) for key in known), np.uint8)
            arrays[f"{name}_utilities"] = _rows(known.values(), np.float64)
        header = {"identity": self.identity, "counters": {**counters, "rounds": estimate.rounds}}
        write_archive(self.path, KIND, VERSION, header, arrays)


def _rows(rows: Iterable[npt.NDArray[Any]], dtype: Any) -> npt.NDArray[Any]:
    listed = list(rows)
    return np.array(listed, dtype=dtype) if listed else np.empty((0, 0), dtype=dtype)
