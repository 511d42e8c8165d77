"""The description of each op that a front end gives: all that the machine and its messages need.

The machine never sees the op itself. A front end makes one `Site` for each op, or a subclass that
also holds the op, and hands it over with every request to perform that op.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tilepipe.ir.dtypes import DType
from tilepipe.ir.facts import Facts, Group, Resource, Sync, Unit
from tilepipe.ir.hardware.tensor_memory import Matrix, Scales
from tilepipe.ir.location import Loc

SETUP = "set-up"
_PLAIN = Facts()
ANY_NAMED = "a named barrier"  # `Site.named` of an op that computes the number of its barrier
OWN = 0  # `Site.targets` of an op that stays in its own CTA


@dataclass(frozen=True, eq=False, slots=True)
class Site:
    """One op of a program. Immutable and shared by all runs, so copying a machine copies no sites.

    Attributes:
        id: index into the program's table of sites, and into an agent's counts.
        loc: the line of source, for messages.
        kind: the op's name (`tma_load`), for messages and for the counts of ops by name.
        what: the op with its object, for messages (`tma_load a -> a_tiles`).
        role: the role's name, or `SETUP`.
        facts: what the op is: what performs it, which group it joins or closes, what it contends
            for.
        sync: what it does to the mbarrier, or the named barrier, that is its operand.
        tensor: index of the tensor parameter, -1 where the op has none. writes: it writes to it.
        rows, cols, nbytes: extent of the tile that the op moves or reads, 0 where it has none.
        flops: floating-point operations of one execution.
        layout: of the fragment that the op moves to or from memory.
        relaxed: an arrive that releases nothing by itself, or a wait that does not acquire.
            near: an arrive that releases to threads of its own CTA alone, or a wait that acquires
            from them alone. unscoped: such a wait that is near because it names no scope.
        barrier: the name of the mbarrier, or of the array of mbarriers, that the op uses. named:
            that of the named barrier.
        targets: the CTAs of the cluster that the op reaches, as a mask of ranks; `OWN`: its own
            alone; None: known only when it is executed.
        multicast: a copy, or a response, for every CTA of a mask.
        parity: a wait or test that gives a parity instead of a phase number. by_parity: some wait
            on its barrier array does.
        cta_group: CTAs that a tcgen05 op works on. columns: that a tcgen05.alloc asks for, or a
            dealloc frees.
        place: the matrix in tensor memory that a tcgen05 op reads or writes; of an MMA its
            accumulator. place_a: A of an MMA, where it is in tensor memory.
        scales: the scale factors that an MMA reads, of A and of B, or that a copy writes.
        shape: of an MMA (rows, columns, dtype of B).
        adds: what it adds to memory atomically, or by a reduction: "integers", whose sum no order
            changes, or "floats"; "" where it adds nothing.
        one_place: an atomic addition by the lanes of a warp to one element that is the same for all
            of them, whose numbers the program takes for different ones.
        releases: an atomic operation that writes, whatever it finds, and releases by itself.
        by_each: each agent of the role performs it where one does: it stands in no branch.
    """

    id: int
    loc: Loc
    kind: str = ""
    what: str = ""
    role: str = ""
    facts: Facts = _PLAIN
    sync: Sync = Sync.NOTHING
    tensor: int = -1
    writes: bool = False
    rows: int = 0
    cols: int = 0
    nbytes: int = 0
    flops: int = 0
    layout: str = "wgmma"
    relaxed: bool = False
    near: bool = False
    unscoped: bool = False
    barrier: str = ""
    named: str = ""
    targets: int | None = OWN
    multicast: bool = False
    parity: bool = False
    by_parity: bool = False
    cta_group: int = 1
    columns: int = 0
    place: Matrix | None = None
    place_a: Matrix | None = None
    scales: tuple[Scales, ...] = ()
    shape: tuple[int, int, DType] | None = None
    adds: Literal["", "integers", "floats"] = ""
    one_place: bool = False
    releases: bool = False
    by_each: bool = False

    @property
    def crosses(self) -> bool:
        """True if the op reaches other CTAs."""
        return self.targets != OWN or self.multicast

    @property
    def fills(self) -> bool:
        """True if it is a TMA copy into shared memory, which credits its bytes to an mbarrier."""
        return self.facts.unit is Unit.TMA and Sync.CREDIT in self.sync

    @property
    def waits(self) -> bool:
        """True if it waits for others, or tests whether it would have to. Where the threads of a
        warp, or all at the end of the set-up, meet, none waits for the work of another role.
        """
        return (
            bool(self.sync & (Sync.WAIT | Sync.TEST))
            or self.facts.sync is Sync.WAIT
            or self.facts.awaits is not None
            or self.facts.takes is Resource.TENSOR_MEMORY
        )

    @property
    def stores(self) -> bool:
        """True if it is a TMA copy out of shared memory."""
        return self.facts.unit is Unit.TMA and self.facts.issues is Group.BULK

    @property
    def frees(self) -> bool:
        """True if it is a tcgen05.dealloc."""
        return self.columns > 0 and self.facts.gives is Resource.TENSOR_MEMORY

    @property
    def is_arrival(self) -> bool:
        """True if it arrives on an mbarrier without announcing bytes: an arrive or a commit."""
        return bool(self.barrier) and self.sync is Sync.ARRIVE

    def located(self, buffer: str, index: int, rect: tuple[int, int, int, int] | None) -> str:
        """`what`, with the place of its tile of a buffer in numbers: the tile's number, and, where
        all of one rectangle is meant, that rectangle.
        """
        return self.what

    def __deepcopy__(self, memo: dict[int, object]) -> Site:
        return self
