"""Named barriers: hardware barriers of a fixed number of threads, across roles."""

from __future__ import annotations

from tilepipe.errors import TraceError
from tilepipe.ir import memory, ops
from tilepipe.ir.location import caller
from tilepipe.ir.program import WARP
from tilepipe.lang.tracing.convergence import divergence
from tilepipe.lang.tracing.tracer import Tracer


class NamedBarrier:
    """A barrier that `threads` threads arrive at, whole warps at a time (PTX ISA, barrier.cta):
    complete when all have, then reset.
    """

    def __init__(self, tracer: Tracer, threads: int, name: str) -> None:
        if tracer.scope.role is not None:
            raise TraceError("a named barrier is created in set-up code, outside roles", caller())
        if not isinstance(threads, int) or threads < WARP or threads % WARP:
            raise TraceError(
                f"a named barrier counts whole warps: a multiple of {WARP} threads, got"
                f" {threads!r}",
                caller(),
            )
        self._tracer = tracer
        self._bar = memory.NamedBarrier(tracer.name(name), threads)
        tracer.kernel.named_barriers.append(self._bar)

    @property
    def threads(self) -> int:
        """The number of threads that arrive."""
        return self._bar.threads

    def sync(self) -> None:
        """Arrives, and waits until all threads have."""
        self._check("sync")
        self._tracer.emit(ops.NamedSync(caller(), self._bar))

    def arrive(self) -> None:
        """Arrives without waiting."""
        self._check("arrive")
        self._tracer.emit(ops.NamedArrive(caller(), self._bar))

    def _check(self, what: str) -> None:
        _, cause = divergence(self._tracer)
        if cause is not None:
            raise TraceError(
                f"{self._bar.name}.{what}() under the {cause.kind} block at {cause.loc.short}: a"
                " named barrier counts whole warps, and in a"
                " role of warpgroups whole warpgroups. Move it out of that block.",
                caller(),
            )

    def __repr__(self) -> str:
        return f"<named barrier '{self._bar.name}' of {self._bar.threads} threads>"


def role_barrier(tracer: Tracer, kind: str, threads: int, copies: int) -> memory.NamedBarrier:
    """The barrier that synchronises the threads of the role, or of each of its warpgroups; made on
    first use.
    """
    name = f"{tracer.role.name}.{kind}"
    for bar in tracer.kernel.named_barriers:
        if bar.name == name:
            return bar
    bar = memory.NamedBarrier(name, threads, copies)
    tracer.kernel.named_barriers.append(bar)
    return bar
