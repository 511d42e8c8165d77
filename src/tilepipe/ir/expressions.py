"""Pure expressions over immutable atoms.

An expression never reads mutable state: reading a variable or a cursor is an op (`ops.Read`,
`ops.CursorRead`) that binds `Local`s. So an expression means the same wherever it is evaluated, and
a reader may repeat it, inline it or hoist it.

Expressions are scalars (`shape == ()`), or register fragments of a warpgroup: `shape == (m, n)`,
`(m, 1)` for one value a row, or `(1, n)` for one value a column. Operators broadcast them as NumPy
does: `(m, 1)` with `(1, n)` gives `(m, n)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from tilepipe.ir import dtypes
from tilepipe.ir.dtypes import DType
from tilepipe.ir.fragment import Fragment

Shape = tuple[int, ...]


class Vary(IntEnum):
    """How a scalar varies within one agent (a warp, or a warpgroup of a warpgroup role)."""

    UNIFORM = 0
    WARP = 1
    LANE = 2


@dataclass(frozen=True, eq=False, slots=True)
class Expr:
    """Base class of all expressions. `nonneg`: known to be >= 0, so that // and % print as C's."""

    dtype: DType
    vary: Vary = Vary.UNIFORM
    nonneg: bool = False
    shape: Shape = ()
    size: int = 1


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Const(Expr):
    """A literal."""

    value: int | float | bool


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Param(Expr):
    """A kernel argument known only at launch: a scalar, or one extent of a tensor's shape (`axis`
    >= 0).
    """

    name: str
    axis: int = -1


# Special registers: name -> how it varies. Ranks count within the role unless said otherwise.
SPECIALS: dict[str, Vary] = {
    "lane": Vary.LANE,  # 0..31
    "warp": Vary.WARP,  # warp of the role
    "warp_in_group": Vary.WARP,  # 0..3, warp of the warpgroup
    "thread": Vary.LANE,  # thread of the role
    "warpgroup": Vary.UNIFORM,  # warpgroup of the role
    "cta_rank": Vary.UNIFORM,  # rank of the CTA in its cluster
    "cluster_id": Vary.UNIFORM,  # linear index of the cluster in the grid
    "num_clusters": Vary.UNIFORM,  # clusters in the grid
    "block_id": Vary.UNIFORM,  # linear index of the CTA in the grid
}


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Special(Expr):
    """A special register, one of `SPECIALS`."""

    name: str


def special(name: str) -> Special:
    """The special register of that name."""
    return Special(dtypes.int32, SPECIALS[name], True, name=name)


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Local(Expr):
    """An immutable name: a loop index, or the result of an op (`Let`, a load, a try_wait). Unique
    within its role.

    `multiple`: a known divisor, 0 if it is known to be 0 (`hardware.operand_tiles.divisor`).
    """

    name: str
    multiple: int = 1


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Unary(Expr):
    """`op` is one of: neg, not (boolean or bitwise), abs, exp, exp2, log, log2, sqrt, rsqrt, tanh,
    sin, cos, erf, sigmoid, rcp (1 / a), floor, ceil, round (to nearest even).
    """

    op: str
    a: Expr


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Binary(Expr):
    """`op` is one of: add sub mul div floordiv mod min max and or xor shl shr eq ne lt le gt ge
    pow.

    `pow` has a constant, whole, `b` >= 0: a ** b is (a ** (b / 2))² for even b > 0,
    a ** (b - 1) · a for odd b. Integer floordiv and mod are Python's (they floor). `and`/`or` are
    logical on booleans, bitwise on integers.
    """

    op: str
    a: Expr
    b: Expr


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Select(Expr):
    """`a` where `cond` holds, else `b`; both are evaluated. The three broadcast."""

    cond: Expr
    a: Expr
    b: Expr


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Cast(Expr):
    """Conversion, rounding to nearest even; float to integer truncates; float32 to fp8 saturates
    (as the hardware's cvt).
    """

    a: Expr


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Bitcast(Expr):
    """The bits of `a` as another dtype of the same size; or of `1 / n` of its size, where `a` is a
    fragment (m, c) and the result (m, n c); or, of 16 bits, of twice the size, the reverse.

    Where the size changes the bits stay in their thread. Of each eight columns, a thread has
    elements 2 t and 2 t + 1 of a row; their n parts each, in order, are columns 2 t, 2 t + 1,
    8 + 2 t, ... of the 8 n columns which those eight become (`split_columns`).
    """

    a: Expr


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Interleave(Expr):
    """Two fragments (m, c), `a` and `b`, as one (m, 2 c): element by element what `Bitcast` makes
    of an element whose low half is in `a` and whose high half is in `b`.
    """

    a: Expr
    b: Expr


def split_columns(parts: int) -> list[tuple[int, int]]:
    """For the 8 n columns that eight columns of n parts become: (column, part) of each."""
    found = []
    for column in range(8 * parts):
        mine = column // 8 * 2 + column % 2  # among the parts of the thread that has the column
        found.append((column % 8 // 2 * 2 + mine // parts, mine % parts))
    return found


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class FragmentRead(Expr):
    """The value of columns [col, col + shape[1]) of a fragment when the op that holds this
    expression executes.
    """

    fragment: Fragment
    col: int = 0


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Iota(Expr):
    """Each element's row number, `shape == (m, 1)`, or column number, `(1, n)`; int32, from 0.

    `layout`: that of the fragment whose rows they are (`fragment.Fragment`).
    """

    layout: str = "wgmma"


def children(e: Expr) -> tuple[Expr, ...]:
    """The operands of an expression, in evaluation order."""
    match e:
        case Binary(a=a, b=b) | Interleave(a=a, b=b):
            return (a, b)
        case Unary(a=a) | Cast(a=a) | Bitcast(a=a):
            return (a,)
        case Select(cond=c, a=a, b=b):
            return (c, a, b)
    return ()


def const(value: int | float | bool, dtype: DType | None = None) -> Const:
    """A literal. Without a dtype, booleans are boolean, integers int32 (int64 where they need it)
    and floats float32.
    """
    if dtype is None:
        whole = dtypes.int32 if -(2**31) <= value < 2**31 else dtypes.int64
        dtype = (
            dtypes.boolean
            if isinstance(value, bool)
            else whole
            if isinstance(value, int)
            else dtypes.float32
        )
    return Const(dtype, nonneg=value >= 0, value=value)
