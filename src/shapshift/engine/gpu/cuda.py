"""CUDA kernels, which use the shared memory of a multiprocessor as Triton cannot, and their compiler and launcher.

They are compiled at run time by the compiler that comes with torch (NVRTC). If it is not found, `kernels` is None:
plain torch then sorts, and Triton kernels count.
"""

import ctypes
import glob
import os
import sys
from functools import cache
from importlib import resources
from typing import Any

import torch

Tensor = Any  # torch is an optional dependency that mypy does not look at

#: As in kernels.cu.
THREADS, FINE, MOST_ROWS, TILE = 512, 2048, 6144, 4096
COUNTING_THREADS = 1024
# Bytes of shared memory that a kernel takes beside what its launch asks for, or more.
BESIDE = 2048


class Points(ctypes.Structure):
    """Points of a tile, as in kernels.cu."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("tile", "row_norms", "point_norms", "first", "span", "up", "knots")),
        *((name, ctypes.c_double) for name in ("unit", "slack", "spread", "least")),
        ("n", ctypes.c_int),
        ("coarse", ctypes.c_int),
    ]


class Kernels:
    """The kernels of kernels.cu, on one GPU."""

    def __init__(self, device: int) -> None:
        properties = torch.cuda.get_device_properties(device)
        self.most_shared = int(properties.shared_memory_per_block_optin)
        self.blocks = 4 * int(properties.multi_processor_count)
        self.cuda = _library("cuda", "libcuda.so.1", "nvcuda.dll")
        image = _compile(f"sm_{properties.major}{properties.minor}")
        self.module = ctypes.c_void_p()
        with torch.cuda.device(device):
            torch.cuda.current_stream().synchronize()  # makes sure there is a context
            _check(self.cuda.cuModuleLoadData(ctypes.byref(self.module), image))

    @cache  # noqa: B019 - one object for each GPU, for as long as the process runs
    def _function(self, name: str) -> ctypes.c_void_p:
        function = ctypes.c_void_p()
        _check(self.cuda.cuModuleGetFunction(ctypes.byref(function), self.module, name.encode()))
        return function

    def launch(self, name: str, grid: tuple[int, int], threads: int, shared: int, *arguments: Any) -> None:
        """Start a kernel; tensors become addresses and whole numbers int32."""
        values = [ctypes.c_void_p(one.data_ptr()) if torch.is_tensor(one) else one for one in arguments]
        values = [ctypes.c_int(one) if isinstance(one, int) else one for one in values]
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        device = next(one.device for one in arguments if torch.is_tensor(one))
        function = self._function(name)
        with torch.cuda.device(device):
            stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
            _check(self.cuda.cuFuncSetAttribute(function, 8, ctypes.c_int(shared)))
            _check(
                self.cuda.cuLaunchKernel(function, grid[0], grid[1], 1, threads, 1, 1, shared, stream, pointers, None)
            )


@cache
def kernels(device: Any) -> Any:
    """Return the kernels for a device; None if they cannot run."""
    if device.type != "cuda":
        return None
    try:
        return Kernels(device.index or 0)
    except (OSError, RuntimeError, AttributeError):
        return None


def place_rows(
    there: Any, places: Tensor, knots: Tensor, codes: Tensor, targets: Tensor, cells: Tensor, counts: Tensor,
    near_count: Tensor, near_row: Tensor, open_count: Tensor, open_row: Tensor,
) -> None:  # fmt: skip
    """Put the rows of points (p, n) into buckets (p, n_buckets) by their places, and list near and open rows."""
    (p, n), buckets = cells.shape, counts.shape[1]
    # Share the work of few points among several blocks.
    blocks = max(1, min(-(-there.blocks // p), -(-n // (8 * COUNTING_THREADS))))
    given = places, knots, codes, targets, cells, counts, near_count, near_row, open_count, open_row
    sizes = n, buckets, near_row.shape[1], open_row.shape[1]
    there.launch("place_rows", (blocks, p), COUNTING_THREADS, 4 * buckets, *given, *sizes)


def order_rows(
    there: Any, entries: Tensor, norms: Tensor, part: Any, maps: tuple[Tensor, ...], codes: Tensor, targets: Tensor,
    listed: Tensor, *, average: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Order the rows of points by distance.

    Parameters
    ----------
    there : Kernels
    entries : float64 tensor of shape (p, n)
        Distances; or products, if there is a ``part``.
    norms : tensor of shape (p,)
        Squared norms of the points, for products.
    part : Products or None
    maps : tuple of tensor
        Maps from distances to buckets, made by `make_maps`.
    codes : int32 tensor of shape (n,)
        Classes of the rows.
    targets : int32 tensor of shape (p,)
        Classes of the points.
    listed : int64 tensor
        Out: neighbours with undecided order, as point << 32 | rank of the second.
    average : bool
        Average over ties.

    Returns
    -------
    distances : tensor of shape (p, n)
        From near to far.
    order : int32 tensor of shape (p, n)
        2 * row + match, from near to far.
    starts : int32 tensor of shape (p, buckets)
        Ranks at which buckets begin.
    found : int32 tensor of shape (1,)
        Number of listed neighbours.
    unsettled : int32 tensor of shape (p,)
        Nonzero for points left to another method.
    """
    (p, n), buckets = entries.shape, buckets_of(entries.shape[1])
    known = [entries, *((None, None) if part is None else (part.norms, norms)), *maps]
    about = (0.0,) * 4 if part is None else (part.unit, part.slack, part.spread, part.least)
    points = Points(*(None if one is None else one.data_ptr() for one in known), *about, n, buckets)

    def zeros(*shape: int) -> Tensor:
        return torch.zeros(*shape, dtype=torch.int32, device=codes.device)

    distances = torch.empty_like(entries)
    counts, order = zeros(p, buckets), torch.empty(p, n, dtype=torch.int32, device=codes.device)
    # Enough rows in a block that adding up its counters takes little time next to counting.
    blocks = max(1, min(-(-there.blocks // p), n // (16 * buckets), n // TILE))
    there.launch("count_rows", (blocks, p), THREADS, 4 * buckets, points, counts)
    starts = (counts.cumsum(1) - counts).to(torch.int32)
    shared = 4 * (4 * TILE + 2 * buckets)
    ends = starts.clone()
    there.launch("spread_rows", (-(-n // TILE), p), THREADS, shared, points, codes, targets, ends, distances, order)
    found, unsettled = zeros(1), zeros(p)
    shared = 12 * MOST_ROWS + 4 * FINE
    arguments = starts, distances, order, listed, found, listed.numel(), int(average), unsettled
    there.launch("sort_buckets", (buckets, p), THREADS, shared, points, *arguments)
    return distances, order, starts, found, unsettled


def buckets_of(n: int) -> int:
    """Return the number of buckets, of FINE bins each, for n rows."""
    return -(-n // FINE)


def most_rows(there: Any) -> int:
    """Return the largest number of rows that the kernels can order."""
    return (there.most_shared - 16 * TILE - 256) // 8 * FINE if there is not None else 0


def sort_lists(there: Any, distances: Tensor, rows: Tensor, lengths: Tensor) -> bool:
    """Sort lists (p, size) of distances and rows if their size is a power of two and they fit a block."""
    lists, size = distances.shape
    fits = there is not None and size & (size - 1) == 0 and 14 * size + BESIDE <= there.most_shared
    if fits:
        there.launch("sort_lists", (lists, 1), THREADS, 14 * size, distances, rows, lengths, size)
    return fits


def _check(status: int) -> None:
    if status != 0:
        raise RuntimeError(f"The CUDA driver returned error {status}.")


def _library(name: str, *files: str) -> Any:
    for file in files:
        try:
            return ctypes.CDLL(file)
        except OSError:
            continue
    raise OSError(f"There is no {name} library.")


def source() -> str:
    """Return the source of the kernels."""
    return resources.files(__package__).joinpath("kernels.cu").read_text(encoding="utf-8")


def _compile(architecture: str) -> bytes:
    """Compile the kernels for an architecture."""
    major = str(torch.version.cuda).split(".")[0]
    # Wheels install the library in a folder that the loader does not search.
    beside = [os.path.join(path, "nvidia", "*", "lib", f"libnvrtc.so.{major}*") for path in sys.path]
    found = [file for pattern in beside for file in sorted(glob.glob(pattern))]
    nvrtc = _library("NVRTC", f"libnvrtc.so.{major}", "libnvrtc.so", f"nvrtc64_{major}0_0.dll", *found)
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    options = (ctypes.c_char_p * 1)(f"--gpu-architecture={architecture}".encode())
    _check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), source().encode(), b"kernels.cu", 0, None, None))
    try:
        _check(nvrtc.nvrtcCompileProgram(program, 1, options))
        _check(nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)))
        image = ctypes.create_string_buffer(size.value)
        _check(nvrtc.nvrtcGetCUBIN(program, image))
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return image.raw
