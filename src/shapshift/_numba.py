"""The one way kernels are compiled."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit
from numba.extending import intrinsic

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile ``function`` with Numba: no GIL, cached on disk, IEEE arithmetic.

    ``fastmath`` stays off on purpose. A sum of squared differences must come out with the same bits for two
    identical rows wherever they stand in the table, and reassociation would break that.
    """
    return cast(F, njit(nogil=True, cache=True, error_model="numpy")(function))


def _fma(context, a, b, c):  # type: ignore[no-untyped-def]
    return a(a, b, c), lambda _, builder, signature, arguments: builder.fma(*arguments)


#: ``a * b + c`` inside a kernel, rounded once. Asked for by name because leaving it to the compiler would let the bits
#: of a distance depend on which loop it was computed in.
fma = cast(Callable[[Any, Any, Any], Any], intrinsic(_fma))
