"""Counters in GPU memory, from which the CTAs of a launch draw their tiles."""

from __future__ import annotations

import torch

from tilepipe.ops.torch import device

# (device, handle of a stream) -> its counter. Launches of one stream follow each other, and each
# leaves the counter at 0. PyTorch destroys no stream of its own; of one that another library made
# and destroyed while a launch still ran, a new stream could take over the handle, and the counter.
_counters: dict[tuple[int, int], torch.Tensor] = {}


def counter(ordinal: int, stream: int) -> torch.Tensor:
    """An int32 0 on a device, for one launch on a stream of it.

    A launch that a CUDA graph captures gets a counter of its own, which the graph sets to 0: the
    graph may be replayed on another stream, beside launches of this one.
    """
    if device.capturing():
        return torch.zeros(1, dtype=torch.int32, device=device.of_ordinal(ordinal))
    found = _counters.get((ordinal, stream))
    if found is None:
        found = _counters.setdefault((ordinal, stream), device.lasting_zero(ordinal, stream))
    return found
