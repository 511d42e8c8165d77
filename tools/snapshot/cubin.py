"""What a cubin does: the bytes of its code and constants, without names, symbols and debug
information.
"""

from __future__ import annotations

import struct

_SECTIONS_AT, _SECTION_SIZE_AT = 0x28, 0x3A
_SECTION = struct.Struct("<IIQQQQIIQQ")
_NO_BITS = 8


def contents(cubin: bytes) -> bytes:
    """Code, registers of a thread, constants and sizes of static memory, in the order of the
    sections' kinds.
    """
    (start,) = struct.unpack_from("<Q", cubin, _SECTIONS_AT)
    size, count, names = struct.unpack_from("<HHH", cubin, _SECTION_SIZE_AT)
    headers = [_SECTION.unpack_from(cubin, start + i * size) for i in range(count)]
    strings = headers[names][4]
    found = []
    for name_at, kind, _, _, offset, length, _, info, _, _ in headers:
        name = cubin[strings + name_at : cubin.index(0, strings + name_at)].decode()
        purpose = next(
            (
                p
                for p in (".text", ".nv.constant", ".nv.shared", ".nv.local", ".nv.global")
                if name.startswith(p)
            ),
            "",
        )
        if purpose == ".nv.constant":
            purpose = name[: len(".nv.constant") + 1]
        if purpose:
            registers = info >> 24 if purpose == ".text" else 0
            data = b"" if kind == _NO_BITS else cubin[offset : offset + length]
            found.append((purpose, registers, length, data))
    return b"\n".join(
        f"{purpose} {registers} {length} ".encode() + data
        for purpose, registers, length, data in sorted(found)
    )
