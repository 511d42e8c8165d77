"""Results of single PTX instructions on an H100 (sm_90a), each on 128 lanes.

tests/golden/ptx_numerics_h100.npz has the instructions with the kinds of their registers, the
destination first (h, r, l: 16, 32, 64 bits); the operands, drawn once for each kind of register
from values at the edges and random bits; and the results. They were measured with inline PTX in a
kernel of one instruction per array of results.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.ptx.numerics.reference import Array
from tilepipe.ptx.numerics import (
    bits,
    conversions,
    extrema,
    floating,
    functions,
    integer,
    logic,
    narrow,
)
from tilepipe.ptx.numerics.types import TYPES

GOLDEN = Path(__file__).parents[2] / "golden" / "ptx_numerics_h100.npz"
ROUNDINGS = ("rn", "rz", "rm", "rp", "rna", "rni", "rzi", "rmi", "rpi", "approx", "full")
DTYPES = {"h": np.uint16, "r": np.uint32, "l": np.uint64}

Compiled = tuple[Callable[..., Any], list[str], str]  # with the types of operands and result


def compiled(name: str, modifiers: list[str], count: int) -> Compiled:
    """The callable for an instruction of so many operands."""
    type = modifiers[-1]
    rounding = next((each for each in modifiers if each in ROUNDINGS), None)
    flags: dict[str, Any] = {
        flag: True for flag in ("ftz", "sat", "relu", "satfinite") if flag in modifiers
    }
    shapes: dict[str, Compiled] = {
        "bmsk": (lambda: bits.bmsk(modifiers[0]), ["u32", "u32"], "u32"),
        "bfind": (lambda: bits.bfind(type, shiftamt="shiftamt" in modifiers), [type], "u32"),
        "bfe": (lambda: bits.bfe(type), [type, "u32", "u32"], type),
        "bfi": (lambda: bits.bfi(type), [type, type, "u32", "u32"], type),
        "szext": (lambda: bits.szext(modifiers[0], type), [type, "u32"], type),
        "fns": (bits.fns, ["u32", "u32", "s32"], "u32"),
        "prmt": (lambda: logic.prmt(modifiers[1] if modifiers[1:] else None), ["u32"] * 3, "u32"),
        "shf": (lambda: logic.shf(modifiers[0], modifiers[1]), ["u32"] * 3, "u32"),
        "shl": (lambda: logic.shl(type), [type, "u32"], type),
        "shr": (lambda: logic.shr(type), [type, "u32"], type),
        "dp4a": (lambda: integer.dp4a(*modifiers), ["u32"] * 3, "u32"),
        "dp2a": (lambda: integer.dp2a(*modifiers), ["u32"] * 3, "u32"),
        "mul24": (lambda: integer.mul24(type, modifiers[0]), [type] * 2, type),
        "mad24": (lambda: integer.mad24(type, modifiers[0], **flags), [type] * 3, type),
        "mad": (lambda: integer.mad(type, modifiers[0], **flags), [type] * 3, type),
    }
    if name in shapes:
        factory, types, result = shapes[name]
        return factory(), types, result
    if name == "cvt":
        to, source = modifiers[-2:]
        if count == 2:
            return narrow.cvt_pair(to, rounding=rounding or "", **flags), [source] * 2, to
        if TYPES[to].kind == "packed":
            return narrow.cvt_packed(to, source, rounding=rounding or "", **flags), [source], to
        return conversions.cvt(to, source, rounding=rounding, **flags), [source], to
    floats = type.startswith(("f", "bf"))
    if rounding is not None and name not in ("rsqrt", "ex2", "tanh"):
        flags["rounding"] = rounding
    if floats and name in ("min", "max"):
        flags |= {"nan": "NaN" in modifiers, "xorsign_abs": "xorsign" in modifiers}
    modules = (floating, extrema, functions) if floats else (integer,)
    found = next(getattr(module, name) for module in modules if hasattr(module, name))
    return found(type, **flags), [type] * count, type


def judged(instruction: str, operands: list[Array]) -> Array:
    """The lanes whose result the ISA defines."""
    defined = np.ones(128, np.bool_)
    if instruction.startswith(("bfe", "bfi")):  # position and length are from 0 to 255
        for operand in operands[-2:]:
            defined &= operand <= 255
    if instruction.startswith("fns"):  # the base is from 0 to 31
        defined &= operands[1] <= 31
    return defined


with np.load(GOLDEN) as _golden:
    MEASURED = {key: _golden[key] for key in _golden.files}
INSTRUCTIONS = [str(instruction) for instruction in MEASURED["instructions"]]


@pytest.mark.parametrize("instruction", INSTRUCTIONS)
def test_instruction(instruction: str) -> None:
    text, registers = instruction.split()
    name, *modifiers = text.split(".")
    compute, types, to = compiled(name, modifiers, len(registers) - 1)
    places = [each for each in INSTRUCTIONS if each.split()[1][0] == registers[0]]
    measured = MEASURED[f"results_{registers[0]}"][places.index(instruction)]
    operands = [
        MEASURED[f"operands_{register}"][index] for index, register in enumerate(registers[1:])
    ]
    values = [
        operand.astype(f"u{TYPES[type].bits // 8}").view(TYPES[type].dtype)
        for operand, type in zip(operands, types, strict=True)
    ]
    got = compute(*values)
    # a register is wider than an integer of 8 or 16 bits, which is extended
    wide = got.astype(f"i{measured.dtype.itemsize}") if got.dtype.kind == "i" else got
    computed = wide.view(f"u{wide.dtype.itemsize}").astype(measured.dtype)
    same = computed == measured
    if "f64" in (to, *types) or to == "tf32":
        # which NaN of two f64 is passed on is the host's choice, and so is the payload that is left
        dtype = np.dtype(np.float32) if to == "tf32" else got.dtype
        expected = measured.astype(f"u{dtype.itemsize}").view(dtype)
        same |= np.isnan(got.view(dtype)) & (np.isnan(expected) | (to == "tf32"))
    if {"approx", "full"} & set(modifiers):
        last = 1 if to.startswith(("f16", "bf16")) else 2
        if to == "f64":
            last <<= 32
        parts = {"f16x2": np.int16, "bf16x2": np.int16, "f64": np.int64}.get(to, np.int32)
        near = np.abs(
            computed[..., None].view(parts).astype(np.float64)
            - measured[..., None].view(parts).astype(np.float64)
        )
        same |= np.all(near <= last, axis=-1)
    wrong = ~same & judged(instruction, operands)
    lanes = [
        ([hex(operand[lane]) for operand in operands], hex(computed[lane]), hex(measured[lane]))
        for lane in np.flatnonzero(wrong)
    ]
    assert not lanes
