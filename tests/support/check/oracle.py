"""The simplest model that could be right: mbarriers as three numbers, and a search over every order
of every step.

It knows waits, tries, arrives, expected and credited bytes and copies, in one CTA, and nothing of
the simulator. An agent is a warp, those of a warpgroup each for itself: a list of ops and a
position in it. A copy is in flight or has landed; nothing else moves.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.support.check.programs import SLOT_BYTES, Act, Program, flat, with_jumps

KINDS = {"wait", "parity", "try", "arrive", "expect", "announce", "credit", "copy", "jump"}
CLEAN = "clean"


def knows(program: Program) -> bool:
    """Whether the model covers a program: barriers of one CTA only, and no slot that two copies
    fill.

    The checker is stricter with the warps of a warpgroup: arrivals of all lanes that straddle two
    phases are a fault for it also where nobody waits for them.
    """
    waited = {a.at for a in program.acts() if a.kind in ("wait", "parity")}
    if any(
        a.kind == "arrive" and a.every and a.at not in waited
        for p in program.parts
        if p.group
        for a in p.acts
    ):
        return False
    slots = [
        a.n for p in program.parts for a in flat(p.acts) if a.kind == "copy" for _ in range(p.warps)
    ]
    # its warps may see different answers
    apart = any(a.kind == "try" for p in program.parts if p.group for a in p.acts)
    return (
        not apart
        and program.cluster * program.clusters == 1
        and {a.kind for a in program.acts()} <= KINDS
        and len(set(slots)) == len(slots)
    )


class Fault(Exception):
    """What goes wrong, in a word that the simulator's message has too."""


@dataclass
class Bar:
    """One mbarrier. `landed`, `known`: the copies (as a mask) that the phase in progress, and those
    before it, brought.
    """

    count: int
    pending: int
    tx: int = 0
    phase: int = 0
    landed: int = 0
    known: int = 0


@dataclass
class State:
    """Where everybody is. `passed`: (agent, barrier) -> the last phase it waited for. `learnt`:
    copies that somebody has waited for.
    """

    at: list[int]
    bars: list[Bar]
    flying: list[tuple[int, int]] = field(default_factory=list)  # (copy, barrier)
    passed: dict[tuple[int, int], int] = field(default_factory=dict)
    issued: int = 0
    learnt: int = 0

    def key(self) -> tuple[object, ...]:
        bars = tuple((b.pending, b.tx, b.phase, b.landed, b.known) for b in self.bars)
        return (
            tuple(self.at),
            bars,
            tuple(sorted(self.flying)),
            tuple(sorted(self.passed.items())),
            self.issued,
            self.learnt,
        )

    def copy(self) -> State:
        bars = [Bar(b.count, b.pending, b.tx, b.phase, b.landed, b.known) for b in self.bars]
        return State(
            list(self.at), bars, list(self.flying), dict(self.passed), self.issued, self.learnt
        )


def _of_warp(acts: tuple[Act, ...], warp: int) -> tuple[Act, ...]:
    """What one warp of a warpgroup does: what one lane does is done by the first."""
    return tuple(a for a in acts if not warp or a.every or a.kind in ("wait", "parity"))


def outcomes(program: Program) -> set[str]:
    """Everything that can happen: `CLEAN`, and a word for each fault."""
    code: list[list[tuple[Act, int]]] = []
    for part in program.parts:
        for warp in range(4 if part.group else part.warps):
            code.append(with_jumps(_of_warp(part.acts, warp) if part.group else part.acts))
    start = State([0] * len(code), [Bar(n, n) for n in program.counts])
    found: set[str] = set()
    seen = {start.key()}
    todo = [start]
    while todo:
        state = todo.pop()
        moved = False
        for agent, ops in enumerate(code):
            if state.at[agent] < len(ops):
                after = state.copy()
                try:
                    acted = _act(after, agent, *ops[state.at[agent]])
                except Fault as fault:
                    found.add(str(fault))
                    moved = True
                    continue
                if acted:
                    moved = True
                    _add(after, seen, todo)
        for copy in state.flying:
            after = state.copy()
            moved = True
            try:
                _land(after, copy)
            except Fault as fault:
                found.add(str(fault))
                continue
            _add(after, seen, todo)
        if not moved:
            stuck = any(at < len(ops) for at, ops in zip(state.at, code, strict=True))
            found.add("deadlock" if stuck else "exits" if state.issued & ~state.learnt else CLEAN)
    return found


def _add(state: State, seen: set[tuple[object, ...]], todo: list[State]) -> None:
    key = state.key()
    if key not in seen:
        seen.add(key)
        todo.append(state)


def _act(state: State, agent: int, act: Act, target: int) -> bool:
    """Performs one op; False where it blocks."""
    state.at[agent] += 1
    if act.kind == "jump":
        state.at[agent] = target
        return True
    bar = state.bars[act.at]
    match act.kind:
        case "wait":
            return _wait(state, agent, act.at, act.n)
        case "parity":
            last = state.passed.get((agent, act.at), -1)
            return _wait(state, agent, act.at, last if last % 2 == act.n % 2 else last + 1)
        case "try":
            if not _wait(state, agent, act.at, act.n):
                state.at[agent] = target
        case "arrive":
            _arrive(state, act.at, act.n * (32 if act.every else 1))
        case "expect":
            bar.tx += act.n
            _arrive(state, act.at, 1)
        case "announce":
            bar.tx += act.n
        case "credit":
            bar.tx -= act.n
            _settle(state, act.at)
        case "copy":
            state.flying.append((act.n, act.at))
            state.issued |= 1 << act.n
    return True


def _wait(state: State, agent: int, at: int, phase: int) -> bool:
    bar = state.bars[at]
    if phase < bar.phase - 1:
        raise Fault("lapped")
    if phase > bar.phase:
        raise Fault("skipped a phase")
    if phase == bar.phase:
        return False
    state.passed[agent, at] = phase
    state.learnt |= bar.known
    return True


def _arrive(state: State, at: int, n: int) -> None:
    bar = state.bars[at]
    if n > bar.pending:
        raise Fault("over-arrival")
    bar.pending -= n
    _settle(state, at)


def _settle(state: State, at: int) -> None:
    """The phase is over when no arrival and no byte is pending."""
    bar = state.bars[at]
    if bar.pending or bar.tx > 0:
        return
    if bar.tx < 0:
        raise Fault("more bytes arrive")
    if any(b == at for _, b in state.flying):
        raise Fault("still to come")
    bar.phase += 1
    bar.pending = bar.count
    bar.known |= bar.landed
    bar.landed = 0


def _land(state: State, copy: tuple[int, int]) -> None:
    number, at = copy
    state.flying.remove(copy)
    state.bars[at].landed |= 1 << number
    state.bars[at].tx -= SLOT_BYTES
    _settle(state, at)
