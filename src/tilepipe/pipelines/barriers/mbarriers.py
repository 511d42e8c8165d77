"""SharedMemBarrier: a PTX mbarrier in shared memory, and a pointer to it."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from tilepipe.errors import TraceError
from tilepipe.ir import expressions as exprs, memory, ops, printer
from tilepipe.ir.chip import MAX_COUNT, MAX_TX_BYTES
from tilepipe.ir.location import caller
from tilepipe.lang.arguments.annotations import (
    ArrivalCount,
    CtaRank,
    MemoryScope,
    Name,
    NonNegativeInt,
    Phase,
    TransactionBytes,
)
from tilepipe.lang.context.context import Context
from tilepipe.lang.handles.arrivals import count_arrivals
from tilepipe.lang.handles.linear import Handle, View, owner_of
from tilepipe.lang.tracing import barrier_tests
from tilepipe.lang.tracing.convergence import require_one_lane, require_whole_warpgroup_waits
from tilepipe.lang.tracing.tracer import Tracer
from tilepipe.lang.values.scalars import Value, require_integer, require_uniform, to_expr
from tilepipe.pipelines.barriers.storage import BarrierStorage

BARRIER_BYTES = 8


class SharedMemBarrier(View):
    """One mbarrier: 8 bytes of shared memory that count arrivals and transaction bytes (PTX ISA,
    "mbarrier").

    A phase completes when no arrival is pending and the transaction bytes are zero; the next begins
    at once. In Python the barrier and a pointer to it are the same object: `MbarPtr` is this class.
    As a pointer into an array, `ptr[i]` and `ptr + i` are the barrier i places after it.
    """

    _kind = "barrier"

    def __init__(
        self,
        tracer: Tracer,
        array: memory.BarrierArray,
        index: exprs.Expr,
        handle: Handle | None = None,
        cta: exprs.Expr | None = None,
        home: tuple[BarrierStorage, int] | None = None,
    ) -> None:
        super().__init__(tracer, handle)
        self._operand = memory.BarrierRef(array, index, cta)
        # where the pointer was taken from, and its index there, where that is static
        self._home = home

    @property
    def _ref(self) -> memory.BarrierRef:
        """The operand. A pipeline may have divided the array since the pointer was taken."""
        if self._home is not None:
            array, index = self._home[0].find(self._home[1])
            if array is not self._operand.array:
                self._operand = memory.BarrierRef(array, exprs.const(index), self._operand.cta)
        return self._operand

    def __getitem__(self, index: object) -> SharedMemBarrier:
        """The barrier `index` places after this one, in the same array.

        Raises:
            TraceError: there is none, or the index differs between the lanes of a warp.
        """
        offset = require_uniform(
            require_integer(to_expr(self._tracer, index), "the index of a barrier"),
            "the index of a barrier",
            exprs.Vary.WARP,
        )
        ref = self._ref
        if self._home is not None and isinstance(offset, exprs.Const):
            return pointer(self._home[0], self._home[1] + int(offset.value))
        at = to_expr(self._tracer, Value(self._tracer, ref.index) + Value(self._tracer, offset))
        if isinstance(at, exprs.Const) and not 0 <= at.value < ref.array.size:
            raise TraceError(
                f"barrier {at.value} of '{ref.array.name}', which has {ref.array.size}", caller()
            )
        return SharedMemBarrier(self._tracer, ref.array, at, None, ref.cta)

    def __add__(self, offset: object) -> SharedMemBarrier:
        """A pointer to the barrier `offset` places after this one: `self[offset]`."""
        return self[offset]

    @staticmethod
    def allocate(ctx: Context, count: int = 1, name: Name = "barrier") -> SharedMemBarrier:
        """Allocates and initialises one barrier in set-up code; `count`: arrivals of a phase."""
        barrier = pointer(BarrierStorage(ctx.tracer, name, 1), 0)
        barrier.init(count)
        return barrier

    def ref(self) -> memory.BarrierRef:
        """The barrier as an operand.

        Raises:
            HandleError: the stage it belongs to has been released.
        """
        self._check_usable("signalled or waited on")
        if self._home is not None:
            self._home[0].note_use()
        return self._ref

    def __eq__(self, other: object) -> bool:
        """True if two pointers are known to name one barrier: the same array and CTA, and the same
        constant or traced index.
        """
        if not isinstance(other, SharedMemBarrier):
            return NotImplemented
        mine, theirs = self._ref, other._ref
        return (
            mine.array is theirs.array
            and _same(mine.index, theirs.index)
            and _same(mine.cta, theirs.cta)
        )

    __hash__ = None  # type: ignore[assignment]

    def _at(self, cta: object) -> memory.BarrierRef:
        ref = self.ref()
        return memory.BarrierRef(ref.array, ref.index, to_expr(self._tracer, cta))

    def on(self, cta: CtaRank) -> SharedMemBarrier:
        """The copy in CTA `cta` of the cluster: to arrive on, or, in a pair of CTAs, for a TMA load
        to signal.
        """
        ref = self._at(cta)
        return SharedMemBarrier(self._tracer, ref.array, ref.index, self._owner, ref.cta)

    def init(self, num_threads: ArrivalCount = 1) -> None:
        """mbarrier.init: `num_threads` arrivals complete a phase; phase 0 begins. In set-up code
        the library elects the lane and fences.
        """
        count = to_expr(self._tracer, num_threads)
        if isinstance(count, exprs.Const) and not 1 <= count.value <= MAX_COUNT:
            raise TraceError(f"an mbarrier's count is 1..{MAX_COUNT}, got {count.value}", caller())
        init_barriers(self._tracer, self.ref(), count, 1)

    def inval(self) -> None:
        """mbarrier.inval: ends the barrier's life; it may then be initialised again."""
        emit_once(self._tracer, ops.MbarInval(caller(), self.ref()))

    def arrive(self) -> None:
        """One arrival by every active thread of the role."""
        self._arrive(self.ref(), 1)

    def arrive_cluster(
        self, cta_id: CtaRank, count: ArrivalCount = 1, *, relaxed: bool = False
    ) -> None:
        """`count` arrivals by every active thread on this barrier's copy in CTA `cta_id` of the
        cluster.

        Args:
            relaxed: the plain form, which releases to this CTA alone and saves a fence of the
                whole GPU. For another CTA it then orders finished reads of MMAs, accesses of
                tensor memory before `ctx.tcgen05_fence_before()`, and reads of a response before
                `ctx.fence_proxy_async()`, but no ordinary write.

        Raises:
            TraceError: `relaxed` is no bool.
        """
        if not isinstance(relaxed, bool):
            raise TraceError(f"arrive_cluster: relaxed is True or False; got {relaxed!r}", caller())
        self._arrive(self._at(cta_id), count, "relaxed" if relaxed else "release")

    def _arrive(self, ref: memory.BarrierRef, count: object, sem: str = "release") -> None:
        _ = self._tracer.role
        n = to_expr(self._tracer, count)
        self._book(ref, int(n.value) if isinstance(n, exprs.Const) else None, "arrives")
        self._tracer.emit(ops.MbarArrive(caller(), ref, n, sem))

    def _book(self, ref: memory.BarrierRef, each: int | None, verb: str) -> None:
        handle = owner_of(self._tracer, ref.array, ref.index)
        role, active = self._tracer.role.role, self._tracer.scope.active
        arrivals = count_arrivals(role, self._tracer.kernel.cluster_size, active, each, ref.cta)
        if handle is None:
            self._tracer.ledger.loose(ref.array, role, caller(), arrivals)
            return
        if ref.cta is None:
            handle.refuse_twice(verb)
        self._tracer.scope.note_signal(handle, arrivals)

    def expect_bytes(self, bytes: TransactionBytes) -> None:
        """mbarrier.arrive.expect_tx: the phase also needs `bytes` more of TMA data; and ONE
        arrival. One lane only.
        """
        self._expect(self.ref(), bytes, arrive=True)

    def expect_bytes_relaxed(self, bytes: TransactionBytes) -> None:
        """`expect_bytes` with relaxed ordering; the same here, since arming a barrier publishes
        nothing.
        """
        self._expect(self.ref(), bytes, arrive=True)

    def expect_bytes_only(self, bytes: TransactionBytes) -> None:
        """mbarrier.expect_tx without an arrival."""
        self._expect(self.ref(), bytes, arrive=False)

    def arrive_and_expect_bytes(
        self, bytes: TransactionBytes, cta_id: CtaRank, pred: object = True
    ) -> None:
        """`expect_bytes` on the copy in CTA `cta_id`, where `pred` holds."""
        with self._where(pred):
            self._expect(self._at(cta_id), bytes, arrive=True)

    def _expect(
        self, ref: memory.BarrierRef, nbytes: object, arrive: bool, sem: str = "release"
    ) -> None:
        if ref.cta is None:
            require_one_lane(self._tracer, "expect_bytes")
        n = require_integer(to_expr(self._tracer, nbytes), "a number of bytes")
        if isinstance(n, exprs.Const) and not 0 <= n.value <= MAX_TX_BYTES:
            raise TraceError(
                f"expect_bytes({n.value}): a phase's transaction count is below 2^20; load less in"
                " one stage",
                caller(),
            )
        if arrive:
            self._book(ref, 1, "expects bytes")
        self._tracer.emit(ops.MbarExpect(caller(), ref, n, arrive, sem))

    def complete_transaction(
        self, dst_cta: CtaRank | None, bytes: TransactionBytes, pred: object = True
    ) -> None:
        """Credits `bytes` to the copy in CTA `dst_cta` without a copy (for a gather that was
        elided).
        """
        n = require_integer(to_expr(self._tracer, bytes), "a number of bytes")
        ref = self.ref() if dst_cta is None else self._at(dst_cta)
        with self._where(pred):
            self._tracer.emit(ops.MbarCompleteTx(caller(), ref, n))

    def _where(self, pred: object) -> AbstractContextManager[None]:
        return nullcontext() if pred is True else Context(self._tracer).when(pred)

    def wait(self, phase: Phase = 0, ticks: NonNegativeInt | None = None) -> None:
        """Blocks until the phase with parity `phase` (bit 0) is complete: on a fresh barrier
        wait(1) passes and wait(0) blocks.

        `ticks`: the limit of one hardware try in nanoseconds. It has no effect here; the API page
        has it.
        """
        require_whole_warpgroup_waits(self._tracer, "a wait")
        self._tracer.emit(ops.MbarWait(caller(), self.ref(), self._phase(phase)))

    def wait_acquire(self, phase: Phase = 0, scope: MemoryScope = "cta") -> None:
        """`wait` with explicit acquire ordering, which every wait here has."""
        self.wait(phase)

    def wait_relaxed(self, phase: Phase = 0, scope: MemoryScope = "cta") -> None:
        """`wait`; acquire ordering is kept, which is always allowed."""
        self.wait(phase)

    def try_wait(self, phase: Phase = 0) -> Value:
        """Whether the phase with parity `phase` is complete, tested once by whole warps: a warp has
        one answer. In a warpgroup role each warp has its own, and only waits may depend on it.

        Raises:
            TraceError: under a condition that not all lanes of a warp share.
        """
        return barrier_tests.emit_test(self._tracer, self.ref(), self._phase(phase))

    def _phase(self, phase: object) -> exprs.Expr:
        return require_uniform(to_expr(self._tracer, phase), "the phase of a wait", exprs.Vary.WARP)

    def unsafe_ptr(self) -> SharedMemBarrier:
        """The pointer: itself."""
        return self

    def __repr__(self) -> str:
        return f"<mbarrier {printer.barrier(self._ref)}>"


def _same(a: exprs.Expr | None, b: exprs.Expr | None) -> bool:
    return a is b or (
        isinstance(a, exprs.Const) and isinstance(b, exprs.Const) and a.value == b.value
    )


MbarPtr = SharedMemBarrier


def pointer(storage: BarrierStorage, position: int) -> SharedMemBarrier:
    """A pointer to barrier `position`, which stays valid when a pipeline divides the storage.

    Raises:
        TraceError: there is no such barrier.
    """
    if not 0 <= position < storage.size:
        raise TraceError(f"barrier {position} of an array of {storage.size}", caller())
    array, index = storage.find(position)
    at = exprs.const(index)
    return SharedMemBarrier(storage.tracer, array, at, home=(storage, position))


def init_barriers(tracer: Tracer, ref: memory.BarrierRef, count: exprs.Expr | None, n: int) -> None:
    """Emits mbarrier.init of `n` barriers by one lane."""
    emit_once(tracer, ops.MbarInit(caller(), ref, count, n))
    if ref.array.count is None and isinstance(count, exprs.Const) and n == ref.array.size:
        ref.array.count = int(count.value)


def open_barriers(
    tracer: Tracer, array: memory.BarrierArray, side: str, count: int | None, *, flat: bool = False
) -> None:
    """Initialises every barrier of a pipeline's array, and starts counting the arrivals on it.

    Args:
        side: the side that arrives, "producer" or "consumer", for messages.
        count: arrivals of a phase; None derives it.
        flat: roles signal the barriers without handles.

    Raises:
        TraceError: a count that an mbarrier cannot have.
    """
    if count is not None and (type(count) is not int or not 1 <= count <= MAX_COUNT):
        raise TraceError(
            f"{side}_arrivals: an mbarrier's count is 1..{MAX_COUNT}, got {count!r}", caller()
        )
    tracer.ledger.open(array, side, count, flat=flat)
    init_barriers(tracer, memory.BarrierRef(array, exprs.const(0)), None, array.size)


def emit_once(tracer: Tracer, op: ops.Op) -> None:
    """Emits an op for one lane: elected here in set-up code; in a role the user has elected it."""
    if tracer.scope.role is None:
        tracer.emit(ops.Elect(op.loc, "role", ops.Block([op])))
    else:
        require_one_lane(tracer, op.name)
        tracer.emit(op)
