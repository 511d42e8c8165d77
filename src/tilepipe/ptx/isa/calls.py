"""Calls of functions that no module defines: vprintf and __assertfail, which the driver provides
(CUDA C++ Programming Guide, "Formatted Output", "Assertion").

Functions that a module defines are inlined before (`compiler.calls`).
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from tilepipe.errors import SimFault
from tilepipe.machine.agents import Agent
from tilepipe.machine.machine import Machine
from tilepipe.machine.memory.device_memory import load_global
from tilepipe.machine.sites import Site
from tilepipe.machine.thread_masks import lanes_in
from tilepipe.ptx.address_spaces import LOCAL_WINDOW, WINDOW_BITS
from tilepipe.ptx.definition import (
    Modifiers,
    Operation,
    Perform,
    defines,
    not_modelled,
    typed,
)
from tilepipe.ptx.isa.requests import Value, per_lane
from tilepipe.ptx.lanes import WARP
from tilepipe.ptx.syntax.nodes import Arguments, Instruction, Name, Operand
from tilepipe.ptx.warp_protocol import Warp

_CONVERSION = re.compile(r"%([-+ #0]*)(\*|\d+)?(?:\.(\*|\d+))?(hh|h|ll|l|z|t|j|L)?([a-zA-Z%])")
_LONGEST = 4096  # of a string
_WIDE = ("l", "ll", "z", "t", "j")


@defines("call")
def _call(instruction: Instruction) -> Operation:
    modifiers = Modifiers(instruction)
    modifiers.flag("uni")
    modifiers.end()
    names = [o.name for o in instruction.operands if isinstance(o, Name)]
    given = [o.items for o in instruction.operands if isinstance(o, Arguments)]
    match names[:1], [len(items) for items in given]:
        case ["vprintf"], [1, 2]:
            return _system(instruction, (*given[1], *given[0]), printed)
        case ["__assertfail"], [5]:
            return _system(instruction, given[0], asserted)
    not_modelled(instruction, f"a call of '{names[0] if names else 'an address'}'")


def _system(instruction: Instruction, given: tuple[Operand, ...], op: Any) -> Operation:
    """A call whose arguments are at addresses in local memory."""

    def start(w: Warp, site: Site, mask: int, *addresses: Value) -> Any:
        return op, (site, mask, w, tuple(per_lane(a) for a in addresses))

    return Perform((), typed(given, "u64"), start, None)


def printed(
    m: Machine, ag: Agent, site: Site, mask: int, w: Warp, addresses: tuple[Any, ...]
) -> None:
    """vprintf: each thread prints; the result is the number of its arguments."""
    for lane in lanes_in(mask):
        text_at, values_at, result = (int(a[lane]) for a in addresses)
        text = _string(m, ag, site, w, lane, _number(w, lane, text_at, 8))
        at = _number(w, lane, values_at, 8)
        values = _Values(m, ag, site, w, lane, at)
        for line in _CONVERSION.sub(values.converted, text).removesuffix("\n").split("\n"):
            m.world.show(line)
        w.local[lane, result : result + 4] = np.frombuffer(values.count.to_bytes(4, "little"), "u1")
        w.written[lane, result : result + 4] = True


def asserted(
    m: Machine, ag: Agent, site: Site, mask: int, w: Warp, addresses: tuple[Any, ...]
) -> None:
    """__assertfail: the program has gone wrong."""
    lane = lanes_in(mask)[0]
    message, file, line, function = (
        _number(w, lane, int(a[lane]), size)
        for a, size in zip(addresses, (8, 8, 4, 8), strict=False)
    )
    texts = [_string(m, ag, site, w, lane, at) for at in (message, file, function)]
    raise SimFault(
        f"assertion '{texts[0]}' fails in thread {lane} of {ag}, {texts[2]}, {texts[1]}:{line}",
        site.loc,
    )


def _number(w: Warp, lane: int, at: int, size: int) -> int:
    return int.from_bytes(w.local[lane, at : at + size].tobytes(), "little")


def _bytes(m: Machine, ag: Agent, site: Site, w: Warp, lane: int, address: int, size: int) -> bytes:
    """Bytes at a generic address, of local or global memory."""
    if address >> WINDOW_BITS == LOCAL_WINDOW >> WINDOW_BITS:
        return bytes(w.local[lane, address - LOCAL_WINDOW : address - LOCAL_WINDOW + size])
    addresses = np.full(WARP, address, np.int64)
    return bytes(load_global(m, ag, site, 1 << lane, w.launch.memory, addresses, size)[lane])


def _string(m: Machine, ag: Agent, site: Site, w: Warp, lane: int, address: int) -> str:
    """A string that ends with a zero."""
    found = bytearray()
    while len(found) < _LONGEST:
        byte = _bytes(m, ag, site, w, lane, address + len(found), 1)
        if byte in (b"\0", b""):
            break
        found += byte
    return found.decode("utf-8", "replace")


class _Values:
    """The arguments of a vprintf, one after another in their buffer, each at a multiple of its
    size.
    """

    def __init__(self, m: Machine, ag: Agent, site: Site, w: Warp, lane: int, address: int) -> None:
        self._where = m, ag, site, w, lane
        self._address = address
        self._at = 0
        self.count = 0

    def _next(self, size: int) -> bytes:
        self._at = -(-self._at // size) * size
        found = _bytes(*self._where, self._address + self._at, size)
        self._at += size
        self.count += 1
        return found

    def _integer(self, size: int, *, signed: bool) -> int:
        return int.from_bytes(self._next(size), "little", signed=signed)

    def converted(self, match: re.Match[str]) -> str:
        """The text of one conversion of the format (C, "fprintf")."""
        flags, width, precision, length, kind = match.groups()
        if kind == "%":
            return "%"
        width = str(self._integer(4, signed=True)) if width == "*" else width or ""
        if precision == "*":
            precision = str(self._integer(4, signed=True))
        form = f"%{flags}{width}" + (f".{precision}" if precision is not None else "")
        match kind:
            case "d" | "i":
                return f"{form}d" % self._of_length(length, signed=True)
            case "u":
                return f"{form}d" % self._of_length(length, signed=False)
            case "o" | "x" | "X":
                number = self._of_length(length, signed=False)
                if "#" in flags and (number == 0 or kind == "o"):
                    # Python would write 0o17, and 0x0
                    text = "0" * (number != 0) + f"{number:o}"
                    return f"{form.replace('#', '').partition('.')[0]}s" % text
                return f"{form}{kind}" % number
            case "c":
                return f"{form}c" % (self._integer(4, signed=False) & 0xFF)
            case "p":
                address = self._integer(8, signed=False)
                return f"{form}s" % (hex(address) if address else "(nil)")
            case "s":
                return f"{form}s" % _string(*self._where, self._integer(8, signed=False))
            case "e" | "E" | "f" | "F" | "g" | "G":
                return f"{form}{kind}" % self._double()
            case "a" | "A":
                mantissa, mark, exponent = self._double().hex().partition("p")
                if "." in mantissa and mark:
                    mantissa = mantissa.rstrip("0").removesuffix(".")
                text = mantissa + mark + exponent
                return f"{form}s" % (text.upper() if kind == "A" else text)
        return match[0]

    def _of_length(self, length: str | None, *, signed: bool) -> int:
        """An integer; one of fewer than 32 bits is passed as an int, of which its bits count."""
        bits = {"hh": 8, "h": 16}.get(length or "", 64 if length in _WIDE else 32)
        number = self._integer(max(bits // 8, 4), signed=signed)
        number &= (1 << bits) - 1
        return number - (1 << bits) if signed and number >> (bits - 1) else number

    def _double(self) -> float:
        return float(np.frombuffer(self._next(8), "<f8")[0])
