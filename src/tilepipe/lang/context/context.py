"""`ctx`: everything a kernel can do, one short method each."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from tilepipe.errors import TraceError
from tilepipe.host_arguments import plain
from tilepipe.ir import dtypes, ops
from tilepipe.ir import expressions as exprs
from tilepipe.ir.location import caller
from tilepipe.ir.program import Role
from tilepipe.lang.arguments.annotations import MulticastMask, Name
from tilepipe.lang.asynchronous import tma as async_ops
from tilepipe.lang.context.grid import GridMembers
from tilepipe.lang.context.synchronisation import SynchronisationMembers
from tilepipe.lang.context.transfers import TransferMembers
from tilepipe.lang.control import loops as control
from tilepipe.lang.fragments.fragment import (
    Fragment,
    FragmentValue,
    columns_of,
    make,
    rows_of,
    select,
)
from tilepipe.lang.memory import shared_tiles as mem
from tilepipe.lang.tensor_memory import tensors as tmem
from tilepipe.lang.tensor_memory.addresses import TmemAddress, accumulator_at
from tilepipe.lang.tensor_memory.scales import TmemScales
from tilepipe.lang.tracing import barrier_tests as answers
from tilepipe.lang.tracing.tracer import RoleState, Tracer
from tilepipe.lang.values import scalars as val
from tilepipe.lang.values import variables


class Context(TransferMembers, SynchronisationMembers, GridMembers, tmem.TmemMembers):
    """What a kernel function gets first. Shapes, lanes and loop indices are traced; everything else
    is Python.
    """

    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer

    # -- roles -------------------------------------------------------------------------

    def role(
        self,
        name: Name,
        *,
        warps: int | None = None,
        warpgroups: int | None = None,
        registers: int | None = None,
    ) -> Callable[[Callable[[], object]], None]:
        """Decorator: traces a function without arguments as the body of a role of `warps`, or of
        `warpgroups`.

        Args:
            name: unique in the kernel; used in every message.
            warps: warps that run the body, each on its own.
            warpgroups: groups of 4 warps that run it together (wgmma, fragments, `per_warp`).
            registers: for setmaxnreg: a multiple of 8 in 24..256; roles that share a warpgroup must
                agree.

        Raises:
            TraceError: a role inside a role, a name used twice, neither or both of warps and
                warpgroups.
        """
        if not isinstance(name, str):
            raise TraceError(f"the name of a role is a string, got {name!r}", caller())
        if (warps is None) == (warpgroups is None):
            raise TraceError(f"role '{name}': give either warps= or warpgroups=", caller())
        count = warps if warpgroups is None else 4 * warpgroups
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise TraceError(f"role '{name}' needs at least one warp, got {count!r}", caller())
        if self.tracer.scope.role is not None:
            raise TraceError(
                f"role '{name}' is declared inside role '{self.tracer.role.name}'; roles stand beside each other",
                caller(),
            )
        if any(r.name == name for r in self.tracer.kernel.roles):
            raise TraceError(f"there are two roles named '{name}'", caller())
        role = Role(name, count, warpgroups is not None, registers, ops.Block(), caller())

        def trace(body: Callable[[], object]) -> None:
            wanted = list(inspect.signature(body).parameters)
            if wanted:
                raise TraceError(
                    f"the body of role '{name}' takes no arguments; it asks for {', '.join(wanted)}",
                    role.loc,
                )
            state = RoleState(role)
            self.tracer.kernel.roles.append(role)
            names = dict(self.tracer.counter)
            with self.tracer.open(
                "role", role.body, active=self.tracer.all_active(role), role=state
            ):
                result = body()
            self.tracer.counter = names  # names are a role's own
            if result is not None:
                raise TraceError(
                    f"role '{name}' returns {result!r}; a role returns nothing", role.loc
                )
            role.body.ops[:0] = state.prologue.ops
            answers.refuse_apart(role)
            answers.refuse_draws(role)

        return trace

    # -- control -----------------------------------------------------------------------

    def range(self, *bounds: object) -> control.Range:
        """`range(stop)`, `range(start, stop)` or `range(start, stop, step)` as one traced loop;
        bounds may be traced, step is positive.
        """
        if not 1 <= len(bounds) <= 3:
            raise TraceError(f"ctx.range takes 1 to 3 arguments, got {len(bounds)}", caller())
        start, stop = (0, bounds[0]) if len(bounds) == 1 else bounds[:2]
        return control.Range(self.tracer, start, stop, bounds[2] if len(bounds) == 3 else 1)

    def when(self, cond: object) -> AbstractContextManager[None]:
        """`with ctx.when(cond):` branches; a condition that varies by lane masks lanes."""
        return control.Entered(self.tracer, "ctx.when", control.branch(self.tracer, cond))

    def otherwise(self) -> AbstractContextManager[None]:
        """`with ctx.otherwise():` directly behind a `when` block: its other side."""
        return control.Entered(self.tracer, "ctx.otherwise", control.otherwise(self.tracer))

    def elect_one(self, scope: str = "warp") -> AbstractContextManager[None]:
        """`with ctx.elect_one():` one lane of each warp; "warpgroup", "role": one lane of that
        group's first warp.
        """
        return control.Entered(self.tracer, "ctx.elect_one", control.elect(self.tracer, scope))

    def per_warp(self) -> AbstractContextManager[val.Value]:
        """`with ctx.per_warp() as w:` each warp of the warpgroup on its own; w is 0..3."""
        return control.Entered(self.tracer, "ctx.per_warp", control.per_warp(self.tracer))

    # -- scalars -----------------------------------------------------------------------

    def _special(self, name: str) -> val.Value:
        if name not in ("cta_rank", "cluster_id", "num_clusters", "block_id"):
            _ = self.tracer.role
        return self.tracer.value(exprs.special(name))

    @property
    def lane(self) -> val.Value:
        """0..31."""
        return self._special("lane")

    @property
    def warp(self) -> val.Value:
        """The warp's number in the role."""
        return self._special("warp")

    @property
    def thread(self) -> val.Value:
        """The thread's number in the role."""
        return self._special("thread")

    @property
    def warpgroup_rank(self) -> val.Value:
        """The warpgroup's number in the role."""
        return self._special("warpgroup")

    @property
    def cta_rank(self) -> val.Value:
        """The CTA's rank in its cluster."""
        return self._special("cta_rank")

    @property
    def cluster_id(self) -> val.Value:
        """The cluster's number in the grid."""
        return self._special("cluster_id")

    @property
    def num_clusters(self) -> val.Value:
        """Clusters in the grid."""
        return self._special("num_clusters")

    @property
    def block_id(self) -> val.Value:
        """The CTA's number in the grid."""
        return self._special("block_id")

    @property
    def cluster_size(self) -> int:
        """CTAs of a cluster (static)."""
        return self.tracer.kernel.cluster_size

    def var(self, init: object, dtype: object = None) -> variables.Var:
        """A scalar that changes in place, in the current role."""
        name = self._variable_name()
        return variables.Var(self.tracer, init, dtype, name)

    def _variable_name(self) -> str:
        """The name on the left of `x = ctx.var(...)`, when the line is that plain."""
        left = caller().source.split("=", 1)[0].strip()
        return left if left.isidentifier() else "var"

    def ceil_div(self, a: object, b: object) -> Any:
        """(a + b - 1) // b; a Python int when both are."""
        self.tracer.require_running()
        a, b = plain(a), plain(b)
        if isinstance(b, bool | float | str | None) or (isinstance(b, int) and b < 1):
            raise TraceError(
                f"ctx.ceil_div divides by an integer of at least 1, got {b!r}", caller()
            )
        if isinstance(a, int) and isinstance(b, int):
            return -(-a // b)
        return (self._value(a) + (b - 1 if isinstance(b, int) else self._value(b) - 1)) // b

    def min(self, a: object, b: object) -> val.Value:
        """The smaller of two scalars."""
        return val.binary(self.tracer, "min", a, b)

    def max(self, a: object, b: object) -> val.Value:
        """The larger of two scalars."""
        return val.binary(self.tracer, "max", a, b)

    def math(self, function: str, x: object) -> val.Value:
        """A function of one scalar: neg, abs, exp, exp2, log, log2, sqrt, rsqrt, tanh, sin, cos,
        floor; integers become float32, except for neg and abs.
        """
        if function not in val.FUNCTIONS:
            raise TraceError(
                f"ctx.math knows {', '.join(sorted(val.FUNCTIONS))}; not {function!r}", caller()
            )
        return val.unary(self.tracer, function, x)

    def select(self, cond: object, x: object, y: object) -> Any:
        """x where cond holds, else y; both are evaluated. Elementwise where one of the three is a
        fragment.
        """
        return select(self.tracer, cond, x, y)

    def let(self, x: object, name: Name = "t") -> val.Value:
        """Binds an expression to a name now, so that it is computed once."""
        return self.tracer.let(name, x)

    def _value(self, x: object) -> val.Value:
        return self.tracer.value(val.to_expr(self.tracer, x))

    # -- tensor cores ------------------------------------------------------------------

    def accumulator(self, shape: tuple[int, int]) -> Fragment:
        """A float32 fragment (m, n) of each warpgroup: m a multiple of 64, n of 8 up to 256.
        Undefined until filled.
        """
        return Fragment.define(self.tracer, shape, dtypes.float32, "acc")

    def fragment(
        self,
        value: FragmentValue | None = None,
        *,
        shape: tuple[int, int] | None = None,
        dtype: object = "float32",
        layout: str = "wgmma",
    ) -> Fragment:
        """A new fragment with the shape, dtype, layout and contents of `value`, or undefined with
        `shape`, `dtype` and `layout`: "tmem" for 128 rows that meet a fragment from tensor memory.
        """
        return make(self.tracer, value, shape, dtype, layout)

    def row_index(self, rows: int, *, layout: str = "wgmma") -> Fragment:
        """A fragment (rows, 1), int32, of the number of each row: for masks, `ctx.select(first +
        ctx.row_index(64) < limit, x, 0.0)`.

        Args:
            layout: "tmem" for 128 rows that meet a fragment from tensor memory.

        Raises:
            TraceError: a number of rows that no fragment has, or not in a warpgroup role.
        """
        return rows_of(self.tracer, rows, layout)

    def col_index(self, cols: int) -> FragmentValue:
        """The number of each column, (1, cols), int32; with a (rows, 1) fragment it makes a mask of
        (rows, cols).

        Raises:
            TraceError: not a multiple of 8, or not in a warpgroup role.
        """
        return columns_of(self.tracer, cols)

    def mma(
        self,
        acc: Fragment | tmem.TmemTensor | TmemAddress | val.Value,
        a: mem.SmemTile | Fragment | tmem.TmemTensor,
        b: mem.SmemTile,
        *,
        accumulate: object = True,
        sfa: TmemScales | None = None,
        sfb: TmemScales | None = None,
    ) -> None:
        """acc (m, n) += A (m, k) · B (n, k)ᵀ, asynchronously, in float32; `accumulate` False, or a
        condition such as `k > 0` that does not hold: acc = A · Bᵀ, and `acc` need not have been
        set.

        A and B both bfloat16, float16 or float32 (read as tf32), or float8_e4m3 and float8_e5m2 in
        any mix (`ir.mma`); A may be a 16-bit fragment. `acc` and the tiles are in use until the
        group, before which stands wgmma.fence, has been waited for.

        `acc` in tensor memory: tcgen05.mma, by one lane (`ir.tcgen05`; A may be in tensor memory
        too). In a pair of CTAs the even one issues it for both, B is its half of the tile, and
        `acc` its rows. `acc` may be an address, such as `stage.tmem_offset()`: of a float32
        accumulator of the product's shape.

        `sfa`, `sfb` (m, blocks of K) and (n, blocks of K): scale factors in tensor memory, acc +=
        (A · sfa) (B · sfb)ᵀ, of A and B in float8_e4m3 and float8_e5m2, or float4_e2m1
        (`ir.block_scales`).

        Raises:
            TraceError: shapes, types or layouts that no instruction takes; not one lane, or not a
                whole warpgroup of wgmma.
        """
        if isinstance(acc, TmemAddress | val.Value):
            acc = accumulator_at(self.tracer, acc, a, b)
        if isinstance(acc, tmem.TmemTensor):
            tmem.mma(self.tracer, acc, a, b, accumulate, sfa, sfb)
        elif sfa is not None or sfb is not None:
            raise TraceError(
                f"mma: scale factors are for an accumulator in tensor memory, not for {acc!r}",
                caller(),
            )
        else:
            async_ops.mma(self.tracer, acc, a, b, accumulate)

    def mma_commit(self, mbar: async_ops.Mbar, mask: MulticastMask | None = None) -> None:
        """Arrives on `mbar` (in every CTA of `mask`) when all MMAs issued so far have finished.

        wgmma: closes the group; the arrival, one lane for each warpgroup, is made by the
        `wgmma_wait`, or the consumer's lag, that retires it; `mask` is static. In a kernel that
        uses tensor memory: tcgen05.commit, by the lane that issued the MMAs, whose completion is
        the arrival; `mask` may be traced.
        """
        if self.tracer.kernel.cta_group:
            tmem.commit(self.tracer, mbar, mask)
        else:
            async_ops.mma_commit(self.tracer, mbar, mask)

    def wgmma_commit(self) -> None:
        """Closes the wgmma group without binding a barrier to it."""
        async_ops.close_group(self.tracer)

    def wgmma_wait(self, pending: int = 0) -> None:
        """Waits until at most `pending` groups of this warpgroup are unfinished, and makes the
        arrivals bound to the finished ones.
        """
        async_ops.wgmma_wait(self.tracer, pending)

    # -- debugging ---------------------------------------------------------------------

    def print(self, format: str, *args: object) -> None:
        """Prints a line for every active thread; one `{}` in `format` for each argument."""
        if not isinstance(format, str):
            raise TraceError(
                f"ctx.print takes a text with one {{}} for each argument, got {format!r}", caller()
            )
        if format.count("{}") != len(args):
            raise TraceError(
                f"{format!r} has {format.count('{}')} places `{{}}` for {len(args)} arguments",
                caller(),
            )
        self.tracer.emit(
            ops.Print(caller(), format, tuple(val.to_expr(self.tracer, a) for a in args))
        )

    def assert_(self, cond: object, message: str = "") -> None:
        """Stops the kernel where `cond` does not hold, in the simulator and on the GPU."""
        x = val.to_expr(self.tracer, cond)
        if x.dtype is not dtypes.boolean:
            raise TraceError(f"ctx.assert_ takes a condition, got a {x.dtype}", caller())
        self.tracer.emit(ops.Assert(caller(), x, message or caller().source))
