"""Small rings whose roles test barriers before they wait, most of them with something wrong: tests
moved early, dropped, doubled, carried on, of another phase or barrier, by one lane, and answers
that decide more than a wait.

They are plain data: printed, they can be pasted into a test.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from random import Random

import numpy as np

from tests.support.build import LANE, Builder
from tilepipe.ir import dtypes, ops
from tilepipe.ir.expressions import Cast, Expr, Local, Unary, const
from tilepipe.ir.memory import Variable
from tilepipe.ir.program import Launch, TensorArg

SLOT_BYTES = 128


@dataclass(frozen=True)
class Do:
    """One step of a role. `stage`, `phase`: of the barrier of the role's side that it waits on, or
    of the slot.

    `kind`: ask (its answer goes into `name`), wait, guarded (the wait, unless the answer in `name`
    is yes), put, get, copy, arrive, decide (reads the slot where the answer in `name` is yes), say
    (`name` becomes the constant `phase`), pass on (`name` becomes what the name `stage` holds).
    `elected`: by one lane. `more`: what a guard decides beside the wait.
    """

    kind: str
    stage: int = 0
    phase: int = 0
    name: int = 0
    elected: bool = False
    parity: bool = False
    more: tuple[Do, ...] = ()


@dataclass(frozen=True)
class Ring:
    """A producer and consumers of a ring. `payload`: "none", "word" (by one lane), "row" (by all),
    "copy" (by TMA).
    """

    stages: int
    payload: str
    fill: tuple[Do, ...]
    use: tuple[Do, ...]
    consumers: int = 1


@dataclass(frozen=True)
class Loop:
    """The same with loops and cursors: each side asks about its next stage `ahead` of the end of
    the step before.

    `asks`: "fill", "use" or "both". `ahead`: 0, before the wait; 1, after the step of the cursor;
    2, before the stage is given back.
    `first`: what the first step goes by: "test", "yes" or "no". `skew`: stages by which the test is
    off.
    """

    stages: int
    items: int
    payload: str
    asks: str
    ahead: int
    first: str
    skew: int = 0
    parity: bool = False
    doubled: bool = False


# -- making them -----------------------------------------------------------------------


def ring(r: Random) -> Ring:
    """A ring, right or with up to three things wrong."""
    stages = r.choice((1, 1, 2))
    payload = r.choice(("none", "word", "row", "copy"))
    consumers = 2 if r.random() < 0.15 and payload != "copy" else 1
    items = r.randint(1, 2 if consumers > 1 else 3)
    asks = r.choice(("fill", "use", "use") if consumers > 1 else ("fill", "use", "both", "use"))
    fill, use = (
        _side(r, "fill", stages, items, payload, asks),
        _side(r, "use", stages, items, payload, asks),
    )
    for _ in range(r.choice((0, 1, 1, 2, 3))):
        if r.random() < 0.7:
            use = _changed(r, use, stages)
        else:
            fill = _changed(r, fill, stages)
    return Ring(stages, payload, tuple(fill), tuple(use), consumers)


def _side(r: Random, side: str, stages: int, items: int, payload: str, asks: str) -> list[Do]:
    parity = r.random() < 0.25
    out: list[Do] = []
    early = r.choice((0, 0, 1, 1, 2))  # how far before its wait a test stands
    for i in range(items):
        s, phase = i % stages, i // stages - (side == "fill")
        if asks in (side, "both"):
            ask = Do("ask", s, phase, i, parity=parity)
            at = len(out) - min(early, len(out)) if i else len(out)
            out.insert(at, ask)
            out.append(Do("guarded", s, phase, i, parity=parity))
        else:
            out.append(Do("wait", s, phase, parity=parity))
        if payload == "copy" and side == "fill":
            out.append(Do("copy", s, i))
            continue
        if payload in ("word", "row", "copy"):
            out.append(Do("put" if side == "fill" else "get", s, i, elected=payload == "word"))
        out.append(Do("arrive", s, elected=payload != "row"))
    return out


def _changed(r: Random, side: list[Do], stages: int) -> list[Do]:
    """One thing changed."""
    out = list(side)
    asks = [i for i, d in enumerate(out) if d.kind == "ask"]
    guarded = [i for i, d in enumerate(out) if d.kind == "guarded"]
    if not asks or not guarded:
        return out
    names = [d.name for d in out if d.kind == "ask"]
    i, g = r.choice(asks), r.choice(guarded)
    match r.choice(
        (
            "early",
            "early",
            "early",
            "late",
            "drop",
            "double",
            "again",
            "phase",
            "phase",
            "stage",
            "elect",
            "name",
            "name",
            "more",
            "decide",
            "constant",
            "pass on",
            "plain",
            "lose",
        )
    ):
        case "early":
            ask = out.pop(i)
            out.insert(max(0, i - r.randint(1, 4)), ask)
        case "late":
            ask = out.pop(i)
            out.insert(min(len(out), i + r.randint(1, 3)), ask)
        case "drop":
            del out[i]
        case "double":
            out.insert(i, out[i])
        case "again":
            out.insert(r.randint(i, len(out)), out[i])
        case "phase":
            out[i] = replace(out[i], phase=max(-1, out[i].phase + r.choice((-1, 1))))
        case "stage":
            out[i] = replace(out[i], stage=(out[i].stage + 1) % stages)
        case "elect":
            out[i] = replace(out[i], elected=True)
        case "name":
            out[g] = replace(out[g], name=r.choice(names))
        case "more" if g + 1 < len(out):
            out[g : g + 2] = [replace(out[g], more=(out[g + 1],))]
        case "decide":
            out.insert(r.randint(i + 1, len(out)), Do("decide", out[i].stage, name=out[i].name))
        case "constant":
            out.insert(
                r.randint(i, len(out)), Do("say", phase=r.randint(0, 1), name=r.choice(names))
            )
        case "pass on":
            out.insert(r.randint(i + 1, len(out)), Do("pass on", out[i].name, name=r.choice(names)))
        case "plain":
            out[g] = replace(out[g], kind="wait")
        case "lose":
            del out[g]
    return out


def loop(r: Random) -> Loop:
    """A ring of loops."""
    stages = r.choice((1, 1, 2, 2, 3))
    skew = r.choice((0, 0, 0, 1, stages))
    asks = r.choice(("fill", "use", "use", "both"))
    items = r.randint(1, 2 if asks == "both" else min(stages + 1, 3))
    return Loop(
        stages,
        items,
        r.choice(("none", "word", "row")),
        asks,
        r.randint(0, 2),
        r.choice(("test", "test", "no", "yes")),
        skew,
        r.random() < 0.3,
        r.random() < 0.2,
    )


def generate(seed: int) -> Ring | Loop:
    """One of either."""
    r = Random(seed)
    return loop(r) if r.random() < 0.3 else ring(r)


# -- writing them as kernels -----------------------------------------------------------


def launch(made: Ring | Loop) -> Launch:
    """The ring as a launch."""
    return (_Straight(made) if isinstance(made, Ring) else _Looped(made)).launch


class _Straight:
    """Writes a ring without loops."""

    def __init__(self, made: Ring) -> None:
        b = self.b = Builder()
        src = b.tensor("src", dtypes.float32, box=(1, 32)) if made.payload == "copy" else None
        self.src = src
        self.slots = b.smem("slots", 1, 32, made.stages, dtypes.float32)
        lanes = 32 if made.payload == "row" else 1
        self.full = [b.barriers(f"full{s}", count=lanes) for s in range(made.stages)]
        self.empty = [
            b.barriers(f"empty{s}", count=lanes * made.consumers) for s in range(made.stages)
        ]
        b.setup_done()
        self.names: dict[int, Variable] = {}
        for number, side in enumerate(("fill", *["use"] * made.consumers)):
            steps = made.fill if side == "fill" else made.use
            self.waits = self.empty if side == "fill" else self.full
            self.signals = self.full if side == "fill" else self.empty
            with b.role(f"{side}{number}", warps=1):
                flat = [d for step in steps for d in (step, *step.more)]
                names = sorted(
                    {d.name for d in flat} | {d.stage for d in flat if d.kind == "pass on"}
                )
                self.names = {name: b.var(const(False)) for name in names}
                for step in steps:
                    self.write(step)
        args = {} if src is None else {"src": TensorArg(np.zeros((8, 32), np.float32), (8, 32))}
        self.launch = Launch(b.finished(), 1, dict(args))

    def write(self, d: Do) -> None:
        b = self.b
        if d.elected and d.kind in ("ask", "put", "get", "arrive"):
            with b.elect():
                self.one(d)
        else:
            self.one(d)

    def one(self, d: Do) -> None:
        b = self.b
        bar = b.bar(self.waits[d.stage]) if d.kind in ("ask", "wait", "guarded") else None
        phase = const(d.phase & 1) if d.parity else b.phase(d.phase)
        cell = b.element(b.tile(self.slots, d.stage), 0, 0 if d.elected else LANE)
        match d.kind:
            case "ask":
                assert bar is not None
                answer = b.local("answer", dtypes.boolean)
                b.do(ops.MbarTryWait, bar, phase, answer)
                b.do(ops.Assign, self.names[d.name], answer)
            case "wait":
                assert bar is not None
                b.wait(bar, phase)
            case "guarded":
                assert bar is not None
                with b.when(_not(b.read(self.names[d.name]))):
                    b.wait(bar, phase)
                    for more in d.more:
                        self.write(more)
            case "put":
                b.store(cell, 1.0)
            case "get":
                b.load(cell)
            case "copy":
                assert self.src is not None
                full = b.bar(self.full[d.stage])
                with b.elect():
                    b.expect(full, SLOT_BYTES)
                    b.load_tile(self.src, (d.phase, 0), b.tile(self.slots, d.stage), full)
            case "arrive":
                b.arrive(b.bar(self.signals[d.stage]))
            case "decide":
                with b.when(b.read(self.names[d.name])), b.elect():
                    b.load(b.element(b.tile(self.slots, d.stage), 0, 0))
            case "say":
                b.do(ops.Assign, self.names[d.name], const(bool(d.phase)))
            case "pass on":
                b.do(ops.Assign, self.names[d.name], b.read(self.names[d.stage]))
            case unknown:
                raise AssertionError(unknown)


class _Looped:
    """Writes a ring of loops."""

    def __init__(self, made: Loop) -> None:
        self.made = made
        b = self.b = Builder()
        self.slots = b.smem("slots", 1, 32, made.stages, dtypes.float32)
        lanes = 32 if made.payload == "row" else 1
        full, empty = (b.barriers(name, made.stages, lanes) for name in ("full", "empty"))
        b.setup_done()
        for side, self.waits, self.signals, start in (
            ("fill", empty, full, -1),
            ("use", full, empty, 0),
        ):
            with b.role(side, warps=1):
                self.fills = side == "fill"
                self.here, self.asked = b.cursor(made.stages, start), b.cursor(made.stages, start)
                self.ready = b.var(const(made.first == "yes"))
                self.role(made.asks in (side, "both"))
        self.launch = Launch(b.finished(), 1, {})

    def role(self, asks: bool) -> None:
        b, made = self.b, self.made
        if asks and made.skew:
            b.step(self.asked, made.skew)
        if asks and made.ahead:
            self.ask(made.first == "test")
        with b.loop(made.items):
            if asks and not made.ahead:
                self.ask()
            stage, phase = b.at(self.here)
            if asks:
                with b.when(_not(b.read(self.ready))):
                    b.wait(b.bar(self.waits, stage), self.given(phase))
            else:
                b.wait(b.bar(self.waits, stage), self.given(phase))
            if asks and made.ahead == 2:
                self.ask()
            self.pass_on(stage)
            b.step(self.here)
            if asks and made.ahead == 1:
                self.ask()

    def given(self, phase: Local) -> Expr:
        return Cast(dtypes.int32, a=phase) if self.made.parity else phase

    def ask(self, really: bool = True) -> None:
        """Tests the barrier of the cursor of tests, and steps it."""
        b = self.b
        for _ in range(really + (really and self.made.doubled)):
            stage, phase = b.at(self.asked)
            answer = b.local("answer", dtypes.boolean)
            b.do(ops.MbarTryWait, b.bar(self.waits, stage), self.given(phase), answer)
            b.do(ops.Assign, self.ready, answer)
        b.step(self.asked)

    def pass_on(self, stage: Local) -> None:
        """Fills or uses the slot, and says so."""
        b = self.b
        with contextlib.nullcontext() if self.made.payload == "row" else b.elect():
            cell = b.element(
                b.tile(self.slots, stage), 0, LANE if self.made.payload == "row" else 0
            )
            if self.made.payload != "none":
                b.store(cell, 1.0) if self.fills else b.load(cell)
            b.arrive(b.bar(self.signals, stage))


def _not(x: Expr) -> Expr:
    return Unary(dtypes.boolean, op="not", a=x)
