"""Removing each line of a kernel in turn, and lowering its numbers of stages."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tilepipe.check import choose_front_end
from tilepipe.check.choose_front_end import Made
from tilepipe.check.decide import check
from tilepipe.check.parallel.recipes import launch_of
from tilepipe.check.sensitivity import traced_lines
from tilepipe.check.sensitivity.results import Line, Sensitivity, Stages
from tilepipe.check.verdict import Bounds, Reductions, require_options
from tilepipe.errors import BindError, TilepipeError
from tilepipe.ir.program import Launch
from tilepipe.machine.rules import Rules

Rebind = Callable[[str, int], Made]
Progress = Callable[[int, int], None]  # called with (rows and stage counts done, total)

QUICK = Bounds(traces=20_000, seconds=60.0, steps=200_000)


def report(
    program: Made,
    *,
    rebind: Rebind | None = None,
    stages: Mapping[str, int] | None = None,
    bounds: Bounds = QUICK,
    rules: Rules = "practice",
    progress: Progress | None = None,
    instance: str = "",
) -> Sensitivity:
    """Removes each synchronising line in turn, all its ops of one kind together, and checks the
    rest of the kernel.

    Args:
        program: a kernel that verifies, on a small instance; or a launch of PTX.
        rebind: for the report on stages: (name, n) -> the program with that setting at n. It may
            raise whatever `bind` raises.
        stages: the settings to lower, and their values.
        bounds: the limits of each exploration.
        progress: called with (done, total).

    Raises:
        SimFault: the unchanged kernel ends in a fault.
        BindError: an argument has the wrong type.
    """
    launch = choose_front_end.launch_of(program)
    if launch is None:
        raise BindError(
            "sensitivity.report takes a program, which kernel.bind(...) gives, or a launch; got"
            f" {program!r:.80}"
        )
    require_options(False, bounds, Reductions(), rules, instance, progress)
    if rebind is not None and not callable(rebind):
        raise BindError(
            "rebind= is a function (name, n) that gives the program with that setting at n; got"
            f" {rebind!r}"
        )
    settings = {} if rebind is None else dict(stages or {})
    if isinstance(launch, Launch):
        work, size = traced_lines.judgements(launch, bounds, rules), f"{launch.grid} CTAs"
    else:
        from tilepipe.check.sensitivity import ptx_lines

        work, size = ptx_lines.judgements(launch, bounds, rules), str(launch)
    total = len(work) + len(settings)

    def counted(done: int) -> None:
        if progress is not None:
            progress(done, total)

    lines: list[Line] = []
    for done, judged in enumerate(work):
        counted(done)
        lines.append(judged())
    found: list[Stages] = []
    for done, (name, now) in enumerate(settings.items(), len(work)):
        counted(done)
        assert rebind is not None
        found.append(_fewest(name, now, rebind, bounds, rules))
    counted(total)
    return Sensitivity(launch.kernel.name, instance or size, lines, found)


# -- stages ----------------------------------------------------------------------------


def _fewest(name: str, now: int, rebind: Rebind, bounds: Bounds, rules: Rules) -> Stages:
    """Tries n stages from `now` down to the first n that does not verify."""
    fewest, below = 0, ""
    for n in range(now, 0, -1):
        below = _wrong(name, n, rebind, bounds, rules)
        if below:
            break
        fewest = n
    return Stages(name, now, fewest, below)


def _wrong(name: str, n: int, rebind: Rebind, bounds: Bounds, rules: Rules) -> str:
    """The fault with n stages; "" if they verify."""
    try:
        made = rebind(name, n)
    except TilepipeError as error:
        return f"{n} is refused: {str(error).splitlines()[0]}"
    verdict = check(
        launch_of(made),
        bounds=bounds,
        rules=rules,
        shorten=False,
    )
    if verdict.ok:
        return ""
    if not verdict.faults:
        return f"{n} is undecided: {verdict.bound}"
    fault = verdict.faults[0]
    return f"{n}: {fault.kind} at {fault.loc}: {fault.message.splitlines()[0]}"
