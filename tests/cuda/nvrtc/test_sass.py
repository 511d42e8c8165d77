"""Instructions, loops and counts of opcodes read from machine code."""

from __future__ import annotations

import pytest

from tests.support.build import LANE, Builder, binary
from tilepipe import cuda
from tilepipe.cuda.nvrtc import sass
from tilepipe.ir import dtypes, ops

LISTING = """
\t.section\t.text.k,"ax",@progbits
.text.k:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
.L_x_1:
        /*0010*/                   IMAD.MOV.U32 R2, RZ, RZ, 0x1 ;
.L_x_0:
        /*0020*/              @!P0 HGMMA.64x256x16.F32.BF16 R24, gdesc[UR8], R24 ;
        /*0030*/               @P1 BRA `(.L_x_0) ;
        /*0040*/                   BRA `(.L_x_1) ;
        /*0050*/                   EXIT ;
.L_x_2:
        /*0060*/                   BRA `(.L_x_2);
        /*0070*/                   NOP ;
"""


def test_parsing_and_loops() -> None:
    code = sass.parse(LISTING)
    assert [i.base for i in code] == ["LDC", "IMAD", "HGMMA", "BRA", "BRA", "EXIT", "BRA", "NOP"]
    assert code[2] == sass.Instruction(
        0x20, "@!P0", "HGMMA.64x256x16.F32.BF16", "R24, gdesc[UR8], R24"
    )
    inner, outer = sass.loops(code)
    assert (inner.start, inner.end, dict(inner.count())) == (0x20, 0x30, {"HGMMA": 1, "BRA": 1})
    assert (outer.start, outer.end) == (0x10, 0x40)
    assert sass.loop_with(code, "IMAD") == outer
    with pytest.raises(LookupError, match="no loop has UTMALDG"):
        sass.loop_with(code, "UTMALDG")


@pytest.mark.slow
def test_a_real_loop() -> None:
    b = Builder()
    n, out = b.scalar("n"), b.tensor("out", dtypes.float32)
    b.setup_done()
    with b.role("one", warps=1), b.loop(n) as i:
        b.do(ops.SyncWarp)
        b.store(b.element(out, i, binary("add", LANE, i)), b.load(b.element(out, i, LANE)))
    code = sass.disassemble(cuda.compile(b.finished()).data)
    loop = sass.loop_with(code, "STG")
    assert loop.count()["LDG"] >= 1
    assert sass.count(code)["EXIT"] >= 1
