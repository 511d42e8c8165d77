"""Shipped kernels are written in the public API, so that what they need any kernel can have."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tilepipe import kernels

FOLDER = Path(kernels.__file__).parent
MODULES = sorted(str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*.py"))
# Helpers without a kernel in them: arguments of Python functions, and files that are replaced
# whole.
HELPERS = {"tilepipe.host_arguments", "tilepipe.files"}
OF_ROWS = {"rms_norm", "layer_norm", "softmax", "cross_entropy"}
OF_GROUPS = {
    "gemm_k_grouped": {"gemm_grouped"},
    "gemm_grouped_blockwise": {"gemm_grouped", "gemm_blockwise"},
    "gemm_k_grouped_blockwise": {"gemm_grouped", "gemm_k_grouped", "gemm_blockwise"},
}


def _private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")  # __module__ is Python's own


@pytest.mark.parametrize("name", MODULES)
def test_a_kernel_has_no_private_door(name: str) -> None:
    tree = ast.parse((FOLDER / name).read_text(encoding="utf-8"))
    doors = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tilepipe"):
            modules = [node.module or ""]
            if node.module == "tilepipe":
                modules = [f"tilepipe.{x.name}" for x in node.names]
            doors += [m for m in modules if not m.startswith("tilepipe.kernels.")]
        if isinstance(node, ast.Import):
            doors += [x.name for x in node.names if x.name.startswith("tilepipe.")]
        if isinstance(node, ast.Attribute) and _private(node.attr) and not _own(node.value):
            doors.append(ast.unparse(node))
    assert set(doors) <= HELPERS


@pytest.mark.parametrize("name", MODULES)
def test_packages_build_on_the_gemm_and_on_common_modules_alone(name: str) -> None:
    """No package imports another, but that the other products build on the GEMM, those with groups
    on the same without and on the grouped GEMM, and what works on rows on `rows`; the gradients of
    attention, and attention over a cache, on attention; and what writes to a cache on both.
    """
    package = name.split("/")[0]
    allowed = {package, "common"} | ({"gemm"} if package.startswith("gemm_") else set())
    allowed |= OF_GROUPS.get(package, set())
    if package in OF_ROWS:
        allowed |= {"rows"}
    if package in ("attention_backward", "attention_decode", "append_kv"):
        allowed |= {"attention"}
    if package == "append_kv":
        allowed |= {"attention_decode"}
    if package == "common":
        allowed = {"common"}
    tree = ast.parse((FOLDER / name).read_text(encoding="utf-8"))
    used = {
        (node.module or "").split(".")[2]
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tilepipe.kernels.")
    }
    assert used <= allowed


def _own(value: ast.expr) -> bool:
    """Whether it is the object itself, or its class as Python made it."""
    return ast.unparse(value) in ("self", "super()", "object")
