"""Programs bound to tensors of PyTorch on the CPU."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.support.tracing import refused

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


@tp.kernel(grid=1)
def doubled(ctx: tp.Context, a: Any, out: Any) -> None:
    """out = 2 · a, for a (rows, 32)"""

    @ctx.role("all", warps=1)
    def scale() -> None:
        for i in ctx.range(a.shape[0]):
            ctx.store(out[i, ctx.lane], (2.0 * ctx.load(a[i, ctx.lane])).to(out.dtype))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_it_runs_in_the_memory_of_the_tensors(dtype: str) -> None:
    whole = torch.zeros(6, 48, dtype=getattr(torch, dtype))
    a, out = torch.randn(6, 32).to(whole.dtype), whole[:, 8:40]
    program = doubled.bind(a, out)
    program.run()
    assert torch.equal(out, 2 * a)
    a += 1  # what is bound is the memory, not a copy
    program.run(seed=1)
    assert torch.equal(out, 2 * a)
    assert not bool(whole[:, :8].any() | whole[:, 40:].any())
    assert program.check().ok
    assert "a: 2-d " + dtype in str(program)


@pytest.mark.slow
def test_the_printed_ptx_runs_on_them() -> None:
    a, out = torch.randn(3, 32), torch.zeros(3, 32)
    program = doubled.bind(a, out)
    try:
        program.ptx().run()
    except tp.UnavailableError:
        pytest.skip("NVRTC is not installed")
    assert torch.equal(out, 2 * a)


def test_boxes_and_fp8() -> None:
    x = torch.randn(16, 32).to(torch.float8_e4m3fn)
    found = tp.tensor_map(x, box=(8, 32))
    assert (found.dtype, found.shape) == (tp.float8_e4m3, (16, 32))
    assert np.shares_memory(found.array.view(np.uint8), x.view(torch.uint8).numpy())
    columns = tp.tensor_map(x.T, box=(32, 8))
    assert columns.order == "col"


def test_tensors_that_share_memory_are_seen_to() -> None:
    x = torch.zeros(6, 32)
    with refused(tp.BindError, "arguments 'out', which kernel 'doubled' writes, and 'a' share mem"):
        doubled.bind(x[1:], x[:5])


class OnAGpu:
    """An array of some library in GPU memory."""

    dtype, shape, strides = np.dtype(np.float32), (3, 32), (128, 4)
    __cuda_array_interface__ = {"data": (0, False)}  # noqa: RUF012


def test_arrays_in_different_places_are_one_error() -> None:
    for host in (torch.zeros(3, 32), np.zeros((3, 32), np.float32)):
        with refused(
            tp.BindError,
            "argument 'out' is in the memory of a GPU and 'a' in the host's",
            "Move one of them: .cuda() or .cpu()",
        ):
            doubled.bind(host, OnAGpu())


def test_tensors_that_no_array_views() -> None:
    x = torch.zeros(3, 32)
    with refused(tp.BindError, "argument 'a': ", "layout torch.sparse_coo"):
        doubled.bind(x.to_sparse(), x)
    negative = torch.zeros(3, 32, dtype=torch.complex64).conj().imag
    with refused(tp.BindError, "argument 'a': ", "a negative view", "x.resolve_neg()"):
        doubled.bind(negative, x)


@pytest.mark.slow
def test_pytorch_is_not_imported() -> None:
    text = (
        "import sys, numpy as np, tilepipe as tp; from tilepipe import ops;"
        "tp.tensor_map(np.zeros((8, 8), np.float32)); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", text], check=False).returncode == 0
