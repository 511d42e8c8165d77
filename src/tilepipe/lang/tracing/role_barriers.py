"""The named barriers of a role, which the library makes on first use."""

from __future__ import annotations

from tilepipe.ir import memory
from tilepipe.lang.tracing.tracer import Tracer


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
