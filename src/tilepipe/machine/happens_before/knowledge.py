"""The vector clock of one agent, whose threads may be ordered after different accesses
(`accesses`).

Each thread of a warp executes in program order on its own; only a convergence (syncwarp, an aligned
instruction, a barrier) orders the earlier steps of one lane before the later steps of another (PTX
ISA, Memory Consistency Model, "Release and Acquire Patterns"). So the clock has three levels: all
threads, each warp, and sets of lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from tilepipe.machine.thread_masks import WARP_MASK, warps_of


class Fenceable(Protocol):
    """An ordinary access that a proxy fence matters to. `home`: the rank of the CTA whose shared
    memory it is to, or `accesses.GLOBAL`.
    """

    mask: int
    bit: int
    fenced: int
    reader_fenced: int
    home: int
    is_write: bool
    release_bit: int

    @property
    def agent(self) -> Knowledge: ...


class Shares(Protocol):
    """The source of bits for the parts that some lanes have of accesses (`accesses.Share`)."""

    def share(self, owner: Knowledge, bits: int, lanes: int) -> int: ...


@dataclass(eq=False, slots=True)
class Pending:
    """Accesses that only the lanes of `mask`, of one warp, know; or, where `made`, that they made,
    each lane a part.
    """

    mask: int
    bits: int
    made: bool


class Knowledge:
    """The accesses that happen before the next step of each thread of one agent.

    Attributes:
        k: before the next step of every thread.
        kw: before that of every lane of warp w; None where no warp has more than `k`.
        pend: before that of some lanes only.
        split: whether `kw` or `pend` is in use; False is the fast path.
        released: a count of the points at which what is in `pend` may have been published.
        fences: how many proxy fences its threads have executed.
        shares: gives a bit to what some lanes only have of an access by several; None: such a part
            is not handed on.
    """

    __slots__ = ("fences", "full", "k", "kw", "pend", "released", "shares", "split", "warps")

    def __init__(self, warps: int) -> None:
        self.warps = warps
        self.full = (1 << (32 * warps)) - 1
        self.k = 0
        self.kw: list[int] | None = None
        self.pend: list[Pending] = []
        self.split = False
        self.released = 0
        self.fences = 0
        self.shares: Shares | None = None

    def _warp_add(self, warp: int, bits: int) -> None:
        if self.warps == 1:
            self.k |= bits
            return
        if self.kw is None:
            self.kw = [0] * self.warps
        self.kw[warp] |= bits
        self.split = True

    def _pend_add(self, mask: int, bits: int, made: bool) -> None:
        for entry in self.pend:
            if entry.mask == mask and entry.made == made:
                entry.bits |= bits
                return
        self.pend.append(Pending(mask, bits, made))
        self.split = True

    def acquire(self, mask: int, bits: int) -> None:
        """Every thread of `mask` learns `bits`."""
        if mask == self.full:
            self.k |= bits
            return
        for w, lanes in warps_of(mask):
            if lanes == WARP_MASK << (32 * w):
                self._warp_add(w, bits)
            else:
                self._pend_add(lanes, bits, made=False)

    def made(self, mask: int, bits: int, converged: bool = False) -> None:
        """The lanes of `mask` (of one warp) made accesses; `converged`: by an aligned op, so the
        whole warp knows.
        """
        warp = (mask.bit_length() - 1) // 32
        if converged and mask == WARP_MASK << (32 * warp):
            self._warp_add(warp, bits)
        else:
            self._pend_add(mask, bits, made=mask.bit_count() > 1)

    def publish(self, mask: int, among: int = -1) -> int:
        """The knowledge that an arrive by the threads of `mask` releases; `among`: of these
        accesses alone.
        """
        if not self.split:
            return self.k & among
        self.released += 1
        out = self.k
        for w, _ in warps_of(mask):
            if self.kw is not None:
                out |= self.kw[w]
        out &= among
        for entry in self.pend:
            out |= self._of_lanes(entry, mask, among)
        return out

    def _of_lanes(self, entry: Pending, lanes: int, among: int = -1) -> int:
        """The part of an entry that lanes know or made: its bits, or, of accesses that other lanes
        made as well, the bit of their share.
        """
        mine, bits = entry.mask & lanes, entry.bits & among
        if not mine or not bits:
            return 0
        if not entry.made or mine == entry.mask:
            return bits
        return 0 if self.shares is None else self.shares.share(self, bits, mine)

    def known(self, mask: int) -> int:
        """The knowledge of each thread of `mask`."""
        if not self.split:
            return self.k
        common = -1
        for w, lanes in warps_of(mask):
            mine = self.kw[w] if self.kw is not None else 0
            for entry in self.pend:
                if not entry.made and lanes & ~entry.mask == 0:
                    mine |= entry.bits
            common &= mine
        return self.k | common

    def converge(self, mask: int) -> None:
        """The active lanes of each warp in `mask` converge: each then knows what any of them knew
        or made.
        """
        if not self.pend:
            return
        self.released += 1
        if mask == self.full:  # each entry is of lanes of one warp
            pend, self.pend = self.pend, []
            for entry in pend:
                if entry.bits:
                    self._warp_add((entry.mask.bit_length() - 1) // 32, entry.bits)
            self.split = self.kw is not None
            return
        for w, lanes in warps_of(mask):
            bits = 0
            for entry in self.pend:
                bits |= self._of_lanes(entry, lanes)
            self.pend = [e for e in self.pend if e.mask & ~lanes]
            if not bits:
                continue
            if lanes == WARP_MASK << (32 * w):
                self._warp_add(w, bits)
            else:
                self._pend_add(lanes, bits, made=False)
        self.split = self.kw is not None or bool(self.pend)

    def everything(self) -> int:
        """The accesses that any thread knows or made."""
        self.released += 1
        out = self.k
        if self.split:
            for bits in self.kw or ():
                out |= bits
            for entry in self.pend:
                out |= entry.bits
        return out

    def join_all(self, bits: int) -> None:
        """All threads have synchronised and know `bits`, which includes all that any of them
        knew.
        """
        self.released += 1
        self.k |= bits
        self.kw = None
        self.pend = []
        self.split = False

    def fence(
        self, mask: int, fenceable: Iterable[Fenceable], covers: Callable[[Fenceable], bool]
    ) -> None:
        """fence.proxy.async by the threads of `mask`, for every one of the `fenceable` accesses
        that they made or know of and that it `covers`.

        Each lane fences its part of an access that several lanes made; once they have converged,
        all of it is known to be fenced.
        """
        self.fences += 1
        covered = [access for access in fenceable if covers(access)]
        for w, lanes in warps_of(mask):
            warp_known = self.k | (self.kw[w] if self.kw is not None else 0)
            some_know = 0
            for entry in self.pend:
                some_know |= entry.bits
            for access in covered:
                if not access.bit & (warp_known | some_know):
                    continue
                mine = access.agent is self and access.mask & ~lanes == 0
                if access.bit & warp_known:
                    if mine and access.fenced & ~warp_known:
                        self.made(lanes, access.fenced)
                    if access.reader_fenced & ~warp_known and not access.fenced & warp_known:
                        self.acquire(lanes, access.reader_fenced)
                    continue
                for entry in list(self.pend):
                    if not access.bit & entry.bits:
                        continue
                    if mine and entry.mask & ~lanes == 0:
                        entry.bits |= access.fenced
                    elif not entry.made and entry.mask & lanes:
                        self._pend_add(lanes & entry.mask, access.reader_fenced, made=False)

    def forget(self, dead: int) -> None:
        keep = ~dead
        self.k &= keep
        if self.kw is not None:
            self.kw = [bits & keep for bits in self.kw]
        for entry in self.pend:
            entry.bits &= keep
        if self.pend:
            self.pend = [e for e in self.pend if e.bits]
