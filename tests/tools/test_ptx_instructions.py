"""The page of the forms of PTX that are read is current, and its list is whole."""

from __future__ import annotations

import pytest

from tilepipe.ptx.definition import opcodes
from tools.docs import ptx_instructions


@pytest.fixture(scope="module")
def found() -> dict[str, list[ptx_instructions.Form]]:
    return ptx_instructions.sections()


@pytest.mark.slow
def test_the_page_is_current(found: dict[str, list[ptx_instructions.Form]]) -> None:
    page = ptx_instructions.PAGE.read_text(encoding="utf-8")
    assert page == ptx_instructions.page(found), "run python -m tools.docs.ptx_instructions"


def test_the_list_has_all_opcodes_that_are_defined() -> None:
    assert set(opcodes()) <= ptx_instructions.opcodes()


@pytest.mark.slow
def test_each_opcode_that_is_defined_has_a_form_that_is_read(
    found: dict[str, list[ptx_instructions.Form]],
) -> None:
    read = {
        form.partition(" ")[0].partition(".")[0]
        for forms in found.values()
        for line in forms
        if not line.elsewhere
        for form in set(ptx_instructions.expanded(line.text)) - line.refused.keys()
    }
    assert set(opcodes()) <= read
    assert not read - set(opcodes())


def test_forms_are_expanded() -> None:
    assert ptx_instructions.expanded("a{|.x}.{b|c} {r, r}, p|p") == [
        "a.b {r, r}, p|p", "a.c {r, r}, p|p", "a.x.b {r, r}, p|p", "a.x.c {r, r}, p|p",
    ]  # fmt: skip


def test_what_is_refused_says_why() -> None:
    assert ptx_instructions.refusal("add.u32 r, r, r") == ""
    assert ptx_instructions.refusal("tex.2d r, r") == "the opcode 'tex' is not modelled"
    assert ptx_instructions.refusal("tcgen05.mma.sp.cta_group::1.kind::f16 [r], d, d, r, p") == (
        "tcgen05.mma.sp is not modelled"
    )
