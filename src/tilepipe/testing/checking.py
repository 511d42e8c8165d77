"""`check(program)`: the checker as an assertion."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilepipe.errors import TilepipeError
from tilepipe.ir.program import TensorArg
from tilepipe.program import Program
from tilepipe.testing.arguments import require_program

if TYPE_CHECKING:
    from tilepipe.check import Bounds, Reductions, Verdict
    from tilepipe.machine.rules import Rules
    from tilepipe.ptx import Launch


class CheckFailed(TilepipeError, AssertionError):
    """A check did not end in "verified".

    Attributes:
        verdict: all of it; `verdict.faults[0].schedule` is what a replay does.
    """

    def __init__(self, message: str, verdict: Verdict) -> None:
        super().__init__(message)
        self.verdict = verdict


def check(
    program: Program | Launch,
    *more: Program | Launch,
    explore: bool = False,
    bounds: Bounds | None = None,
    reductions: Reductions | None = None,
    rules: Rules = "practice",
) -> Verdict:
    """Asserts that no interleaving of a launch ends in a fault. The arrays of its arguments are
    left as they were.

    What is verified is each of these programs: this kernel with these settings and arguments, in
    all interleavings of the model of docs/verification-gaps.md. Nothing is said of other shapes;
    pass the programs of several.

    Args:
        program: of a kernel of this project, or a launch of PTX (`ptx.Kernel.bind`).
        more: further programs, usually of the same kernel with other arguments.
        explore: explores also where one run stands for all.
        bounds: when an exploration gives up. reductions: what it may leave out.
        rules: "practice", what shipped compilers rely on, or "strict", the PTX ISA to the letter:
            docs/reference/rules.md.

    Returns:
        One verdict for all programs, with the sums of the figures.

    Raises:
        CheckFailed: a fault, with the steps that lead to it, or a bound that was hit:
            undecided. Programs after the one that failed are not checked. BindError: an argument
            is no program, or not of its type.
    """
    from tilepipe.check import combine

    verdicts = []
    for p in (program, *more):
        require_program("check", p, ptx=True)
        verdict = p.check(
            explore=explore, bounds=bounds, reductions=reductions, rules=rules, instance=instance(p)
        )
        if not verdict.ok:
            raise CheckFailed(_failure(verdict), verdict)
        verdicts.append(verdict)
    return combine(verdicts)


def instance(program: Program | Launch) -> str:
    """A program in words: its kernel, its arguments' shapes and numbers, its CTAs."""
    if not isinstance(program, Program):
        return str(program)
    launch = program.launch_args
    args = ", ".join(
        f"{name} {_extents(arg.shape) if isinstance(arg, TensorArg) else arg}"
        for name, arg in launch.args.items()
    )
    size = launch.kernel.cluster_size
    ctas = f"{launch.grid} CTA{'s' * (launch.grid > 1)}{f' in clusters of {size}' * (size > 1)}"
    return f"{launch.kernel.name}{f' of {args}' if args else ''}, {ctas}"


def _extents(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "()"


def _failure(verdict: Verdict) -> str:
    from tilepipe.check.counterexamples.relevant_steps import as_text
    from tilepipe.check.verdict import NOT_MODELLED

    looked = (
        f"{verdict.method}, {verdict.traces:,} execution{'s' * (verdict.traces != 1)},"
        f" {verdict.seconds:.2g} s"
    )
    if verdict.verdict == "undecided" and verdict.bound.startswith(NOT_MODELLED):
        return f"undecided: {verdict.instance} ({looked}).\n  {verdict.bound}"
    if verdict.verdict == "undecided":
        return (
            f"undecided: {verdict.instance} ({looked}).\n"
            f"  The bound that was hit: {verdict.bound}. What was seen has no fault; that is no"
            " proof.\n"
            "  Check a smaller instance (fewer rounds of its loops, tiles or CTAs), or allow more:"
            " check(program, bounds=tilepipe.check.Bounds(...))."
        )
    lines = [f"fault: {verdict.instance} ({looked})."]
    for fault in verdict.faults:
        lines += ["", f"{fault.kind}: {fault.message}"]
        steps = as_text(fault)
        lines += ["", *(f"  {line}" for line in steps)] if steps else []
    return "\n".join(lines)
