"""Expressions as Python source.

A scalar that is the same for all threads of an agent becomes a Python number; one that differs
between lanes or warps becomes a NumPy array over the agent's threads (32 or 128). Inside `PerWarp`,
which is unrolled over the four warps, arrays cover the 32 threads of the warp at hand. Fragment
values are float32 arrays (rows, cols), either of which may be 1.

Integers are exact. Signed arithmetic that may leave its dtype, and division that may be undefined,
are checked where they are computed (`ir.ranges`); unsigned arithmetic wraps. `ir.numbers` says what
each operation gives.
"""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from tilepipe.errors import SimFault
from tilepipe.ir import expressions as e, ranges
from tilepipe.ir.dtypes import DType
from tilepipe.ir.memory import Cursor, Variable
from tilepipe.ir.ops import Op
from tilepipe.ir.printer import INFIX

Text = tuple[str, bool]  # source, and whether its value is an array

_RESERVED = {"m", "ag", "params", "np"}  # names in every function
_WRAPS = ("add", "sub", "mul", "pow", "shl", "neg", "not")  # of unsigned integers


# operations on floats whose results need no rounding, or are no floats
_EXACT = ("neg", "abs", "floor", "ceil", "round", "min", "max")


def _rounds(x: e.Expr) -> bool:
    """Whether this node is arithmetic of floats of 8 or 16 bits, which are held as float32: each
    result is rounded.
    """
    return (
        isinstance(x, e.Unary | e.Binary)
        and x.dtype.is_float
        and x.dtype.bits < 32
        and x.op not in _EXACT
    )


class Names:
    """Python names of a function: readable, unique, one for each IR object."""

    def __init__(self, reserved: set[str]) -> None:
        self._taken = reserved | _RESERVED
        self._of: dict[int, str] = {}
        self.given: list[tuple[str, object]] = []  # the names so far, each with what it stands for

    def __call__(self, thing: object, wish: str) -> str:
        """The name of `thing`, made from `wish` when it is first asked for."""
        name = self._of.get(id(thing))
        if name is None:
            name = self._of[id(thing)] = self.fresh(wish)
            self.given.append((name, thing))
        return name

    def fresh(self, wish: str) -> str:
        base = re.sub(r"\W", "_", wish) or "x"
        if base[0].isdigit() or keyword.iskeyword(base) or base.startswith("__"):
            base = f"x{base}"
        name, n = base, 2
        while name in self._taken:
            name, n = f"{base}_{n}", n + 1
        self._taken.add(name)
        return name


class Expressions:
    """Turns expressions into source for one agent's function.

    Attributes:
        threads: of the agent. in_setup: whether ranks count within the CTA. warp: the warp at hand
            inside `PerWarp`.
        prologue: lines that compute, once, what stays the same for the whole function.
        active: the text of the mask of active threads where the code stands.
    """

    def __init__(
        self,
        threads: int,
        names: Names,
        constant: Callable[[Any, str], str],
        active: Callable[[], str],
    ) -> None:
        self.threads = threads
        self.names = names
        self.constant = constant  # puts an object in the generated module; returns its name
        self.active = active
        self.in_setup = True
        self.warp: int | None = None
        self.prologue: list[str] = []
        self._hoisted: dict[tuple[str, int | None, bool], str] = {}
        # local or variable -> (array, over one warp)
        self._locals: dict[int, tuple[bool, bool]] = {}
        self.ring: dict[int, int] = {}  # locals that are a cursor's stage -> stages
        self.site = ""
        # of signed arithmetic around the expression at hand, which is checked instead
        self._inside: DType | None = None
        # what must hold, by lane or element, for the value at hand to be used
        self._conditions: list[str] = []

    # -- what is bound -----------------------------------------------------------------

    def bind(self, local: e.Local, array: bool) -> str:
        """Declares an immutable name; returns its Python name."""
        self._locals[id(local)] = (array, self.warp is not None)
        return self.names(local, local.name)

    def bind_stage(self, local: e.Local, cursor: Cursor) -> str:
        self.ring[id(local)] = cursor.stages
        return self.bind(local, False)

    def define(self, var: Variable, array: bool) -> str:
        """Declares a variable; it is an array when its value may differ between the threads of the
        agent.
        """
        self._locals[id(var)] = (array, self.warp is not None)
        return self.names(var, var.name)

    def is_array(self, var: Variable) -> bool:
        return self._locals[id(var)][0]

    def read(self, thing: e.Local | Variable) -> Text:
        """The value of a local or a variable, as seen from where the code stands."""
        array, per_warp = self._locals[id(thing)]
        name = self.names(thing, thing.name)
        if array and self.warp is not None and not per_warp:
            return f"{name}[{32 * self.warp}:{32 * self.warp + 32}]", True
        return name, array

    @property
    def base(self) -> int:
        """The thread of the agent that element 0 of arrays computed here belongs to."""
        return 0 if self.warp is None else 32 * self.warp

    def varies(self, vary: e.Vary) -> bool:
        """True if a scalar that varies over `vary` is an array here."""
        return vary == e.Vary.LANE or (
            vary == e.Vary.WARP and self.threads > 32 and self.warp is None
        )

    # -- hoisting ----------------------------------------------------------------------

    def hoist(self, text: str, wish: str, everywhere: bool = False) -> str:
        """A name for `text`, computed once at the top of the function. `everywhere`: it depends
        neither on the warp at hand nor on where the code stands.
        """
        key = (text, None, False) if everywhere else (text, self.warp, self.in_setup)
        if key not in self._hoisted:
            self._hoisted[key] = name = self.names.fresh(wish)
            self.prologue.append(f"{name} = {text}")
        return self._hoisted[key]

    def constant_for_life(self, x: e.Expr) -> bool:
        """True if a scalar stays the same for the whole life of the agent, and cannot fail: it may
        be hoisted.
        """
        return self._invariant(x) and not ranges.checked(x)

    def _invariant(self, x: e.Expr) -> bool:
        if isinstance(x, (e.Local, e.FragmentRead)):
            return False
        return all(self._invariant(c) for c in e.children(x))

    # -- expressions -------------------------------------------------------------------

    def scalar(self, x: e.Expr, what: str, op: Op) -> str:
        """Source of a value that must be one number, and no fraction, for the whole agent.

        Raises:
            SimFault: it differs between threads, or is of a floating-point dtype.
        """
        self.whole(x, what, op)
        return self.uniform(x, what, op)

    def uniform(self, x: e.Expr, what: str, op: Op) -> str:
        """`scalar`, of any dtype."""
        text, array = self(x)
        # made outside `PerWarp`: the same in all lanes of the warp
        if array and self.warp is not None and x.vary is not e.Vary.LANE:
            return f"{text}[0]"
        if array:
            raise SimFault(
                f"{what} differs between the threads of one"
                f" {'warp' if self.threads == 32 else 'warpgroup'}, which"
                " the simulator does not run. Make it uniform, or branch with ctx.when(...)"
                " or ctx.per_warp().",
                op.loc,
            )
        return text

    def whole(self, x: e.Expr, what: str, op: Op) -> None:
        """Raises SimFault: a value that counts or names a place is of a floating-point dtype."""
        if x.dtype.is_float:
            raise SimFault(
                f'{what} is a {x.dtype}; it must be an integer. Convert it: .to("int32").', op.loc
            )

    def __call__(self, x: e.Expr) -> Text:
        outer = self._inside
        self._inside = x.dtype if ranges.grows(x) else None
        text, array = self._text(x)
        self._inside = outer
        if (outer is not x.dtype or ranges.narrows(x)) and ranges.overflows(x):
            if array:
                return f"all_fit({self.site}, {text}, {x.dtype.bits}, {self._used()})", True
            return f"fits({self.site}, {text}, {x.dtype.bits})", False
        if _rounds(x):
            return self._to_float(text, array, x.dtype), array
        return text, array

    def _used(self) -> str:
        """The threads whose result is used, as the last arguments of a check: (mask, first thread[,
        condition]).
        """
        condition = ""
        for one in self._conditions:
            condition = f"np.logical_and({condition}, {one})" if condition else one
        return f"{self.active()}, {self.base}" + (f", {condition}" if condition else "")

    def _where(self, condition: str, x: e.Expr) -> Text:
        """An operand that the device evaluates only where a condition holds. It is computed
        everywhere here, and must not be checked where it is not used: `ctx.select(n != 0, k // n,
        0)` divides by no zero.
        """
        self._conditions.append(condition)
        try:
            return self(x)
        finally:
            self._conditions.pop()

    def _text(self, x: e.Expr) -> Text:
        match x:
            case e.Const():
                return self._const(x), False
            case e.Param():
                key = f"params[{x.name!r}, {x.axis}]"
                return self.hoist(
                    key, x.name if x.axis < 0 else f"{x.name}_shape{x.axis}", True
                ), False
            case e.Special():
                return self._special(x.name)
            case e.Local():
                return self.read(x)
            case e.FragmentRead():
                warp = "" if self.warp is None else f", {self.warp}"
                where = f"{self.names(x.fragment, x.fragment.name)}, ag, {self.site}"
                return f"read_registers({where}, {x.col}, {x.shape[1]}{warp})", True
            case e.Iota(shape=(rows, cols)):
                wish = "row_numbers" if cols == 1 else "column_numbers"
                numbers = np.arange(max(rows, cols)).reshape(rows, cols)
                return self.constant(numbers, wish), True
            case e.Unary():
                return self._unary(x)
            case e.Binary():
                return self._binary(x)
            case e.Select():
                c, ca = self(x.cond)
                if ca or x.shape:
                    (a, _), (b, _) = self._where(c, x.a), self._where(f"np.logical_not({c})", x.b)
                    return f"np.where({c}, {a}, {b})", True
                (a, aa), (b, ba) = self(x.a), self(x.b)
                return f"({a} if {c} else {b})", aa or ba
            case e.Cast():
                return self._cast(x)
            case e.Bitcast():
                return self._bitcast(x)
            case e.Interleave():
                a, b = self(x.a)[0], self(x.b)[0]
                shape = x.a.shape
                return f"interleaved({a}, {b}, {shape})", True
        raise AssertionError(f"no source for {type(x).__name__}")

    def _const(self, x: e.Const) -> str:
        if x.dtype.is_float:
            with np.errstate(over="ignore"):  # infinity, as in the printed code
                value = np.float64(x.value) if x.dtype.bits == 64 else np.float32(x.value)
            wish = (
                f"c_{x.value}" if math.isfinite(x.value) else f"c_{x.value}".replace("-", "minus_")
            )
            return self.constant(
                value, wish.replace("-", "minus_").replace(".", "_").replace("+", "")
            )
        return repr(bool(x.value) if x.dtype.kind == "bool" else int(x.value))

    def _special(self, name: str) -> Text:
        cta = {
            "cta_rank": "ag.cta.rank",
            "cluster_id": "m.cluster_id",
            "num_clusters": "m.num_clusters",
            "block_id": "ag.cta.block_id",
        }
        if name in cta:
            return self.hoist(cta[name], name, everywhere=True), False
        group = self.threads > 32
        # warp where the agent starts
        first = "ag.first_warp" if self.in_setup else f"{self.threads // 32} * ag.index"
        if name == "warpgroup":
            text = (
                "ag.first_warp // 4" if self.in_setup else "ag.index" if group else "ag.index // 4"
            )
            return self.hoist(text, name, everywhere=True), False
        span = 32 if self.warp is not None else self.threads
        at = f"{first} + {self.warp}" if self.warp is not None else first
        if name == "lane":
            return self.hoist(f"np.arange({span}) % 32", name), True
        if name == "thread":
            return self.hoist(f"32 * ({at}) + np.arange({span})", name), True
        if name == "warp_in_group":
            if self.warp is not None:
                return str(self.warp), False
            return (
                (self.hoist("np.arange(128) // 32", name), True)
                if group
                else (self.hoist("ag.first_warp % 4", name), False)
            )
        if group and self.warp is None:
            return self.hoist(f"{first} + np.arange(128) // 32", name), True
        return self.hoist(at, name), False

    def _unary(self, x: e.Unary) -> Text:
        a, array = self(x.a)
        if x.op == "not" and x.dtype.kind == "bool":
            return (f"~{a}" if array else f"(not {a})"), array
        if array and self._exact(x):
            a = f"np.asarray({a}, object)"
        if x.op in ("neg", "not"):
            return self._wrapped(x, f"({'-' if x.op == 'neg' else '~'}{a})"), array
        if x.op == "abs":
            return f"abs({a})", array
        if x.op == "rsqrt":
            return f"({self.constant(np.float32(1), 'one')} / np.sqrt({a}))", array
        if x.op in ("erf", "sigmoid", "rcp"):
            return f"{x.op}({a})", array
        return f"np.{'rint' if x.op == 'round' else x.op}({a})", array

    def _binary(self, x: e.Binary) -> Text:
        a, aa = self(x.a)
        # && and || of the printed code
        if aa and x.a.dtype.kind == "bool" and x.op in ("and", "or"):
            b, ba = self._where(a if x.op == "and" else f"np.logical_not({a})", x.b)
        else:
            b, ba = self(x.b)
        array = aa or ba
        if x.op in ("min", "max") and x.dtype.is_float:  # fminf, fmaxf: a NaN gives way to a number
            return f"np.f{x.op}({a}, {b})", array
        if x.op in ("min", "max"):
            return (f"np.{x.op}imum({a}, {b})" if array else f"{x.op}({a}, {b})"), array
        if isinstance(x.b, e.Const) and x.op == "pow":
            return self._wrapped(x, f"power({a}, {int(x.b.value)})"), array
        if x.a.dtype.kind == "bool" and not array:
            word = {"and": "and", "or": "or", "xor": "!="}.get(x.op)
            if word:
                return f"({a} {word} {b})", False
        if ranges.divides(x):
            return self._division(x, a, b, array), array
        if array and self._exact(x):
            a, b = f"np.asarray({a}, object)", f"np.asarray({b}, object)"
        if ranges.shifts_out(x):
            if not array or x.op == "shr":
                return self._wrapped(x, f"{x.op}{'_all' if array else ''}({a}, {b})"), array
            return self._wrapped(
                x, f"shl_all({a}, {b}, {x.dtype.bits if x.dtype.kind == 'int' else 0})"
            ), True
        return self._wrapped(x, f"({a} {INFIX[x.op]} {b})"), array

    @staticmethod
    def _exact(x: e.Expr) -> bool:
        """True if arrays of Python's integers are needed: a sum or product of int64 may not fit
        NumPy's int64.
        """
        return x.dtype.bits == 64 and ranges.grows(x)

    def _division(self, x: e.Binary, a: str, b: str, array: bool) -> str:
        """Division or remainder, of operands for which it may be undefined."""
        bits = x.dtype.bits if x.dtype.kind == "int" else 0
        if array:
            return f"divisions({self.site}, {a}, {b}, {bits}, {INFIX[x.op]!r}, {self._used()})"
        if bits:
            return (
                f"{'quotient' if x.op == 'floordiv' else 'remainder'}({self.site}, {a}, {b},"
                f" {bits})"
            )
        return f"({a} {INFIX[x.op]} {b})"  # Python's own error is reported with the line

    def _wrapped(self, x: e.Unary | e.Binary, text: str) -> str:
        """Unsigned arithmetic wraps round; so do signed integers of 8 bits in fragments, and shifts
        there, whose arrays may be wider.
        """
        if x.dtype.kind == "uint" and x.op in _WRAPS:
            return f"({text} & {(1 << x.dtype.bits) - 1})"
        narrow = x.dtype.bits < 32 and x.op in _WRAPS
        if x.shape and x.dtype.kind == "int" and (narrow or (x.op == "shl" and x.dtype.bits == 32)):
            return f"{text}.astype(np.{x.dtype.name})"
        return text

    def _cast(self, x: e.Cast) -> Text:
        a, array = self(x.a)
        to, source = x.dtype, x.a.dtype
        if to.is_float:
            # Python would round to float64 first
            if not array and source.bits == 64 and not source.is_float:
                a = f"np.asarray({a})"
            return self._to_float(a, array, to), array
        if to.kind == "bool":
            return (f"({a} != 0)" if array else f"bool({a})"), array
        if source.kind == "phase":
            return f"({a} & 1)", array
        if source.is_float:
            return f"from_float{'s' if array else ''}({a}, {self.constant(to, to.name)})", array
        if array and to.bits == 64:  # NumPy's own conversion wraps round, as the GPU's does
            return f"{a}.astype(np.{'u' * (to.kind == 'uint')}int64)", True
        text = f"{a}.astype(np.int64)" if array else f"int({a})"
        if to.kind == "uint":
            return f"({text} & {(1 << to.bits) - 1})", array
        if to.kind == "int" and (
            to.bits < 32 or (source.kind == "uint" and source.bits >= to.bits)
        ):
            half = 1 << (to.bits - 1)
            return f"((({text} + {half}) & {2 * half - 1}) - {half})", array
        return text, array

    def _bitcast(self, x: e.Bitcast) -> Text:
        a, array = self(x.a)
        types = (
            f"{self.constant(x.a.dtype, x.a.dtype.name)}, {self.constant(x.dtype, x.dtype.name)}"
        )
        if array:
            return f"bitcast({a}, {types})", True
        kind = (x.dtype.bits == 64 and "np.float64") or "np.float32"
        whole = f"bitcast(np.asarray({a}), {types})"
        return f"{kind}({whole})" if x.dtype.is_float else f"int({whole})", False

    def _to_float(self, a: str, array: bool, to: DType) -> str:
        if to.bits >= 32:
            kind = "np.float64" if to.bits == 64 else "np.float32"
            return f"{a}.astype({kind})" if array else f"{kind}({a})"
        rounded = f"rounded(np.asarray({a}, np.float32), {self.constant(to, to.name)})"
        return rounded if array else f"{rounded}[()]"
