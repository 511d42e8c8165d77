"""Ordinary loads and stores of shared memory by address (ld.shared, st.shared, stmatrix).

Each active lane accesses `nbytes` consecutive bytes at an address of its own. Accesses are recorded
for each warp, with the lane of each byte.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tilepipe.errors import RaceError, SimFault
from tilepipe.machine.agents import Agent
from tilepipe.machine.happens_before.knowledge import WARP_MASK
from tilepipe.machine.machine import Machine
from tilepipe.machine.memory.byte_order import order, record
from tilepipe.machine.memory.byte_sets import Bytes, LaneBytes
from tilepipe.machine.memory.tiles import ByteSpace
from tilepipe.machine.sites import Site

Addresses = Sequence[int] | npt.NDArray[np.int64]
MATRIX_ROWS, ROW_BYTES = 8, 16  # of the 8 × 8 matrices of 16 bits that stmatrix moves


def space_at(m: Machine, ag: Agent, site: Site, cta: int | None) -> ByteSpace:
    """The shared memory of this CTA, or of the CTA of that rank in the cluster."""
    if cta is None:
        return ag.cta.bytes()
    if not 0 <= cta < len(m.ctas):
        raise SimFault(f"{site.what}: CTA rank {cta} of a cluster of {len(m.ctas)}", site.loc)
    return m.ctas[cta].bytes()


def load_bytes(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    addresses: Addresses,
    nbytes: int,
    cta: int | None = None,
) -> Bytes:
    """ld.shared: for each thread of the agent, `nbytes` bytes at `addresses[thread]`; zeros for
    those that are not active.
    """
    space = space_at(m, ag, site, cta)
    out = np.zeros((32 * ag.warps, nbytes), np.uint8)
    active = _in_order(m, ag, site, mask, space, addresses, nbytes, is_write=False)
    where = np.asarray([addresses[lane] for lane in active], np.int64)
    out[active] = space.memory[where[:, None] + np.arange(nbytes)]
    return out


def store_bytes(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    addresses: Addresses,
    values: Bytes,
    cta: int | None = None,
) -> None:
    """st.shared: each active thread stores its row of `values`, (threads, bytes), at
    `addresses[thread]`.
    """
    space = space_at(m, ag, site, cta)
    nbytes = values.shape[1]
    active = _in_order(m, ag, site, mask, space, addresses, nbytes, is_write=True)
    where = np.asarray([addresses[lane] for lane in active], np.int64)[:, None] + np.arange(nbytes)
    space.put(where, values[active])
    differs = space.memory[where] != values[active]
    if differs.any():
        lane = active[int(np.nonzero(differs.any(axis=1))[0][0])]
        raise RaceError(
            f"{site.what}: thread {lane} of {ag} and another one store different values to"
            f" {addresses[lane]:#x} in one instruction; which one stays is not defined",
            site.loc,
        )


def store_matrix(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    addresses: Addresses,
    registers: npt.NDArray[np.uint32],
    transposed: bool = False,
) -> None:
    """stmatrix: a warp stores 1, 2 or 4 matrices of 8 rows of 16 bytes. `registers`: (matrices, 32),
    each thread's part of each; row r of matrix i goes to the address of thread 8 i + r.

    A register holds elements (lane / 4, 2 · (lane % 4)) and the one after it of its matrix (PTX ISA,
    stmatrix).
    """
    ag.converge(mask)
    count = len(registers)
    rows = np.ascontiguousarray(registers).view(np.uint16).reshape(count, MATRIX_ROWS, 8)
    if transposed:
        rows = np.ascontiguousarray(rows.transpose(0, 2, 1))
    values = np.zeros((32 * ag.warps, ROW_BYTES), np.uint8)
    first = (mask.bit_length() - 1) // 32 * 32
    threads = MATRIX_ROWS * count
    values[first : first + threads] = rows.view(np.uint8).reshape(threads, ROW_BYTES)
    store_bytes(m, ag, site, mask & ((1 << threads) - 1) << first, addresses, values)
    ag.converge(mask)


def _in_order(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    space: ByteSpace,
    addresses: Addresses,
    nbytes: int,
    *,
    is_write: bool,
) -> list[int]:
    """Orders one access for each warp; returns the active threads.

    Raises:
        SimFault: an address is no multiple of the size of the access (PTX ISA, ld, st), or out of
            range.
    """
    active = [lane for lane in range(mask.bit_length()) if mask >> lane & 1]
    for lane in active:
        if addresses[lane] % nbytes:
            raise SimFault(
                f"{site.what}: thread {lane} of {ag} accesses {nbytes} bytes at"
                f" {addresses[lane]:#x}, which is no multiple of {nbytes}",
                site.loc,
            )
    for warp in range(ag.warps):
        lanes = mask & (WARP_MASK << 32 * warp)
        if not lanes:
            continue
        touched = LaneBytes(
            (1 << lane, int(addresses[lane]), nbytes) for lane in active if lanes >> lane & 1
        )
        made = record(m, ag, site, lanes, space, touched, is_write=is_write, asynchronous=False)
        order(m, space, made, ag.known(lanes))
        ag.made(lanes, made.bit | made.release_bit)
    return active
