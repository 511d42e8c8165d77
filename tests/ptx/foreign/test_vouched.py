"""The page that says what vouches for the reader is current, and its tool finds modes."""

from __future__ import annotations

import re

import pytest

from tests.ptx.foreign.launching import records
from tools.foreign.vouched import (
    ALONE,
    BY_KERNEL,
    PAGE,
    Mode,
    Row,
    by_kernel,
    foreign_modes,
    page,
    printed_modes,
    rows_of,
    rows_on,
)

TEXT = PAGE.read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_kernel_s_modes_are_found() -> None:
    name = "gluon_product_tf32_64_sm100"
    found = foreign_modes([name])
    details = "float32 × float32; A K-major, swizzle 64; B K-major, swizzle 64; M 128"
    mma = Mode("tcgen05.mma.kind::tf32.cta_group::1", details, "32")
    assert found[mma] == found[Mode("tcgen05.ld.16x256b", "", "x4")] == [name[: -len("_sm100")]]
    assert not any(mode.instruction.startswith("ld.") for mode in found)


def test_a_mode_without_a_kernel_is_by_the_isa_alone() -> None:
    rows = rows_of({Mode("tcgen05.shift", "", ""), Mode("tcgen05.ld.32x32b", "", "x4")})
    assert rows == [Row("tcgen05.ld.32x32b", "", ("x4",)), Row("tcgen05.shift", "", ("",))]
    text = page(rows, {Mode("tcgen05.ld.32x32b", "", "x8"): ["one", "two"]})
    assert "| `tcgen05.ld.32x32b` |  | x4 (x8) | one, two |" in text
    assert f"| `tcgen05.shift` |  |  | **{ALONE}** |" in text
    assert "1 of 2 modes are vouched for" in text
    assert rows_on(text) == rows


def test_the_page_names_kernels_that_compute_right_results() -> None:
    rows = rows_on(TEXT)
    assert len(rows) == TEXT.count("\n| `")
    assert f"{len(rows) - TEXT.count(f'**{ALONE}**')} of {len(rows)} modes" in TEXT
    named = set(re.findall(r"\b(?:triton|gluon|cute)_\w+", "\n".join(TEXT.split("\n| ")[1:])))
    assert named <= {name.removesuffix("_sm100") for name in records()}


@pytest.mark.thorough
def test_the_kernels_on_the_page_are_current() -> None:
    rows, foreign = rows_on(TEXT), foreign_modes()
    assert page(rows, foreign) == TEXT
    assert by_kernel(rows, foreign) == BY_KERNEL.read_text(encoding="utf-8")


@pytest.mark.thorough
def test_the_modes_on_the_page_are_current() -> None:
    assert rows_of(printed_modes()) == rows_on(TEXT)
