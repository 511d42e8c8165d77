"""Happens-before on bit sets: which accesses each agent, barrier and unit knows of.

The clocks of a race detector (Lamport 1978; vector clocks: Fidge 1988, Mattern 1989; DJIT+ and
FastTrack use them for races) answer one question: does this earlier access happen before what this
thread does now? A vector clock answers it for all accesses that a thread has ever made, with a
number for each thread. Here the threads are lanes, hundreds of them, asynchronous units besides,
and program order does not make what one lane knows known to the next; but few accesses are live at
a time, because one that a later access covers is retired. So each live access is one bit of its
cluster's `AccessBits`, and a clock is a set of bits, a Python int: the accesses that happen before
whatever its holder (an agent, a phase of an mbarrier, an asynchronous unit) does next. To release
or acquire is `|`, of any number of accesses at once; an access is a race exactly when the bit of a
conflicting live access is missing from the accessor's int. Retired bits are handed out again.

Example. A producer's copy W fills a tile and completes phase 0 of `full`; the consumer waits,
reads (R), and arrives on `empty`; the producer waits for that and copies again (W').

    step                         producer   full     consumer   empty
    W issued: bit 1              -          -        -          -
    W lands, phase 0 completes   -          1        -          -
    consumer waits on full       -          1        1          -      1 is known: no race
    R: bit 2                     -          1        1|2        -
    consumer arrives on empty    -          1        1|2        1|2
    producer waits on empty      1|2        1        1|2        1|2
    W' conflicts with R (and W)                                        2 is known: no race;
                                                                       W' covers both, whose
                                                                       bits are retired

Without the wait on `empty` the producer's set lacks bit 2 when W' is issued: a race with R.

An access through the generic proxy has two further bits, set by fence.proxy.async: `fenced`, by the
threads that made it, and `reader_fenced`, by a thread that had learnt of it. They travel with the
rest of the knowledge.

A bit stands for a whole access. Where lanes of a warp hand on, or learn from each other, their
parts of an access that other lanes made with them, a `Share` of it has a bit of its own.

Within an agent, threads do not know the same things: `knowledge.Knowledge` keeps what all its
threads know, what all lanes of one warp know, and what only some lanes know until the warp
converges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from tilepipe.machine.actors import Actor
from tilepipe.machine.happens_before.knowledge import Fenceable, Knowledge
from tilepipe.machine.happens_before.memory_order import Strong
from tilepipe.machine.memory.byte_sets import Bytes, ByteSet, LaneBytes
from tilepipe.machine.sites import Site

COMPACT_AT = 64  # retired bits that are worth a pass over the holders

Rect = tuple[int, int, int, int]  # rows [r0, r1), columns [c0, c1) of one tile


class Holder(Protocol):
    """Anything that holds knowledge."""

    def forget(self, dead: int) -> None: ...


class Access:
    """One access to a rectangle (or to single elements) of one tile.

    Attributes:
        bit, fenced, reader_fenced: its bits; the last two are 0 where no proxy fence is ever
        needed. In tensor memory, `fenced` is set by tcgen05.fence::before_thread_sync, or is `bit`
        where a commit does as much.
        points: element -> lanes, for an ordinary load or store of a typed tile; the bytes, for an
            access by address; None for all of `rect`.
        home: the rank of the CTA whose memory it is to, where it has fence bits.
        release_bit: a bit that goes with `bit` everywhere but through a tcgen05.commit; 0 in
            kernels without one, and of asynchronous accesses.
        after: of a read of a response, the accesses that it is ordered after: those it read from;
            None for other accesses.
        by_proxy: it is of the async proxy, as all asynchronous ones but cp.async and st.async.
        strong: how strong it is: an atomic operation, or a relaxed, acquiring, releasing or
            volatile access; None: it is weak.
        mask: threads of the agent that made it.
        stored: of an ordinary store by address, what each lane of `points` stored: (lanes, bytes);
            None for other accesses.
        superseded: a later store to some of its bytes stored other values there, and some threads
            know of neither (`one_value.keeps`).
    """

    __slots__ = (
        "after",
        "agent",
        "asynchronous",
        "bit",
        "by_proxy",
        "fenced",
        "home",
        "is_write",
        "mask",
        "points",
        "reader_fenced",
        "rect",
        "release_bit",
        "site",
        "stored",
        "strong",
        "superseded",
    )

    def __init__(
        self,
        agent: Actor,
        site: Site,
        mask: int,
        rect: Rect,
        is_write: bool,
        asynchronous: bool,
        bit: int,
        points: dict[int, int] | ByteSet | None = None,
    ) -> None:
        self.agent = agent
        self.site = site
        self.mask = mask
        self.rect = rect
        self.is_write = is_write
        self.asynchronous = asynchronous
        self.bit = bit
        self.points = points
        self.fenced = 0
        self.reader_fenced = 0
        self.home = 0
        self.release_bit = 0
        self.after: int | None = None
        self.strong: Strong | None = None
        self.stored: Bytes | None = None
        self.superseded = False
        self.by_proxy = asynchronous

    @property
    def elements(self) -> dict[int, int] | None:
        """`points` of an access to a typed tile."""
        assert not isinstance(self.points, ByteSet)
        return self.points

    @property
    def key(self) -> tuple[object, ...]:
        """The access as equal in all executions, without the agent that made it."""
        points: tuple[object, ...] = ()
        if isinstance(self.points, LaneBytes):  # whether two of them race depends on the lanes
            points = self.points.lanes
        elif isinstance(self.points, ByteSet):
            points = (self.points.mask,)
        elif self.points is not None:
            points = tuple(sorted(self.points.items()))
        gone = b""
        if self.superseded and self.stored is not None:  # memory no longer holds what it stored
            gone = self.stored.tobytes()
        return self.site.id, self.mask, self.rect, self.is_write, self.asynchronous, points, gone


@dataclass(eq=False, slots=True)
class Share:
    """The parts that some lanes have of accesses which other lanes of the warp made with them: what
    a thread learns that is ordered after these lanes alone.

    Attributes:
        owner: whose threads made them. bits: of the accesses. lanes: whose parts. bit: of the
            share.
    """

    owner: Knowledge
    bits: int
    lanes: int
    bit: int


GLOBAL = -1  # the home of an access to global memory


class AccessBits:
    """The bits of one cluster: hands them out, and takes them back once no holder mentions them.

    A bit that holders have forgotten rests until they are gone through again. An op may compact
    halfway, with what its threads know in hand, and give that to a holder afterwards: a bit of it
    that meant something new by then would be knowledge that no thread has.

    Attributes:
        dead: bits of accesses that matter no longer. resting: those that holders have forgotten
            once.
        release_bits: the live bits that no commit hands on (`Access.release_bit`).
        shares: of live accesses.
        look_at: how many bits there are when it is worth counting the dead ones.
    """

    __slots__ = (
        "_shares_by_parts", "dead", "fenceable", "free", "holders", "look_at", "release_bits",
        "resting", "shares", "size",
    )  # fmt: skip

    def __init__(self, holders: Callable[[], Iterable[Holder]]) -> None:
        self.holders = holders
        self.size = 0
        self.look_at = COMPACT_AT
        self.free: list[int] = []
        self.dead = self.resting = self.release_bits = 0
        self.fenceable: list[Fenceable] = []  # live accesses that a proxy fence matters to
        self.shares: list[Share] = []
        self._shares_by_parts: dict[tuple[Knowledge, int, int], Share] = {}

    def new_bit(self) -> int:
        """A bit that is in no set yet."""
        if self.free:
            return self.free.pop()
        if self.size >= self.look_at:
            enough, dead = max(COMPACT_AT, self.size >> 3), self.dead.bit_count()
            if dead >= enough:
                self._compact()
                if self.free:
                    return self.free.pop()
            else:
                self.look_at = self.size + enough - dead
        self.size += 1
        return 1 << (self.size - 1)

    def share(self, owner: Knowledge, bits: int, lanes: int) -> int:
        """The bit of the parts that `lanes` have of accesses by more lanes of `owner`; 0 where none
        of these matters any longer.
        """
        bits &= ~(self.dead | self.resting)
        if not bits:
            return 0
        found = self._shares_by_parts.get((owner, bits, lanes))
        if found is None:
            found = Share(owner, bits, lanes, self.new_bit())  # which may compact
            self.shares.append(found)
            self._shares_by_parts[owner, bits, lanes] = found
        return found.bit

    def lanes_known(self, old: Fenceable, known: int) -> int:
        """The lanes whose parts of an access are among what is known, by shares."""
        lanes = 0
        for share in self.shares:
            if share.bit & known and share.bits & old.bit and share.owner is old.agent:
                lanes |= share.lanes
        return lanes

    def add_release_bit(self, access: Fenceable) -> None:
        """Gives an ordinary access the bit that no commit hands on."""
        access.release_bit = self.new_bit()
        self.release_bits |= access.release_bit

    def add_fences(self, access: Fenceable, home: int) -> None:
        """Gives an access its two fence bits. `home`: as in `Fenceable`."""
        access.home = home
        access.fenced = self.new_bit()
        access.reader_fenced = self.new_bit()
        self.fenceable.append(access)

    def retire(self, access: Fenceable) -> None:
        """The access no longer matters: a later one that knows of it covers it."""
        self.dead |= access.bit
        if access.release_bit:
            self.dead |= access.release_bit
            self.release_bits &= ~access.release_bit
        if access.fenced:
            self.dead |= access.fenced | access.reader_fenced
            if access.reader_fenced:
                self.fenceable.remove(access)

    def retire_bit(self, bit: int) -> None:
        self.dead |= bit

    def _compact(self) -> None:
        gone = self.dead | self.resting
        for holder in self.holders():
            holder.forget(gone)
        rested, self.resting, self.dead = self.resting, self.dead, 0
        for share in self.shares:
            share.bits &= ~gone
            if not share.bits:
                self.dead |= share.bit
        self.shares = [share for share in self.shares if share.bits]
        # where two have become the same, the older one
        self._shares_by_parts = {
            (share.owner, share.bits, share.lanes): share for share in reversed(self.shares)
        }
        while rested:
            lowest = rested & -rested
            self.free.append(lowest)
            rested ^= lowest
        self.free.reverse()
