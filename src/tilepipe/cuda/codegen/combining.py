"""How a reduction makes one value of two, in C++: in a thread, and among lanes of a warp."""

from __future__ import annotations

from dataclasses import dataclass

from tilepipe.cuda.codegen.context import Context
from tilepipe.cuda.codegen.expressions import literal
from tilepipe.cuda.codegen.names import register_type, small_float
from tilepipe.errors import CompileError
from tilepipe.ir import dtypes
from tilepipe.ir.dtypes import DType
from tilepipe.ir.fragment import WARP
from tilepipe.ir.location import Loc

CHAINS = 4  # sums or extremes of a thread that do not depend on each other

_LEAST = {"float": float("-inf"), "i32": -(1 << 31), "u32": 0}
_GREATEST = {"float": float("inf"), "i32": (1 << 31) - 1, "u32": (1 << 32) - 1}
_REGISTER = {"float": dtypes.float32, "i32": dtypes.int32, "u32": dtypes.uint32}


@dataclass(frozen=True, slots=True)
class Combining:
    """A reduction "add", "max" or "min" of values of a dtype, held in registers of `c_type`.

    fmaxf and fminf take a number rather than a NaN, and -0 as less than +0 (PTX ISA, max and min).
    """

    op: str
    dtype: DType
    c_type: str

    @classmethod
    def of(cls, op: str, dtype: DType, loc: Loc) -> Combining:
        """Raises CompileError where no instruction combines values of the dtype."""
        c_type = register_type(dtype)
        if c_type not in _REGISTER or op not in ("add", "max", "min"):
            raise CompileError(
                "a reduction is add, max or min of floats of up to 32 bits, int32 or uint32; not"
                f" {op} of {dtype}",
                loc,
            )
        return cls(op, dtype, c_type)

    @property
    def start(self) -> str:
        """The value that changes no other."""
        value = {"add": 0, "max": _LEAST[self.c_type], "min": _GREATEST[self.c_type]}[self.op]
        return literal(value, _REGISTER[self.c_type])

    def joined(self, a: str, b: str) -> str:
        """The C++ of both together."""
        if self.op == "add":
            return f"{a} + {b}"
        return f"{f'f{self.op}f' if self.c_type == 'float' else self.op}({a}, {b})"

    def tree(self, parts: list[str]) -> str:
        """The C++ of all parts, 2^k of them, neighbours first."""
        while len(parts) > 2:
            parts = [self.joined(*parts[i : i + 2]) for i in range(0, len(parts), 2)]
            if self.op == "add":
                parts = [f"({part})" for part in parts]
        return self.joined(*parts)

    def of_chains(self, x: str) -> str:
        """The C++ of what the `CHAINS` elements of the array `x` give together: the first with the
        third, the second with the fourth, then both.
        """
        return self.tree([f"{x}[{i}]" for i in (0, 2, 1, 3)])

    def into(self, x: str, part: str) -> str:
        """The statement that adds a part to a variable."""
        return f"{x} += {part};" if self.op == "add" else f"{x} = {self.joined(x, part)};"

    def lanes(self, ctx: Context, x: str, first: int, end: int) -> str:
        """The C++ of what lanes whose numbers differ in the bits `first` up to `end`, powers of
        two, have together; all of them get it. redux.sync, of integers, is of the whole warp.
        """
        if first == end:
            return x
        if self.c_type != "float" and (first, end) == (1, WARP):
            return f"__reduce_{self.op}_sync(0xffffffff, {x})"
        if (first, end) == (1, 4):
            return f"{ctx.use(f'row_{self.op}')}({x})"
        return f"{ctx.use(f'{self.op}_lanes')}({x}, {first}, {end})"

    def rounded(self, ctx: Context, code: str) -> str:
        """The C++ of a result, which a sum in float32 of narrower floats is rounded to."""
        small = small_float(self.dtype)
        if self.op != "add" or small is None:
            return code
        return f"{ctx.use(f'round_{small}')}({code})"
