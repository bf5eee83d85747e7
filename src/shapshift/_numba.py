"""Compilation of all kernels."""

import signal
import threading
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, cast

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile ``function`` with Numba: no GIL, cached on disk, IEEE arithmetic.

    ``fastmath`` must stay off. A sum of squared differences must have the same bits for two identical rows anywhere in
    the table, and reassociation would break that.
    """
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
    try:
        compiled: Any = njit(cache=True, **options)(function)
    except RuntimeError as error:
        if "no locator available" not in str(error):
            raise
        _warn_without_cache()
        compiled = njit(**options)(function)
    if hasattr(compiled, "_compile_for_args"):  # not where NUMBA_DISABLE_JIT is set
        compiled._compile_for_args = undisturbed(compiled._compile_for_args)
        # Pickled by name: Numba's own pickles hold the source, which every worker of a cluster would compile again.
        compiled.__reduce_ex__ = lambda protocol: function.__qualname__
    return cast(F, compiled)


@cache
def _warn_without_cache() -> None:
    """Warn once that every process compiles the kernels again. A cache folder shared by all users would be unsafe."""
    warnings.warn(
        "Compiled kernels cannot be cached, because neither the folder of shapshift nor the user's cache folder is "
        "writable: every process compiles them again, which takes up to a minute. Set the environment variable "
        "NUMBA_CACHE_DIR to a folder that only you can write to.",
        stacklevel=3,
    )


def undisturbed(work: Callable[..., Any]) -> Callable[..., Any]:
    """Delay Ctrl-C until the work is done.

    Numba loads its own tables while it compiles or loads its first kernel. After an interrupt there, every later call
    would fail.
    """

    def whole(*arguments: Any, **options: Any) -> Any:
        handler = signal.getsignal(signal.SIGINT)
        # Other threads are not interrupted, and a handler that is not a Python function does not raise.
        if threading.current_thread() is not threading.main_thread() or not callable(handler):
            return work(*arguments, **options)
        came: list[Any] = []
        signal.signal(signal.SIGINT, lambda *given: came.append(given))
        try:
            return work(*arguments, **options)
        finally:
            signal.signal(signal.SIGINT, handler)
            if came:
                handler(*came[0])

    return whole


def _fma(context, a, b, c):  # type: ignore[no-untyped-def]
    return a(a, b, c), lambda _, builder, signature, arguments: builder.fma(*arguments)


#: ``a * b + c`` inside a kernel, rounded once. Named explicitly, because if the compiler chose, the bits of a
#: distance would depend on the loop that computes it.
fma = cast(Callable[[Any, Any, Any], Any], intrinsic(_fma))


#: Number of entries that :func:`zeros_mask` examines.
MASK_BITS = 32


def _zeros_mask(typing, entries, start):  # type: ignore[no-untyped-def]
    def build(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        vector = ir.VectorType(ir.IntType(16), MASK_BITS)
        address = builder.bitcast(builder.gep(array.data, [arguments[1]]), vector.as_pointer())
        zeros = builder.icmp_unsigned("<", builder.load(address, align=2), ir.Constant(vector, [2] * MASK_BITS))
        return builder.bitcast(zeros, ir.IntType(MASK_BITS))

    return types.uint32(entries, types.int64), build


def _lowest_bit(typing, mask):  # type: ignore[no-untyped-def]
    def build(_, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.zext(builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1)), ir.IntType(64))

    return types.int64(types.uint32), build


#: ``zeros_mask(images, start)``: bit i says whether the uint16 ``images[start + i] >> 1`` is 0. The compiler does not
#: find the single comparison that does this for all 32; entries up to ``start + 31`` must exist.
zeros_mask = cast(Callable[[Any, int], Any], intrinsic(_zeros_mask))

#: Position of the lowest bit that is set in a 32-bit mask; there must be one.
lowest_bit = cast(Callable[[Any], int], intrinsic(_lowest_bit))
