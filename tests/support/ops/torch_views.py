"""Random views of random memory: any operands, source and out that PyTorch can make, also ones that
overlap.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

import tilepipe as tp
from tests.support.ops.torch_reference import check, torch

EXTENTS = st.sampled_from([1, 2, 3, 7, 8, 16, 24])


class Operands:
    """Tensors by the name of their argument; shown without their elements."""

    def __init__(self, tensors: dict[str, Any]) -> None:
        self.tensors = tensors

    def __repr__(self) -> str:
        return str(
            {
                n: (x.dtype, tuple(x.shape), x.stride(), x.storage_offset(), x.data_ptr())
                for n, x in self.tensors.items()
            }
        )


@st.composite
def view(draw: st.DrawFn, memory: Any, shape: tuple[int, ...], *, distinct: bool = False) -> Any:
    """A view of `memory` with this shape: dimensions in any order in memory, gaps between them, and
    an offset.

    `distinct`: no two elements share memory; else some dimensions may have a stride of 0.
    """
    strides, step = [0] * len(shape), draw(st.sampled_from([1, 1, 1, 2]))
    for axis in draw(st.permutations(range(len(shape)))):
        strides[axis] = step
        step *= shape[axis]
        step += draw(st.sampled_from([0, 0, 0, 1, 8]))
    if not distinct and shape:
        for axis in draw(st.lists(st.integers(0, len(shape) - 1), max_size=1)):
            strides[axis] = 0
    return torch.as_strided(memory, shape, strides, draw(st.sampled_from([0, 0, 8, 64, 1])))


@st.composite
def problem(draw: st.DrawFn, device: str) -> Operands:
    m, n, k = (draw(EXTENTS) for _ in range(3))
    batch = draw(st.lists(st.sampled_from([1, 2, 3]), max_size=2))
    left = tuple(draw(st.sampled_from([x, 1])) for x in batch)[draw(st.integers(0, 2)) :]
    right = tuple(draw(st.sampled_from([x, 1])) for x in batch)[draw(st.integers(0, 2)) :]
    a_shape = (k,) if not left and draw(st.booleans()) and draw(st.booleans()) else (*left, m, k)
    b_shape = (k,) if not right and draw(st.booleans()) and draw(st.booleans()) else (*right, k, n)
    dtype = draw(st.sampled_from([torch.bfloat16, torch.float16]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    memory = [torch.randn(60_000, generator=generator).to(device, dtype) for _ in range(4)]
    a, b = draw(view(memory[0], a_shape)), draw(view(memory[1], b_shape))
    result = tuple((a.double() @ b.double()).shape)
    found: dict[str, Any] = {"a": a, "b": b}
    columns = 1 if len(b_shape) == 1 else n
    if draw(st.booleans()):
        found["bias"] = draw(view(memory[2], (columns,)))
    if draw(st.booleans()):
        found["source"] = draw(view(memory[2], result[draw(st.integers(0, len(result))) :]))
    if draw(st.booleans()):
        found["out"] = draw(
            view(memory[draw(st.sampled_from([3, 3, 2, 1, 0]))], result, distinct=True)
        )
    return Operands(found)


def check_views(operands: Operands) -> None:
    """Asserts ops.matmul of these operands, and that `out` is what was written."""
    found = dict(operands.tensors)
    kept = {name: x.clone() for name, x in found.items()}
    a, b, out = found.pop("a"), found.pop("b"), found.pop("out", None)
    got = tp.ops.matmul(a, b, out=out, activation="relu", **found)
    assert out is None or got is out
    check(
        got,
        kept.pop("a"),
        kept.pop("b"),
        activation="relu",
        **{n: x for n, x in kept.items() if n != "out"},
    )
