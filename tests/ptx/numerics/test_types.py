"""Names, widths and views of types."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.ptx.numerics.reference import bits
from tilepipe.ptx.numerics import Unsupported, types


@pytest.mark.parametrize(
    ("name", "width", "dtype", "kind", "count"),
    [
        ("u8", 8, np.uint8, "unsigned", 1),
        ("s64", 64, np.int64, "signed", 1),
        ("b16", 16, np.uint16, "bits", 1),
        ("f16", 16, np.float16, "float", 1),
        ("bf16", 16, ml_dtypes.bfloat16, "float", 1),
        ("tf32", 32, np.uint32, "bits", 1),
        ("f32x2", 64, np.uint64, "packed", 2),
        ("s8x4", 32, np.uint32, "packed", 4),
        ("e2m1x2", 8, np.uint8, "packed", 2),
        ("ue8m0x2", 16, np.uint16, "packed", 2),
        ("pred", 1, np.bool_, "predicate", 1),
    ],
)
def test_facts(name: str, width: int, dtype: Any, kind: str, count: int) -> None:
    found = types.type_of(name)
    assert found.dtype == dtype
    assert (found.bits, str(found.kind), found.count) == (width, kind, count)


def test_views_keep_the_bits() -> None:
    random = np.random.default_rng(0)
    for name, found in types.TYPES.items():
        if name in ("pred", "b128"):  # no NumPy integer has 128 bits
            continue
        registers = random.integers(0, 256, (3, 4, found.bits // 8), dtype=np.uint8)
        registers = registers.view(f"u{found.bits // 8}")[..., 0]
        values = types.view(registers, name)
        assert values.dtype == found.dtype
        assert bits(types.bits_of(values)) == bits(registers)
    assert types.view(np.array([0, 1], np.uint8), "pred").tolist() == [False, True]


def test_unknown_types() -> None:
    with pytest.raises(Unsupported, match=r".f8 is not a type of PTX"):
        types.type_of("f8")
