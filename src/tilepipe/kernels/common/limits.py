"""Limits that a configuration chosen for a product is checked against: the shared memory of a CTA,
and what CTAs that share a tile load of an operand that is not contiguous along K.
"""

from __future__ import annotations

import tilepipe as tp

LINES = 16, 32, 64  # elements of 16 bits in swizzle spans of 32, 64 and 128 bytes
PANEL = LINES[-1]


def check_room(needed: int, chip: tp.Chip) -> None:
    """Raises BindError where a CTA has not the bytes of shared memory that it needs."""
    if needed > chip.smem_per_cta:
        raise tp.BindError(
            f"it needs {needed:,} bytes of shared memory, and a CTA of {chip.name} has"
            f" {chip.smem_per_cta:,}: {needed - chip.smem_per_cta:,} too many; lower stages"
        )


def loads_panels(order: str, part: int) -> bool:
    """True if a part of so many rows of a tile is of whole swizzle panels, where it must be."""
    return order == "row" or part % PANEL == 0


def check_panels(name: str, order: str, part: int, settings: str) -> None:
    """Raises BindError where a part of a tile of operand `name` is not of whole swizzle panels.

    Args:
        settings: those that the part follows from, such as "bn and cluster".
    """
    if not loads_panels(order, part):
        raise tp.BindError(
            f"{name} is not contiguous along k, and its tiles are loaded in parts of {part} rows,"
            f" which must be a multiple of {PANEL}, a swizzle panel: {part} / {PANEL} ="
            f" {part / PANEL:g}; change {settings}, or pass {name} contiguous along k"
        )


def check_lines(name: str, tile: int, part: int, settings: str) -> None:
    """Raises BindError where tensor cores cannot read the tiles of an operand of the GEMM that is
    not contiguous along K.

    Args:
        name: A or B. tile: its rows. part: those that a CTA loads. settings: those that both follow
            from, such as "bn and cluster".
    """
    axis = {"A": "m", "B": "n"}[name]
    if tile % LINES[0]:
        raise tp.BindError(
            f"gemm: {name} is contiguous along {axis}, and its tiles have {tile} along {axis};"
            f" tensor cores read them in lines of 16, 32 or 64, and {tile} / 16 = {tile / 16:g}:"
            f" change {settings.partition(' and ')[0]}, or pass {name} contiguous along k"
        )
    line = max(line for line in LINES if tile % line == 0)
    if part % line:
        raise tp.BindError(
            f"gemm: {name} is contiguous along {axis}, and its tiles of {tile} along {axis}"
            f" are loaded in parts of {part}, which"
            f" must be a multiple of {line}: change {settings}, or pass {name} contiguous along k"
        )
