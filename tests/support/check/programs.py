"""Small programs as plain data: printed, they can be pasted into a test; they become a launch, or
the input of the oracle.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np

from tests.support.build import BLOCK, LANE, RANK, Builder, binary
from tilepipe.ir import dtypes, ops
from tilepipe.ir.expressions import Vary, const
from tilepipe.ir.location import Loc
from tilepipe.ir.memory import BarrierRef, Element
from tilepipe.ir.program import Launch, TensorArg

SLOTS = 8  # of shared memory, each a row of 32 int32
SLOT_BYTES = 128


@dataclass(frozen=True)
class Act:
    """One op of a role.

    `kind`, with what `at` and `n` are: wait, parity, try (barrier, phase; `then` or `other` follows
    a try); arrive (barrier, count); expect, announce (expect_tx alone), credit (barrier, bytes);
    copy (barrier, slot: a TMA load); put, get (slot); meet, leave (named barrier); store (slot: a
    TMA store); commit; drain (`n` groups may be pending); syncwarp; fence; init (barrier, count),
    inval (barrier); come, gather (the cluster barrier); both (a copy to both CTAs, as `copy`);
    first (`then` in the first CTA of the cluster, else `other`); ticket (from a counter of the
    grid; `then` follows one below `n`, else `other`, both by the lane that took it).

    `every`: by all lanes, else by an elected one (waits, meetings, syncwarp and fence are always by
    all). `peer`: on the other CTA.
    """

    kind: str
    at: int = 0
    n: int = 0
    every: bool = False
    peer: bool = False
    then: tuple[Act, ...] = ()
    other: tuple[Act, ...] = ()


@dataclass(frozen=True)
class Part:
    """A role: `warps` warps that all do the same, or one warpgroup."""

    acts: tuple[Act, ...]
    warps: int = 1
    group: bool = False


@dataclass(frozen=True)
class Program:
    """Mbarriers b0, b1, ... with these counts, named barriers for these numbers of threads, and the
    roles r0, r1, ...; so many `clusters` of `cluster` CTAs.
    """

    counts: tuple[int, ...]
    parts: tuple[Part, ...]
    named: tuple[int, ...] = ()
    cluster: int = 1
    clusters: int = 1

    def acts(self) -> Iterator[Act]:
        for part in self.parts:
            yield from flat(part.acts)

    @property
    def size(self) -> int:
        """About as many as the points between which agents and units can be picked: two for the end
        of set-up, one for each act.
        """
        points = 1
        for part in self.parts:
            acts = list(flat(part.acts))
            each = (len(acts) + 2) << sum(a.kind in ("copy", "both") for a in acts)
            points *= int(each ** (part.warps * self.cluster * self.clusters))
        return points << 2 * (self.clusters - 1)


def flat(acts: tuple[Act, ...]) -> Iterator[Act]:
    """The acts, branches included, depth first."""
    for act in acts:
        yield act
        yield from flat(act.then)
        yield from flat(act.other)


def with_jumps(acts: tuple[Act, ...]) -> list[tuple[Act, int]]:
    """Acts as a list: (act, where to go on if a try fails, or at a jump)."""
    out: list[tuple[Act, int]] = []

    def add(acts: tuple[Act, ...]) -> None:
        for act in acts:
            here = len(out)
            out.append((act, 0))
            if act.kind == "try":
                add(act.then)
                jump = len(out)
                out.append((Act("jump"), 0))
                out[here] = (act, len(out))
                add(act.other)
                out[jump] = (out[jump][0], len(out))

    add(acts)
    return out


class _Lined(Builder):
    """Gives ops the lines that are said, not those of this file."""

    line = 0

    def add(self, op: ops.Op) -> None:
        op.loc = Loc("program", self.line)
        super().add(op)


class _Writer:
    """Writes one program as IR."""

    def __init__(self, program: Program) -> None:
        self.program = program
        kinds = {a.kind for a in program.acts()}
        b = self.b = _Lined(program.cluster)
        self.tensors = {}
        if kinds & {"copy", "both"}:
            self.tensors["src"] = b.tensor("src", dtypes.int32, box=(1, 32))
        if "store" in kinds:
            self.tensors["dst"] = b.tensor("dst", dtypes.int32, box=(1, 32))
        if "ticket" in kinds:
            self.tensors["taken"] = b.tensor("taken", dtypes.int32)
        self.slots = b.smem("slots", 1, 32, SLOTS, dtypes.int32)
        self.bars = [b.barriers(f"b{i}", count=n) for i, n in enumerate(program.counts)]
        self.named = [b.named(f"n{i}", n) for i, n in enumerate(program.named)]
        b.setup_done()
        for i, part in enumerate(program.parts):
            b.line = 100 * i
            with b.role(
                f"r{i}", warps=0 if part.group else part.warps, warpgroups=1 if part.group else 0
            ):
                self.part = part
                self.write(part.acts)

    def write(self, acts: tuple[Act, ...]) -> None:
        for act in acts:
            self.b.line += 1
            self.one(act)

    def elect(self) -> AbstractContextManager[None]:
        return self.b.elect("warpgroup" if self.part.group else "warp")

    def ref(self, act: Act) -> BarrierRef:
        return self.b.bar(self.bars[act.at], cta=binary("sub", 1, RANK) if act.peer else None)

    def word(self, act: Act) -> Element:
        tile = self.b.tile(self.slots, act.at, cta=binary("sub", 1, RANK) if act.peer else None)
        return self.b.element(tile, 0, LANE if act.every else 0)

    def one(self, act: Act) -> None:
        b = self.b
        match act.kind:
            case "wait" | "parity":
                b.wait(self.ref(act), act.n if act.kind == "wait" else const(act.n))
            case "try":
                ok = b.local("ok", dtypes.boolean)
                b.do(ops.MbarTryWait, self.ref(act), b.phase(act.n), ok)
                with b.when(ok) as branch:
                    self.write(act.then)
                with b.into(branch.orelse):
                    self.write(act.other)
            case "ticket":
                with self.elect():
                    got = b.local("ticket", vary=Vary.LANE)
                    at = b.element(self.tensors["taken"], 0, 0)
                    b.do(ops.Atomic, got, at, "add", const(1), None, "relaxed", "gpu")
                    with b.when(binary("lt", got, act.n)) as branch:
                        self.write(act.then)
                    with b.into(branch.orelse):
                        self.write(act.other)
            case "first":
                with b.when(binary("eq", RANK, 0)) as branch:
                    self.write(act.then)
                with b.into(branch.orelse):
                    self.write(act.other)
            case "meet":
                b.do(ops.NamedSync, self.named[act.at])
            case "leave":
                b.do(ops.NamedArrive, self.named[act.at])
            case "syncwarp":
                b.do(ops.SyncWarp)
            case "fence":
                b.do(ops.FenceProxyAsync)
            case "come":
                b.do(ops.ClusterArrive)
            case "gather":
                b.do(ops.ClusterWait)
            case _ if act.every:
                self.threads(act)
            case _:
                with self.elect():
                    self.threads(act)

    def threads(self, act: Act) -> None:
        """What the active lanes do."""
        b = self.b
        match act.kind:
            case "arrive":
                b.arrive(self.ref(act), act.n)
            case "expect" | "announce":
                b.expect(self.ref(act), act.n, arrive=act.kind == "expect")
            case "credit":
                b.do(ops.MbarCompleteTx, self.ref(act), const(act.n))
            case "copy" | "both":
                mask = 3 if act.kind == "both" else None
                b.load_tile(
                    self.tensors["src"],
                    (act.n, 0),
                    b.tile(self.slots, act.n),
                    self.ref(act),
                    multicast=mask,
                )
            case "init":
                b.do(ops.MbarInit, self.ref(act), const(act.n))
            case "inval":
                b.do(ops.MbarInval, self.ref(act))
            case "put":
                b.store(self.word(act), act.n)
            case "get":
                b.load(self.word(act))
            case "store":
                b.store_tile(
                    self.tensors["dst"],
                    (binary("add", binary("mul", BLOCK, SLOTS), act.at), 0),
                    b.tile(self.slots, act.at),
                )
            case "commit":
                b.do(ops.TmaStoreCommit)
            case "drain":
                b.do(ops.TmaStoreWait, act.n, False)
            case unknown:
                raise AssertionError(unknown)


def launch(program: Program) -> Launch:
    """The program as a launch. The act number i of role r, from 1, depth first, is at `program:{100
    * r + i}`.
    """
    writer = _Writer(program)
    args = {
        name: TensorArg(np.zeros((2 * SLOTS, 32), np.int32), (2 * SLOTS, 32))
        for name in writer.tensors
    }
    return Launch(writer.b.finished(), program.cluster * program.clusters, dict(args))
