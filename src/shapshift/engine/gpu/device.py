"""Valuations on a device: converts a task of the engine to tensors, and sums back to the engine's form."""

from dataclasses import dataclass, replace
from threading import RLock
from typing import Any

import numpy as np
import torch

from shapshift._progress import progress_bar
from shapshift.engine.certified import rounding_allowance
from shapshift.engine.gpu.certify import certify_points
from shapshift.engine.gpu.core import Batch, Keep, Result, Rules, Train, sample_size, value_points
from shapshift.engine.gpu.values import COSINE, EUCLIDEAN, MANHATTAN, scaled, short_rows
from shapshift.engine.rows.distances import TrainingIndex, check_reach
from shapshift.engine.runner import Runner
from shapshift.engine.tasks import ClassTask, Points, Sums
from shapshift.exceptions import InputError

Tensor = Any  # torch is an optional dependency that mypy does not look at

# Only one valuation at a time on a GPU: several would exceed the memory that each has planned for.
_BUSY = RLock()
# Number of training rows below which a batched sort is as fast as the kernels.
KERNEL_ROWS = 2048
_METRICS = {"euclidean": EUCLIDEAN, "sqeuclidean": EUCLIDEAN, "manhattan": MANHATTAN, "cosine": COSINE}


@dataclass(frozen=True)
class DeviceRows:
    """Training rows on a device, kept by the estimator between valuations.

    Attributes
    ----------
    device : str
        Torch's name of the device.
    train : Train
    kernels : bool
        Whether the Triton kernels can and should be used.
    width : int
        Number of columns required of validation points.
    is_distance : bool
        Whether the columns are distances to training rows.
    """

    device: str
    train: Train
    kernels: bool
    width: int
    is_distance: bool

    def check_points(self, points: Tensor) -> Tensor:
        """Check validation points that are on the device, without copying them to the host."""
        return check_tensor(points, self.width, self.is_distance).to(self.device)

    def sums(
        self, task: ClassTask, index: TrainingIndex, points: Any, excluded: Any, tol: float | None, runner: Runner
    ) -> Sums:
        """Compute the sums of a task on the device.

        Parameters
        ----------
        task : ClassTask
        index, points
            Training rows and validation points.
        excluded : ndarray or None
            Training row that each point ignores.
        tol : float or None
            Largest error bound in standard deviations of the values; None for exact values. With a matrix, with
            excluded rows, or without kernels, values are always exact.
        runner : Runner
            Its memory budget bounds the tiles of distances; there is one worker.
        """
        with _BUSY:
            # A copy, so that objects derived from the rows do not outlive the call.
            rows = replace(self, train=replace(self.train))
            job = _Job(task, index, rows, points, excluded, runner)
            if tol is None:
                return job.exact()
            allowance = rounding_allowance(task)
            if task.matrix or excluded is not None:
                notes = {"tol": tol, "exact_ranks": task.n_train, "buckets": 0}
                return replace(job.exact(), error_bound=np.full(task.n_train, allowance), notes=notes)
            with progress_bar("Valuing", task.n_val, runner.progress) as advance:
                found = certify_points(
                    rows.train, job.rules, job.batch, tol=tol, allowance=allowance, keep=job.keep,
                    memory=runner.max_memory, kernels=self.kernels, advance=advance,
                )  # fmt: skip
            buckets, first = (0, task.n_train) if found.coarse is None else (found.coarse.buckets, found.coarse.first)
            notes = {"tol": tol, "exact_ranks": first, "buckets": buckets}
            return replace(job.sums(found.result), error_bound=found.bound.cpu().numpy(), notes=notes)


def place_rows(index: TrainingIndex, codes: Any, sample: Any, device: str, features: Tensor = None) -> DeviceRows:
    """Lay the training rows out on a device.

    Parameters
    ----------
    index, codes, sample
        Fitted index, class numbers and sample.
    device : str
        Torch's name of the device.
    features : tensor of shape (N, d) or None
        Training features if already on the device.
    """
    placed = torch.as_tensor(codes, dtype=torch.int32, device=device)
    if index.metric == "precomputed":
        return DeviceRows(device, Train(None, placed, EUCLIDEAN, None), False, index.n_rows, True)
    if index.constant:
        columns = torch.zeros(1, index.n_rows, dtype=torch.float64, device=device)
    elif features is not None:
        columns = lay_out(index, features.detach().to(device)).T.contiguous()
    else:
        columns = torch.as_tensor(np.ascontiguousarray(index.table().T), device=device)
    size = sample_size(index.n_rows, sample.size)
    chosen = torch.as_tensor(sample[:size], device=device)
    kernels = device.startswith("cuda") and index.n_rows >= KERNEL_ROWS and _has_triton()
    train = Train(columns, placed, _METRICS[index.metric], columns[:, chosen].contiguous())
    return DeviceRows(device, train, kernels, index.width, False)


def _has_triton() -> bool:
    try:
        import triton  # noqa: F401
    except ImportError:
        return False
    return True


def lay_out(index: TrainingIndex, features: Tensor) -> Tensor:
    """As :meth:`shapshift.engine.rows.distances.TrainingIndex.lay_out`, for features on the device."""
    features = features.to(torch.float64)
    if index.metric == "cosine":
        return short_rows(features)
    return scaled(features, torch.tensor(-index.exponent, device=features.device))


def check_tensor(points: Tensor, width: int, is_distance: bool) -> Tensor:
    """Check a tensor of validation points (or of distances to training rows) like an array, without moving it."""
    if points.ndim != 2 or points.shape[0] == 0 or points.shape[1] != width:
        columns = f"{width} columns, one for each training row" if is_distance else f"the {width} features of training"
        raise InputError(
            f"'X_val' must be a table with at least one row and {columns}. Got shape {tuple(points.shape)}."
        )
    points = points.detach().to(torch.float64)
    wrong = ~torch.isfinite(points)
    if is_distance:
        wrong |= points < 0
    if bool(wrong.any()):
        row, column = torch.nonzero(wrong)[0].tolist()
        rule = "Distances must be finite and at least 0" if is_distance else "Features must be finite numbers"
        raise InputError(
            f"Input X_val contains {points[row, column].item()} at row {row}, column {column} ({int(wrong.sum())} such "
            f"entries in all). {rule}: drop the rows or fill them in."
        )
    return points


def place_points(index: TrainingIndex, rows: DeviceRows, points: Any) -> Tensor:
    """Lay validation points (an array, or a checked tensor) out on the device."""
    if index.metric == "precomputed":
        # Adding zero turns -0.0 into 0.0, and makes a copy that may be written to.
        return torch.as_tensor(points, dtype=torch.float64, device=rows.device) + 0.0
    if index.constant:
        return torch.zeros(points.shape[0], 1, dtype=torch.float64, device=rows.device)
    if not torch.is_tensor(points):
        return torch.as_tensor(np.ascontiguousarray(index.lay_out(points)), device=rows.device)
    check_reach(index, torch.stack([points.amin(dim=0), points.amax(dim=0)]).cpu().numpy())
    return lay_out(index, points).contiguous()


class _Job:
    """A task as tensors."""

    def __init__(
        self, task: ClassTask, index: TrainingIndex, rows: DeviceRows, points: Any, excluded: Any, runner: Runner
    ) -> None:
        def put(array: Any, kind: Any = None) -> Tensor:
            return torch.as_tensor(np.array(array), dtype=kind, device=rows.device)

        self.task, self.rows, self.runner = task, rows, runner
        c = task.table.c
        self.rules = Rules(
            c=put(c),
            tail=put(np.append(np.cumsum(c[::-1])[::-1], 0.0)),
            edges=put(task.edges),
            n_classes=task.n_classes,
            depth=task.depth,
            n_nearest=task.n_nearest,
            n_groups=task.n_groups,
            average=task.average_ties,
        )
        self.batch = Batch(
            points=place_points(index, rows, points),
            targets=put(task.targets, torch.int32),
            bases=put(task.bases(task.targets)),
            groups=put(task.groups, torch.int64),
            excluded=None if excluded is None else put(excluded, torch.int64),
            reference=put(task.reference, torch.int64),
        )
        self.values = np.empty((task.n_val, task.kept.size))
        self.keep = Keep(None if task.matrix else put(task.kept, torch.int64), self._put)

    def _put(self, here: Tensor, values: Tensor) -> None:
        self.values[here.cpu().numpy()] = values.cpu().numpy()

    def exact(self) -> Sums:
        """Value all points exactly."""
        with progress_bar("Valuing", self.task.n_val, self.runner.progress) as advance:
            result = value_points(
                self.rows.train, self.rules, self.batch, keep=self.keep, memory=self.runner.max_memory,
                kernels=self.rows.kernels, advance=advance,
            )  # fmt: skip
        return self.sums(result)

    def sums(self, result: Result) -> Sums:
        """Bring a result to the host, in the engine's form."""
        n_levels = self.task.levels.size
        sums, squares = result.sums.cpu().numpy(), result.squares.cpu().numpy()
        bounded = bool(result.inexact.any())
        return Sums(
            levels=sums[:n_levels],
            groups=sums[n_levels:],
            squares=squares.sum(axis=0),
            group_squares=squares[: self.task.n_groups],
            level_counts=torch.bincount(result.level, minlength=n_levels).cpu().numpy(),
            bounds=result.bounds.cpu().numpy()[None] if bounded else np.empty((0, self.task.n_train)),
            points=Points(
                entropy=result.entropy.cpu().numpy(),
                nearest=result.nearest.cpu().numpy(),
                reference_ranks=result.ranks.cpu().numpy(),
                extra=np.empty((self.task.n_val, 0)),
                values=self.values,
            ),
        )
