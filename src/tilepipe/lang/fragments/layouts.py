"""The shapes of fragments of layout "rows:T", and the shared memory by which warps reduce
fragments together.
"""

from __future__ import annotations

from tilepipe.errors import TraceError
from tilepipe.ir import dtypes, memory
from tilepipe.ir.fragment import FOURS, SPAN, VECTOR, WARP, row_threads
from tilepipe.ir.location import caller
from tilepipe.ir.ops import Partials
from tilepipe.ir.program import WARPGROUP
from tilepipe.lang.tracing.role_barriers import role_barrier
from tilepipe.lang.tracing.tracer import Tracer


def require_layout(layout: str) -> None:
    """Raises TraceError for what is the name of no layout of numbers that threads compute with."""
    if layout == FOURS or (layout not in SPAN and not row_threads(layout)):
        raise TraceError(
            f'a layout is "wgmma", "tmem", or "rows:T" with T threads a row; got {layout!r}',
            caller(),
        )


def broken_layout_rule(shape: tuple[int, int], threads: int, agent_threads: int) -> str | None:
    """What is wrong with a shape in layout "rows:T", T = `threads`, in a warp or a warpgroup."""
    rows, cols = shape
    whole = "a warpgroup" if agent_threads == WARPGROUP else "a warp"
    if threads & (threads - 1) or threads > agent_threads:
        return (
            f'layout "rows:{threads}": the threads of a row are a power of two up to the'
            f" {agent_threads} of {whole}"
        )
    groups, step = agent_threads // threads, VECTOR * threads
    if rows < 1 or (rows > 1 and rows % groups) or cols < 1 or (cols > 1 and cols % step):
        return (
            f'a fragment of layout "rows:{threads}" in {whole} has a multiple of {groups} rows'
            f" ({agent_threads} / {threads}), or 1 row for one value a column; and a multiple of"
            f" {step} columns ({VECTOR} · {threads}), or 1 column for one value a row; got"
            f" {rows}×{cols}. Loads give zero outside a tensor, and stores drop what is outside, so"
            " a fragment may be wider than the tensor."
        )
    return None


def partials_of_rows(
    tracer: Tracer, layout: str, shape: tuple[int, ...], words: int = 1
) -> Partials | None:
    """Shared memory and a barrier for a reduction of rows that several warps share, for which each
    leaves `words` of a row; None where a warp holds all of each of its rows.
    """
    threads = row_threads(layout)
    if threads <= WARP or shape[1] == 1:
        return None
    held = max(shape[0] * threads // WARPGROUP, 1)  # rows of which a thread holds a part
    return partials(tracer, words * WARPGROUP // WARP * held)


def partials(tracer: Tracer, words: int) -> Partials:
    """Shared memory of so many words for each warpgroup, and a barrier. All reductions of a role
    use the same.
    """
    role = tracer.role.role
    barrier = role_barrier(tracer, "warpgroup", WARPGROUP, role.agents)
    name = f"{role.name}_partials"
    for buffer in tracer.kernel.buffers:
        if buffer.name == name:
            buffer.cols = max(buffer.cols, words)
            return Partials(buffer, barrier)
    buffer = memory.SmemBuffer(name, dtypes.float32, 1, role.agents, words, align=16, loc=caller())
    tracer.kernel.buffers.append(buffer)
    return Partials(buffer, barrier)
