"""Counters in GPU memory, from which the CTAs of a launch draw their tiles, or tickets."""

from __future__ import annotations

import torch

from tilepipe.ops.torch import device

# (device, handle of a stream, how many) -> its counters. Launches of one stream follow each other,
# and each leaves the counters at 0. PyTorch destroys no stream of its own; of one that another
# library made and destroyed while a launch still ran, a new stream could take over the handle, and
# the counters.
_counters: dict[tuple[int, int, int], torch.Tensor] = {}


def zeros(ordinal: int, stream: int, count: int) -> torch.Tensor:
    """Zeros, int32, on a device, for one launch on a stream of it: `count`, or up to twice as many.

    A launch that a CUDA graph captures gets counters of its own, which the graph sets to 0: the
    graph may be replayed on another stream, beside launches of this one.
    """
    if device.capturing():
        return torch.zeros(count, dtype=torch.int32, device=device.of_ordinal(ordinal))
    # They stay for good, so there are of few sizes.
    key = ordinal, stream, 1 << (count - 1).bit_length()
    found = _counters.get(key)
    return _counters.setdefault(key, device.lasting_zeros(*key)) if found is None else found


def counter(ordinal: int, stream: int) -> torch.Tensor:
    """One of `zeros`."""
    return zeros(ordinal, stream, 1)
