"""Order through memory: what strong accesses and fences release and acquire.

PTX ISA, Memory Consistency Model, "Morally strong operations", "Release and Acquire Patterns",
"Release sequence", "Observation order". An access is strong if it says so (relaxed, acquire,
release, volatile, an atomic operation); it has a scope, the threads that it may synchronise with.
Two strong accesses whose scopes include each other's thread, to the same bytes, do not race.

A strong write leaves a `Value` in memory, which says what whoever observes it may learn: what its
thread knew, where the write releases or follows a fence. A read-modify-write hands on what the
value before it had (the release sequence). A strong read of a `Value` learns it, where the read
acquires, or once a fence follows.

Any strong read comes after the write that it observes, and after those before it in a chain of
read-modify-writes ("Causality Order": observation order, then base causality order): so the last
CTA that counts itself may reset the counter by an ordinary write. This orders those writes alone
(with what they overwrote, whose records are gone), and nothing else that their threads did before.

In practice a fence and a relaxed access may be of different threads that a barrier orders: each
thread of a CTA executes a fence, then bar.sync, then one thread counts the CTA by a relaxed atomic
operation; it reads the count of another CTA, then bar.sync, then each thread executes a fence. So a
fence, and a relaxed read, have a mark that travels as knowledge of an access does. The letter of
the PTX ISA wants the fence and the access by one thread, or fence.sc on both sides.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import NamedTuple

from tilepipe.machine.sites import Site

Place = tuple[int, int]  # the cluster of a CTA, and its rank in it
_MOST = 64  # values that an agent, or a launch, remembers having seen: the latest ones


class Scope(IntEnum):
    """The threads that a strong access may synchronise with."""

    CTA = 0
    CLUSTER = 1
    GPU = 2
    SYS = 3

    def reaches(self, here: Place, there: Place) -> bool:
        """True if it includes, for a thread of the CTA `here`, those of the CTA `there`."""
        return here == there or self >= Scope.GPU or (self is Scope.CLUSTER and here[0] == there[0])


class Strong(NamedTuple):
    """The properties of a strong access.

    Attributes:
        scope: of the access. nbytes: of each element; 0: not known, and taken for the same as the
            other's. acquires, releases: it does so by itself. volatile: it is of the volatile form
            of PTX, which is relaxed.
    """

    scope: Scope = Scope.GPU
    nbytes: int = 0
    acquires: bool = False
    releases: bool = False
    volatile: bool = False

    def locations(self, offset: int, nbytes: int) -> range:
        """Where the elements of an access of `nbytes` at an offset begin: each is a location."""
        return range(offset, offset + nbytes, self.nbytes or nbytes)


RELAXED = Strong()


def morally_strong(a: Strong | None, here: Place, b: Strong | None, there: Place) -> bool:
    """True if two accesses to common bytes by different threads do not race. `here`, `there`: the
    CTAs of the threads.
    """
    if a is None or b is None:
        return False
    same = a.nbytes == b.nbytes or not a.nbytes or not b.nbytes
    return same and a.scope.reaches(here, there) and b.scope.reaches(there, here)


Thread = tuple[Place, int, int]  # a CTA, the number of an agent, a lane as a mask
Releases = dict[Thread, dict[Scope, int]]


@dataclass(eq=False, slots=True)
class Value:
    """A value that a strong write has left in memory.

    Attributes:
        site, place, who: of the write. strong: how strong it is. name: of the location.
        parts: what is released, by the scope and the CTA of the release. releasing: the latest
            write that released it, and who wrote.
        all: what is known to the threads that wrote it, and the values before it, released or not.
        shared: it is in shared memory.
        chain: the write, and those that it follows in a chain of read-modify-writes.
        thread: the agent, and the lane as a mask, that wrote it. own: what each thread has released
            to the location, by scope; one dictionary for all values of the location.
    """

    site: Site
    place: Place
    who: str
    strong: Strong
    name: str
    parts: dict[tuple[Scope, Place], int]
    all: int
    shared: bool
    thread: tuple[int, int] = (0, 0)
    own: Releases = field(default_factory=dict)
    chain: int = 0
    releasing: dict[tuple[Scope, Place], tuple[Site, str]] = field(default_factory=dict)

    def meets(self, here: Place, strong: Strong) -> bool:
        """True if the scopes of the write, and of a strong access by a thread of the CTA `here`,
        include each other's thread.
        """
        return strong.scope.reaches(here, self.place) and self.strong.scope.reaches(
            self.place, here
        )

    def learned(self, here: Place, scope: Scope) -> int:
        """The knowledge that a thread of the CTA `here` gains by an acquire with this scope."""
        found = 0
        for (released, place), bits in self.parts.items():
            if released.reaches(place, here) and scope.reaches(here, place):
                found |= bits
        return found

    def add(self, scope: Scope, place: Place, bits: int) -> None:
        """A release with this scope, by a thread of the CTA `place`."""
        self.parts[scope, place] = self.parts.get((scope, place), 0) | bits
        self.releasing[scope, place] = self.site, self.who

    def release(self, scope: Scope, bits: int) -> None:
        """A release with this scope by the thread that writes it."""
        self.add(scope, self.place, bits)
        mine = self.own.setdefault((self.place, *self.thread), {})
        mine[scope] = mine.get(scope, 0) | bits

    def forget(self, dead: int) -> None:
        self.all &= ~dead
        self.chain &= ~dead
        for key in self.parts:
            self.parts[key] &= ~dead
        for mine in self.own.values():
            for scope in mine:
                mine[scope] &= ~dead


@dataclass(eq=False, slots=True)
class Seen:
    """A strong read of a value that has released something, or could have.

    Attributes:
        uid: of the agent that has read it. mask: its threads that have.
        strong: how strong the read is. fence: the widest fence since.
        mark: a bit that those know who come after the read.
    """

    uid: int
    mask: int
    value: Value
    site: Site
    strong: Strong
    place: Place
    fence: Scope | None = None
    mark: int = 0


@dataclass(eq=False, slots=True)
class Look:
    """The latest strong read of an agent at a site, for messages.

    Attributes:
        mask: its threads that read. value: what a strong write had left there; None: nothing.
        element: the element of a tensor that had no such value, by flat index; -1: it had, or is
            none. name, held: of that element, and what was found there. events: how many accesses
            to each tensor there had been.
    """

    mask: int
    site: Site
    strong: Strong
    value: Value | None
    element: int = -1
    name: str = ""
    held: str = ""
    events: tuple[int, ...] = ()


@dataclass(eq=False, slots=True)
class Fence:
    """The knowledge that a fence has published to the strong writes after it.

    Attributes:
        uid: of its agent. mask: the threads that have executed it.
        restricted: to shared memory.
        bits: what these threads knew. mark: a bit that those know who come after the fence.
    """

    uid: int
    mask: int
    scope: Scope
    restricted: bool
    bits: int
    mark: int

    def like(self, other: Fence) -> bool:
        """True if both are fences of the same kind by the same threads."""
        return (self.uid, self.mask, self.scope, self.restricted) == (
            other.uid, other.mask, other.scope, other.restricted,
        )  # fmt: skip


@dataclass(eq=False, slots=True)
class Fences:
    """The fences of a cluster that still publish something, oldest first."""

    made: list[Fence] = field(default_factory=list)

    def forget(self, dead: int) -> None:
        for fence in self.made:
            fence.bits &= ~dead


class Recent:
    """The latest values that threads have seen, for fences to come and for messages.

    Attributes:
        sums: whether earlier ones stay as sums, from which a fence learns the same.
        gone: the marks of those that are not among them any more.
        looks: the latest look of each agent at each site, the latest last.
    """

    __slots__ = ("gone", "looks", "seen", "sums")

    def __init__(self, sums: bool = False) -> None:
        self.seen: list[Seen] = []
        self.sums = sums
        self.gone = 0
        self.looks: dict[tuple[Place, int, int], Look] = {}

    def looked(self, place: Place, uid: int, look: Look) -> None:
        """Remembers a look, in the place of the one before it."""
        key = place, uid, look.site.id
        self.looks.pop(key, None)
        self.looks[key] = look

    def add(self, new: Seen) -> Seen:
        """Remembers it; the same read again only adds its threads."""
        for old in reversed(self.seen):
            if old.value is new.value and old.site is new.site and old.uid == new.uid:
                old.mask |= new.mask
                return old
        if len(self.seen) >= _MOST:
            early = self.seen[: _MOST // 2]
            kept = _summed(early) if self.sums else []
            self.gone |= sum(old.mark for old in early) & ~sum(old.mark for old in kept)
            self.seen[: _MOST // 2] = kept
        self.seen.append(new)
        return new

    def forget(self, dead: int) -> None:
        for seen in self.seen:
            seen.mark &= ~dead
            seen.value.forget(dead)
        for look in self.looks.values():
            if look.value is not None:
                look.value.forget(dead)


def _summed(reads: list[Seen]) -> list[Seen]:
    """One read in place of those by the same threads, which teaches all that they teach. Who comes
    after the last of them comes after all: so it has the mark of that one.
    """
    sums: dict[Hashable, Seen] = {}
    for seen in reads:
        value, key = seen.value, (seen.uid, seen.mask, seen.strong, seen.place, seen.value.shared)
        before = sums.get(key)
        if before is None:
            new = replace(value, parts=dict(value.parts), own={}, chain=0)
        else:
            new = replace(before.value, all=before.value.all | value.all)
            for (scope, place), bits in value.parts.items():
                new.add(scope, place, bits)
        sums[key] = replace(seen, value=new)
    return list(sums.values())
