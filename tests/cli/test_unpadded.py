"""Rows, or columns, that are no multiple of 16 bytes apart: the advice is a copy that TMA takes; on
the command line it is a setting.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.cli.copying import Call
from tilepipe.errors import BindError, Padding
from tilepipe.kernels.common.validation import mapped
from tilepipe.registry.catalog import find


@pytest.mark.parametrize(
    ("x", "extent", "unit"),
    [
        (np.ones((24, 30), np.float16), 30, 8),
        (np.ones((24, 30), np.float16).T, 30, 8),
        (np.ones((2, 24, 30), np.float32).swapaxes(1, 2), 30, 4),
        (np.ones((2, 3, 30), np.float32), 30, 4),
    ],
    ids=["rows", "columns", "a batch by columns", "a batch"],
)
def test_the_copy_of_the_message_is_taken(x: npt.NDArray[Any], extent: int, unit: int) -> None:
    box = (*(1,) * (x.ndim - 2), 8, 8)
    with pytest.raises(BindError, match=r"x: an array of shape .* TMA needs") as caught:
        mapped("scaled", "x", x, box)
    assert caught.value.padding == Padding("x", extent, unit)
    assert str(caught.value).startswith(caught.value.rule)
    names: dict[str, Any] = {"np": np, "x": x}
    exec(str(caught.value).split("A copy that TMA takes: ")[1], names)
    copy = names["padded"]
    assert np.array_equal(copy, x)
    mapped("scaled", "x", copy, box)


@pytest.mark.parametrize(
    ("kernel", "settings", "advice"),
    [
        ("gemm", {"n": 190}, "-s n=192"),
        ("gemm", {"m": 100, "a_order": "col"}, "-s m=104"),
        ("gemm", {"m": 30, "n": 30}, "-s n=32"),  # M is no contiguous dimension
        ("gemm", {"m": 64, "n": 100, "k": 100}, "-s k=104 -s n=104"),
        ("gemm", {"m": 200, "n": 190, "k": 500}, "-s k=504 -s n=192"),
        ("gemm", {"m": 30, "n": 30, "k": 30, "a_order": "col"}, "-s m=32 -s k=32 -s n=32"),
        ("gemm_blockwise", {"k": 520}, "-s k=528"),
        ("gemm_quantised", {"n": 190}, "-s n=192"),
        ("gemm_quantised", {"n": 194}, "-s n=200"),  # scales want 4 of them, c wants 8
        ("gemm_k_grouped", {"m": 190, "n": 190}, "-s m=192 -s n=192"),
    ],
)
def test_the_command_line_names_a_setting(
    kernel: str, settings: dict[str, Any], advice: str, tilepipe: Call
) -> None:
    given = [x for name, value in settings.items() for x in ("-s", f"{name}={value}")]
    for command in ("run", "compile", "show"):
        code, _, err = tilepipe(command, kernel, *given)
        assert code == 2
        said = " ".join(err.split())
        found = said.split(" With its operands padded: ")[1].replace("-s ", "").split()
        assert sorted(found) == sorted(advice.replace("-s ", "").split())
        assert "np.zeros" not in said
    spec = find(kernel)
    padded = spec.parse(found)
    spec.case(spec.settings | settings | padded, 0)
    with pytest.raises(BindError, match=r"np\.zeros"):
        find(kernel).make(find(kernel).settings | settings, 0)
