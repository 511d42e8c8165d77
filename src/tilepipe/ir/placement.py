"""Placement, the last step of a trace: roles get their warps and allocations their addresses, and
the chip's limits are checked.
"""

from __future__ import annotations

from tilepipe.errors import LimitError
from tilepipe.ir.chip import H200, THREADS_PER_SM, Chip
from tilepipe.ir.memory import NamedBarrier
from tilepipe.ir.program import (
    WARP,
    WARPGROUP,
    Kernel,
    Role,
    architecture,
    named_barrier_of,
    walk,
)

BARRIER_BYTES = 8
SETMAXNREG = range(24, 257, 8)  # PTX ISA, setmaxnreg: 24..256 in steps of 8
REGISTER_STEP = 8  # registers of a thread are allocated in steps of 8: 256 for each warp
MOST_REGISTERS = 256  # of a thread; ptxas reports 255, since one of them reads as zero


def place(kernel: Kernel, chip: Chip = H200) -> None:
    """Assigns `first_warp`, `offset`s, named-barrier ids, `warps` and `smem_bytes`.

    Raises:
        LimitError: a limit of the chip is exceeded; the message has the arithmetic.
    """
    kernel.arch = architecture(kernel)
    _place_roles(kernel, chip)
    _place_memory(kernel, chip)
    _number_named_barriers(kernel, chip)


def _place_roles(kernel: Kernel, chip: Chip) -> None:
    """Places warpgroup roles first, each from a multiple of 4, then the other roles, packed and
    padded to a whole warpgroup. The padding warps execute their warpgroup's setmaxnreg and exit.
    """
    warp = 0
    for role in sorted(kernel.roles, key=lambda r: not r.is_warpgroup):
        role.first_warp = warp
        warp += role.warps
    has_registers = any(r.registers is not None for r in kernel.roles)
    needs_groups = has_registers or any(r.is_warpgroup for r in kernel.roles)
    kernel.warps = -(-warp // 4) * 4 if needs_groups else max(warp, 1)
    if kernel.threads > chip.max_threads:
        terms = " + ".join(f"{r.name} {r.threads}" for r in kernel.roles)
        padded = f", padded to {kernel.threads}" if kernel.warps != warp else ""
        raise LimitError(
            f"kernel '{kernel.name}' needs {warp * WARP} threads ({terms}){padded}; a CTA has at"
            f" most {chip.max_threads}. Use fewer warps or warpgroups.",
            kernel.loc,
        )
    if (together := kernel.ctas_per_sm * kernel.threads) > THREADS_PER_SM:
        raise LimitError(
            f"kernel '{kernel.name}': ctas_per_sm={kernel.ctas_per_sm} × {kernel.threads} threads ="
            f" {together}; an SM has room for at most {THREADS_PER_SM}. Ask for fewer CTAs.",
            kernel.loc,
        )
    _check_registers(kernel, chip)


def group_registers(kernel: Kernel) -> list[int | None]:
    """The registers that each warpgroup of the CTA requests by setmaxnreg, None where no role of it
    requests any.
    """
    groups: list[int | None] = []
    for first in range(0, kernel.warps, 4):
        roles = [r for r in kernel.roles if _overlaps(r, first)]
        groups.append(next((r.registers for r in roles if r.registers is not None), None))
    return groups


def _overlaps(role: Role, first: int) -> bool:
    return role.first_warp < first + 4 and first < role.first_warp + role.warps


def launch_registers(threads: int, chip: Chip = H200) -> int:
    """Registers that each thread is launched with in a kernel that has setmaxnreg and whose
    `__launch_bounds__` ask for so many threads of an SM: the SM's registers divided by the threads,
    rounded down to a step. ptxas reports this number, 255 for 256.
    """
    return min(chip.registers // max(threads, 1) // REGISTER_STEP * REGISTER_STEP, MOST_REGISTERS)


def broken_pool_rule(kernel: Kernel, registers: int) -> str | None:
    """Why the warpgroups cannot get the registers that they request when each thread is launched
    with `registers`; None if they can.

    setmaxnreg.inc blocks until the pool of the CTA has enough, and the pool holds the registers
    that the CTA was launched with (PTX ISA, setmaxnreg), not all of the SM.
    """
    groups = [g for g in group_registers(kernel) if g is not None]
    allocated = -(-registers // REGISTER_STEP) * REGISTER_STEP
    pool, total = kernel.threads * allocated, WARPGROUP * sum(groups)
    if total <= pool:
        return None
    return (
        f"registers: the warpgroups ask for 128 × ({' + '.join(map(str, groups))}) = {total:,}, but"
        f" a CTA of {kernel.threads} threads is launched with {allocated} a thread,"
        f" {kernel.threads} × {allocated} = {pool:,}: setmaxnreg.inc would wait for the other"
        f" {total - pool:,} for ever. Lower registers= of the roles to a sum of {pool // WARPGROUP}"
        " over the warpgroups."
    )


def _check_registers(kernel: Kernel, chip: Chip) -> None:
    for role in kernel.roles:
        if role.registers is not None and role.registers not in SETMAXNREG:
            raise LimitError(
                f"role '{role.name}' asks for {role.registers} registers; setmaxnreg takes a"
                " multiple of 8 in 24..256",
                role.loc,
            )
    for first in range(0, kernel.warps, 4):
        wanted = {
            r.name: r.registers
            for r in kernel.roles
            if _overlaps(r, first) and r.registers is not None
        }
        if len(set(wanted.values())) > 1:
            raise LimitError(
                f"roles {wanted} share the warpgroup of warps {first}..{first + 3} but ask for"
                " different register counts; setmaxnreg is per warpgroup: make them agree",
                kernel.loc,
            )
    groups = group_registers(kernel)
    if all(g is None for g in groups):
        return
    if any(g is None for g in groups):
        silent = [
            r.name
            for r in kernel.roles
            if r.registers is None and groups[r.first_warp // 4] is None
        ]
        raise LimitError(
            f"some roles of '{kernel.name}' set registers= and {silent} do not; give each warpgroup"
            " a register count",
            kernel.loc,
        )
    if broken := broken_pool_rule(
        kernel, launch_registers(kernel.threads * kernel.ctas_per_sm, chip)
    ):
        raise LimitError(broken, kernel.loc)


def _place_memory(kernel: Kernel, chip: Chip) -> None:
    """Places tiles in order of decreasing alignment, which needs no padding, then barriers."""
    offset = 0
    own = [buffer for buffer in kernel.buffers if buffer.shares is None]
    for buffer in sorted(own, key=lambda b: -b.align):
        offset = -(-offset // buffer.align) * buffer.align
        buffer.offset = offset
        offset += buffer.nbytes
    for buffer in kernel.buffers:
        if buffer.shares is not None:
            buffer.offset = buffer.shares.offset
    offset = -(-offset // BARRIER_BYTES) * BARRIER_BYTES
    for array in kernel.barriers:
        array.offset = offset
        offset += array.size * BARRIER_BYTES
    kernel.smem_bytes = offset
    if offset > chip.smem_per_cta:
        rows = [f"  {b.name}: {b.count} × {b.rows}×{b.cols} {b.dtype} = {b.nbytes:,}" for b in own]
        if number := sum(array.size for array in kernel.barriers):
            rows.append(f"  barriers: {number:,}, 8 bytes each")
        raise LimitError(
            f"shared memory: {offset:,} bytes needed, {chip.smem_per_cta:,} available to a CTA"
            f" ({offset - chip.smem_per_cta:,} too many)\n"
            + "\n".join(rows)
            + "\n  Use fewer stages or smaller tiles.",
            kernel.loc,
        )


def _number_named_barriers(kernel: Kernel, chip: Chip) -> None:
    number = 1  # 0 is __syncthreads
    for bar in kernel.named_barriers:
        bar.id = number
        number += bar.per_warpgroup
    if number > chip.named_barriers:
        raise LimitError(
            f"named barriers: {number - 1} used and one reserved, a CTA has {chip.named_barriers}\n"
            + "\n".join(f"  {_uses(kernel, bar)}" for bar in kernel.named_barriers)
            + "\n  sync_role() and sync_warpgroup() take one for each role, sync_warpgroup() and"
            " reductions across warps one for each warpgroup of it: use mbarriers, or fewer"
            " roles.",
            kernel.loc,
        )


def _uses(kernel: Kernel, bar: NamedBarrier) -> str:
    """A named barrier, and where each role first uses it."""
    used = {
        role.name: op.loc.short
        for role in kernel.roles
        for op in reversed(list(walk(role.body)))
        if named_barrier_of(op) is bar
    }
    where = ", ".join(f"role '{name}' at {loc}" for name, loc in used.items()) or "not used"
    copies = f" × {bar.per_warpgroup} warpgroups" if bar.per_warpgroup > 1 else ""
    return f"'{bar.name}'{copies}: {where}"
