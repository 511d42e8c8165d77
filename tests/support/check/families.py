"""Families of programs, most of them right as they stand: rings, relays, meetings, polls, polls in
polls, copies, stores, pairs, tickets, soups.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.support.check.programs import SLOT_BYTES, Act, Part, Program

Family = Callable[[Random], Program]


def _wait(r: Random, at: int, phase: int, by_parity: bool) -> Act:
    return Act("parity", at, phase % 2) if by_parity else Act("wait", at, phase)


def ring(r: Random) -> Program:
    """Producers and consumers of `stages` slots, with nothing, a word, or a copy in each."""
    stages, by_parity, every = r.randint(1, 2), r.random() < 0.4, r.random() < 0.3
    items = r.randint(1, stages + 1 + (stages == 1))
    payload = r.choice(("none", "word", "copy", "blind copy"))
    producers, consumers = (
        (1, r.randint(1, 2)) if "copy" in payload else r.choice(((1, 1), (1, 2), (2, 1)))
    )
    paired = consumers == 2 and r.random() < 0.5  # two warps of one role
    lanes = 32 if every else 1
    polls = r.random() < 0.2
    parts = []
    for p in range(producers):
        acts: list[Act] = []
        for i in range(items):
            s, turn = i % stages, i // stages
            if turn:
                acts.append(_wait(r, stages + s, turn - 1, by_parity))
            if "copy" in payload:
                acts += [
                    Act("expect", s, SLOT_BYTES),
                    Act("copy", s, s if payload == "copy" else i),
                ]
                continue
            if payload == "word":
                acts.append(Act("put", 2 * s + p, i, every))
            acts.append(Act("arrive", s, 1, every))
        parts.append(Part(tuple(acts)))
    body: list[Act] = []
    for i in range(items):
        s, turn = i % stages, i // stages
        use: tuple[Act, ...] = (Act("arrive", stages + s, 1, every),)
        if payload in ("word", "copy"):
            reads = [
                Act("get", 2 * s + p if payload == "word" else s, 0, every)
                for p in range(producers)
            ]
            use = (*reads, *use)
        if polls and not by_parity:
            body.append(Act("try", s, turn, then=use, other=(Act("wait", s, turn), *use)))
        else:
            body += [_wait(r, s, turn, by_parity), *use]
    parts += [Part(tuple(body), warps=2)] if paired else [Part(tuple(body))] * consumers
    full = 1 if "copy" in payload else producers * lanes
    r.shuffle(parts)
    return Program((full,) * stages + (consumers * lanes,) * stages, tuple(parts))


def relay(r: Random) -> Program:
    """A token goes round: each agent waits for its barrier, touches the common slot, and arrives on
    the next one's.
    """
    agents, rounds, by_parity, words = (
        r.randint(2, 3),
        r.randint(1, 2),
        r.random() < 0.3,
        r.random() < 0.7,
    )
    parts = []
    for i in range(agents):
        acts: list[Act] = []
        for turn in range(rounds):
            if i or turn:
                acts.append(_wait(r, i, turn if i else turn - 1, by_parity))
            if words:
                acts.append(
                    Act("put", 0, 10 * turn + i)
                    if r.random() < 0.7 or not (i or turn)
                    else Act("get", 0)
                )
            acts.append(Act("arrive", (i + 1) % agents, 1))
        parts.append(Part(tuple(acts)))
    order = list(range(agents))
    r.shuffle(order)
    return Program((1,) * agents, tuple(parts[i] for i in order))


def meeting(r: Random) -> Program:
    """Warps that write their slots, meet at a named barrier, and read each other's; or one that
    arrives and another that syncs.
    """
    if r.random() < 0.5:
        agents, rounds = r.randint(2, 3), r.randint(1, 2) if r.random() < 0.5 else 1
        bodies = []
        for i in range(agents):
            acts: list[Act] = []
            for turn in range(rounds):
                acts += [
                    Act("put", i, turn, True),
                    Act("meet"),
                    Act("get", (i + 1) % agents, 0, True),
                ]
                acts += [Act("meet")] if turn + 1 < rounds else []
            bodies.append(Part(tuple(acts)))
        return Program((), tuple(bodies), (32 * agents,))
    turns = r.randint(1, 2)
    writer, reader = [], []
    for turn in range(turns):
        writer += ([Act("meet", 1)] if turn else []) + [Act("put", 0, turn, True), Act("leave", 0)]
        reader += [Act("meet", 0), Act("get", 0, 0, True)] + (
            [Act("leave", 1)] if turn + 1 < turns else []
        )
    return Program((), (Part(tuple(writer)), Part(tuple(reader))), (64, 64))


def polling(r: Random) -> Program:
    """Agents that test whether a phase is complete, and do something else where it is not."""
    arrive, both = Act("arrive", 1, 1), r.random() < 0.5
    late = (Act("wait", 0, 0), arrive) if r.random() < 0.6 else (arrive,)
    poll = Act("try", 0, 0, then=(Act("get", 0), arrive) if both else (arrive,), other=late)
    first = Part((*((Act("put", 0, 1),) if both else ()), Act("arrive", 0, 1)))
    last = Part((Act("wait", 1, 0), *((Act("get", 0),) if both and late[0].kind == "wait" else ())))
    agents = r.randint(1, 2)
    parts = [first, *[Part((poll,))] * agents, last]
    r.shuffle(parts)
    return Program((1, agents), tuple(parts))


def polling_in_branches(r: Random) -> Program:
    """An agent that tests in the branches of tests, and where several answers meet may do what is
    wrong.
    """
    counts = r.choice(((1, 1), (1, 1), (1, 2), (2, 1)))

    def body(depth: int) -> tuple[Act, ...]:
        out = []
        for _ in range(r.choice((1, 1, 2))):
            kind, at = r.random(), r.randrange(len(counts))
            if depth < 3 and (kind < 0.5 or not depth):
                out.append(
                    Act(
                        "try",
                        at,
                        0,
                        then=body(depth + 1),
                        other=body(depth + 1) if r.random() < 0.6 else (),
                    )
                )
            elif depth >= 2 and kind < 0.6:
                out.append(Act("arrive", len(counts), 9))
            else:
                out.append(Act("wait", at, 0))
        return tuple(out)

    while True:
        parts = [
            Part(body(0)),
            *(
                Part((Act("arrive", at, 1),))
                for at, count in enumerate(counts)
                for _ in range(count)
            ),
        ]
        made = Program((*counts, 1), tuple(parts))
        if made.size <= 500:
            return made


def transactions(r: Random) -> Program:
    """Copies on one or two barriers, announced together or one by one, before or after the arrival,
    some credited by hand.
    """
    copies, bars = r.randint(1, 2), r.randint(1, 2)
    style = r.choice(("expect", "announce", "credit"))
    acts: list[Act] = []
    for at in range(bars):
        mine = [c for c in range(copies) if c % bars == at]
        total = SLOT_BYTES * len(mine)
        if style == "announce":
            acts += (
                [Act("announce", at, total), Act("arrive", at, 1)]
                if r.random() < 0.7
                else [Act("arrive", at, 1), Act("announce", at, total)]
            )
        else:
            acts.append(Act("expect", at, total + (48 if style == "credit" else 0)))
        acts += [Act("copy", at, c) for c in mine]
        if style == "credit":
            acts.append(Act("credit", at, 48))
    reads = r.random() < 0.5
    use = []
    for at in range(bars):
        use.append(Act("wait", at, 0))
        use += [Act("get", c) for c in range(copies) if c % bars == at and reads]
    users = r.randint(1, 2)
    return Program((1,) * bars, (Part(tuple(acts)), *[Part(tuple(use))] * users))


def storing(r: Random) -> Program:
    """A slot is written, stored by TMA, waited for, and perhaps written again; by one role, or
    handed to another.
    """
    write = (Act("put", 0, 1, True), Act("fence"))
    out = (Act("store", 0), Act("commit"), Act("drain", 0))
    if r.random() < 0.5:
        again = r.random() < 0.5
        acts = (
            *write,
            Act("syncwarp"),
            *out,
            Act("syncwarp"),
            *((*write, Act("syncwarp"), *out) if again else ()),
        )
        return Program((), (Part(acts),))
    back = r.random() < 0.5
    writer = (
        *write,
        Act("arrive", 0, 1, True),
        *((Act("wait", 1, 0), Act("put", 0, 2, True)) if back else ()),
    )
    reader = (Act("wait", 0, 0), *out, *((Act("arrive", 1, 1),) if back else ()))
    return Program((32, 1), (Part(writer, group=False), Part(reader)))


def pair(r: Random) -> Program:
    """Two CTAs of a cluster arrive on each other's barriers, round after round, on two barriers in
    turn.
    """
    rounds, bars = r.randint(1, 3), r.choice((1, 2, 2))
    acts: list[Act] = []
    for turn in range(rounds):
        acts += [Act("arrive", turn % bars, 1, peer=True), Act("wait", turn % bars, turn // bars)]
    if r.random() < 0.4:
        acts += [Act("come"), Act("gather")]
    return Program((1,) * bars, (Part(tuple(acts)),), cluster=2)


def shared(r: Random) -> Program:
    """Two CTAs: each writes into the other, or the first copies to both; each waits before it
    reads.
    """
    if r.random() < 0.5:
        body = (
            Act("put", 0, 1, peer=True),
            Act("arrive", 0, 1, peer=True),
            Act("wait", 0, 0),
            Act("get", 0),
        )
        ends = (Act("come"), Act("gather")) if r.random() < 0.5 else ()
        return Program((1,), (Part((*body, *ends)),), cluster=2)
    armed = (Act("come"), Act("gather")) if r.random() < 0.6 else ()
    copies = Act("first", then=(Act("both", 0, 2),))
    arms = Act("expect", 0, SLOT_BYTES, peer=r.random() < 0.2)
    return Program(
        (1,), (Part((arms, *armed, copies, Act("wait", 0, 0), Act("get", 2))),), cluster=2
    )


def reborn(r: Random) -> Program:
    """A barrier ends its life and begins another, with another count; others hear of it by a second
    barrier.
    """
    count = r.randint(1, 2)
    keeper = (
        Act("arrive", 0, 1),
        Act("wait", 0, 0),
        Act("inval", 0),
        Act("init", 0, count),
        Act("arrive", 1, 1),
    )
    user = (Act("wait", 1, 0), *(Act("arrive", 0, 1) for _ in range(count)), Act("wait", 0, 0))
    parts = [Part(keeper), Part(user)]
    r.shuffle(parts)
    return Program((1, 1), tuple(parts))


def group(r: Random) -> Program:
    """A warpgroup that arrives as one lane or as 128, and a warp that waits for it and answers."""
    every, rounds, word, copies = (
        r.random() < 0.5,
        r.randint(1, 2),
        r.random() < 0.4,
        r.random() < 0.3,
    )
    mine: list[Act] = []
    yours: list[Act] = []
    for turn in range(rounds):
        mine += [
            *([Act("put", 0, turn)] if word else []),
            Act("arrive", 0, 1, every),
            Act("wait", 1, turn),
        ]
        yours += [Act("wait", 0, turn), *([Act("get", 0)] if word else [])]
        yours += (
            [Act("expect", 1, SLOT_BYTES), Act("copy", 1, 2 + turn)]
            if copies
            else [Act("arrive", 1, 1)]
        )
    return Program(
        (128 if every else 1, 1), (Part(tuple(mine), warps=1, group=True), Part(tuple(yours)))
    )


def ahead(r: Random) -> Program:
    """Agents that arrive on one barrier, some of them without knowing that the phase before is
    over, and one that counts on who did.
    """
    agents, rounds = 2, 2
    parts = []
    for i in range(agents):
        acts: list[Act] = []
        for turn in range(rounds):
            if turn and r.random() < 0.6:
                acts.append(Act("wait", 1 + i, turn - 1))
            if not turn or r.random() < 0.3:
                acts.append(Act("put", i, turn))
            acts.append(Act("arrive", 0, 1))
        parts.append(Part(tuple(acts)))
    seen: list[Act] = []
    for turn in range(rounds):
        seen += [Act("wait", 0, turn), Act("get", r.randrange(agents))]
        seen += [Act("arrive", 1 + i, 1) for i in range(agents)] if turn + 1 < rounds else []
    parts.insert(r.randint(0, agents), Part(tuple(seen)))
    return Program((agents, 1, 1), tuple(parts))


def warps_apart(r: Random) -> Program:
    """Two warps wait for a stage, and one of them frees it for both; whether it meets the other
    first is left to chance.
    """
    items, word = r.randint(1, 2), r.random() < 0.5
    meets = r.random() < 0.5
    fill: list[Act] = []
    for i in range(items):
        fill += (
            ([Act("wait", 1, i - 1)] if i else [])
            + ([Act("put", 0, i)] if word else [])
            + [Act("arrive", 0, 1)]
        )
    bodies: list[list[Act]] = [[], []]
    for i in range(items):
        for leader, body in enumerate(bodies):
            body += [
                Act("wait", 0, i),
                *([Act("get", 0)] if word else []),
                *([Act("meet")] if meets else []),
            ]
            body += [Act("arrive", 1, 1)] if leader else []
    parts = [Part(tuple(fill)), *(Part(tuple(b)) for b in bodies)]
    r.shuffle(parts)
    return Program((1, 1), tuple(parts), (64,))


def tickets(r: Random) -> Program:
    """Agents of one or two CTAs take tickets from one counter, and who gets which decides what they
    do.
    """
    clusters, agents = r.choice(((1, 2), (1, 2), (2, 1)))
    limit, second = r.randint(1, 2), r.random() < 0.5
    mine = (Act("put", 0, 1), Act("arrive", 0, 1)) if r.random() < 0.5 else (Act("arrive", 0, 1),)
    yours = (Act("arrive", 0, 1),) if r.random() < 0.7 else (Act("wait", 0, 0),)
    worker = Part(
        (
            Act("ticket", 0, limit, then=mine, other=yours),
            *((Act("ticket", 0, limit + 1, other=yours),) if second else ()),
        )
    )
    waiter = Part((Act("wait", 0, 0),))
    parts = [worker] * agents + [waiter]
    r.shuffle(parts)
    return Program((r.choice((1, agents, agents + second)),), tuple(parts), clusters=clusters)


def soup(r: Random) -> Program:
    """Any ops in any order; counts that fit the arrivals of one phase, or of two, more often than
    not.
    """
    bars = r.randint(1, 3)
    parts = []
    arrivals = [0] * bars
    copies = 0
    for _ in range(r.randint(2, 4)):
        acts: list[Act] = []
        for _ in range(r.randint(1, 4)):
            at = r.randrange(bars)
            kind = r.choice(
                (
                    "arrive",
                    "arrive",
                    "arrive",
                    "wait",
                    "wait",
                    "wait",
                    "try",
                    "copy",
                    "put",
                    "get",
                    "credit",
                )
            )
            if kind == "arrive":
                n = r.choice((1, 1, 2))
                arrivals[at] += n
                acts.append(Act("arrive", at, n))
            elif kind == "wait":
                acts.append(
                    Act("wait", at, r.choice((0, 0, 0, 1)))
                    if r.random() < 0.8
                    else Act("parity", at, r.randint(0, 1))
                )
            elif kind == "try":
                arrivals[at] += 1
                acts.append(
                    Act(
                        "try",
                        at,
                        0,
                        then=(Act("arrive", (at + 1) % bars, 1),),
                        other=(Act("arrive", at, 1),),
                    )
                )
            elif kind == "copy" and copies < 2:
                acts += [Act("expect", at, SLOT_BYTES), Act("copy", at, copies)]
                arrivals[at] += 1
                copies += 1
            elif kind == "credit":
                acts += [Act("announce", at, 32), Act("credit", at, 32)]
            elif kind in ("put", "get"):
                acts.append(Act(kind, 7 if r.random() < 0.3 else r.randrange(4), 1))
        parts.append(Part(tuple(acts)))
    counts = [
        r.randint(1, 3) if r.random() < 0.2 or not n else n if n % 2 or r.random() < 0.5 else n // 2
        for n in arrivals
    ]
    return Program(tuple(max(1, n) for n in counts), tuple(parts))


FAMILIES: tuple[Family, ...] = (
    ring,
    relay,
    meeting,
    polling,
    polling_in_branches,
    transactions,
    storing,
    pair,
    shared,
    reborn,
    group,
    ahead,
    warps_apart,
    tickets,
    soup,
)
# where orders matter most
OFTEN: tuple[Family, ...] = (*FAMILIES, ring, ring, ahead, warps_apart, tickets, soup)
