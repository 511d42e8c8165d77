"""The fault of a warp whose lanes wait for each other in different places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilepipe.errors import DeadlockError
from tilepipe.machine.agents import Agent
from tilepipe.ptx.definition import where
from tilepipe.ptx.syntax.nodes import Instruction
from tilepipe.ptx.warp_protocol import Launch


@dataclass(frozen=True, slots=True)
class Wait:
    """Lanes that wait at an instruction. `lacks`: the lanes for which they wait."""

    instruction: Instruction
    lanes: int
    lacks: int

    @property
    def is_for_whole_warp(self) -> bool:
        """True of a barrier of the CTA and of other instructions that are .aligned."""
        opcode, modifiers = self.instruction.opcode, self.instruction.modifiers
        return (opcode == "bar" and "warp" not in modifiers) or "aligned" in modifiers

    @property
    def is_by_mask(self) -> bool:
        """True of an instruction that names the lanes for which it waits."""
        return self.instruction.opcode != "barrier" and not self.is_for_whole_warp

    def __str__(self) -> str:
        return f"lanes {self.lanes:#x} wait at {where(self.instruction)}: {self.instruction}"


def stuck(launch: Launch, agent: Agent, waits: Sequence[Wait]) -> DeadlockError:
    """The fault: of an instruction that names lanes which wait elsewhere, where there is one. Those
    that wait for the whole warp may only be where they are because that one keeps the others.
    """
    first = next((wait for wait in waits if wait.is_by_mask), waits[0])
    others = "; ".join(str(wait) for wait in waits if wait is not first)
    instruction = first.instruction
    said = f"{instruction} (PTX line {instruction.line}): the lanes {first.lanes:#x} of {agent}"
    if not first.is_by_mask:
        return DeadlockError(
            f"{said} execute it, and {first.lacks:#x} do not come to it:"
            f" {others or 'they took another branch'}. All lanes of a warp must execute it together"
            " (PTX ISA, bar, .aligned); on hardware this hangs, or orders nothing.\n  Put it where"
            " all threads come to it: outside the branch, or in one whose condition is equal for"
            " all of them.",
            launch.location(instruction),
        )
    form = "bar.warp.sync" if instruction.opcode == "bar" else f"{instruction.opcode}.sync"
    return DeadlockError(
        f"{said} wait at it for the lanes {first.lacks:#x}, which its mask names too:"
        f" {others or 'they took another branch'}. It waits until all lanes of its mask that have"
        f" not exited execute it (PTX ISA, {form}).\n  Put it where all of these lanes come to it,"
        " or name those alone that do: a mask made by __ballot_sync() before the branch.",
        launch.location(instruction),
    )
