"""The description of a launch, from its program as it was traced and placed."""

from __future__ import annotations

from collections.abc import Iterator

from tilepipe.description.description import (
    SETUP,
    Action,
    Argument,
    Barrier,
    Description,
    Does,
    Memory,
    NamedBarrier,
    Ring,
    Role,
)
from tilepipe.ir import ops, printer
from tilepipe.ir.def_use import tensor_uses, tensors
from tilepipe.ir.expressions import Const
from tilepipe.ir.facts import Order, Sync, Unit
from tilepipe.ir.memory import BarrierArray, BarrierRef, SmemBuffer
from tilepipe.ir.placement import BARRIER_BYTES
from tilepipe.ir.program import (
    Kernel,
    Launch,
    TensorArg,
    all_ops,
    barrier_of,
    blocks,
    named_barrier_of,
    walk,
)
from tilepipe.ir.ring_sides import ring_side

_CLUSTER = "cluster barrier"


def describe(launch: Launch) -> Description:
    """The description of a launch."""
    kernel, chip = launch.kernel, launch.chip
    sides = {a.name: ring_side(a.name, {x.name for x in kernel.barriers}) for a in kernel.barriers}
    every = _roles(kernel)
    acting = _Acting(kernel)
    # the set-up has a column only where it does more than to initialise barriers
    roles = [role for role in every if not role.setup or role.does or acting.setup]
    shift = len(every) - len(roles)
    barriers = {a.name: acting.barrier(a, shift) for a in kernel.barriers}
    rings = []
    for name, side in sides.items():
        if side is not None and side[0] and side[1]:
            ring, full, empty = side[0], barriers[name], barriers[f"{side[0]}.empty"]
            buffers = acting.buffers(full.name)
            nbytes = sum(b.nbytes for b in buffers)
            rings.append(Ring(ring, full.size, full, empty, tuple(b.name for b in buffers), nbytes))
    of_rings = {x.name for ring in rings for x in (ring.full, ring.empty)}
    return Description(
        kernel.name, kernel.loc.short, kernel.arch, chip.name, launch.grid, kernel.cluster,
        kernel.threads, kernel.smem_bytes, chip.smem_per_cta,
        sum(op.columns for op in all_ops(kernel) if isinstance(op, ops.TmemAlloc)),
        tuple(roles), tuple(rings),
        tuple(b for name, b in barriers.items() if name not in of_rings),
        tuple(acting.named(shift)), tuple(_memory(kernel, chip.smem_per_cta)),
        tuple(_arguments(launch)),
    )  # fmt: skip


def _roles(kernel: Kernel) -> list[Role]:
    """The set-up, then the roles by their warps."""
    setup = Role(
        SETUP, True, 0, kernel.warps, kernel.warps // 4, None, _does(kernel.setup), kernel.loc.short
    )
    return [
        setup,
        *(
            Role(
                r.name, False, r.first_warp, r.warps, r.agents if r.is_warpgroup else 0,
                r.registers, _does(r.body), r.loc.short,
            )
            for r in sorted(kernel.roles, key=lambda r: r.first_warp)
        ),
    ]  # fmt: skip


def _does(block: ops.Block) -> tuple[str, ...]:
    """Copies and accesses with their tensors, MMAs with their shapes; each kind once."""
    found: dict[str, dict[str, None]] = {}
    for op in walk(block):
        of = found.setdefault(op.name, {}) if _is_work(op) else {}
        of.update(dict.fromkeys(tensor.name for tensor, _ in tensors(op)))
        if isinstance(op, ops.Wgmma | ops.Tcgen05Mma):
            of[f"{op.acc.rows}×{op.acc.cols}×{op.b.cols}"] = None
    return tuple(" ".join([name, ", ".join(of)]).rstrip() for name, of in found.items())


def _is_work(op: ops.Op) -> bool:
    """It moves data of global memory, or is one that a unit performs."""
    unit = op.facts.unit is not None and op.facts.commits is None
    return unit or next(tensors(op), None) is not None


class _Acting:
    """The uses of each barrier by each role."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        roles = sorted(kernel.roles, key=lambda r: r.first_warp)
        number = {None: 0} | {role: i for i, role in enumerate(roles, 1)}
        self._ops: list[tuple[int, ops.Op]] = [
            (number[role], op)
            for role, block in sorted(blocks(kernel), key=lambda x: number[x[0]])
            for op in walk(block)
        ]

    @property
    def setup(self) -> bool:
        """The set-up brings something to a barrier, or waits for one."""
        return not self._kernel.roles or any(
            number == 0 and _verb(op) and not isinstance(op, ops.SetupBarrier)
            for number, op in self._ops
        )

    def barrier(self, array: BarrierArray, shift: int) -> Barrier:
        """An array of mbarriers; `shift`: of the numbers of roles."""
        mine = [(n, op) for n, op in self._ops if _array(op) is array]
        announced = [op.nbytes for _, op in mine if isinstance(op, ops.MbarExpect)]
        nbytes = dict.fromkeys(
            f"{x.value:,}" if isinstance(x, Const) else printer.expr(x) for x in announced
        )
        sources = dict.fromkeys(t.name for _, op in mine for t, _ in tensors(op))
        return Barrier(
            array.name, array.size, array.offset, array.count, tuple(nbytes), tuple(sources),
            tuple(_actions(mine, shift)),
        )  # fmt: skip

    def named(self, shift: int) -> Iterator[NamedBarrier]:
        """The hardware barriers, and that of the cluster where roles use it."""
        for bar in self._kernel.named_barriers:
            mine = [(n, op) for n, op in self._ops if named_barrier_of(op) is bar]
            actions = tuple(_actions(mine, shift))
            yield NamedBarrier(bar.name, printer.ids(bar), bar.threads, actions)
        mine = [x for x in self._ops if isinstance(x[1], ops.ClusterArrive | ops.ClusterWait)]
        if mine:
            threads = self._kernel.threads * self._kernel.cluster_size
            yield NamedBarrier(_CLUSTER, "", threads, tuple(_actions(mine, shift)))

    def buffers(self, full: str) -> list[SmemBuffer]:
        """What asynchronous units fill and report to an array of mbarriers."""
        return list(
            dict.fromkeys(
                op.dst.buffer.own
                for _, op in self._ops
                if isinstance(op, ops.TmaLoad | ops.ClcTryCancel) and op.bar.array.name == full
            )
        )


def _array(op: ops.Op) -> BarrierArray | None:
    ref = barrier_of(op)
    return None if ref is None else ref.array


def _actions(mine: list[tuple[int, ops.Op]], shift: int) -> Iterator[Action]:
    found: dict[tuple[int, Does, bool], dict[str, None]] = {}
    for number, op in mine:
        for verb in _verb(op):
            found.setdefault((number - shift, verb, _far(op)), {})[op.loc.short] = None
    return (Action(*key, tuple(lines)) for key, lines in found.items())


def _verb(op: ops.Op) -> tuple[Does, ...]:
    sync, found = op.sync, list[Does]()
    if op.facts.orders is Order.BARRIER_INITIALISATION:
        return ()
    if not sync and named_barrier_of(op) is not None:  # inside a reduction
        return ("arrives", "waits")
    if Sync.EXPECT in sync:
        found.append("expects")
    elif Sync.CREDIT in sync:
        found.append("copies")
    elif Sync.ARRIVE in sync:
        found.append("arrives" if op.facts.unit is not Unit.TENSOR_CORE else "commits")
    if Sync.WAIT in sync:
        found.append("waits")
    if Sync.TEST in sync:
        found.append("tests")
    return tuple(found)


def _far(op: ops.Op) -> bool:
    bar = getattr(op, "bar", None)
    elsewhere = isinstance(bar, BarrierRef) and bar.cta is not None
    return elsewhere or any(
        getattr(op, name, None) not in (None, False) for name in ("multicast", "mask")
    )


def _memory(kernel: Kernel, limit: int) -> Iterator[Memory]:
    found = [
        Memory(
            b.name,
            "tiles",
            b.offset,
            b.nbytes,
            printer.buffer(b),
            tuple(other.name for other in kernel.buffers if other.shares is b),
        )
        for b in kernel.buffers
        if b.shares is None
    ]
    found += [
        Memory(
            a.name,
            "barriers",
            a.offset,
            a.size * BARRIER_BYTES,
            f"{a.size} mbarrier{'' if a.size == 1 else 's'}",
        )
        for a in kernel.barriers
    ]
    yield from sorted(found, key=lambda x: x.offset)
    if limit > kernel.smem_bytes:
        yield Memory("", "free", kernel.smem_bytes, limit - kernel.smem_bytes, "")


def _arguments(launch: Launch) -> Iterator[Argument]:
    written, read = tensor_uses(launch.kernel)
    for p in launch.kernel.params:
        arg = launch.args[p.name]
        value = "×".join(map(str, arg.shape)) if isinstance(arg, TensorArg) else str(arg)
        use = [word for word, names in (("read", read), ("written", written)) if p.name in names]
        yield Argument(p.name, printer.parameter(p), value, " and ".join(use))
