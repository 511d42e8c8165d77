"""A small part of the campaign on printed PTX, what a mutant is, and the page."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.mutation.ptx.judging import judge, unnoticed
from tests.mutation.ptx.mutants import Mutant, mutants
from tests.mutation.ptx.run import main
from tests.mutation.ptx.subjects import SUBJECTS, subject

PAGE = Path(__file__).parents[3] / "docs" / "generated" / "ptx-mutants.md"
TEXT = """
.visible .entry k(.param .u64 a)
{
    .reg .b32 %r<3>;
    mov.b32 %r1, 4; // a comment; of two parts
LOOP:
    { .reg .pred p; setp.ne.b32 p, %r1, 0x10; @p bra LOOP; }
    st.global.v2.f32 [%r1+8], {0f3F800000, %r2};
    ret;
}
"""


def test_each_instruction_is_deleted_and_each_constant_flipped_twice() -> None:
    found = list(mutants(TEXT))
    assert [m.instruction for m in found if m.operator == "deletion"] == [
        "mov.b32 %r1, 4;",
        "setp.ne.b32 p, %r1, 0x10;",
        "@p bra LOOP;",
        "st.global.v2.f32 [%r1+8], {0f3F800000, %r2};",
        "ret;",
    ]
    flips = [m for m in found if m.operator == "bit flip"]
    assert [m.what.split()[0] for m in flips] == [
        c for constant in ("4", "0x10", "8", "0f3F800000") for c in (constant, constant)
    ]
    for m in flips:
        old, new = (int(c.removeprefix("0f"), 16 if c[:2] in ("0f", "0x") else 10)
                    for c in m.what.split(" -> "))  # fmt: skip
        assert ((old ^ new) & 0xFFFFFFFF).bit_count() == 1
        assert m.of(TEXT) == TEXT[: m.begin] + m.new + TEXT[m.end :]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("opcode", "fate", "kind"),
    [
        ("tcgen05.mma", "fault", "PoisonError"),
        ("tcgen05.commit", "fault", "DeadlockError"),
        ("tcgen05.wait::ld", "fault", ""),
        ("cp.async.bulk.tensor.2d.shared::cluster", "fault", "DeadlockError"),
        ("mbarrier.arrive.expect_tx", "fault", ""),
        ("prefetch.tensormap", "survived", ""),
    ],
)
def test_what_becomes_of_a_deleted_instruction(opcode: str, fate: str, kind: str) -> None:
    name = "mxfp4 GEMM, sm_100a"
    text = subject(name).printed.text
    mutant: Mutant = next(
        m for m in mutants(text) if m.operator == "deletion" and m.opcode.startswith(opcode)
    )
    found = judge(name, mutant)
    assert (found.fate, found.kind if kind else "") == (fate, kind), found


@pytest.mark.slow
def test_a_deleted_init_is_excused_only_where_nothing_uses_the_barrier() -> None:
    name = "mxfp4 GEMM, sm_100a"
    found = subject(name)
    inits = [
        m
        for m in mutants(found.printed.text)
        if m.operator == "deletion" and m.opcode.startswith("mbarrier.init")
    ]
    first, idle = inits[0], inits[5]
    result = judge(name, idle)
    assert (result.fate, result.reason) == (
        "survived",
        "a barrier that none of these interleavings comes to: its use would be a fault",
    )
    # as if the reader took a barrier without an init: nothing changes, and nothing excuses it
    unheeded = replace(first, new=found.printed.text[first.begin : first.end])
    assert unnoticed(unheeded, found) == ""


@pytest.mark.slow
def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, kept = tmp_path / "page.md", tmp_path / "results.gz"
    arguments = ["--kernels", "GEMM, sm_90a", "--jobs", "1", "--sample", "150"]
    assert main([*arguments, "--out", str(out), "--save", str(kept)]) == 0
    assert re.search(r"\d+ mutants: \d+ survived, 0 ended in an error", capsys.readouterr().out)
    text = out.read_text(encoding="utf-8")
    assert "| GEMM, sm_90a: deletions |" in text
    assert main(["--load", str(kept), "--sample", "150", "--out", str(out)]) == 0
    assert out.read_text(encoding="utf-8") == text


def test_the_page_has_every_kernel_and_no_error_of_the_reader() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert "; 0 ended in an error of the reader itself" in " ".join(text.split())
    for name in SUBJECTS:
        assert f"| {name}: deletions |" in text
        assert f"| {name}: bit flips |" in text
