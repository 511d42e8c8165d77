"""What the operators of attention have in common: a result and the logarithms of its sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import torch

from tilepipe.ops.calls import Progress
from tilepipe.ops.torch.simulated import simulation

Results = tuple[torch.Tensor, torch.Tensor]
Asked = tuple[torch.Tensor, torch.Tensor | None]  # None: nobody has asked for the logarithms
NO_LSE = (0, 0, 0)  # the shape of logarithms that nobody has asked for


class AttentionLike(Protocol):
    """A call of an attention."""

    q: torch.Tensor
    return_lse: bool


CallT = TypeVar("CallT", bound=AttentionLike)


def simulation_of_both(
    operation: str,
    check: Callable[[CallT], object],
    run: Callable[[Any, int, Progress | None], Any],
) -> Callable[[CallT], Asked | None]:
    """As `simulation`, for a `PlanCache` whose results are pairs."""
    simulated = simulation(operation, lambda call: call.q, check, run)  # type: ignore[type-var]

    def results(call: CallT) -> Asked | None:
        found = simulated(call)
        if found is None:
            return None
        if call.return_lse:
            result, lse = found
            return result, lse
        return found, None

    return results


def both_of(found: Asked) -> Results:
    """The results of an operator, which are two tensors: logarithms that nobody has asked for have
    no elements.
    """
    result, lse = found
    return result, result.new_empty(NO_LSE, dtype=torch.float32) if lse is None else lse


def descale_tensors(*given: object) -> tuple[torch.Tensor | None, ...]:
    """Of descales those that are tensors, None in the place of others."""
    # most have none, and every call asks: `isinstance` is the dearer question
    return tuple([x if x is not None and isinstance(x, torch.Tensor) else None for x in given])


def descale_parts(*given: object) -> tuple[tuple[torch.Tensor | None, ...], tuple[object, ...]]:
    """The tensors among descales, as `descale_tensors`, and the others, None in the place of
    tensors: the parts of a plan's key.
    """
    tensors = descale_tensors(*given)
    return tensors, tuple([x if y is None else None for x, y in zip(given, tensors, strict=True)])
