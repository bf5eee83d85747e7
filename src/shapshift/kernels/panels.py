"""Panels of training rows, and sums over their features that stay in the vector registers of the processor.

A panel holds 32 consecutive rows in their given type: four strips of eight rows, each feature by feature, (4, d, 8). A
kernel reads a strip from start to end, converts it to float64, and adds a term for each of several validation points at
a time. So every entry that is read serves several points, every point several rows, and the sums go to memory once, at
the end. Each sum takes its terms one by one in the order of the features, for any vector length of the processor: its
bits are those of a plain loop over the features.
"""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.core.imputils import impl_ret_borrowed
from numba.extending import intrinsic

from shapshift._numba import kernel

#: Rows of a panel and of each of its strips.
ROWS, STRIP = 32, 8
# Starting value of inner products of cosine distances: see :func:`shapshift.kernels.distance.add_product`.
START = 3.0
#: Types in which rows are stored.
DTYPES = ("float64", "float32", "float16", "int8", "uint8")

# Numba has no float16: kernels see its bits.
_HALF = types.uint16
_I8, _I32, _I64, _FLOAT, _DOUBLE = ir.IntType(8), ir.IntType(32), ir.IntType(64), ir.FloatType(), ir.DoubleType()
_ELEMENTS = {types.float64: _DOUBLE, types.float32: _FLOAT, _HALF: ir.IntType(16), types.int8: _I8, types.uint8: _I8}


@kernel
def panels_of(n_rows: int) -> int:
    """Return the number of panels for n rows; the last one may be partly empty."""
    return (n_rows + ROWS - 1) // ROWS


def pack(rows: npt.NDArray[Any], panels: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
    """Lay rows (n, d) out as panels (k, 4, d, 8); the unused part of the last one is filled with zeros.

    Parameters
    ----------
    rows : ndarray
        Of one of :data:`DTYPES`.
    panels : ndarray, optional
        Memory to use.
    """
    if panels is None:
        panels = np.empty((panels_of(rows.shape[0]), ROWS // STRIP, rows.shape[1], STRIP), dtype=rows.dtype)
    _pack(for_kernels(np.ascontiguousarray(rows)), None, for_kernels(panels))
    return panels


def lay_out(rows: npt.NDArray[np.floating], factor: float, out: npt.NDArray[np.float64] | None = None) -> Any:
    """Return panels of the float64 values of rows (n, d), times a power of two; ``out`` is 1-D memory to use."""
    shape = int(panels_of(rows.shape[0])), ROWS // STRIP, rows.shape[1], STRIP
    panels = np.empty(shape) if out is None else out[: np.prod(shape)].reshape(shape)
    _pack(rows, factor, panels)
    return panels


def unpack(panels: npt.NDArray[Any], rows: slice) -> npt.NDArray[Any]:
    """Return consecutive rows of panels, (n, d), in their own type."""
    out = np.empty((rows.stop - rows.start, panels.shape[2]), dtype=panels.dtype)
    _unpack(for_kernels(panels), rows.start, for_kernels(out))
    return out


def for_kernels(numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array in the form that kernels take."""
    return numbers.view(np.uint16) if numbers.dtype == np.float16 else numbers


@kernel
def _pack(rows: npt.NDArray[Any], factor: float | None, panels: npt.NDArray[Any]) -> None:
    n, d = rows.shape
    for k in range(panels.shape[0]):
        first, panel = k * ROWS, panels[k]
        size = min(ROWS, n - first)
        if size < ROWS:
            panel[:] = 0
        for lo in range(0, size, STRIP):
            strip, here = panel[lo // STRIP], min(STRIP, size - lo)
            for j in range(d):
                for i in range(here):
                    entry = rows[first + lo + i, j]
                    strip[j, i] = entry if factor is None else entry * factor


@kernel
def _unpack(panels: npt.NDArray[Any], first: int, rows: npt.NDArray[Any]) -> None:
    for i in range(rows.shape[0]):
        k, place = (first + i) // ROWS, (first + i) % ROWS
        strip = panels[k, place // STRIP]
        for j in range(rows.shape[1]):
            rows[i, j] = strip[j, place % STRIP]


def _squared(builder: Any, fma: Any, row: Any, point: Any, sums: list[Any]) -> list[Any]:
    """Squared difference, added with one rounding."""
    difference = builder.fsub(row, point)
    return [builder.call(fma, [difference, difference, sums[0]])]


def _absolute(builder: Any, fma: Any, row: Any, point: Any, sums: list[Any]) -> list[Any]:
    """Absolute difference."""
    difference = builder.fsub(row, point)
    kind = difference.type
    bits = ir.VectorType(_I64, kind.count)
    mask = ir.Constant(bits, [2**63 - 1] * kind.count)
    return [builder.fadd(sums[0], builder.bitcast(builder.and_(builder.bitcast(difference, bits), mask), kind))]


def _product(builder: Any, fma: Any, row: Any, point: Any, sums: list[Any]) -> list[Any]:
    """Product, added as in :func:`shapshift.kernels.distance.add_product`: a total and its rounding errors."""
    total, rest = sums
    larger = builder.call(fma, [row, point, total])
    return [larger, builder.fadd(rest, builder.call(fma, [row, point, builder.fsub(total, larger)]))]


def _features(context: Any) -> list[str]:
    """Return the features of the target processor."""
    return str(context.codegen().magic_tuple()[2]).split(",")


def _vector_bytes(context: Any) -> int:
    """Return the length of the vectors of the target processor."""
    features = _features(context)
    return 64 if "+avx512f" in features else 32 if "+avx" in features else 16


def _convert(context: Any, builder: Any, kind: Any, entries: Any, number: Any) -> Any:
    """Convert a vector of entries as they are in memory to float64 or, if they are shorter, float32: without error."""
    lanes = entries.type.count
    numbers, floats = ir.VectorType(number, lanes), ir.VectorType(_FLOAT, lanes)

    def longer(vector: Any) -> Any:
        return vector if number == _FLOAT else builder.fpext(vector, numbers)

    if kind == types.float64:
        return entries
    if kind == types.float32:
        return longer(entries)
    integers = ir.VectorType(_I32, lanes)
    if kind == types.int8:
        return builder.sitofp(builder.sext(entries, integers), numbers)
    bits = builder.zext(entries, integers)
    if kind == types.uint8:
        return builder.sitofp(bits, numbers)
    if "+f16c" in _features(context):
        halves = builder.bitcast(entries, ir.VectorType(ir.HalfType(), lanes))
        return longer(builder.fpext(halves, floats))

    # With exponent and digits in the places of float32, a float16 number is 2**112 times too small.
    def some(type_: Any, number: Any) -> Any:
        return ir.Constant(type_, [number] * lanes)

    magnitude = builder.shl(builder.and_(bits, some(integers, 0x7FFF)), some(integers, 13))
    sign = builder.shl(builder.and_(bits, some(integers, 0x8000)), some(integers, 16))
    small = builder.bitcast(builder.or_(magnitude, sign), floats)
    return builder.fmul(longer(small), some(numbers, 2.0**112))


def _as_float(typing, entry):
    def build(context, builder, signature, arguments):
        first, nothing = ir.Constant(_I32, 0), ir.Constant(ir.VectorType(arguments[0].type, 1), ir.Undefined)
        one = builder.insert_element(nothing, arguments[0], first)
        return builder.extract_element(_convert(context, builder, signature.args[0], one, _DOUBLE), first)

    return types.float64(entry), build


#: An entry of a panel as a float64 number.
as_float = cast(Callable[[Any], Any], intrinsic(_as_float))


def _given(typing, array, other):
    def build(context, builder, signature, arguments):
        which = 1 if isinstance(signature.args[0], types.NoneType) else 0
        return impl_ret_borrowed(context, builder, signature.return_type, arguments[which])

    return (other if isinstance(array, types.NoneType) else array)(array, other), build


#: The first of two arrays, or the second one if the first is None.
given = cast(Callable[[Any, Any], Any], intrinsic(_given))


@kernel
def in_float64(panel: npt.NDArray[Any], wide: npt.NDArray[np.float64] | None) -> Any:
    """Return a panel, converted if there is space for it."""
    if wide is not None:
        short, numbers = panel.reshape(-1), wide.reshape(-1)
        for i in range(short.size):
            numbers[i] = as_float(short[i])
    return given(wide, panel)


def _panel_sums(
    term: Callable[..., list[Any]], starts: tuple[float, ...], together: tuple[tuple[int, int], ...], number: Any
) -> Any:
    """Make a kernel function for sums over all features, for the rows of a panel and all points.

    Parameters
    ----------
    term : callable
        Builds the code that adds one feature's contribution to the sums of a pair.
    starts : tuple of float
        Starting values of the sums of a pair.
    together : tuple of tuples
        Points and vectors of rows processed at a time, for processors with 32 registers and with 16: as many as leave
        every sum in a register.
    number : ir.Type
        Type of the sums: float64, or float32 for rows of shorter types.

    Returns
    -------
    callable
        ``sums(panel, points, out, column, coming)``: sums go to ``out`` (points, rows), or (sums, points, rows), from
        ``column`` on. Meanwhile the panel ``coming`` is fetched from memory. Indices are not checked.
    """

    def sums(typing, panel, points, out, column, coming):
        if any(array.layout != "C" for array in (panel, points, coming)) or panel.dtype not in _ELEMENTS:
            raise TypingError("panels and points must be C-contiguous, and panels of a type in which rows are kept")
        kind = types.float32 if number == _FLOAT else types.float64
        if points.dtype != kind or out.dtype != kind or (panel.dtype == types.float64 and number == _FLOAT):
            raise TypingError("points and sums must be of the type of the sums, and rows no longer")

        def build(context, builder, signature, arguments):
            kinds = signature.args
            panel, points, out, coming = (
                context.make_array(kinds[i])(context, builder, arguments[i]) for i in (0, 1, 2, 4)
            )
            shape = together[0 if _vector_bytes(context) == 64 else 1]
            sums = _PanelSums(context, builder, (kinds[0].dtype, number), panel, points, out, len(starts))
            sums.build(term, starts, shape, arguments[3], (coming, kinds[4].dtype.bitwidth // 8))
            return context.get_dummy_value()

        return types.void(panel, points, out, types.int64, coming), build

    return intrinsic(sums)


class _PanelSums:
    """Builds the code of :func:`_panel_sums`, for one processor, one type of rows and one of sums."""

    def __init__(
        self, context: Any, builder: Any, kinds: tuple[Any, Any], panel: Any, points: Any, out: Any, n_sums: int
    ) -> None:
        self.context, self.builder, (self.kind, self.number) = context, builder, kinds
        self.points, self.panel = points, builder.bitcast(panel.data, _I8.as_pointer())
        self.bytes, self.size = 4 if self.number == _FLOAT else 8, self.kind.bitwidth // 8
        self.lanes = _vector_bytes(context) // self.bytes
        self.numbers = ir.VectorType(self.number, self.lanes)
        self.out = builder.bitcast(out.data, _I8.as_pointer())
        strides = cgutils.unpack_tuple(builder, out.strides)
        self.to_point, self.to_sum = strides[-2], strides[0] if n_sums > 1 else None
        fma = ir.FunctionType(self.numbers, [self.numbers] * 3)
        self.fma = cgutils.get_or_insert_function(builder.module, fma, f"llvm.fma.v{self.lanes}f{8 * self.bytes}")
        fetch = ir.FunctionType(ir.VoidType(), [_I8.as_pointer(), _I32, _I32, _I32])
        self.fetch = cgutils.get_or_insert_function(builder.module, fetch, "llvm.prefetch.p0i8")

    def build(self, term: Any, starts: tuple[float, ...], shape: tuple[int, int], column: Any, coming: Any) -> None:
        """Loop over all points, several at a time, and for each of these over all rows of the panel."""
        builder, (most, n_vectors) = self.builder, shape
        n_points = builder.extract_value(self.points.shape, 0)
        d = builder.extract_value(self.points.shape, 1)
        coming, size = builder.bitcast(coming[0].data, _I8.as_pointer()), coming[1]
        done = _number(0)
        for together in (most, 2, 1):
            rest = builder.urem(builder.sub(n_points, done), _number(together))
            stop = builder.sub(n_points, rest)
            # Of few points more rows at a time: a sum waits for its last addition.
            vectors = n_vectors if together == most else min(2 * n_vectors, ROWS // self.lanes)
            slots = [[[cgutils.alloca_once(builder, self.numbers) for _ in starts] for _ in range(vectors)]
                     for _ in range(together)]  # fmt: skip
            step = _number(self.lanes * vectors)
            with (
                cgutils.for_range_slice(builder, done, stop, _number(together)) as (p, _),
                cgutils.for_range_slice(builder, _number(0), _number(ROWS), step) as (row, _),
            ):
                # The next panel is fetched bit by bit: the share of it that these pairs are of all pairs.
                pairs = builder.add(builder.mul(p, _number(ROWS)), builder.mul(row, _number(together)))
                first = builder.udiv(builder.mul(builder.mul(pairs, d), _number(size)), n_points)
                stride = builder.udiv(_number(together * self.lanes * vectors * size), n_points)
                ahead = builder.gep(coming, [first]), builder.add(stride, _number(1))
                self._add_features(term, starts, slots, d, p, row, ahead)
                self._store(slots, p, builder.add(column, row))
            done = stop

    def _add_features(self, term: Any, starts: Any, slots: Any, d: Any, p: Any, row: Any, ahead: Any) -> None:
        builder = self.builder
        for vector in (vector for point in slots for vector in point):
            for slot, start in zip(vector, starts, strict=True):
                builder.store(ir.Constant(self.numbers, [start] * self.lanes), slot)
        points = [
            builder.gep(self.points.data, [builder.mul(builder.add(p, _number(q)), d)]) for q in range(len(slots))
        ]
        # A strip begins after the features of the previous ones. Vectors are parts of one strip, or of several in turn,
        # or consist of whole strips.
        strip = builder.mul(builder.udiv(row, _number(STRIP)), builder.mul(d, _number(STRIP * self.size)))
        place = builder.mul(builder.urem(row, _number(STRIP)), _number(self.size))
        begin, offsets = builder.gep(self.panel, [builder.add(strip, place)]), []
        for first in range(0, self.lanes * len(slots[0]), min(self.lanes, STRIP)):
            behind = builder.mul(d, _number(first // STRIP * STRIP * self.size))
            offsets.append(builder.add(behind, _number(first % STRIP * self.size)))
        undefined = ir.Constant(self.numbers, ir.Undefined)
        everywhere = ir.Constant(ir.VectorType(_I32, self.lanes), [0] * self.lanes)
        read, second_level, data = (ir.Constant(_I32, value) for value in (0, 2, 1))
        with cgutils.for_range(builder, d) as loop:
            builder.call(
                self.fetch, [builder.gep(ahead[0], [builder.mul(loop.index, ahead[1])]), read, second_level, data]
            )
            feature = builder.gep(begin, [builder.mul(loop.index, _number(STRIP * self.size))])
            pieces = [self._load(builder.gep(feature, [offset])) for offset in offsets]
            step = len(pieces) // len(slots[0])
            rows = [self._join(pieces[first : first + step]) for first in range(0, len(pieces), step)]
            for point, vectors in zip(points, slots, strict=True):
                entry = builder.load(builder.gep(point, [loop.index]))
                at = builder.insert_element(undefined, entry, ir.Constant(_I32, 0))
                at = builder.shuffle_vector(at, undefined, everywhere)
                for entries, sums in zip(rows, vectors, strict=True):
                    added = term(builder, self.fma, entries, at, [builder.load(slot) for slot in sums])
                    for slot, total in zip(sums, added, strict=True):
                        builder.store(total, slot)
        if len(starts) == 1:  # all but products
            self._keep_rolled(loop.index.incomings[-1][1])

    def _keep_rolled(self, last: Any) -> None:
        """Tell LLVM not to unroll the loop that ends with this block.

        Unrolled, it would keep sums in memory and take up to a half longer. Products gain a third by it.
        """
        module = self.builder.module
        no_unrolling = module.add_metadata([ir.MetaDataString(module, "llvm.loop.unroll.disable")])
        loop = ir.MDValue(module, [], name=str(len(module.metadata)))
        loop.operands = loop, no_unrolling  # LLVM knows a loop by metadata whose first operand is itself
        last.terminator.set_metadata("llvm.loop", loop)

    def _load(self, address: Any) -> Any:
        vector = ir.VectorType(_ELEMENTS[self.kind], min(self.lanes, STRIP))
        entries = self.builder.load(self.builder.bitcast(address, vector.as_pointer()), align=1)
        return _convert(self.context, self.builder, self.kind, entries, self.number)

    def _join(self, pieces: list[Any]) -> Any:
        if len(pieces) == 1:
            return pieces[0]
        both = ir.Constant(ir.VectorType(_I32, 2 * STRIP), list(range(2 * STRIP)))
        return self.builder.shuffle_vector(*pieces, both)

    def _store(self, slots: Any, p: Any, column: Any) -> None:
        builder = self.builder
        for q, vectors in enumerate(slots):
            row = builder.gep(self.out, [builder.mul(builder.add(p, _number(q)), self.to_point)])
            for v, sums in enumerate(vectors):
                at = builder.gep(row, [builder.mul(builder.add(column, _number(v * self.lanes)), _number(self.bytes))])
                for s, slot in enumerate(sums):
                    there = at if s == 0 else builder.gep(at, [builder.mul(self.to_sum, _number(s))])
                    there = builder.bitcast(there, self.numbers.as_pointer())
                    builder.store(builder.load(slot), there, align=self.bytes)


def _number(value: int) -> Any:
    return ir.Constant(_I64, value)


Sums = Callable[[Any, Any, Any, int, Any], None]

#: Squared differences, absolute differences, and products with what they lack.
squared_sums = cast(Sums, _panel_sums(_squared, (0.0,), ((6, 4), (6, 2)), _DOUBLE))
absolute_sums = cast(Sums, _panel_sums(_absolute, (0.0,), ((6, 4), (5, 2)), _DOUBLE))
product_sums = cast(Sums, _panel_sums(_product, (START, 0.0), ((6, 2), (6, 1)), _DOUBLE))
#: Squared differences in float32, for rows of shorter types than float64.
short_squared_sums = cast(Sums, _panel_sums(_squared, (0.0,), ((8, 2), (6, 2)), _FLOAT))
