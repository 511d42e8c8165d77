"""Registers of wgmma: those that must not change while a wgmma is in flight, and those that need a
wgmma.fence first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from tilepipe.errors import RaceError
from tilepipe.machine.agents import Agent
from tilepipe.machine.faults import groups
from tilepipe.machine.machine import World
from tilepipe.machine.memory.fragments import Frag
from tilepipe.machine.rules import COPIES_BEFORE_WGMMA
from tilepipe.machine.sites import Site
from tilepipe.ptx.compiler.compiled_function import CompiledFunction
from tilepipe.ptx.compiler.uniformity import results
from tilepipe.ptx.syntax.nodes import Instruction, Register
from tilepipe.ptx.warp_protocol import Launch


class KeptOperand(NamedTuple):
    """Registers that an asynchronous instruction reads while the fragment has readers, and their
    contents when it was issued.
    """

    registers: Sequence[Register]
    contents: list[Any]
    fragment: Frag
    site: Site


class Warp(Protocol):
    """The warp whose registers they are."""

    registers: list[Any]
    code: CompiledFunction
    launch: Launch
    agent: Agent

    @property
    def world(self) -> World: ...


class WgmmaRegisters:
    """The registers of a warp that its wgmma use.

    Attributes:
        operands: registers that wgmma in flight read, and what they held at its issue.
        unfenced: registers of wgmma accessed since the last wgmma.fence, and by which instruction.
    """

    def __init__(self, warp: Warp) -> None:
        self._warp = warp
        self.operands: list[KeptOperand] = []
        self.unfenced: dict[int, int] = {}

    def keep(self, registers: Sequence[Register], fragment: Frag, site: Site) -> None:
        """An asynchronous instruction reads these registers until nothing reads the fragment."""
        contents = [self._warp.registers[r.number] for r in registers]
        self.operands.append(KeptOperand(registers, contents, fragment, site))

    def operands_must_be_unchanged(self) -> None:
        """Raises RaceError where such a register has been written (PTX ISA, wgmma.wait_group: it
        must not be, until the group has been waited for).
        """
        self.operands = [kept for kept in self.operands if kept.fragment.readers]
        for kept in reversed(self.operands):  # a wait for the last one is one for all
            for register, content in zip(kept.registers, kept.contents, strict=True):
                if self._warp.registers[register.number] is not content:
                    raise self._overwritten(register, kept)

    def _overwritten(self, register: Register, kept: KeptOperand) -> RaceError:
        """The fault of the first instruction after that of a site, in the order of the text and
        then from its start, that writes a register.
        """
        site, pending = kept.site, groups.pending_registers(self._warp.agent, kept.fragment)
        number = next(n for n, s in self._warp.code.sites.items() if s.number == site.id)
        writers = [i for i, op in enumerate(self._warp.code.operations) if register in results(op)]
        writer = min(writers, key=lambda i: (i <= number, i))
        instruction = self._warp.code.function.instructions[writer]
        at = self._warp.launch.location(instruction)
        return RaceError(
            f"{register}, a register of A, is written while a wgmma may still read it: nothing has"
            " waited for the wgmma's group.\n"
            f"  first:  {site.what}\n          at {site.loc}\n"
            f"  second: {instruction} (PTX line {instruction.line})\n          at {at}\n"
            f"  {f'{pending}. ' if pending else ''}Put wgmma.wait_group between the two, or let the"
            " second write other registers.",
            at,
        )

    def used_in_flight(
        self, register: Register, accumulator: Frag, instruction: Instruction
    ) -> RaceError:
        """The fault of an instruction that uses a register of an accumulator while a wgmma in
        flight writes it (PTX ISA, wgmma.wait_group).
        """
        agent, at = self._warp.agent, self._warp.launch.location(instruction)
        writers = [unit for unit in agent.wgmma_open if unit.acc is accumulator]
        if writers:
            remedy = (
                "The wgmma is in no committed group, and a wait covers committed groups alone: put"
                " wgmma.commit_group.sync.aligned and wgmma.wait_group.sync.aligned 0 between the"
                " two."
            )
        else:
            found = [
                [unit for by, unit in group.units if by is agent and unit.acc is accumulator]
                for group in agent.wgmma_groups
            ]
            latest = max(i for i, units in enumerate(found) if units)
            writers, after = found[latest], len(found) - 1 - latest
            later = f" ({after} later groups may be in flight)" if after else ""
            pending = groups.pending_registers(agent, accumulator)
            remedy = (
                f"{pending or 'Nothing has waited for its group'}: put"
                f" wgmma.wait_group.sync.aligned {after} between the two{later}."
            )
        return RaceError(
            f"{register}, a register of an accumulator, is used while a wgmma that writes it is in"
            " flight.\n"
            f"  first:  {writers[-1].site.what}\n          at {writers[-1].site.loc}\n"
            f"  second: {instruction} (PTX line {instruction.line})\n          at {at}\n"
            f"  {remedy}",
            at,
        )

    def must_be_fenced(self, site: Site) -> None:
        """Raises RaceError where no wgmma.fence stands between an access to a register and the
        wgmma of a site, which names it (PTX ISA, wgmma.fence; accumulators of wgmma of one shape
        need none).
        """
        found = self._warp.code.unfenced
        if not found.accesses:
            return
        number = next(n for n, s in self._warp.code.sites.items() if s.number == site.id)
        for register, what in found.names[number].items():
            by = self.unfenced.get(register)
            if by is None or found.names.get(by, {}).get(register) == what:
                continue
            copies = self._warp.code.function.instructions[by].opcode == "mov"
            if not copies or self._warp.world.asks(COPIES_BEFORE_WGMMA):
                raise self._unfenced(register, what, by, site, copies=copies)
        self.unfenced.update(found.accesses.get(number, {}))

    def _unfenced(
        self, register: int, what: str, by: int, site: Site, *, copies: bool
    ) -> RaceError:
        instruction = self._warp.code.function.instructions[by]
        of = "A" if what == "A" else "the accumulator"
        rule = f"strict rules, {COPIES_BEFORE_WGMMA.name}: " if copies else ""
        return RaceError(
            f"{rule}{self._name_of(register)}, a register of {of}, is used by an instruction,"
            " and no wgmma.fence stands between that and the wgmma, which may read an old value, or"
            " overwrite what is still to be read (PTX ISA, wgmma.fence).\n"
            f"  first:  {instruction} (PTX line {instruction.line})\n"
            f"          at {self._warp.launch.location(instruction)}\n"
            f"  second: {site.what} of {self._warp.agent}\n          at {site.loc}\n"
            "  Put wgmma.fence between the two, in all warps of the warpgroup.",
            site.loc,
        )

    def _name_of(self, register: int) -> Register:
        return self._warp.code.function.registers[register]
