"""The layouts of fragments and which shapes they have, and the shared memory by which warps reduce
fragments together.
"""

from __future__ import annotations

from tilepipe.errors import TraceError
from tilepipe.ir import dtypes, memory
from tilepipe.ir.dtypes import DType
from tilepipe.ir.fragment import FOURS, SPAN, VECTOR, WARP, row_threads
from tilepipe.ir.location import caller
from tilepipe.ir.ops import Partials
from tilepipe.ir.program import WARPGROUP
from tilepipe.lang.tracing.role_barriers import role_barrier
from tilepipe.lang.tracing.tracer import Tracer, require_rule


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


def checked_shape(shape: object) -> tuple[int, int]:
    """(rows, cols). Raises TraceError for what is no pair of static integers."""
    if not isinstance(shape, tuple) or len(shape) != 2 or not all(type(x) is int for x in shape):
        raise TraceError(
            f"the shape of a fragment is (rows, cols), two static integers, got {shape!r}",
            caller(),
        )
    rows, cols = shape
    return rows, cols


def layout_of(shape: tuple[int, int], dtype: DType, layout: str, agent_threads: int) -> str:
    """The layout of a fragment for which `layout` was asked: of 64 rows, or one, "wgmma" and "tmem"
    are one.

    Raises:
        TraceError: there is no such layout, or none of such a shape.
    """
    rows, cols = shape
    threads = row_threads(layout) if isinstance(layout, str) else 0
    if threads:
        require_rule(broken_layout_rule(shape, threads, agent_threads))
        return layout
    high, wide = rows > 0 and rows % 64 == 0, cols > 0 and cols % 8 == 0
    if not ((high and (wide or cols == 1)) or (rows == 1 and wide)):
        raise TraceError(
            "a fragment has a multiple of 64 rows and of 8 columns; or 1 column, for one value"
            f" a row; or 1 row, for one value a column; got {rows}×{cols}",
            caller(),
        )
    if layout not in ("wgmma", "tmem", FOURS) or (layout == "tmem" and rows > 128):
        raise TraceError(
            'the layout of a fragment is "wgmma", "tmem" for up to 128 rows, "fours" for'
            ' operand A of 8 bits, or "rows:T" with T threads a row; got'
            f" {layout!r} for {rows} rows",
            caller(),
        )
    if layout != FOURS:
        return layout if rows == 128 else "wgmma"
    if not (high and cols % 16 == 0 and dtype in (dtypes.float8_e4m3, dtypes.float8_e5m2)):
        raise TraceError(
            'a fragment of layout "fours" is operand A of wgmma: float8_e4m3 or'
            " float8_e5m2, with a multiple of 64 rows and of 16 columns; got"
            f" {rows}×{cols} {dtype}",
            caller(),
        )
    return layout


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
