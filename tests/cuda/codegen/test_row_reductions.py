"""The instructions of reductions of rows."""

from __future__ import annotations

import re

import pytest

from tests.support.tracing import role_from_text


def printed(kind: str, layout: str, shape: tuple[int, int], op: str) -> str:
    """The CUDA of a reduction, by a warpgroup, of a fragment filled with 1."""
    text = (
        f"f = ctx.fragment(shape={shape}, dtype='{kind}', layout='{layout}')\nf.fill(1)\n"
        f"g = ctx.fragment(f.{op}())"
    )
    return role_from_text(text, "warpgroups=1").source()


@pytest.mark.parametrize(("op", "name"), [("sum", "add"), ("max", "max"), ("min", "min")])
def test_integers_of_a_whole_warp_are_reduced_by_redux(op: str, name: str) -> None:
    assert f"__reduce_{name}_sync(0xffffffff, " in printed("int32", "rows:32", (4, 256), op)
    code = printed("float32", "rows:32", (4, 256), op)
    assert "__reduce" not in code
    assert re.search(rf"{name}_lanes\(.*, 1, 32\)", code)
    assert f"row_{name}(x)" in printed("int32", "wgmma", (64, 16), op)


@pytest.mark.parametrize(
    ("layout", "shape"), [("wgmma", (64, 16)), ("rows:8", (16, 64)), ("rows:128", (1, 1024))]
)
def test_a_sum_of_16_bit_floats_is_rounded_once(layout: str, shape: tuple[int, int]) -> None:
    code = printed("bfloat16", layout, shape, "sum")
    assert code.count("= round_bf16(") == 1
    assert "= round_bf16(" not in printed("bfloat16", layout, shape, "max")


@pytest.mark.parametrize(("kind", "small"), [("bfloat16", "bf16"), ("float16", "f16")])
@pytest.mark.parametrize("op", ["max", "min"])
def test_an_extreme_of_16_bit_floats_is_of_pairs(op: str, kind: str, small: str) -> None:
    code = printed(kind, "rows:32", (4, 256), op)
    assert f"x[3] = {op}_{small}x2(x[3], " in code
    assert f"_{small}x2(" not in printed(kind, "rows:32", (4, 256), "sum")
