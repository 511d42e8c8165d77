"""Operations on tensors on the CPU: simulated in their own memory, as those on NumPy arrays are."""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from tilepipe.ir.host_tensors import host_memory, tensor_of
from tilepipe.ops.calls import Array, Progress
from tilepipe.ops.torch import device
from tilepipe.ops.torch.tensors import note_written

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

CallT = TypeVar("CallT", bound="DataclassInstance")
ResultT = TypeVar("ResultT")
LONG_S = 10.0  # a run that takes longer is announced
SETTLED_S = 1.0  # after which the CTAs that are done say how long the others take

OPTIONS: ContextVar[tuple[int, Progress | None]] = ContextVar("OPTIONS", default=(0, None))
"""`seed` and `progress` of the call that is under way. Operators of PyTorch do not pass them on."""

_announced: set[str] = set()
_PACKAGE = f"{Path(__file__).resolve().parents[2]}{os.sep}"
_TORCH = f"{Path(torch.__file__).resolve().parent}{os.sep}"


class SlowSimulationWarning(UserWarning):
    """An operation on tensors on the CPU takes long, for it is simulated."""


def with_options(
    run: Callable[[CallT], ResultT], call: CallT, seed: int, progress: Progress | None
) -> ResultT:
    """`run(call)`, in which simulations have these options."""
    before = OPTIONS.set((seed, progress))
    try:
        return run(call)
    finally:
        OPTIONS.reset(before)


def simulate(
    operation: str,
    call: CallT,
    run: Callable[[Any, int, Progress | None], Any],
    *,
    reads_out: bool = False,
) -> Any:
    """The results of a call whose tensors are on the CPU, as tensors. `run` computes them with
    arrays that share the memory of the call's tensors; what it returns as `out` is the call's own.
    `reads_out`: `out` of the call is an operand, which is only read.
    """
    seed, progress = OPTIONS.get()
    arrays = {
        f.name: _arrays(f"{operation}: {f.name}", getattr(call, f.name)) for f in fields(call)
    }
    found = run(replace(call, **arrays), seed, announcing(operation, progress))
    out: torch.Tensor | None = None if reads_out else getattr(call, "out", None)
    if out is not None:
        note_written(out)

    def tensor(array: Array) -> torch.Tensor:
        made: torch.Tensor = tensor_of(array)
        return out if out is not None and array is arrays["out"] else made

    return tuple(map(tensor, found)) if isinstance(found, tuple) else tensor(found)


def simulation(
    operation: str,
    operand: Callable[[CallT], torch.Tensor],
    check: Callable[[CallT], object],
    run: Callable[[Any, int, Progress | None], Any],
) -> Callable[[CallT], Any]:
    """A function that gives the result of a call whose tensors are on the CPU, and None of others,
    for a `PlanCache`.

    Args:
        operand: a tensor of a call: all are where it is. check: raises where a call has bad
            operands. run: as of `simulate`.
    """

    def result(call: CallT) -> Any:
        if not device.simulates(operand(call)):
            return None
        check(call)
        return simulate(operation, call, run)

    return result


def _arrays(what: str, x: Any) -> Any:
    """The arrays of tensors, also of those in a pair; anything else as it is."""
    if isinstance(x, tuple | list):
        return type(x)(_arrays(what, y) for y in x)
    return host_memory(x, what) if isinstance(x, torch.Tensor) else x


def announcing(
    operation: str, progress: Progress | None, clock: Callable[[], float] = time.perf_counter
) -> Progress:
    """A `progress` that also warns where the run is going to take long: the CTAs that are done say
    how long one takes, but for the first, which has the preparation. An operation says so once in a
    process.
    """
    started = clock()
    first: tuple[int, float] | None = None

    def report(done: int, total: int) -> None:
        nonlocal first
        if operation not in _announced:
            spent = clock() - started
            before = first
            if first is None:
                first = done, spent
            if before is None or done <= before[0]:
                whole = spent * total / max(done, 1) if spent >= LONG_S else 0.0
            else:
                whole = spent + (spent - before[1]) * (total - done) / (done - before[0])
            if spent >= SETTLED_S and whole >= LONG_S:
                _announced.add(operation)
                warnings.warn(
                    f"{operation} of tensors on the CPU is simulated: this call takes about"
                    f" {_duration(whole)} ({done} of {total} CTAs in {spent:.0f} s). Move the"
                    " tensors to a GPU with .cuda(), or pass progress= to follow it;"
                    " TILEPIPE_CPU_TENSORS=off makes this an error",
                    SlowSimulationWarning,
                    stacklevel=_callers_level(),
                )
        if progress is not None:
            progress(done, total)

    return report


def _callers_level() -> int:
    """How far up the stack the caller of the operation is, for a warning of the function that asks:
    the first frame outside of tilepipe, and of PyTorch's dispatcher, which calls it back.
    """
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith((_PACKAGE, _TORCH)):
        level, frame = level + 1, frame.f_back
    return level


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:,.0f} minutes"
