"""The vocabulary in which each op class declares what the op is.

An op class states its facts once, and every reader derives its tables from them. Facts about an
operand are annotations of its field, facts about the whole op are given to `declares`:

    @declares(Facts(unit=Unit.TMA, ptx="cp.async.bulk.tensor"))
    class TmaLoad(Op):
        tensor: Annotated[TensorParam, READS_ASYNC]
        coords: tuple[Expr, ...]
        dst: Annotated[Tile, WRITES_ASYNC]
        bar: Annotated[BarrierRef, Sync.CREDIT]
        multicast: Expr | None = None

A field without an annotation decides how the op is performed (a coordinate, a count, a phase). The
memory space of an operand follows from its type: `Fragment` is registers, `Tile` shared memory,
`Tmem` and `TmemScales` tensor memory, `TensorParam` global memory, `Element` that of its base.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, Flag, IntEnum, auto


class Proxy(Enum):
    """The way in which an access reaches memory (PTX ISA, "Proxies"). Accesses through different
    proxies are ordered by a proxy fence.
    """

    GENERIC = auto()
    ASYNC = auto()


@dataclass(frozen=True, slots=True)
class Use:
    """An op's reading and writing of the contents of an operand (memory, registers, a variable, a
    cursor, the value of an expression), and the proxy through which it does so.
    """

    reads: bool
    writes: bool
    proxy: Proxy = Proxy.GENERIC


READS = Use(True, False)
WRITES = Use(False, True)
UPDATES = Use(True, True)
READS_ASYNC = Use(True, False, Proxy.ASYNC)
WRITES_ASYNC = Use(False, True, Proxy.ASYNC)
UPDATES_ASYNC = Use(True, True, Proxy.ASYNC)


BINDS = object()  # marks a local that the op defines


class Sync(Flag):
    """The effect of an op on a barrier. The annotation of a field is about the barrier in that
    field; `Facts.sync` is about a barrier that is no operand: of the warp, the CTA, the cluster or
    the grid.
    """

    INITIALISE = auto()
    INVALIDATE = auto()
    ARRIVE = auto()
    EXPECT = auto()  # announces bytes
    CREDIT = auto()  # brings announced bytes
    WAIT = auto()
    TEST = auto()  # looks without waiting
    RELEASE = auto()  # lets the next grid start
    NOTHING = 0


COUNTS = Sync.INITIALISE | Sync.INVALIDATE | Sync.ARRIVE | Sync.EXPECT | Sync.CREDIT
BRINGS = Sync.ARRIVE | Sync.EXPECT | Sync.CREDIT  # what a phase of an mbarrier needs to complete


class Scope(IntEnum):
    """Threads, from one to many. `WARPGROUP` is, in a role of single warps and inside `PerWarp`,
    the warp.
    """

    LANE = auto()
    WARP = auto()
    WARPGROUP = auto()
    CTA = auto()
    CLUSTER = auto()


class Unit(Enum):
    """A unit that performs ops asynchronously, after the threads that issued them have gone on."""

    TMA = auto()
    TENSOR_CORE = auto()  # wgmma, tcgen05.mma and tcgen05.cp
    TENSOR_MEMORY = auto()  # tcgen05.ld and tcgen05.st
    LAUNCH_CONTROL = auto()  # clusterlaunchcontrol


class Group(Enum):
    """Asynchronous ops that are committed, or waited for, together: (whose they are, their
    name).
    """

    BULK = Scope.LANE, "cp.async.bulk"
    WGMMA = Scope.WARPGROUP, "wgmma"
    TCGEN05 = Scope.LANE, "tcgen05.mma and tcgen05.cp"
    TMEM_LOADS = Scope.WARP, "tcgen05.ld"
    TMEM_STORES = Scope.WARP, "tcgen05.st"

    @property
    def scope(self) -> Scope:
        """Whose threads' ops make up one group."""
        return self.value[0]


class Order(Enum):
    """Things that a fence orders."""

    PROXIES = auto()
    REGISTERS = auto()
    TENSOR_MEMORY = auto()
    BARRIER_INITIALISATION = auto()
    MEMORY = auto()


class Resource(Enum):
    """Things that agents contend for: the order in which they draw on it changes what each gets."""

    TENSOR_MEMORY = auto()
    CLUSTERS = auto()
    COUNTERS = auto()  # locations of memory by which clusters synchronise


SHARED_BY_CLUSTERS = (Resource.CLUSTERS, Resource.COUNTERS)


class Control(Enum):
    """The way in which an op executes the blocks that it holds."""

    LOOP = auto()
    BRANCH = auto()
    LANES = auto()  # once, by some of the threads
    WARPS = auto()  # by each warp on its own


class Feature(Enum):
    """Instructions of one architecture: what they are called in messages, and the architecture."""

    WGMMA = "wgmma", "sm_90a"
    TCGEN05 = "tcgen05", "sm_100a"
    TENSOR_MEMORY = "tensor memory", "sm_100a"
    CLUSTER_LAUNCH_CONTROL = "cluster launch control", "sm_100a"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The declaration of an op, apart from its operands.

    Attributes:
        ptx: the section of the PTX ISA that defines the instruction; "" where there is none.
        scope: the threads that perform it once, and meet there: each lane alone, a warp, ...
        together: the threads that must all be active, and execute it as one.
        active_lanes: what it does, or its result, depends on which lanes of the warp are active: in
            a branch it is printed with their mask, and the checker elects each lane where it binds
            a result.
        unit: performs it asynchronously.
        issues, commits, awaits: the group that it adds to, closes, or waits for.
        sync: what it does to a barrier that is no operand.
        orders: what it is a fence for.
        takes, gives: what it draws from or returns to, in contention with other agents.
        noticed: other agents can notice when it happens, and the machine notes it in the journal.
            Of an op, `declares` derives it, unless it is given: it uses a barrier other than that
            of its warp or of the grid, or anything that agents contend for.
        by_warp: which warp of the role performs it makes a difference.
        control: how it executes its blocks.
        feature: the architecture that alone has it; None: all have it.
    """

    ptx: str = ""
    scope: Scope = Scope.LANE
    together: Scope = Scope.LANE
    active_lanes: bool = False
    unit: Unit | None = None
    issues: Group | None = None
    commits: Group | None = None
    awaits: Group | None = None
    sync: Sync = Sync.NOTHING
    orders: Order | None = None
    takes: Resource | None = None
    gives: Resource | None = None
    noticed: bool = False
    by_warp: bool = False
    control: Control | None = None
    feature: Feature | None = None


WHOLE_WARP = Facts(scope=Scope.WARP, together=Scope.WARP)
WHOLE_WARPGROUP = Facts(scope=Scope.WARPGROUP, together=Scope.WARPGROUP)
