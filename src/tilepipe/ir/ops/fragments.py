"""The ops on fragments: the registers of a warpgroup, to and from memory."""

from dataclasses import dataclass, replace
from typing import Annotated, Literal

from tilepipe.ir.expressions import Expr, Local
from tilepipe.ir.facts import BINDS, READS, UPDATES, WHOLE_WARPGROUP, WRITES, Facts
from tilepipe.ir.fragment import Fragment
from tilepipe.ir.memory import NamedBarrier, SmemBuffer, TensorParam, Tile
from tilepipe.ir.ops.base import Op, declares


@declares(Facts())
class FragmentDefine(Op):
    """Creates a fragment; its contents are undefined."""

    fragment: Annotated[Fragment, WRITES]


@declares(WHOLE_WARPGROUP)
class FragmentSet(Op):
    """Columns [col, col + n) of the fragment := a value of n columns; a scalar, or one value a row,
    fills all from `col`.

    A value (1, n) fills every row of a fragment (m, n).
    """

    fragment: Annotated[Fragment, WRITES]
    value: Annotated[Expr, READS]
    col: int = 0


@declares(replace(WHOLE_WARPGROUP, ptx="cvt"))
class FragmentPack(Op):
    """Columns [col, col + n) of a fragment of layout "fours" := a value (m, n) of layout "wgmma",
    rounded to the fragment's dtype, in the order in which columns stay in their threads: of each
    16, column p becomes that of the value with the number `ir.fragment.FOURS_ORDER[p]`.
    """

    fragment: Annotated[Fragment, WRITES]
    value: Annotated[Expr, READS]
    col: int = 0


Combination = Literal["add", "max", "min"]


@dataclass(frozen=True, slots=True)
class Partials:
    """Where the warps that reduce a fragment together leave their parts, for no other op to use.

    Attributes:
        buffer: 32-bit words, a row for each warpgroup of the role: as many as the reduction of the
            role that needs most.
        barrier: of all threads of a warpgroup: that with which its warps await each other.
    """

    buffer: SmemBuffer
    barrier: NamedBarrier


@declares(replace(WHOLE_WARPGROUP, ptx="shfl.sync"))
class FragmentReduce(Op):
    """dst (m, 1) := op over the columns of value (m, n); `op` is "add" or "max".

    `partials`: where more than a warp holds each row.
    """

    dst: Annotated[Fragment, WRITES]
    value: Annotated[Expr, READS]
    op: str
    partials: Partials | None = None


@declares(replace(WHOLE_WARPGROUP, ptx="shfl.sync"))
class FragmentReduceColumns(Op):
    """dst (1, n) := op over the rows of value (m, n), in the dtype of both, as `FragmentReduce`.

    Each thread combines what it holds of a column, in order of rows; then the lanes of a warp that
    share a column, neighbours first; then, through `partials`, the warps that hold different rows.
    `layout`: of the value.
    """

    dst: Annotated[Fragment, WRITES]
    value: Annotated[Expr, READS]
    op: Combination
    layout: str
    partials: Partials | None = None


@declares(replace(WHOLE_WARPGROUP, ptx="shfl.sync"))
class FragmentReduceAll(Op):
    """Binds `result` to op over all elements of value (m, n), (m, 1) or (1, n), in its dtype: the
    same in all threads that hold the value.

    Each thread combines what it holds; then lanes that hold different elements, neighbours first
    (shfl.sync.bfly; redux.sync of integers that differ in the whole warp); then, through
    `partials`, warps. A thread combines what it holds of one row, or one column, as
    `FragmentReduce` and `FragmentReduceColumns` do. Of a matrix it has four results: in layout
    "rows:T" of the columns c with c % 4 = 0, 1, 2, 3, else of even and odd columns of rows r with
    r % 16 < 8, then of the others; it takes each in order of rows, then of columns, and joins 0
    with 2, 1 with 3, and both. `layout`: of the value.
    """

    result: Annotated[Local, BINDS]
    value: Annotated[Expr, READS]
    op: Combination
    layout: str
    partials: Partials | None = None


@declares(replace(WHOLE_WARPGROUP, ptx="shfl.sync"))
class FragmentFind(Op):
    """dst (m, 1) := the maximum or minimum of each row of value (m, n), as `FragmentReduce` gives
    it; columns (m, 1), int32 := the least column that has it. A NaN counts as the infinity that any
    number beats; -0 equals 0.

    `partials`: where more than a warp holds each row, with eight words for each row of a thread.
    """

    dst: Annotated[Fragment, WRITES]
    columns: Annotated[Fragment, WRITES]
    value: Annotated[Expr, READS]
    op: Literal["max", "min"]
    partials: Partials | None = None


@declares(replace(WHOLE_WARPGROUP, ptx="shfl.sync"))
class FragmentScan(Op):
    """dst (m, n) := for each element of value (m, n), the sum of its row up to and with it; a row
    is held by the lanes of one warp.
    """

    dst: Annotated[Fragment, WRITES]
    value: Annotated[Expr, READS]


@declares(replace(WHOLE_WARPGROUP, ptx="vote.sync"))
class FragmentAny(Op):
    """Binds `result` to whether a boolean value holds for any element that the warp has of it.
    Inside `PerWarp`.
    """

    result: Annotated[Local, BINDS]
    value: Annotated[Expr, READS]


@declares(replace(WHOLE_WARPGROUP, ptx="stmatrix"))
class FragmentStore(Op):
    """Writes a fragment-shaped value to a shared tile of the same extent, in the tile's dtype:
    stmatrix for 16-bit tiles of this CTA, ordinary stores (st.shared::cta, st.shared::cluster) for
    the others.

    Inside `PerWarp` each warp writes its own rows: the tile then has 16 rows for each 64 of the
    value. A value (1, n) is written by the first four lanes of the warpgroup.
    """

    dst: Annotated[Tile, WRITES]
    value: Annotated[Expr, READS]


@declares(replace(WHOLE_WARPGROUP, ptx="ldmatrix"))
class FragmentLoad(Op):
    """fragment := a shared tile of the same extent: ldmatrix for 16-bit tiles of this CTA whose
    lines are multiples of 16 bytes apart, ordinary loads (ld.shared::cta, ld.shared::cluster) for
    the others. A fragment (m, 1) may also read a tile (1, m): its row i is the tile's column i. One
    of layout "fours" is loaded by ldmatrix as pairs of bytes.
    """

    dst: Annotated[Fragment, WRITES]
    src: Annotated[Tile, READS]


@declares(replace(WHOLE_WARPGROUP, ptx="ld"))
class FragmentLoadGlobal(Op):
    """fragment := the part of a tensor that starts at `coords`, by ordinary loads (ld.global) of
    the whole warpgroup.

    `coords`: one for each dimension of the tensor, outermost first. The last two are the first row
    and column of a fragment (m, n), the last is the first row of one (m, 1) or the first column of
    one (1, n); the others are indices. What lies outside the tensor is zero, and its memory is not
    touched.
    """

    dst: Annotated[Fragment, WRITES]
    tensor: Annotated[TensorParam, READS]
    coords: tuple[Expr, ...]


@declares(replace(WHOLE_WARPGROUP, ptx="st"))
class FragmentStoreGlobal(Op):
    """The part of a tensor that starts at `coords` := a fragment-shaped value, in the tensor's
    dtype, by ordinary stores (st.global). What lies outside the tensor is dropped. `coords`: as in
    `FragmentLoadGlobal`. `rows`: only the first so many rows of the value are written, none below
    1.
    """

    tensor: Annotated[TensorParam, WRITES]
    coords: tuple[Expr, ...]
    value: Annotated[Expr, READS]
    rows: Expr | None = None


@declares(replace(WHOLE_WARPGROUP, ptx="red", noticed=True))
class FragmentReduceGlobal(Op):
    """Each element of the part of a tensor that starts at `coords` becomes what `operation` makes
    of it and of that of a fragment-shaped value, atomically (red.global, relaxed at gpu scope).
    What lies outside the tensor is dropped. `coords`, `rows`: as in `FragmentStoreGlobal`.
    """

    tensor: Annotated[TensorParam, UPDATES]
    coords: tuple[Expr, ...]
    value: Annotated[Expr, READS]
    operation: Literal["add"]
    rows: Expr | None = None

    @property
    def name(self) -> str:
        """`fragment_reduce_global_add`."""
        return f"{self.kind}_{self.operation}"
