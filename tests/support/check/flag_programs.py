"""Small kernels whose CTAs, or roles, hand over data through flags in global memory, many of them
with something wrong: a wait or a release left out, relaxed or of another value, a flag that is set
back too early, a second writer, a look that decides, a ticket.

They are plain data: printed, they can be pasted into a test.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Any, Literal

import numpy as np

import tilepipe as tp
from tilepipe.ir.chip import H200
from tilepipe.ir.program import Launch

FLAGS, DATA = 3, 3
Kind = Literal["put", "get", "set", "add", "wait", "look", "ticket"]


@dataclass(frozen=True)
class Do:
    """One step of a thread.

    `kind`: put and get (an ordinary store and load of datum `at`), set (the flag `at` becomes
    `value`), add (`value`, to the flag), wait (until `compare` holds for the flag and `value`),
    look and ticket (a load of the flag, an addition of 1 to it; the datum `datum` is read where it
    has found `value`). `strong`: set and add release, the others acquire. `by_hand`: the loop of a
    wait is written out.
    """

    kind: Kind
    at: int
    value: int = 0
    strong: bool = True
    compare: str = "eq"
    datum: int = 0
    by_hand: bool = False


@dataclass(frozen=True)
class Program:
    """The steps of each thread. `ctas`: each is a CTA; else a role of one. `resident`: how many
    CTAs the GPU holds. `starts`: what the flags hold before.
    """

    threads: tuple[tuple[Do, ...], ...]
    ctas: bool = True
    resident: int = 2
    starts: tuple[int, ...] = (0,) * FLAGS


def _holds(found: Any, compare: str, value: int) -> Any:
    match compare:
        case "ge":
            return found >= value
        case "ne":
            return found != value
    return found == value


def _perform(ctx: tp.Context, do: Do, data: Any, flags: Any, out: Any, thread: Any) -> None:
    reads, writes = ("acquire", "release") if do.strong else ("relaxed", "relaxed")
    match do.kind:
        case "put":
            ctx.store(data[do.at], 7)
        case "get":
            ctx.store(out[thread], ctx.load(data[do.at]))
        case "set":
            ctx.store(flags[do.at], do.value, order=writes)
        case "add":
            ctx.atomic_add(flags[do.at], do.value, order=writes)
        case "wait" if do.by_hand:
            more = ctx.var(True)
            for _ in ctx.loop_while(more):
                more.set(~_holds(ctx.load(flags[do.at], order=reads), do.compare, do.value))
        case "wait":
            ctx.wait_until(
                flags[do.at], lambda found: _holds(found, do.compare, do.value), order=reads
            )
        case "look" | "ticket":
            found = (
                ctx.load(flags[do.at], order=reads)
                if do.kind == "look"
                else ctx.atomic_add(flags[do.at], 1, order="acq_rel" if do.strong else "relaxed")
            )
            with ctx.when(_holds(found, do.compare, do.value)):
                ctx.store(out[thread], ctx.load(data[do.datum]))


def launch(program: Program) -> Launch:
    """The program as a launch, on a GPU that holds so many CTAs."""
    threads = program.threads

    def in_ctas(ctx: tp.Context, data: Any, flags: Any, out: Any) -> None:
        @ctx.role("all", warps=1)
        def run() -> None:
            with ctx.elect_one():
                for number, steps in enumerate(threads):
                    with ctx.when(ctx.block_id == number):
                        for do in steps:
                            _perform(ctx, do, data, flags, out, ctx.block_id)

    def in_roles(ctx: tp.Context, data: Any, flags: Any, out: Any) -> None:
        def role(number: int, steps: tuple[Do, ...]) -> None:
            @ctx.role(f"thread{number}", warps=1)
            def run() -> None:
                with ctx.elect_one():
                    for do in steps:
                        _perform(ctx, do, data, flags, out, number)

        for number, steps in enumerate(threads):
            role(number, steps)

    body = in_ctas if program.ctas else in_roles
    kernel = tp.kernel(grid=len(threads) if program.ctas else 1)(body)
    bound = kernel.bind(
        np.zeros(DATA, np.int32),
        np.array(program.starts, np.int32),
        np.zeros(len(threads), np.int32),
    )
    return replace(bound.launch_args, chip=replace(H200, sms=program.resident))


def generate(seed: int) -> Program:
    """A program: hand-overs, most often with something changed."""
    rnd = Random(seed)
    count = rnd.choice((2, 2, 3))
    threads: list[list[Do]] = [[] for _ in range(count)]
    for number in range(rnd.choice((1, 1, 2, 2, 3))):
        flag = rnd.randrange(FLAGS) if rnd.random() < 0.2 else number
        _hand_over(rnd, threads, number % DATA, flag)
    for _ in range(rnd.choice((0, 0, 1, 1, 2))):
        _change(rnd, rnd.choice(threads))
    starts = tuple(int(rnd.random() < 0.06) for _ in range(FLAGS))
    return Program(
        tuple(map(tuple, threads)),
        ctas=rnd.random() < 0.7,
        resident=rnd.choice((1, count, count, count)),
        starts=starts,
    )


def _hand_over(rnd: Random, threads: list[list[Do]], datum: int, flag: int) -> None:
    """One thread puts a datum, or several count themselves, and another one gets it."""
    order = [*range(len(threads))]
    rnd.shuffle(order)
    taker, givers = order[0], order[1 : 2 + (len(order) > 2 and rnd.random() < 0.3)]
    counted = len(givers) > 1 or rnd.random() < 0.3
    value = len(givers) if counted else rnd.choice((1, 1, 2))
    for giver in givers:
        if giver == givers[0]:
            threads[giver].append(Do("put", datum))
        one = Do("add", flag, 1) if counted else Do("set", flag, value)
        threads[giver].append(one)
    compare = rnd.choice(("eq", "eq", "ge", "ne") if value == 1 else ("eq", "ge"))
    threads[taker].append(Do("wait", flag, value, compare=compare, by_hand=rnd.random() < 0.2))
    threads[taker].append(Do("get", datum))
    if rnd.random() < 0.3:
        threads[taker].append(Do("set", flag, 0, strong=rnd.random() < 0.5))


def _change(rnd: Random, steps: list[Do]) -> None:
    """Something else in the steps of a thread."""
    at = rnd.randrange(len(steps) + 1)
    flag, datum, value = rnd.randrange(FLAGS), rnd.randrange(DATA), rnd.randrange(3)
    strong = rnd.random() < 0.5
    match rnd.randrange(10):
        case 0 if at < len(steps):
            del steps[at]
        case 1 if at < len(steps):
            steps[at] = replace(steps[at], strong=False)
        case 2 if at < len(steps):
            steps[at] = replace(steps[at], value=value)
        case 3 if at < len(steps):
            steps[at] = replace(steps[at], compare=rnd.choice(("eq", "ge", "ne")))
        case 4:
            steps.insert(at, Do("set", flag, rnd.choice((0, 0, 1, 2)), strong))
        case 5:
            steps.insert(at, Do("add", flag, rnd.choice((1, 1, 2, -1)), strong))
        case 6:
            steps.insert(at, Do("look", flag, value, strong, rnd.choice(("eq", "ge")), datum))
        case 7:
            steps.insert(at, Do("ticket", flag, value, strong, rnd.choice(("eq", "ge")), datum))
        case 8 if len(steps) > 1:
            i = rnd.randrange(len(steps) - 1)
            steps[i], steps[i + 1] = steps[i + 1], steps[i]
        case _:
            steps.insert(at, Do("wait", flag, value, strong, rnd.choice(("eq", "ge"))))
