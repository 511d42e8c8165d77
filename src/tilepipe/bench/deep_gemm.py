"""DeepGEMM, DeepSeek's GEMMs of fp8 with scales of blocks, as a peer where the package deep_gemm is
installed. Each function gives a launch that writes into the tensors it is given.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import torch

from tilepipe.bench import timing

NAME = "DeepGEMM"
WRITES = "it writes bfloat16"
ROWS = 128  # what a group's rows must be a multiple of where groups follow each other


def product(
    a: Sequence[Any], a_scales: Any, b: Sequence[Any], b_scales: Any, c: Sequence[Any]
) -> timing.Launch:
    """C = A · Bᵀ. As our kernel takes them: a_scales (k blocks, m), b_scales (n blocks, k blocks).

    Raises:
        ImportError: it is not installed.
    """
    function = importlib.import_module("deep_gemm").fp8_gemm_nt
    left, right = a_scales.t(), b_scales.contiguous()
    return lambda i: function((a[i], left), (b[i], right), c[i])


def grouped(
    a: Sequence[Any],
    a_scales: Any,
    b: Sequence[Any],
    b_scales: Any,
    c: Sequence[Any],
    rows: Sequence[tuple[int, int, int]],
) -> timing.Launch | str:
    """The rows of A, group by group, times a matrix of B each; or why it cannot. `rows`: (group,
    start, end) of the groups that have some, in order.

    Raises:
        ImportError: it is not installed.
    """
    module = importlib.import_module("deep_gemm")
    module.set_mk_alignment_for_contiguous_layout(ROWS)
    if any(start % ROWS or end % ROWS for _, start, end in rows):
        return f"it takes groups of a multiple of {ROWS} rows, such as those of split even"
    groups = torch.full((a[0].shape[0],), -1, dtype=torch.int32, device=a[0].device)
    for group, start, end in rows:
        groups[start:end] = group
    left, right = a_scales.t(), b_scales.contiguous()
    function = module.m_grouped_fp8_gemm_nt_contiguous
    return lambda i: function((a[i], left), (b[i], right), c[i], groups)


def padded(
    a: Sequence[Any],
    a_scales: Any,
    b: Sequence[Any],
    b_scales: Any,
    c: Sequence[Any],
    counts: Any,
) -> timing.Launch:
    """The first `counts[g]` rows of a matrix of A for each group ("masked"). It is told how many to
    expect.

    Raises:
        ImportError: it is not installed.
    """
    function = importlib.import_module("deep_gemm").m_grouped_fp8_gemm_nt_masked
    expected = -(-int(counts.sum()) // len(counts))
    left, right = a_scales.transpose(1, 2), b_scales.contiguous()
    return lambda i: function((a[i], left), (b[i], right), c[i], counts, expected)


def k_grouped(
    a: Sequence[Any],
    a_scales: Any,
    b: Sequence[Any],
    b_scales: Any,
    c: Sequence[Any],
    parts: Sequence[tuple[int, int]],
) -> timing.Launch | str:
    """C[g] += A · Bᵀ over a part [start, end) of K each, float32, "k-grouped"; or why it cannot.
    It reads a copy of A and B in which the part of each group is a matrix of its own.

    Raises:
        ImportError: it is not installed.
    """
    function = importlib.import_module("deep_gemm").k_grouped_fp8_gemm_nt_contiguous
    if any(start % ROWS or end % ROWS for start, end in parts):
        return f"it takes groups of a multiple of {ROWS} elements of K"
    extents = [end - start for start, end in parts]
    on_gpu = torch.tensor(extents, dtype=torch.int32, device=a[0].device)
    left, right = (
        [torch.cat([x[:, start:end].flatten() for start, end in parts]) for x in matrices]
        for matrices in (a, b)
    )
    scales = a_scales.t(), b_scales.t()
    return lambda i: function(
        (left[i], scales[0]), (right[i], scales[1]), c[i], extents, on_gpu, c[i]
    )
