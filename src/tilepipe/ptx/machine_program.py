"""A kernel of PTX, and each of its instructions that makes requests, as the machine knows them."""

from __future__ import annotations

import re
from math import prod

from tilepipe.ir.facts import SHARED_BY_CLUSTERS, Group, Sync, Unit
from tilepipe.ir.location import Loc
from tilepipe.machine.actors import Role
from tilepipe.machine.program import AgentPlan, Program
from tilepipe.machine.sites import Site
from tilepipe.machine.wording import Wording
from tilepipe.ptx.compiler.compiled_function import CompiledFunction
from tilepipe.ptx.compiler.segments import RequestSite
from tilepipe.ptx.lanes import WARP
from tilepipe.ptx.limits import Extents
from tilepipe.ptx.placement import Placement
from tilepipe.ptx.syntax.nodes import Instruction
from tilepipe.ptx.wording import PTX

_NAMED_BARRIERS = 16
_FLOATS = re.compile(r"\.b?f(16|32|64)")


def machine_program(
    code: CompiledFunction,
    sites: list[Site],
    grid: Extents,
    block: Extents,
    cluster: Extents,
    placed: Placement,
    smem: int,
) -> Program:
    """The kernel as the machine runs it. `smem`: bytes of dynamic shared memory."""
    warps = -(-prod(block) // WARP)
    performs = [site.perform for site in code.sites.values()]
    takes = any(p.facts.takes in SHARED_BY_CLUSTERS for p in performs)
    watches = any(p.watches for p in performs) and prod(grid) > prod(cluster)
    role = Role("warp", warpgroups=False, alone=warps == 1, unnamed=True)
    return Program(
        prod(cluster),
        [AgentPlan(role, warp, warp, 1) for warp in range(warps)],
        sites,
        named=[(f"barrier {i}", warps * WARP) for i in range(_NAMED_BARRIERS)],
        smem_bytes=placed.smem_bytes,
        addressed=True,
        shared_names=placed.shared_names,
        words=Wording(PTX | {"smem=": f" Of these {smem:,} are dynamic: bind(smem=)."}),
        tensor_memory=any(s.instruction.opcode == "tcgen05" for s in code.sites.values()),
        hands_on=any(p.facts.unit is Unit.LAUNCH_CONTROL for p in performs),
        commits=any(p.facts.commits is Group.TCGEN05 for p in performs),
        shares_work=watches or takes,
        orders_clusters=watches or (takes and any(p.acquires for p in performs)),
        waits_itself=any(s.instruction.name == "griddepcontrol.wait" for s in code.sites.values()),
        carries_poison=True,
        pairs=any("cta_group::2" in s.instruction.modifiers for s in code.sites.values()),
    )


def site_of(site: RequestSite, loc: Loc) -> Site:
    """An instruction that makes requests. `loc`: where it comes from."""
    instruction, perform = site.instruction, site.perform
    what = str(instruction)
    if instruction.position is not None:  # else the line of the location is that of the text
        what += f" (PTX line {instruction.line})"
    tests = perform.waits is not None and not site.spins
    return Site(
        site.number, loc, instruction.name, what, "warp",
        perform.facts, Sync.TEST if tests else perform.sync, relaxed=perform.relaxed,
        **{
            "parity": True,
            "adds": _added(instruction),
            "releases": _releases(instruction),
            **dict(perform.site),
        },
    )  # fmt: skip


def _added(instruction: Instruction) -> str:
    """What an atomic operation or a reduction adds to memory (`Site.adds`)."""
    words = instruction.modifiers
    if "add" not in words or not (instruction.opcode in ("atom", "red") or "reduce" in words):
        return ""
    return "floats" if _FLOATS.search(instruction.name) else "integers"


def _releases(instruction: Instruction) -> bool:
    """True if it is an atomic operation that writes, whatever it finds, and releases by itself."""
    words = set(instruction.modifiers)
    atomic = instruction.opcode in ("atom", "red") and "cas" not in words
    return atomic and not words.isdisjoint({"release", "acq_rel"})
