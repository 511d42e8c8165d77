"""wgmma whose operands are matrix descriptors, issued by a whole warpgroup or by each warp of one.

wgmma.mma_async is an instruction of a warp, and its result is that of four warps: each computes 16
rows of every 64 from its rows of A and all of B (PTX ISA, "Asynchronous Warpgroup Level Matrix
Instructions"). An agent that is one warp reads what its own part needs.
"""

from __future__ import annotations

from tilepipe.machine.agents import Agent
from tilepipe.machine.machine import Machine
from tilepipe.machine.memory.byte_order import order, record
from tilepipe.machine.memory.fragments import Frag
from tilepipe.machine.memory.matrix_operands import MatrixOperand
from tilepipe.machine.memory.tiles import ByteSpace
from tilepipe.machine.sites import Site
from tilepipe.machine.units.in_flight import DescriptorWgmma
from tilepipe.machine.units.wgmma import WARPGROUP, begin_wgmma, end_wgmma, read_fragment


def wgmma_by_descriptor(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    acc: Frag,
    a: Frag | MatrixOperand,
    b: MatrixOperand,
    adds: bool,
) -> None:
    """Issues acc += A · Bᵀ, or acc = A · Bᵀ. `a`: 64 rows, of which a warp reads its 16; or what the
    agent's own registers hold.
    """
    known = begin_wgmma(ag, site, mask, acc, adds)
    space = ag.cta.bytes()
    bits = 0
    if isinstance(a, Frag):
        read_fragment(ag, site, a)
    else:
        a = a if ag.warps == WARPGROUP else a.of_warp(ag.first_warp % WARPGROUP)
        bits = _read(m, space, ag, site, mask, a, known)
    bits |= _read(m, space, ag, site, mask, b, known)
    end_wgmma(m, ag, DescriptorWgmma(site, acc, space, a, b, adds, bits))


def _read(
    m: Machine, space: ByteSpace, ag: Agent, site: Site, mask: int, operand: MatrixOperand, known: int
) -> int:  # fmt: skip
    """Orders the read of an operand; returns what whoever waits for the wgmma learns of it."""
    touched = operand.touched()
    read = record(m, ag, site, mask, space, touched, is_write=False, asynchronous=True)
    return read.bit | order(m, space, read, known)
