"""What the operators of attention have in common: a result and the logarithms of its sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import torch

from tilepipe.ops.calls import Progress
from tilepipe.ops.torch.simulated import simulation

Results = tuple[torch.Tensor, torch.Tensor]
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
) -> Callable[[CallT], Results | None]:
    """As `simulation`, for a `PlanCache` whose results are pairs: without `return_lse` the
    logarithms have no elements.
    """
    simulated = simulation(operation, lambda call: call.q, check, run)  # type: ignore[type-var]

    def results(call: CallT) -> Results | None:
        found = simulated(call)
        if found is None:
            return None
        if call.return_lse:
            result, lse = found
            return result, lse
        return found, torch.empty(NO_LSE, dtype=torch.float32)

    return results


def descale_tensors(*given: object) -> tuple[torch.Tensor | None, ...]:
    """Of descales those that are tensors, None in the place of others."""
    return tuple(x if isinstance(x, torch.Tensor) else None for x in given)
