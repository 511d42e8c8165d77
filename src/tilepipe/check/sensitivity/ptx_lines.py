"""The synchronising instructions of a kernel of PTX, and the judgement of the kernel without each.

Instructions of one kind that come from one line of the source, inlined in one place, are taken out
together: a compiler that unrolls a loop copies them. A test of a barrier is taken out as if it had
passed, `elect.sync` as if it had elected every lane; other results are 0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from tilepipe.check.counterexamples.replaying import perform
from tilepipe.check.decide import check
from tilepipe.check.engine.ptx_front_end import PtxFrontEnd
from tilepipe.check.mutation.outcomes import Outcome, outcome_of
from tilepipe.check.sensitivity.results import Line
from tilepipe.check.verdict import Bounds
from tilepipe.errors import TilepipeError
from tilepipe.machine.advice import subject
from tilepipe.machine.clusters import quiet_numbers
from tilepipe.machine.rules import Rules
from tilepipe.ptx import Launch
from tilepipe.ptx.definition import Compute, Perform, operation
from tilepipe.ptx.syntax.nodes import Function, Instruction, Integer, Register

# The start of an instruction's name -> what it is called; the first that fits.
_KINDS = {
    r"mbarrier\.(test|try)_wait": "wait",
    r"mbarrier\.(expect_tx|complete_tx|arrive.*\.expect_tx)": "expect",
    r"(mbarrier|barrier\.cluster|(bar|barrier)(\.cta)?|cp\.async\.mbarrier)\.arrive": "arrive",
    r"bar\.warp\.sync": "syncwarp",
    r"(bar|barrier)(\.cta)?\.sync": "sync",
    r"(barrier\.cluster|griddepcontrol)\.wait": "wait",
    r"(cp\.async|cp\.async\.bulk|wgmma)\.wait|tcgen05\.wait": "wait",
    r"(cp\.async|cp\.async\.bulk|wgmma|tcgen05)\.commit": "commit",
    r"fence|membar|wgmma\.fence|tcgen05\.fence": "fence",
    r"tcgen05\.(dealloc|relinquish)": "dealloc",
    r"griddepcontrol|setmaxnreg": "hint",
    r"elect": "elect",
}
_ANY = re.compile("|".join(f"({pattern})" for pattern in _KINDS))
_TRUE = ("wait", "elect")  # of these, a predicate is true where the instruction is taken out
NO_EFFECT = "not modelled: it changes nothing that a check observes, with or without it"
UNREACHED = "not reached: no warp executes it in this instance"
ADVISED = 'accepted with advice (a fault with rules="strict")'

Member = tuple[Function, int]  # an instruction by its place


def judgements(launch: Launch, bounds: Bounds, rules: Rules) -> list[Callable[[], Line]]:
    """For each instruction that synchronises, what judges the kernel without it.

    Raises:
        SimFault: the unchanged kernel ends in a fault.
    """
    reference = _run(launch, rules)
    groups = _groups(launch).values()
    return [partial(_judged, launch, x, reference, bounds, rules) for x in groups]


def _judged(
    launch: Launch,
    members: Sequence[Member],
    reference: _Run,
    bounds: Bounds,
    rules: Rules,
) -> Line:
    instructions = [function.instructions[at] for function, at in members]
    first, why = instructions[0], ""
    if not any(isinstance(operation(i), Perform | Compute) for i in instructions):
        outcome = Outcome("undecided", message=NO_EFFECT)
    else:
        outcome = _without(launch, members, reference, bounds, rules)
    if outcome.fate == "redundant":
        executed = [n for i in instructions if (n := reference.executed.get(i.line)) is not None]
        advised = not {*map(subject, outcome.advice)} <= {*map(subject, reference.advice)}
        why = ADVISED if advised else UNREACHED if executed and not any(executed) else ""
    loc, source = launch.source_of(first)
    return Line.of(loc, source, str(first), len(members), _kind(first), (), outcome, why)


def _without(
    launch: Launch, members: Sequence[Member], reference: _Run, bounds: Bounds, rules: Rules
) -> Outcome:
    try:
        changed = _changed(launch, members)
        verdict = check(changed, bounds=bounds, rules=rules, shorten=False)
    except TilepipeError as error:
        return Outcome("refused", type(error).__name__, "", str(error))
    found = outcome_of(verdict, bounds)
    if found.fate == "redundant" and _run(changed, rules).outputs != reference.outputs:
        return Outcome("numbers", message="no fault, but other values in memory")
    return found


@dataclass(frozen=True, slots=True)
class _Run:
    """The result of one execution.

    Attributes:
        outputs: what it leaves in memory. advice: the machine's. executed: line of PTX -> how often
            it was executed, for the instructions that ask the machine for something.
    """

    outputs: list[bytes]
    advice: list[str]
    executed: dict[int, int]


def _run(launch: Launch, rules: Rules) -> _Run:
    front_end = PtxFrontEnd(launch, rules)
    with quiet_numbers():
        error, execution = perform(front_end, ())
    if error is not None:
        raise error
    counts, executed = execution.world.counts, dict[int, int]()
    for site in launch.kernel.code.sites.values():
        line = site.instruction.line
        executed[line] = executed.get(line, 0) + counts[site.number]
    outputs = [tensor.array.tobytes() for tensor in front_end.launch.memory.tensors]
    return _Run(outputs, execution.world.advice, executed)


# -- which instructions ----------------------------------------------------------------


def _kind(instruction: Instruction) -> str:
    """The name of a synchronising instruction; "" of any other."""
    found = _ANY.match(instruction.name)
    return "" if found is None else next(
        kind for pattern, kind in _KINDS.items() if re.match(pattern, instruction.name)
    )  # fmt: skip


def _groups(launch: Launch) -> dict[object, list[Member]]:
    """The instructions to take out together, in the order of the text."""
    code = launch.kernel.code.function.instructions
    lines = {instruction.line for instruction in code}
    groups: dict[object, list[Member]] = {}
    for function in launch.kernel.module.functions.values():
        for at, instruction in enumerate(function.instructions):
            if instruction.line in lines and (kind := _kind(instruction)):
                places = tuple(_chain(instruction)) or instruction.line
                groups.setdefault((places, kind, instruction.name), []).append((function, at))
    return groups


def _chain(instruction: Instruction) -> Iterator[tuple[str, int]]:
    """The line that an instruction comes from, and the lines at which that was inlined."""
    position = instruction.position
    while position is not None:
        yield position.file, position.line
        position = position.called_at


# -- taking out ------------------------------------------------------------------------


def _changed(launch: Launch, members: Sequence[Member]) -> Launch:
    """The launch of the kernel without some instructions."""
    taken: dict[str, set[int]] = {}
    for function, at in members:
        taken.setdefault(function.name, set()).add(at)
    kernel = launch.kernel
    functions = dict(kernel.module.functions)
    functions |= {name: _rest(functions[name], gone) for name, gone in taken.items()}
    module = replace(kernel.module, functions=functions)
    return replace(launch, kernel=replace(kernel, module=module, function=functions[kernel.name]))


def _rest(function: Function, gone: set[int]) -> Function:
    """A function without some instructions; branches lead to what follows them."""
    kept: list[Instruction] = []
    place: list[int] = []
    for at, instruction in enumerate(function.instructions):
        place.append(len(kept))
        kept += _results(instruction) if at in gone else [instruction]
    place.append(len(kept))
    return replace(
        function,
        instructions=[
            replace(i, targets=tuple(place[t] for t in i.targets)) if i.targets else i for i in kept
        ],
        labels={name: place[at] for name, at in function.labels.items()},
    )


def _results(instruction: Instruction) -> list[Instruction]:
    """The instructions that give the results of one that is removed."""
    does = operation(instruction)
    results = does.results if isinstance(does, Perform | Compute) else ()
    true = int(_kind(instruction) in _TRUE)
    return [
        replace(
            instruction,
            opcode="mov",
            modifiers=(target.type,),
            operands=(target, Integer(true if target.type == "pred" else 0)),
        )
        for target, _ in results
        if isinstance(target, Register)
    ]
