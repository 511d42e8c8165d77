"""Which lines of a kernel some executions have reached.

An op is known to have been performed where it made a request of the machine. Blocks are straight
code: where one request of a block was made, the block was entered, and all its ops were performed;
where it makes requests and none was made, nobody entered it. A line is reached if one of its ops is
in a block that was entered. A block that makes no requests of its own, only in blocks inside it, is
taken to be entered where the block around it is.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache

from tilepipe.ir import ops
from tilepipe.ir.program import Kernel, blocks, bodies, walk

Place = tuple[str, int, str]  # file, line, the role's name or ""
_REQUEST = re.compile(r"yield \w+, \(S(\d+)[,)]")


@lru_cache(maxsize=64)
def requests(source: str) -> frozenset[int]:
    """The sites that make requests in the generated source of a kernel."""
    return frozenset(map(int, _REQUEST.findall(source)))


class ReachedLines:
    """The lines of a kernel.

    Attributes:
        reached: those that were reached. unreached: the others that hold ops, each with the reason.
    """

    def __init__(
        self,
        kernel: Kernel,
        number: Mapping[int, int],
        made: Collection[int],
        unmade: Collection[int],
    ) -> None:
        """
        Args:
            number: of the site of an op, by the op's id.
            made, unmade: the sites whose requests were made, and were never made.
        """
        self._number, self._made, self._unmade = number, made, unmade
        self.reached: set[Place] = set()
        self.unreached: dict[Place, str] = {}
        for role, block in blocks(kernel):
            self._role = role.name if role is not None else ""
            self._entered(block)
        for place in self.reached & self.unreached.keys():
            del self.unreached[place]

    def _entered(self, block: ops.Block) -> None:
        for op in _straight(block):
            self.reached.add(self._place(op))
            if isinstance(op, ops.Elect | ops.PerWarp):
                continue
            for inner in bodies(op):
                if self._is_entered(inner):
                    self._entered(inner)
                    continue
                why = _why(op, inner)
                for missed in walk(inner):
                    self.unreached[self._place(missed)] = why

    def _is_entered(self, block: ops.Block) -> bool:
        own = [self._number[id(op)] for op in _straight(block)]
        return any(n in self._made for n in own) or not any(n in self._unmade for n in own)

    def _place(self, op: ops.Op) -> Place:
        return op.loc.file, op.loc.line, self._role


def _straight(block: ops.Block) -> Iterator[ops.Op]:
    """The ops that are performed when a block is entered, by some of its lanes or by all."""
    for op in block.ops:
        yield op
        if isinstance(op, ops.Elect | ops.PerWarp):
            yield from _straight(op.body)


def _why(op: ops.Op, block: ops.Block) -> str:
    """Why a block of an op was not entered."""
    at = op.loc.short + (f": {op.loc.source}" if op.loc.source else "")
    if isinstance(op, ops.If):
        return f"the condition {'never' if block is op.then else 'always'} holds ({at})"
    return f"the loop has no rounds ({at})"
