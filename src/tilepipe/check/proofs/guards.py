"""Tests of barriers that may be treated as the waits that they guard.

    ready = pipe.try_wait_producer()
    ...
    pipe.wait_producer_if_needed(ready)

Whatever the outcome of the test, the role continues when the phase is complete. So such a kernel is
decided by executions in which the test says "no" and the wait follows, and no outcome depends on
the order of the agents. That is sound under four conditions, with the proof in
docs/decisions/0011-a-test-that-is-a-wait.md:

(a) the wait is for the barrier and the full phase number that was tested;
(b) the outcome decides whether the wait is performed, and nothing else;
(c) the test acquires for every thread for which the wait would;
(d) the test follows the completion of the phase before the tested one, in every order.

(b) is a property of the program's text, and is found here by data flow. The other conditions are
compared during an execution: an `Answer` is a value of the kernel, is copied wherever the kernel
copies it, and says what was tested. A test has neither semantics nor a scope of its own (the
printer derives the scope from the role and the barrier), so (c) is about threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from tilepipe.ir import def_use, ops
from tilepipe.ir.expressions import Local, Unary, Vary
from tilepipe.ir.memory import Variable
from tilepipe.ir.program import Kernel, walk
from tilepipe.sim.front_end import OpSite

Name = Local | Variable


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions that are required: all of them, except in tests that show that each one is
    needed.
    """

    phases: bool = True  # (a)
    flow: bool = True  # (b)
    threads: bool = True  # (c)
    before: bool = True  # (d)


CONDITIONS = Conditions()


class NotAWaitError(Exception):
    """An execution shows that a test cannot be treated as the wait that it guards. `site`: the
    number of its site.
    """

    def __init__(self, site: int) -> None:
        super().__init__(site)
        self.site = site


class Answer(tuple[int, int, int, int]):
    """The "no" of a test that is treated as a wait, as a value of the kernel: it is false, and
    says what was tested.

    As a tuple it is the site of the test, the flat index of the barrier in the agent's CTA, the
    full phase number, and the threads that would have acquired. So two states that differ in an
    answer have different keys.

    Attributes:
        read: the agent's list of the answers that its branches have read; the last one belongs to
            the branch that it is in.
    """

    read: list[Answer]

    def __new__(cls, read: list[Answer], site: int, bar: int, phase: int, mask: int) -> Answer:
        """An answer that adds itself to `read` when a branch of the kernel reads it."""
        made = super().__new__(cls, (site, bar, phase, mask))
        made.read = read
        return made

    def __bool__(self) -> bool:
        self.read.append(self)
        return False

    def allows(self, bar: int, phase: int, mask: int) -> bool:
        """True if a wait by the threads of `mask` is the one for which the test stands."""
        _, asked, of, threads = self
        return (not CONDITIONS.phases or (asked, of) == (bar, phase)) and (
            not CONDITIONS.threads or not mask & ~threads
        )


def too_early(known: bool) -> bool:
    """True if a test cannot be treated as a wait. `known`: it follows the completion of the phase
    before.
    """
    return CONDITIONS.before and not known


@dataclass(frozen=True, slots=True)
class Guards:
    """The tests of a kernel that are treated as waits, by site.

    Attributes:
        tests: site of a test -> its group. Tests whose answers can reach one variable form a group:
            all of them are treated as waits, or none.
        waits: site of a guarded wait -> the group of the tests that guard it.
        read_at_once: answers count as read where the test is made, not where a branch reads them:
            each has to be followed by its wait before the next test of the group.
        unread: the groups in which an answer that no wait has followed was read by nothing, as the
            kernel's text shows.
    """

    tests: Mapping[int, int] = field(default_factory=dict)
    waits: Mapping[int, int] = field(default_factory=dict)
    read_at_once: bool = False
    unread: frozenset[int] = frozenset()

    def without(self, site: int) -> Guards:
        """The tests that are still treated as waits when one turns out to be none."""
        kept = {s: group for s, group in self.tests.items() if group != self.tests[site]}
        waits = {s: group for s, group in self.waits.items() if group in kept.values()}
        return replace(self, tests=kept, waits=waits)


def guards(kernel: Kernel, sites: list[OpSite]) -> Guards:
    """The tests that meet condition (b), each of which guards some wait. `sites`: those of the
    compiled kernel.
    """
    number = {id(site.op): site.id for site in sites}
    found = [a for role in kernel.roles for a in _Flow(list(walk(role.body))).groups()]
    tests = {
        number[id(test)]: group for group, answers in enumerate(found) for test in answers.tests
    }
    waits = {number[id(wait)]: group for group, a in enumerate(found) for wait in a.waits}
    return Guards(tests, waits)


@dataclass(eq=False, slots=True)
class _Answers:
    """A group of tests with the waits that they guard. `leaks`: something else depends on their
    answers.
    """

    tests: list[ops.MbarTryWait] = field(default_factory=list)
    waits: list[ops.MbarWait] = field(default_factory=list)
    leaks: bool = False


class _Flow:
    """The flow of the answers of one role's tests."""

    def __init__(self, every: list[ops.Op]) -> None:
        self.every = every
        self._above: dict[Name, Name] = {
            op.result: op.result for op in every if isinstance(op, ops.MbarTryWait)
        }
        self._readers: dict[Name, set[int]] = {}
        for op in every:
            for name in _read(op):
                self._readers.setdefault(name, set()).add(id(op))
        self._follow()

    def _follow(self) -> None:
        """Joins the names that hold the same answers, until there is no new name."""
        known = -1
        while known != len(self._above):
            known = len(self._above)
            for op in self.every:
                for source, target in _copies(op):
                    if source in self._above:
                        self._join(source, target)

    def _group(self, name: Name) -> Name:
        while self._above[name] is not name:
            name = self._above[name]
        return name

    def _join(self, source: Name, target: Name) -> None:
        one = self._group(source)
        other = self._group(target) if target in self._above else target
        self._above[other] = one

    def groups(self) -> Iterator[_Answers]:
        """The groups on whose answers nothing but waits depends."""
        found: dict[Name, _Answers] = {}
        for name in self._above:
            found.setdefault(self._group(name), _Answers())
        for op in self.every:
            if isinstance(op, ops.MbarTryWait):
                found[self._group(op.result)].tests.append(op)
            guard = self._guard(op)
            for name in self._used(op):
                answers = found[self._group(name)]
                answers.leaks |= name is not guard
                if name is guard:
                    assert isinstance(op, ops.If)
                    branch = (*walk(op.then), *walk(op.orelse))
                    answers.waits += [x for x in branch if isinstance(x, ops.MbarWait)]
        for answers in found.values():
            if answers.waits and not (answers.leaks and CONDITIONS.flow):
                yield answers

    def _used(self, op: ops.Op) -> set[Name]:
        """The answers that an op reads, except to copy them to a name that is uniform."""
        copied = {source for source, target in _copies(op) if target.vary is Vary.UNIFORM}
        return {name for name in _read(op) - copied if name in self._above}

    def _guard(self, op: ops.Op) -> Local | None:
        """The answer that decides whether a wait is performed, in a branch with nothing else."""
        if not isinstance(op, ops.If):
            return None
        name, yes, no = op.cond, op.then, op.orelse
        if isinstance(name, Unary) and name.op == "not":
            name, yes, no = name.a, no, yes
        alone = not CONDITIONS.flow or (not yes.ops and self._only_waits(no))
        return name if isinstance(name, Local) and alone else None

    def _only_waits(self, block: ops.Block) -> bool:
        """True if a block computes the operands of one wait, and performs it."""
        if not block.ops:
            return False
        *before, last = block.ops
        if not isinstance(last, ops.MbarWait) or not all(def_use.defines(op) for op in before):
            return False
        inside = {id(op) for op in block.ops}
        return all(
            self._readers.get(name, inside) <= inside for op in before for name in def_use.bound(op)
        )


def _read(op: ops.Op) -> set[Name]:
    """The names whose values an op itself reads."""
    found: set[Name] = {leaf for leaf in def_use.leaves(op) if isinstance(leaf, Local)}
    if not isinstance(op, ops.Define | ops.Assign):
        found |= {x for x in def_use.operands(op) if isinstance(x, Variable)}
    return found


def _copies(op: ops.Op) -> list[tuple[Name, Name]]:
    """The names that an op copies unchanged, each with its target."""
    match op:
        case ops.Let(local=target, expr=Local() as source):
            return [(source, target)]
        case (
            ops.Define(var=target, init=Local() as source)
            | ops.Assign(var=target, value=Local() as source)
        ):
            return [(source, target)]
        case ops.Read(local=target, var=source):
            return [(source, target)]
    return []
