"""The shipped kernels: written in the public API, so that what they need any kernel can have; and
their settings.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tilepipe import kernels
from tilepipe.registry.catalog import find

FOLDER = Path(kernels.__file__).parent
WRITTEN = (
    "gemm/sm90",
    "gemm/validation",
    "gemm/config",
    "common/epilogue",
    "gemm_blockwise/sm90",
    "gemm_blockwise/validation",
    "gemm_blockwise/config",
    "gemm_block_scaled/sm100",
    "gemm_block_scaled/validation",
)


@pytest.mark.parametrize("name", WRITTEN)
def test_a_kernel_has_no_private_door(name: str) -> None:
    tree = ast.parse((FOLDER / f"{name}.py").read_text())
    doors = []
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.ImportFrom)
            and (node.module or "").startswith("tilepipe")
            and not (node.module or "").startswith("tilepipe.kernels")
        ):
            doors.append(f"from {node.module} import ...")
        if isinstance(node, ast.Import):
            doors += [f"import {x.name}" for x in node.names if x.name.startswith("tilepipe.")]
        if (
            isinstance(node, ast.Attribute)
            and node.attr.startswith("_")
            and not (isinstance(node.value, ast.Name) and node.value.id == "self")
        ):
            doors.append(ast.unparse(node))
    assert doors == []


@pytest.mark.parametrize(("dtype", "bk"), [("bfloat16", 64), ("float32", 32), ("float8_e4m3", 128)])
def test_settings_that_are_not_given_suit_the_dtype(dtype: str, bk: int) -> None:
    """Also where other tile settings are given: a row of a K tile is one swizzle span."""
    settings: list[dict[str, int | str]] = [{}, {"bn": 256}]
    for given in settings:
        config, _ = find("gemm").configure({"dtype": dtype, **given}, None)
        assert config["bk"] == bk
        assert config["bn"] == given.get("bn", 128)
    assert find("gemm").configure({"dtype": dtype, "bk": 256}, None)[0]["bk"] == 256
