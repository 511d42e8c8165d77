"""Which instruction descriptors of tcgen05.mma are refused. What is allowed stands here as the
tables of the PTX ISA have it, and is compared with what is decoded for all M, N, types and majors.
"""

from __future__ import annotations

from typing import Any

import pytest

from tilepipe.errors import SimFault
from tilepipe.ir.location import Loc
from tilepipe.machine.memory.instruction_descriptor import KINDS, shape_of
from tilepipe.machine.sites import Site

SITE = Site(0, Loc("k.ptx", 3), "tcgen05.mma", "mma")
SCALED = ("mxf8f6f4", "mxf4", "mxf4nvf4")
# kind -> a descriptor that is right for one CTA and for a pair: M = 128, N = 64, D in float32
RIGHT = {
    "f16": 1 << 4 | 8 << 17 | 8 << 24,
    "tf32": 1 << 4 | 2 << 7 | 2 << 10 | 8 << 17 | 8 << 24,
    "f8f6f4": 1 << 4 | 8 << 17 | 8 << 24,
    "i8": 2 << 4 | 8 << 17 | 8 << 24,
    "mxf8f6f4": 8 << 17 | 1 << 23 | 1 << 27,
    "mxf4": 1 << 7 | 1 << 10 | 8 << 17 | 1 << 23 | 1 << 27,
    "mxf4nvf4": 1 << 7 | 1 << 10 | 8 << 17 | 1 << 23 | 1 << 27,
}
VECTORS = {"mxf8f6f4": 1, "mxf4": 2, "mxf4nvf4": 2}


def fault(kind: str, bits: int, group: int = 1, vector: int | None = None, **form: Any) -> str:
    """What is wrong with a descriptor, or ""."""
    vector = VECTORS.get(kind, 0) if vector is None else vector
    try:
        shape_of(SITE, kind, bits, group, vector, **form)
    except SimFault as error:
        return str(error)
    return ""


def with_field(kind: str, first: int, width: int, value: int) -> int:
    return RIGHT[kind] & ~((1 << width) - 1 << first) | value << first


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("group", [1, 2])
def test_m_and_n(kind: str, group: int) -> None:
    """Table "Various combinations of .kind and shapes"."""
    if kind in SCALED:
        codes = [(with_field(kind, 27, 2, m), 128 * m) for m in range(4)]
        rows = {128} if group == 1 else {128, 256}
    else:
        codes = [(with_field(kind, 24, 5, m), 16 * m) for m in range(32)]
        rows = {64, 128} if group == 1 else {128, 256}
    assert {m for bits, m in codes if not fault(kind, bits, group)} == rows
    cols = set(range(8, 257, 8)) if group == 1 else set(range(16, 257, 16))
    if kind == "i8":
        cols = {8, 16, 24, 32, *range(48, 257, 16)} if group == 1 else set(range(32, 257, 32))
    found = {8 * n for n in range(64) if not fault(kind, with_field(kind, 17, 6, n), group)}
    assert found == cols


@pytest.mark.parametrize("kind", ["f16", "tf32", "f8f6f4", "i8"])
def test_m_and_n_of_weights_stationary(kind: str) -> None:
    ms = {16 * m for m in range(32) if not fault(kind, with_field(kind, 24, 5, m), form="ws")}
    ns = {8 * n for n in range(64) if not fault(kind, with_field(kind, 17, 6, n), form="ws")}
    assert ms == {32, 64, 128}
    assert ns == {64, 128, 256}
    assert fault(kind, RIGHT[kind] | 2 << 30, form="ws") == ""
    assert "bit 30-31, the largest shift of .ws, is 2" in fault(kind, RIGHT[kind] | 2 << 30)


@pytest.mark.parametrize(
    ("kind", "codes"),
    [
        ("f16", {0, 1}), ("tf32", {2}), ("f8f6f4", {0, 1, 3, 4, 5}), ("i8", {0, 1}),
        ("mxf8f6f4", {0, 1, 3, 4, 5}), ("mxf4", {1}), ("mxf4nvf4", {1}),
    ],
)  # fmt: skip
def test_types_of_elements(kind: str, codes: set[int]) -> None:
    """Tables "Instruction descriptor format", bits 7-9 and 10-12."""
    for first in (7, 10):
        found = {c for c in range(8) if not fault(kind, with_field(kind, first, 3, c))}
        assert found == codes
    assert "the type of A is 7; allowed values are " in fault(kind, with_field(kind, 7, 3, 7))


@pytest.mark.parametrize(
    ("kind", "codes"), [("f16", {0, 1}), ("tf32", {1}), ("f8f6f4", {0, 1}), ("i8", {2})]
)
def test_types_of_accumulators(kind: str, codes: set[int]) -> None:
    assert {c for c in range(4) if not fault(kind, with_field(kind, 4, 2, c))} == codes


def test_an_accumulator_of_float16_is_for_float16_alone() -> None:
    for first in (7, 10):
        bits = with_field("f16", 4, 2, 0) | 1 << first
        assert "the type of D is float16; with A or B in bfloat16 it is float32" in fault(
            "f16", bits
        )


@pytest.mark.parametrize(
    ("kind", "vector", "codes"),
    [("mxf8f6f4", 1, {1}), ("mxf4", 2, {1}), ("mxf4nvf4", 2, {1}), ("mxf4nvf4", 4, {0, 1})],
)
def test_types_of_scale_factors(kind: str, vector: int, codes: set[int]) -> None:
    """Table "Valid combinations of scale_vectorsize with types and MMA-Kind": 1 is ue8m0."""
    found = {c for c in (0, 1) if not fault(kind, with_field(kind, 23, 1, c), vector=vector)}
    assert found == codes
    ids = {1: {0, 1, 2, 3}, 2: {0, 2}, 4: {0}}[vector]
    for first in (29, 4):
        right = {i for i in range(4) if not fault(kind, RIGHT[kind] | i << first, vector=vector)}
        assert right == ids


@pytest.mark.parametrize("kind", KINDS)
def test_transposing_and_negating(kind: str) -> None:
    """Table "Transpose and Negate operation for various MMA-Kind"."""
    for bit in (15, 16):
        assert bool(fault(kind, RIGHT[kind] | 1 << bit)) == (kind in ("mxf4", "mxf4nvf4"))
    for bit in (13, 14):
        assert bool(fault(kind, RIGHT[kind] | 1 << bit)) == (kind == "i8")


@pytest.mark.parametrize("code", [3, 4, 5])
def test_narrow_elements_are_not_transposed(code: int) -> None:
    bits = with_field("f8f6f4", 7, 3, code)
    assert fault("f8f6f4", bits | 1 << 16) == ""  # B of 8 bits may be
    assert "elements of less than 8 bits are not transposed" in fault("f8f6f4", bits | 1 << 15)


@pytest.mark.parametrize("kind", ["f16", "f8f6f4", "i8", "mxf8f6f4"])
@pytest.mark.parametrize("group", [1, 2])
def test_n_where_b_of_8_bits_is_transposed(kind: str, group: int) -> None:
    """Table "Various combinations of N shape with .cta_group qualifier for 8bit transpose B"."""
    step = (8 if group == 1 else 16) if kind == "f16" else (16 if group == 1 else 32)
    turned = (with_field(kind, 17, 6, n) | 1 << 16 for n in range(64))
    found = {8 * n for n, bits in enumerate(turned) if not fault(kind, bits, group)}
    assert found == set(range(step, 257, step))


@pytest.mark.parametrize("kind", KINDS)
def test_reserved_bits(kind: str) -> None:
    """All bits that are not fields of the kind."""
    fields = {*range(7, 12), 13, 14, 15, 16, *range(17, 23)}
    fields |= {4, 5, 23, 27, 28, 29, 30} if kind in SCALED else {4, 5, *range(24, 29)}
    fields |= {3} if kind == "i8" else set()
    fields |= set() if kind in ("mxf4", "mxf4nvf4") else {12}
    for bit in set(range(32)) - fields:
        said = fault(kind, RIGHT[kind] ^ 1 << bit)
        assert said.startswith(
            f"mma: instruction descriptor {RIGHT[kind] ^ 1 << bit:#010x} of kind"
        )
