"""What is printed of stores, and reductions, of fragments of layout "rows:T"."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tilepipe as tp


def source(dtype: np.typing.DTypeLike, reduce: str | None) -> str:
    @tp.kernel()
    def kernel(ctx: tp.Context, x: tp.GlobalTensor) -> None:
        @ctx.role("all", warpgroups=1)
        def all_() -> None:
            f = ctx.load_global(x, (0, 0), (16, 64), layout="rows:8")
            ctx.store_global(x, (0, 0), f, reduce=reduce)

    return kernel.bind(np.zeros((16, 64), dtype)).source()


@pytest.mark.parametrize(
    ("dtype", "form", "one"),
    [
        (np.float32, "add.v4.f32", "add.f32"),
        (np.float16, "add.noftz.v4.f16x2", "add.noftz.f16"),
        (ml_dtypes.bfloat16, "add.noftz.v4.bf16x2", "add.noftz.bf16"),
    ],
)
def test_a_vector_is_added_by_accesses_of_16_bytes(
    dtype: np.typing.DTypeLike, form: str, one: str
) -> None:
    text = source(dtype, "add")
    assert f'"red.relaxed.gpu.global.{form} [%0], ' in text
    assert f'"red.relaxed.gpu.global.{one} [%0], ' in text  # at an edge
    assert "store_vector" not in text
    plain = source(dtype, None)
    assert "store_vector" in plain
    assert "red." not in plain


def test_integers_are_added_one_by_one() -> None:
    text = source(np.int32, "add")
    assert '"red.relaxed.gpu.global.add.s32 [%0], ' in text
    assert "add_vector" not in text
