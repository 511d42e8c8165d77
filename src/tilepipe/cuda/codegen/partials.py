"""What warps of a warpgroup leave for each other in shared memory while they reduce together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tilepipe.cuda.codegen.addresses import tile
from tilepipe.cuda.codegen.combining import Combining
from tilepipe.cuda.codegen.context import Context
from tilepipe.cuda.codegen.indices import Index
from tilepipe.cuda.codegen.synchronisation import barrier_name
from tilepipe.errors import CompileError
from tilepipe.ir.expressions import const
from tilepipe.ir.location import Loc
from tilepipe.ir.ops import Partials


@dataclass(frozen=True, slots=True)
class PartialWords:
    """The words of one warpgroup.

    Attributes:
        base: C++ of their address.
        sync: the statement with which the warps await each other.
    """

    base: str
    sync: str

    def at(self, place: Index) -> str:
        """The C++ of the address `place` bytes on."""
        return str(Index(0, ((self.base, 1),)) + place)

    def store(self, ctx: Context, place: Index, how: Combining, *values: str) -> None:
        """Prints a store of a word, or of two together, `place` bytes on."""
        kind = how.c_type if len(values) == 1 else "float2" if how.c_type == "float" else "u32x2"
        ctx.out(f"{ctx.use(f'store_{kind}')}({self.at(place)}, {', '.join(values)});")

    def load_pairs(
        self, ctx: Context, how: Combining, places: list[Index], name: str = "part"
    ) -> list[str]:
        """Prints loads of two consecutive words at each of `places`, bytes, into `name`0 and so on;
        gives the C++ of each word.
        """
        parts = [ctx.temporary(f"{name}{i}") for i in range(2 * len(places))]
        signed = how.c_type == "i32"
        ctx.out(f"{'u32' if signed else how.c_type} {', '.join(parts)};")
        load = ctx.use("load_float2" if how.c_type == "float" else "load_u32x2")
        for i, place in enumerate(places):
            ctx.out(f"{load}({self.at(place)}, {parts[2 * i]}, {parts[2 * i + 1]});")
        return [f"static_cast<i32>({part})" for part in parts] if signed else parts


@contextmanager
def partial_words(ctx: Context, partials: Partials | None, loc: Loc) -> Iterator[PartialWords]:
    """Prints a block in which warps leave words for each other. Its last barrier keeps the next
    reduction from overwriting what a warp has yet to read.

    Raises:
        CompileError: the reduction has no shared memory.
    """
    if partials is None:
        raise CompileError("a reduction among warps has no shared memory", loc)
    buffer, bar, base = partials.buffer, partials.barrier, ctx.temporary("partials")
    warpgroup = ctx.special("warpgroup") if bar.per_warpgroup > 1 else ""
    group = f" + {4 * buffer.cols} * {warpgroup}" if warpgroup else ""
    which = barrier_name(ctx, bar) + (f" + {warpgroup}" if warpgroup else "")
    found = PartialWords(base, f"{ctx.use('named_sync')}({which}, {bar.threads});")
    with ctx.out.block():
        ctx.out(f"const u32 {base} = {tile(ctx, buffer, const(0))}{group};")
        yield found
        ctx.out(found.sync)
