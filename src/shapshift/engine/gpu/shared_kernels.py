"""A CUDA kernel that counts cells in shared memory, which Triton has no words for, and what it takes to run it.

Counters in memory that all programs share take about twelve picoseconds an addition on a large GPU, counters in the
fast memory of one multiprocessor less than two. The kernel is compiled at run time by the compiler that comes with
torch (NVRTC). Where that cannot be found, or a GPU has too little shared memory, `counter` is None and the Triton
kernels count.
"""

import ctypes
import glob
import os
import sys
from functools import cache
from typing import Any

import torch

Tensor = Any  # torch is an optional dependency that mypy does not look at

THREADS = 1024
_SOURCE = """
extern "C" __global__ void __launch_bounds__(1024) count_cells(
    const unsigned short* cells, unsigned* counts, int* near_count, int* near_row, int n, int n_buckets, int capacity)
{
    // Rows of a bucket in the lower half of a counter, matches in the upper half.
    extern __shared__ unsigned counter[];
    const long long p = blockIdx.y;
    const int begin = (int)((long long)n * blockIdx.x / gridDim.x);
    const int end = (int)((long long)n * (blockIdx.x + 1) / gridDim.x);
    const unsigned short* mine = cells + p * n;
    for (int i = threadIdx.x; i < n_buckets; i += blockDim.x) counter[i] = 0;
    __syncthreads();
    auto put = [&](unsigned cell, int row) {
        const unsigned bucket = cell >> 1;
        if (bucket < n_buckets) {
            atomicAdd(counter + bucket, 1u + ((cell & 1u) << 16));
        } else {
            const int slot = atomicAdd(near_count + p * 32, 1);
            if (slot < capacity) near_row[p * capacity + slot] = row;
        }
    };
    // Eight cells at a time, from the first address that allows it.
    const int aligned = begin + (int)((8 - ((unsigned long long)(mine + begin) / 2) % 8) % 8);
    const int body = aligned < end ? aligned : end;
    const int eights = (end - body) / 8;
    for (int i = begin + threadIdx.x; i < body; i += blockDim.x) put(mine[i], i);
    for (int i = threadIdx.x; i < eights; i += blockDim.x) {
        const uint4 eight = *(const uint4*)(mine + body + 8 * i);
        const unsigned pairs[4] = {eight.x, eight.y, eight.z, eight.w};
        #pragma unroll
        for (int k = 0; k < 4; k++) {
            put(pairs[k] & 0xFFFFu, body + 8 * i + 2 * k);
            put(pairs[k] >> 16, body + 8 * i + 2 * k + 1);
        }
    }
    for (int i = body + 8 * eights + threadIdx.x; i < end; i += blockDim.x) put(mine[i], i);
    __syncthreads();
    for (int i = threadIdx.x; i < n_buckets; i += blockDim.x) {
        if (gridDim.x == 1) counts[p * n_buckets + i] = counter[i];
        else if (counter[i]) atomicAdd(counts + p * n_buckets + i, counter[i]);
    }
}
"""


class Counter:
    """The kernel, loaded on one GPU."""

    def __init__(self, device: int) -> None:
        properties = torch.cuda.get_device_properties(device)
        self.most_shared = int(properties.shared_memory_per_block_optin)
        self.blocks = 4 * int(properties.multi_processor_count)
        self.cuda = _library("cuda", "libcuda.so.1", "nvcuda.dll")
        image = _compile(f"sm_{properties.major}{properties.minor}")
        module, self.function = ctypes.c_void_p(), ctypes.c_void_p()
        with torch.cuda.device(device):
            torch.cuda.current_stream().synchronize()  # there must be a context
            _check(self.cuda.cuModuleLoadData(ctypes.byref(module), image))
            _check(self.cuda.cuModuleGetFunction(ctypes.byref(self.function), module, b"count_cells"))
            _check(self.cuda.cuFuncSetAttribute(self.function, 8, ctypes.c_int(self.most_shared)))

    def __call__(self, cells: Tensor, counts: Tensor, near_count: Tensor, near_row: Tensor) -> None:
        """Count the cells of points (p, n) in buckets (p, n_buckets), and list the near rows."""
        (p, n), buckets, capacity = cells.shape, counts.shape[1], near_row.shape[1]
        values: list[Any] = [ctypes.c_void_p(t.data_ptr()) for t in (cells, counts, near_count, near_row)]
        values += [ctypes.c_int(number) for number in (n, buckets, capacity)]
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        # Few points are shared among blocks.
        blocks = max(1, min(-(-self.blocks // p), -(-n // (8 * THREADS))))
        with torch.cuda.device(cells.device):
            stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
            grid, block = (blocks, p, 1), (THREADS, 1, 1)
            _check(self.cuda.cuLaunchKernel(self.function, *grid, *block, 4 * buckets, stream, pointers, None))


@cache
def counter(device: int, buckets: int) -> Counter | None:
    """Return the kernel for a GPU and a number of buckets, None where it cannot run."""
    try:
        loaded = _load(device)
    except (OSError, RuntimeError, AttributeError):
        return None
    return loaded if 4 * buckets <= loaded.most_shared else None


@cache
def _load(device: int) -> Counter:
    return Counter(device)


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


def _compile(architecture: str) -> bytes:
    """Compile the kernel for an architecture."""
    major = str(torch.version.cuda).split(".")[0]
    # Wheels keep the library in a folder that the loader does not search.
    beside = [os.path.join(path, "nvidia", "*", "lib", f"libnvrtc.so.{major}*") for path in sys.path]
    found = [file for pattern in beside for file in sorted(glob.glob(pattern))]
    nvrtc = _library("NVRTC", f"libnvrtc.so.{major}", "libnvrtc.so", f"nvrtc64_{major}0_0.dll", *found)
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    options = (ctypes.c_char_p * 1)(f"--gpu-architecture={architecture}".encode())
    _check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), _SOURCE.encode(), b"count_cells.cu", 0, None, None))
    try:
        _check(nvrtc.nvrtcCompileProgram(program, 1, options))
        _check(nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)))
        image = ctypes.create_string_buffer(size.value)
        _check(nvrtc.nvrtcGetCUBIN(program, image))
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return image.raw
