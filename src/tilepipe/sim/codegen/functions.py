"""The generator function of one role, op by op, as Python source."""

from __future__ import annotations

from tilepipe.errors import SimFault
from tilepipe.ir import ops
from tilepipe.ir.facts import Feature, Scope
from tilepipe.ir.location import Loc
from tilepipe.ir.program import Role
from tilepipe.machine.happens_before.knowledge import WARP_MASK
from tilepipe.sim import runtime as support
from tilepipe.sim.codegen.definition import DEFINITIONS
from tilepipe.sim.codegen.expressions import Expressions
from tilepipe.sim.codegen.names import Names
from tilepipe.sim.codegen.operands import Operands, Tables

# their ops need to know how many CTAs share a tensor core
_TENSOR_MEMORY = (Feature.TCGEN05, Feature.TENSOR_MEMORY)


class Function(Operands):
    """The source of one generator function."""

    def __init__(self, module: Tables, role: Role | None) -> None:
        self.module = module
        self.role = role
        self.group = role is not None and role.is_warpgroup
        self.threads = 128 if self.group else 32
        names = Names(set(module.namespace))
        self.name = module_name = names.fresh(role.name if role is not None else "idle")
        module.namespace[module_name] = None
        self.names = names
        self.x = Expressions(self.threads, names, module.constant, lambda: self.mask_text)
        self.mask: int | str = (1 << self.threads) - 1
        self.body: list[tuple[int, str, Loc | None]] = []
        self.depth = 1
        self.emit("# set-up")
        self.block(module.kernel.setup)
        self.x.in_setup = False
        if role is not None:
            self.emit(f"# role {role.name}")
            self.block(role.body)

    def lines(self) -> list[tuple[str, Loc | None]]:
        """The function, line by line, each with the kernel's line it comes from."""
        head = [f"def {self.name}(m, ag):", *(f"    {line}" for line in self.x.prologue)]
        out: list[tuple[str, Loc | None]] = [(line, None) for line in head]
        for depth, text, loc in self.body:
            tail = f"  # {loc.short}" if loc is not None else ""
            out.append(("    " * depth + text + tail, loc))
        if not any("yield" in text for _, text, _ in self.body):
            out.append(("    yield from ()", None))
        return out

    def block(self, block: ops.Block) -> None:
        for op in block.ops:
            self.x.site = self.module.site(op)
            self.op(op)

    def nested(
        self, head: str, op: ops.Op, block: ops.Block, mask: int | str | None = None
    ) -> None:
        """A block one level deeper, possibly under another mask."""
        outer = self.mask
        self.emit(head, op)
        self.depth += 1
        if mask is not None:
            self.mask = mask
        before = len(self.body)
        self.block(block)
        if all(text.startswith("#") for _, text, _ in self.body[before:]):
            self.emit("pass")
        self.depth -= 1
        self.mask = outer

    def inline(self, comment: str, block: ops.Block, mask: int | str) -> None:
        """A block under another mask, at the same level."""
        outer, self.mask = self.mask, mask
        self.emit(comment)
        self.block(block)
        self.mask = outer

    def op(self, op: ops.Op) -> None:
        """The source of one op."""
        definition = DEFINITIONS.get(type(op))
        if definition is None:
            raise SimFault(f"the simulator has no definition of {type(op).__name__}", op.loc)
        facts = op.facts
        by_pair = facts.feature in _TENSOR_MEMORY and (facts.unit or facts.takes)
        if by_pair and not self.module.kernel.cta_group:
            raise SimFault(f"{type(op).__name__} in a kernel whose cta_group is not set", op.loc)
        self.aligned(op)
        definition(self, op)

    def aligned(self, op: ops.Op) -> None:
        """A check before an op that a warpgroup, a warp of `PerWarp`, or each warp executes as
        one.
        """
        together = op.facts.together is Scope.WARPGROUP
        span = (1 << self.threads) - 1 if self.x.warp is None else WARP_MASK << self.x.base
        if together and self.mask != span:
            unit = "warpgroup" if self.group and self.x.warp is None else "warp"
            self.emit(f"all_lanes(ag, {self.x.site}, {self.mask_text}, {span:#x}, {unit!r})", op)
        elif op.facts.together is Scope.WARP and (
            isinstance(self.mask, str) or support.part_of_a_warp(self.mask)
        ):
            self.emit(f"whole_warps(ag, {self.x.site}, {self.mask_text})", op)
