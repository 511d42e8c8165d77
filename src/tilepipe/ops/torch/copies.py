"""Copies of tensors whose rows TMA cannot read, into rows that it can, and back."""

from __future__ import annotations

import torch

from tilepipe.kernels.rows import copies
from tilepipe.ops.torch import launches

LEAST_BYTES = 1 << 24  # of fewer, PyTorch's copy is over before the host has launched ours
WORDS = ((8, torch.int64), (4, torch.int32), (2, torch.bfloat16))  # moved as they are


def copy(to: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Copies `x` to `to`, of its shape and dtype; `to`. Large ones by a kernel that reads rows
    that begin anywhere twice as fast as PyTorch's copy (docs/performance/gemm.md).
    """
    if not x.is_cuda or x.numel() * x.element_size() < LEAST_BYTES:
        return to.copy_(x)
    found = as_words(to, x)
    if found is None:
        return to.copy_(x)
    launch(*found)
    return to


def launch(to: torch.Tensor, x: torch.Tensor) -> None:
    """Copies a matrix, both contiguous along the last dimension."""
    launches.run("copy", (), lambda named, _: copies.bind(named["x"], named["y"]), x=x, y=to)


def as_words(to: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Both as matrices of the longest words that all their rows are made of; None where they are no
    rows of contiguous elements, one after the other.
    """
    rows = [_rows(y) for y in (to, x)]
    if rows[0] is None or rows[1] is None:
        return None
    to, x = rows[0], rows[1]
    size = x.element_size()
    parts = x.shape[1] * size
    for y in (to, x):
        parts |= (y.stride(0) | y.storage_offset()) * size | y.data_ptr()
    for word, dtype in WORDS:
        if parts % word == 0:
            return to.view(dtype), x.view(dtype)
    return None


def _rows(x: torch.Tensor) -> torch.Tensor | None:
    """The tensor as a matrix; None where it is none, contiguous along the last dimension."""
    if x.dim() < 2 or x.stride(-1) != 1 or not x.numel():
        return None
    if x.dim() == 2:
        return x
    try:
        return x.view(-1, x.shape[-1])
    except RuntimeError:  # batches that are no rows of one matrix
        return None
