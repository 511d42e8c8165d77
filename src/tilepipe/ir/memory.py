"""Operands of ops: shared-memory buffers and tiles, tensor maps, barriers, variables, cursors."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tilepipe.ir.dtypes import DType
from tilepipe.ir.expressions import Expr, Vary
from tilepipe.ir.hardware.tensor_memory import SCALE_LANES, SCALES_A_COLUMN
from tilepipe.ir.location import Loc


@dataclass(eq=False, slots=True)
class SmemBuffer:
    """One allocation in a CTA's shared memory: `count` tiles of (rows, cols) elements in sequence.
    The contiguous dimension is cols (`order == "row"`) or rows (`order == "col"`). A tile is stored
    in panels of `swizzle` bytes of the contiguous dimension (the whole extent when `swizzle == 0`),
    each panel holding every index of the other dimension; within a panel the 16-byte chunks of each
    128-byte line are XORed with the line number (PTX ISA, "Swizzling modes"). `layout.byte_offsets`
    defines the layout
    for all readers.

    `stride`: bytes from one tile to the next, 0: the size of a tile. `shares`: another buffer
    whose tile i begins at the same byte as tile i of this one, a second view of the same slots with
    its own shape and order; this one then takes no memory. `turned_from`: the buffer of which this
    is the transpose, the same elements with rows for columns (`transpose`).
    """

    name: str
    dtype: DType
    count: int
    rows: int
    cols: int
    order: str = "row"
    swizzle: int = 0
    align: int = 16
    offset: int = -1
    loc: Loc | None = None
    stride: int = 0
    shares: SmemBuffer | None = None
    turned_from: SmemBuffer | None = None
    _transpose: SmemBuffer | None = field(default=None, init=False)

    @property
    def transpose(self) -> SmemBuffer:
        """The same elements with rows for columns: what a matrix descriptor that says so reads.
        Always the same object.
        """
        if self._transpose is None:
            order = "col" if self.order == "row" else "row"
            self._transpose = replace(
                self, name=f"{self.name}.T", rows=self.cols, cols=self.rows, order=order,
                stride=self.step, shares=None, turned_from=self,
            )  # fmt: skip
            self._transpose._transpose = self
        return self._transpose

    @property
    def own(self) -> SmemBuffer:
        """The buffer that has the memory: this one, or the one of which it is the transpose."""
        return self if self.turned_from is None else self.turned_from

    @property
    def step(self) -> int:
        """Bytes from one tile to the next."""
        return self.stride or self.tile_bytes

    @property
    def tile_bytes(self) -> int:
        return self.dtype.bytes_of(self.rows * self.cols)

    @property
    def nbytes(self) -> int:
        return self.count * self.step


@dataclass(eq=False, slots=True)
class Tile:
    """A rectangle of tile `index` of a buffer, from (row, col), of static extent (rows, cols)."""

    buffer: SmemBuffer
    index: Expr
    row: Expr
    col: Expr
    rows: int
    cols: int
    cta: Expr | None = None  # a peer's copy in the cluster (distributed shared memory)

    @property
    def transpose(self) -> Tile:
        """The same elements with rows for columns."""
        return Tile(
            self.buffer.transpose, self.index, self.col, self.row, self.cols, self.rows, self.cta
        )

    @property
    def nbytes(self) -> int:
        return self.buffer.dtype.bytes_of(self.rows * self.cols)


@dataclass(eq=False, slots=True)
class TensorParam:
    """A kernel argument in global memory. Static: rank, dtype, order, box, swizzle. Dynamic:
    pointer, shape, strides.

    `order`: which of the last two dimensions is contiguous, "row" (the last) or "col" (the one
    before). `box` is in logical order (outermost first), None for a tensor that is only read and
    written by ordinary loads and stores.
    `ragged`: a TMA copy may move fewer lines than the box has. `loaded`: by a ragged map, TMA loads
    from it (`cuda.runtime.tensormap` says what that changes).
    """

    name: str
    dtype: DType
    rank: int
    order: str = "row"
    box: tuple[int, ...] | None = None
    swizzle: int = 0
    ragged: bool = False
    loaded: bool = False

    @property
    def contiguous_axis(self) -> int:
        """The dimension whose stride is one element."""
        return self.rank - 1 if self.order == "row" or self.rank == 1 else self.rank - 2

    @property
    def lines_axis(self) -> int:
        """Of two dimensions or more, that of the last two which is not contiguous."""
        return self.rank - 2 if self.order == "row" else self.rank - 1


@dataclass(eq=False, slots=True)
class ScalarParam:
    """A kernel argument passed by value."""

    name: str
    dtype: DType


@dataclass(eq=False, slots=True)
class Element:
    """One element of a shared tile or of a global tensor, for ordinary loads and stores (generic
    proxy).
    """

    base: Tile | TensorParam
    index: tuple[Expr, ...]


@dataclass(eq=False, slots=True)
class BarrierArray:
    """`size` mbarriers, 8 bytes each, in a CTA's shared memory.

    `count` is the typed or derived expected arrival count, None where the program initialises them
    itself with different counts.
    """

    name: str
    size: int
    count: int | None = None
    offset: int = -1
    loc: Loc | None = None


@dataclass(eq=False, slots=True)
class BarrierRef:
    """One mbarrier of an array; `cta`: the copy in that CTA of the cluster (None: this CTA's)."""

    array: BarrierArray
    index: Expr
    cta: Expr | None = None


@dataclass(eq=False, slots=True)
class NamedBarrier:
    """A hardware barrier (bar.sync); `id` 1..15 is assigned by placement.

    `per_warpgroup`: one barrier for each warpgroup of the role that uses it (ids id, id + 1, ...).
    """

    name: str
    threads: int
    per_warpgroup: int = 1
    id: int = -1


@dataclass(eq=False, slots=True)
class Variable:
    """A mutable scalar of a role. Read by `ops.Read`, written by `ops.Assign`."""

    name: str
    dtype: DType
    vary: Vary = Vary.UNIFORM


@dataclass(eq=False, slots=True)
class Cursor:
    """A role's position in a ring: `stage` 0..stages-1, and the number of the phase to wait for,
    which grows by one at each wrap.

    Phases of a barrier are numbered from 0. A consumer starts at `start_phase` 0; a producer at -1,
    the phase before the first, which counts as complete from the beginning. On hardware only the
    parity, `phase & 1`, is kept; the simulator keeps the number.
    """

    name: str
    stages: int
    start_phase: int


@dataclass(eq=False, slots=True)
class Tmem:
    """A matrix in this CTA's tensor memory: (rows, cols) elements of `dtype` from `address`.

    Tensor memory has 128 lanes × 512 columns of 32 bits. An address, a uint32, has the lane in its
    upper 16 bits and the column in its lower (PTX ISA, "Tensor Memory Addressing"). Row r of 128 is
    lane r; row 16 w + r of 64 is lane 32 w + r, counted from the address's lane, 0 or 16 (data path
    layouts D, A and F of tcgen05.mma). Elements of 16 bits share a column two by two.
    """

    address: Expr
    rows: int
    cols: int
    dtype: DType

    @property
    def columns(self) -> int:
        """The number of 32-bit columns."""
        return self.dtype.bytes_of(self.cols) // 4


@dataclass(eq=False, slots=True)
class TmemScales:
    """Scale factors of a block-scaled MMA in this CTA's tensor memory: (rows, blocks of K), of one
    byte, from `address`.

    128 rows × 4 blocks are a piece of 4 columns: row 32 c + l of it is lane l of column c, block j
    its byte j, and all four groups of 32 lanes hold the same (PTX ISA, "Scale Factor A ID" and "B
    ID" of tcgen05.mma). The pieces of further rows follow; those of the next 4 blocks begin
    `stride` columns further on. `first`: the row of the piece at `address` at which the matrix
    starts, a multiple of 64.
    """

    address: Expr
    rows: int
    blocks: int
    dtype: DType
    stride: int
    first: Expr

    @property
    def columns(self) -> int:
        """32-bit columns from the first to the last that it reads."""
        return (-(-self.blocks // SCALES_A_COLUMN) - 1) * self.stride + self.used

    @property
    def used(self) -> int:
        """Columns of each 4 blocks of K."""
        return -(-self.rows // SCALE_LANES)
