"""`ctx`: everything a kernel can do, one short method each."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from tilepipe.errors import TraceError
from tilepipe.ir import dtypes, exprs, ops
from tilepipe.ir.location import caller
from tilepipe.ir.program import WARPGROUP, Role
from tilepipe.lang import async_ops, control, fragment_memory, tmem, variables
from tilepipe.lang import memory as mem
from tilepipe.lang import values as val
from tilepipe.lang.convergence import require_role, require_warpgroup, splitting
from tilepipe.lang.fragments import Fragment, FragmentValue, make, select
from tilepipe.lang.grid import GridMembers
from tilepipe.lang.named import NamedBarrier, role_barrier
from tilepipe.lang.tracer import RoleState, Tracer


class Context(GridMembers, tmem.TmemMembers):
    """What a kernel function gets first. Shapes, lanes and loop indices are traced; everything else is Python."""

    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer

    # -- roles --------------------------------------------------------------------------------------------------------

    def role(
        self, name: str, *, warps: int | None = None, warpgroups: int | None = None, registers: int | None = None
    ) -> Callable[[Callable[[], object]], None]:
        """Decorator: traces a function without arguments as the body of a role of `warps`, or of `warpgroups`.

        Args:
            name: unique in the kernel; used in every message.
            warps: warps that run the body, each on its own.
            warpgroups: groups of 4 warps that run it together (wgmma, fragments, `per_warp`).
            registers: for setmaxnreg: a multiple of 8 in 24..256; roles that share a warpgroup must agree.

        Raises:
            TraceError: a role inside a role, a name used twice, neither or both of warps and warpgroups.
        """
        if not isinstance(name, str):
            raise TraceError(f"the name of a role is a string, got {name!r}", caller())
        if (warps is None) == (warpgroups is None):
            raise TraceError(f"role '{name}': give either warps= or warpgroups=", caller())
        count = warps if warpgroups is None else 4 * warpgroups
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise TraceError(f"role '{name}' needs at least one warp, got {count!r}", caller())
        if self.tracer.scope.role is not None:
            raise TraceError(f"role '{name}' is declared inside role '{self.tracer.role.name}'; roles stand beside each other", caller())
        if any(r.name == name for r in self.tracer.kernel.roles):
            raise TraceError(f"there are two roles named '{name}'", caller())
        role = Role(name, count, warpgroups is not None, registers, ops.Block(), caller())

        def trace(body: Callable[[], object]) -> None:
            wanted = list(inspect.signature(body).parameters)
            if wanted:
                raise TraceError(f"the body of role '{name}' takes no arguments; it asks for {', '.join(wanted)}", role.loc)
            state = RoleState(role)
            self.tracer.kernel.roles.append(role)
            names = dict(self.tracer.counter)
            with self.tracer.open("role", role.body, active=self.tracer.all_active(role), role=state):
                result = body()
            self.tracer.counter = names  # names are a role's own
            if result is not None:
                raise TraceError(f"role '{name}' returns {result!r}; a role returns nothing", role.loc)
            role.body.ops[:0] = state.prologue.ops

        return trace

    # -- control ------------------------------------------------------------------------------------------------------

    def range(self, *bounds: object) -> control.Range:
        """`range(stop)`, `range(start, stop)` or `range(start, stop, step)` as one traced loop; bounds may be traced,
        step is positive.
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
        """`with ctx.elect_one():` one lane of each warp; "warpgroup", "role": one lane of that group's first warp."""
        return control.Entered(self.tracer, "ctx.elect_one", control.elect(self.tracer, scope))

    def per_warp(self) -> AbstractContextManager[val.Value]:
        """`with ctx.per_warp() as w:` each warp of the warpgroup on its own; w is 0..3."""
        return control.Entered(self.tracer, "ctx.per_warp", control.per_warp(self.tracer))

    # -- scalars ------------------------------------------------------------------------------------------------------

    def _special(self, name: str) -> val.Value:
        if name not in ("cta_rank", "cluster_id", "num_clusters", "block_id"):
            _ = self.tracer.role
        return self.tracer.value(exprs.Special(dtypes.int32, exprs.SPECIALS[name], True, name=name))

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
        """A function of one scalar: neg, abs, exp, exp2, log, log2, sqrt, rsqrt, tanh, sin, cos, floor; integers become float32,
        except for neg and abs.
        """
        if function not in val.FUNCTIONS:
            raise TraceError(f"ctx.math knows {', '.join(sorted(val.FUNCTIONS))}; not {function!r}", caller())
        return val.unary(self.tracer, function, x)

    def select(self, cond: object, x: object, y: object) -> Any:
        """x where cond holds, else y; both are evaluated. Elementwise where one of the three is a fragment."""
        return select(self.tracer, cond, x, y)

    def let(self, x: object, name: str = "t") -> val.Value:
        """Binds an expression to a name now, so that it is computed once."""
        return self.tracer.let(name, x)

    def _value(self, x: object) -> val.Value:
        return self.tracer.value(val.to_expr(self.tracer, x))

    # -- memory -------------------------------------------------------------------------------------------------------

    def smem(
        self, shape: tuple[int, int], dtype: object, *, count: int = 1, order: str = "row", swizzle: int | None = None, name: str = "smem"
    ) -> mem.SmemTileArray:
        """Allocates `count` tiles of (rows, cols) in shared memory, in set-up code.

        Args:
            order: "row": cols contiguous; "col": rows contiguous.
            swizzle: 0, 32, 64 or 128 bytes; the widest that divides the contiguous extent unless given.

        Raises:
            TraceError: in a role; a shape, order or swizzle that no TMA copy or MMA could use.
        """
        return mem.allocate(self.tracer, name, count, shape, dtype, order, swizzle)

    def load(self, ref: mem.ElementRef) -> val.Value:
        """Ordinary load of `tile[r, c]` or `tensor[i, j]`, by every active lane."""
        return mem.load(self.tracer, ref)

    def store(self, ref: mem.ElementRef | mem.SmemTile, value: object) -> None:
        """Ordinary store: of a scalar to `tile[r, c]` or `tensor[i, j]`, or of a fragment to a tile of its shape
        (stmatrix, or ordinary stores where the tile is a peer's).

        Under `per_warp`, a fragment's tile has the 16 rows for each 64 that belong to the warp.
        """
        if isinstance(ref, mem.ElementRef):
            return mem.store(self.tracer, ref, value)
        return fragment_memory.store(self.tracer, ref, value)

    def load_global(self, tensor: mem.GlobalTensor, coords: Sequence[object], shape: tuple[int, int], *, layout: str = "wgmma") -> Fragment:
        """A new fragment from global memory, by ordinary loads of the whole warpgroup; zero outside the tensor.

        Args:
            coords: one a dimension, outermost first. The last two are the first row and column of a fragment (m, n),
                the last is the first row of one (m, 1), or the first column of one (1, n); the others are indices.
            shape: (m, n), (m, 1) or (1, n). The dtype is the tensor's; float32 where that has 8 bits.
            layout: "tmem" for 128 rows that are to meet a fragment from tensor memory.

        Raises:
            TraceError: not a tensor of floats, a coordinate too few, one that varies within the warpgroup, no such
                shape.
        """
        return fragment_memory.load_global(self.tracer, tensor, coords, shape, layout)

    def store_global(self, tensor: mem.GlobalTensor, coords: Sequence[object], value: FragmentValue) -> None:
        """Writes a fragment to global memory in the tensor's dtype, by ordinary stores; what lies outside the tensor
        is dropped. For outputs that TMA cannot write. `coords` and errors: as in `load_global`.
        """
        fragment_memory.store_global(self.tracer, tensor, coords, value)

    def tma_load(
        self, tensor: mem.GlobalTensor, coords: Sequence[object], tile: mem.SmemTile, mbar: async_ops.Mbar, multicast: object = None
    ) -> None:
        """Starts a TMA copy of the tensor's box at `coords` (elements, outermost first) into `tile`; its bytes are
        credited to `mbar`.

        What lies outside the tensor arrives as zeros and is credited all the same. `multicast`: a mask of CTA ranks;
        the box lands in each, and each one's `mbar` is credited. One lane only.
        """
        async_ops.tma_load(self.tracer, tensor, coords, tile, mbar, multicast)

    def tma_store(self, tensor: mem.GlobalTensor, coords: Sequence[object], tile: mem.SmemTile) -> None:
        """Starts a TMA copy of `tile` to the tensor at `coords`; what lies outside is dropped. One lane only; see
        tma_store_commit.
        """
        async_ops.tma_store(self.tracer, tensor, coords, tile)

    def tma_store_commit(self) -> None:
        """Closes the thread's group of TMA stores."""
        async_ops.require_one_lane(self.tracer, "tma_store_commit")
        self.tracer.emit(ops.TmaStoreCommit(caller()))

    def tma_store_wait(self, pending: int = 0, *, read: bool = False) -> None:
        """Waits until at most `pending` of this thread's store groups are unfinished; `read`: have still to read
        shared memory.

        Groups belong to the thread that committed them: the same elected lane must wait.
        """
        async_ops.require_one_lane(self.tracer, "tma_store_wait")
        if not isinstance(pending, int) or pending < 0:
            raise TraceError(f"tma_store_wait takes a static number of groups >= 0, got {pending!r}", caller())
        self.tracer.emit(ops.TmaStoreWait(caller(), pending, read))

    # -- tensor cores -------------------------------------------------------------------------------------------------

    def accumulator(self, shape: tuple[int, int]) -> Fragment:
        """A float32 fragment (m, n) of each warpgroup: m a multiple of 64, n of 8 up to 256. Undefined until filled."""
        return Fragment.define(self.tracer, shape, dtypes.float32, "acc")

    def fragment(
        self, value: FragmentValue | None = None, *, shape: tuple[int, int] | None = None, dtype: object = "float32", layout: str = "wgmma"
    ) -> Fragment:
        """A new fragment with the shape, dtype, layout and contents of `value`, or undefined with `shape`, `dtype` and `layout`:
        "tmem" for 128 rows that meet a fragment from tensor memory.
        """
        return make(self.tracer, value, shape, dtype, layout)

    def mma(
        self,
        acc: Fragment | tmem.TmemTensor,
        a: mem.SmemTile | Fragment | tmem.TmemTensor,
        b: mem.SmemTile,
        *,
        accumulate: object = True,
    ) -> None:
        """acc (m, n) += A (m, k) · B (n, k)ᵀ, asynchronously, in float32; `accumulate` False, or a condition such as
        `k > 0` that does not hold: acc = A · Bᵀ, and `acc` need not have been set.

        A and B both bfloat16, float16 or float32 (read as tf32), or float8_e4m3 and float8_e5m2 in any mix (`ir.mma`);
        A may be a 16-bit fragment. `acc` and the tiles are in use until the group, before which stands wgmma.fence,
        has been waited for.

        `acc` in tensor memory: tcgen05.mma, by one lane (`ir.tcgen05`; A may be in tensor memory too). In a pair of CTAs the
        even one issues it for both, B is its half of the tile, and `acc` its rows.
        """
        if isinstance(acc, tmem.TmemTensor):
            tmem.mma(self.tracer, acc, a, b, accumulate)
        else:
            async_ops.mma(self.tracer, acc, a, b, accumulate)

    def mma_commit(self, mbar: async_ops.Mbar, mask: object = None) -> None:
        """Arrives on `mbar` (in every CTA of `mask`) when all MMAs issued so far have finished.

        wgmma: closes the group; the arrival, one lane for each warpgroup, is made by the `wgmma_wait`, or the consumer's lag,
        that retires it; `mask` is static. In a kernel that uses tensor memory: tcgen05.commit, by the lane that issued the MMAs,
        whose completion is the arrival; `mask` may be traced.
        """
        if self.tracer.kernel.cta_group:
            tmem.commit(self.tracer, mbar, mask)
        else:
            async_ops.mma_commit(self.tracer, mbar, mask)

    def wgmma_commit(self) -> None:
        """Closes the wgmma group without binding a barrier to it."""
        async_ops.close_group(self.tracer)

    def wgmma_wait(self, pending: int = 0) -> None:
        """Waits until at most `pending` groups of this warpgroup are unfinished, and makes the arrivals bound to the
        finished ones.
        """
        async_ops.wgmma_wait(self.tracer, pending)

    # -- synchronisation ----------------------------------------------------------------------------------------------

    def syncwarp(self) -> None:
        """Converges the active lanes of each warp and orders their shared-memory accesses."""
        split, cause = splitting(self.tracer)
        if split is exprs.Vary.LANE and self.tracer.scope.active is None and cause is not None:
            raise TraceError(
                f"syncwarp under the {cause.kind} block at {cause.loc.short}: which lanes take part depends on data."
                " Move it out of that block.",
                caller(),
            )
        self.tracer.emit(ops.SyncWarp(caller()))

    def sync_warpgroup(self) -> None:
        """All 128 threads of the warpgroup meet, at a named barrier of their own."""
        require_warpgroup(self.tracer, "sync_warpgroup")
        role = self.tracer.role.role
        bar = role_barrier(self.tracer, "warpgroup", WARPGROUP, role.agents)
        rank = None if role.agents == 1 else self._special("warpgroup")._expr
        self.tracer.emit(ops.NamedSync(caller(), bar, rank))

    def sync_role(self) -> None:
        """All threads of the role meet, at a named barrier of their own."""
        require_role(self.tracer, "sync_role")
        role = self.tracer.role.role
        self.tracer.emit(ops.NamedSync(caller(), role_barrier(self.tracer, "role", role.threads, 1)))

    def named_barrier(self, threads: int, name: str = "barrier") -> NamedBarrier:
        """A hardware barrier (bar.sync) of `threads` threads, across roles; created in set-up code. A CTA has 15 beside __syncthreads."""
        return NamedBarrier(self.tracer, threads, name)

    def cluster_arrive(self) -> None:
        """Arrives at the cluster's barrier (release)."""
        require_role(self.tracer, "cluster_arrive")
        self.tracer.emit(ops.ClusterArrive(caller()))

    def cluster_wait(self) -> None:
        """Waits until every thread of the cluster has arrived (acquire)."""
        require_role(self.tracer, "cluster_wait")
        self.tracer.emit(ops.ClusterWait(caller()))

    def fence_barrier_init(self) -> None:
        """Makes mbarrier.init visible to the cluster, before the cluster barrier; set-up code does this by itself."""
        self.tracer.emit(ops.FenceBarrierInit(caller()))

    def fence_proxy_async(self) -> None:
        """Makes this thread's ordinary shared-memory writes visible to TMA and wgmma; before the sync or arrive that
        hands them over.
        """
        _ = self.tracer.role
        self.tracer.emit(ops.FenceProxyAsync(caller()))

    # -- debugging ----------------------------------------------------------------------------------------------------

    def print(self, format: str, *args: object) -> None:
        """Prints a line for every active thread; one `{}` in `format` for each argument."""
        if not isinstance(format, str):
            raise TraceError(f"ctx.print takes a text with one {{}} for each argument, got {format!r}", caller())
        if format.count("{}") != len(args):
            raise TraceError(f"{format!r} has {format.count('{}')} places `{{}}` for {len(args)} arguments", caller())
        self.tracer.emit(ops.Print(caller(), format, tuple(val.to_expr(self.tracer, a) for a in args)))

    def assert_(self, cond: object, message: str = "") -> None:
        """Stops the kernel where `cond` does not hold, in the simulator and on the GPU."""
        x = val.to_expr(self.tracer, cond)
        if x.dtype is not dtypes.boolean:
            raise TraceError(f"ctx.assert_ takes a condition, got a {x.dtype}", caller())
        self.tracer.emit(ops.Assert(caller(), x, message or caller().source))
