"""Bank conflicts by arithmetic, of the shared memory in which warps reduce together and of stores
to a tile: what printed code says is the address of each lane is computed, and the words of each
bank are counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tilepipe.ir.layout import swizzle_offset

BANKS = 32  # of 4 bytes
LANES = 32

_FOR = re.compile(r"for \(int (\w+) = 0; \1 < (\d+); \+\+\1\) \{")
_IF = re.compile(r"if \((.*)\) \{")
_CONST = re.compile(r"const u32 (\w+) = (.*);")
_ACCESS = re.compile(r"(?:store|load)_(?:float|[ui]32)(x?2)?\(([^,]+),.*\);")

Lanes = npt.NDArray[Any]
Names = dict[str, Any]
Tree = list[tuple[str, "Tree"]]


@dataclass(frozen=True)
class Access:
    """A store or load by lanes of one warp.

    Attributes:
        line: its C++.
        lanes: of each lane that takes part, the words that it reaches, numbered from 0.
    """

    line: str
    lanes: list[list[int]]

    @property
    def groups(self) -> list[list[list[int]]]:
        """The lanes that shared memory may serve at once: all; of two words each, either half of
        the warp as well.
        """
        if len(self.lanes) < LANES or len(self.lanes[0]) == 1:
            return [self.lanes]
        return [self.lanes, self.lanes[: LANES // 2], self.lanes[LANES // 2 :]]


def wavefronts(lanes: Iterable[Iterable[int]]) -> int:
    """How many times shared memory is read or written for these words: a bank gives one word each
    time, to all lanes that want it.
    """
    each = Counter(word % BANKS for word in {word for words in lanes for word in words})
    return max(each.values(), default=0)


def fewest(lanes: Iterable[Iterable[int]]) -> int:
    """The least that `wavefronts` could be for so many words."""
    return -(-len({word for words in lanes for word in words}) // BANKS)


def accesses(source: str, warps: int = 4) -> list[Access]:
    """All accesses of the reductions among warps in printed CUDA, of the first warpgroup."""
    lines = (line.split("//")[0].strip() for line in source.splitlines())
    found: list[Access] = []
    for line in lines:
        if (made := _CONST.fullmatch(line)) and made[1].startswith("partials"):
            body = _tree(lines)
            for warp in range(warps):
                names = {"lane": np.arange(LANES), "warp_in_group": warp, "warp": warp, made[1]: 0}
                found += _performed(body, names, np.full(LANES, True))
    return found


def stores(source: str, tile: str, warps: int = 4) -> list[Access]:
    """All accesses of the blocks of printed CUDA that compute an address in a tile, of the first
    warpgroup.
    """
    lines = (line.split("//")[0].strip() for line in source.splitlines())
    swizzles = {f"swizzle_{bits}": partial(swizzle_offset, swizzle=bits) for bits in (32, 64, 128)}
    found: list[Access] = []
    for line in lines:
        if (made := _CONST.fullmatch(line)) and f"{tile}()" in made[2]:
            body = _tree(lines)
            for warp in range(warps):
                names: Names = {"lane": np.arange(LANES), "warp_in_group": warp, "warpgroup": 0}
                names |= {tile: lambda: 0, **swizzles}
                names[made[1]] = _value(made[2], names)
                found += _performed(body, names, np.full(LANES, True))
    return found


def _tree(lines: Iterator[str]) -> Tree:
    """The statements up to the end of a block, each with those of its own block."""
    found: Tree = []
    for line in lines:
        if line == "}":
            break
        found.append((line, _tree(lines) if line.endswith("{") else []))
    return found


def _performed(body: Tree, names: Names, active: Lanes) -> list[Access]:
    """What the active lanes of a warp access."""
    found: list[Access] = []
    for line, inner in body:
        if loop := _FOR.fullmatch(line):
            for i in range(int(loop[2])):
                found += _performed(inner, names | {loop[1]: i}, active)
        elif test := _IF.fullmatch(line):
            where = active
            for part in test[1].split(" && "):
                where = where & _value(part, names)
            found += _performed(inner, names, where)
        elif made := _CONST.fullmatch(line):
            names = names | {made[1]: _value(made[2], names)}
        elif access := _ACCESS.fullmatch(line):
            width = 2 if access[1] else 1
            first = np.broadcast_to(_value(access[2], names) // 4, LANES)[active].tolist()
            found.append(Access(line, [list(range(at, at + width)) for at in first]))
        else:
            found += _performed(inner, names, active)
    return [x for x in found if x.lanes]


@cache
def _compiled(code: str) -> Any:
    return compile(code.replace("/", "//"), "<printed>", "eval")


def _value(code: str, names: Names) -> Any:
    """What an expression of C++ gives, of all lanes at once."""
    return eval(_compiled(code), {"__builtins__": {}}, names)
