"""Settings that all experiments share, and storage of finished cells, so that an interrupted run can resume."""

import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from rich.progress import track

from shapshift.data import Dataset, load_dataset

REAL = ("phoneme", "2dplanes", "pol", "cpu", "news20", "creditcard")
DATASETS = ("gaussian", *REAL)
PROTOCOLS = ("balanced", "natural")

Cell = TypeVar("Cell", bound=tuple[Any, ...])


def protocols(dataset: str) -> tuple[str, ...]:
    """Protocols for a dataset; the Gaussian classes are balanced by construction."""
    return PROTOCOLS[:1] if dataset == "gaussian" else PROTOCOLS


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Sizes of an experiment.

    Attributes
    ----------
    name : str
    n_train, n_val : int
        Rows of every training and validation set.
    seeds : int
        Every seed draws its own split and its own noise; confidence intervals are over seeds.
    datasets : tuple of str
    data_dir : str, optional
        Folder of the real datasets, see :func:`shapshift.data.load_dataset`.
    processes : int
        Number of processes that compute cells; it does not change the results.
    """

    name: str = "full"
    n_train: int
    n_val: int
    seeds: int
    datasets: tuple[str, ...] = DATASETS
    data_dir: str | None = None
    processes: int = 1

    #: Fields that do not affect the result of a cell.
    ELSEWHERE: ClassVar[tuple[str, ...]] = ("datasets", "data_dir", "processes")
    #: Version number, increased when an experiment changes, so that its earlier cells are not used.
    CELL_FORMAT: ClassVar[dict[str, int]] = {}

    def choose(self, datasets: Sequence[str] | None, data_dir: str | None) -> Self:
        """Return the same settings for some datasets only, or with data from a folder."""
        return replace(self, datasets=tuple(datasets or self.datasets), data_dir=data_dir)

    def load(self, dataset: str, protocol: str, seed: int, n_val: int | None = None) -> Dataset:
        """Load one split of a dataset."""
        return load_dataset(
            dataset,
            protocol=protocol,
            random_state=seed,
            n_train=self.n_train,
            n_val=n_val or self.n_val,
            data_dir=self.data_dir,
        )

    @property
    def digest(self) -> str:
        """Short hash that identifies stored cells."""
        sizes = {key: value for key, value in asdict(self).items() if key not in self.ELSEWHERE} | self.CELL_FORMAT
        return hashlib.sha256(json.dumps(sizes, sort_keys=True).encode()).hexdigest()[:16]

    def keys(self) -> dict[str, str]:
        """Return the keys of cells by dataset: of the settings, and of the dataset's source."""
        return {name: f"{self.digest}-{self.load(name, 'natural', 0).sha256[:16]}" for name in self.datasets}


def run_cells(folder: Path, work: Mapping[Cell, tuple[str, Callable[[], Any]]], processes: int = 1) -> dict[Cell, Any]:
    """Compute cells, each given by its key and a function, or read them if stored under the same key."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{'-'.join(map(str, cell))}.json" for cell in work]
    keys, functions = [key for key, _ in work.values()], [compute for _, compute in work.values()]
    if processes > 1:
        # Spawned, not forked: the threads of the kernels do not survive a fork.
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            found = list(_tracked(pool.map(_stored, paths, keys, functions), len(work)))
    else:
        found = list(_tracked(map(_stored, paths, keys, functions), len(work)))
    return dict(zip(work, found, strict=True))


def _tracked(results: Iterable[Any], total: int) -> Iterable[Any]:
    return track(results, "Computing", total=total, disable=not sys.stderr.isatty())


def _stored(path: Path, key: str, compute: Callable[[], Any]) -> Any:
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        if stored["key"] == key:
            return stored["result"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        pass  # missing or incomplete: compute it
    result = compute()
    path.write_text(json.dumps({"key": key, "result": result}), encoding="utf-8")
    return result
