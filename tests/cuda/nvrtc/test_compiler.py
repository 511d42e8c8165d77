"""Compiling: what comes out, and what each failure says."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.support.build import Builder, binary
from tests.support.cuda.gemm import gemm
from tilepipe import cuda
from tilepipe.cuda.nvrtc import compiler
from tilepipe.errors import BindError, CompileError, UnavailableError
from tilepipe.ir import dtypes, ops
from tilepipe.ir.expressions import const
from tilepipe.ir.placement import launch_registers
from tilepipe.ir.program import Kernel


def small() -> Builder:
    b = Builder()
    b.setup_done()
    with b.role("one", warps=1):
        b.do(ops.SyncWarp)
    return b


@pytest.mark.slow
def test_emits() -> None:
    kernel = small().finished()
    cubin, ptx, text = (cuda.compile(kernel, emit=e) for e in ("cubin", "ptx", "cuda"))
    assert cubin.data.startswith(b"\x7fELF")
    assert cubin.registers is not None
    assert (cubin.name, cubin.threads, cubin.cluster, cubin.smem_bytes) == ("kernel", 32, 1, 0)
    assert ".target sm_90a" in ptx.data.decode()
    assert ".entry kernel" in ptx.data.decode()
    assert text.data.decode() == text.source == cubin.source


def test_bad_arguments() -> None:
    kernel = small().finished()
    with pytest.raises(
        BindError,
        match="unknown architecture 'sm_80'; known: sm_90a, sm_100a, sm_100f, sm_103a, sm_103f",
    ):
        cuda.compile(kernel, arch="sm_80")
    with pytest.raises(BindError, match="cannot emit 'exe'; known: cubin, ptx, cuda"):
        cuda.compile(kernel, emit="exe")


def test_wgmma_is_refused_for_blackwell() -> None:
    with pytest.raises(
        CompileError, match="role 'mma' of 'gemm' uses wgmma, which sm_100a does not have"
    ):
        cuda.compile(gemm(), arch="sm_100a")


def test_an_error_shows_the_printed_line() -> None:
    given = compiler.options("sm_90a", "cubin")
    with pytest.raises(
        CompileError, match=r"NVRTC refused.*\n.*k\.cu\(2\): error.*\n    nonsense here;"
    ):
        compiler.nvrtc(
            'extern "C" __global__ void k() {\n    nonsense here;\n}\n', "k.cu", "cubin", given
        )


LOG = """ptxas info    : Compiling entry function 'gemm' for 'sm_90a'
ptxas         .     0 bytes stack frame, {spills} bytes spill stores, {spills} bytes spill loads
{extra}
ptxas info    : Used 168 registers, used 1 barriers"""
C7508 = (
    "ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored to maintain "
    "minimum register requirements."
)
C7507, C7506 = (
    f"ptxas info    : (C750{n}) Potential Performance Loss: 'setmaxnreg' ignored {why}."
    for n, why in (
        (7, "to maintain minimum register requirements"),
        (6, "to maintain compatibility into 'extern' call"),
    )
)
C7514 = (
    "ptxas info    : (C7514) Potential Performance Loss: wgmma.mma_async instructions are "
    "serialized due to non wgmma instructions defining accumulator registers of a wgmma"
)
C7510 = (
    "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are "
    "serialized due to ..."
)


@pytest.mark.parametrize(
    ("loss", "spills", "extra", "message"),
    [
        (
            "C7508",
            0,
            C7508,
            (
                r"'kernel' compiles, but ptxas ignored setmaxnreg, .*:\n  "
                r".*\(C7508\).*\n.*allow=\['C7508'\] accepts it"
            ),
        ),
        (
            *("C7507", 0, C7507),
            r"ignored setmaxnreg, so registers= .*\n.*\(C7507\).*\n.*needs more registers than its",
        ),
        ("C7506", 0, C7506, r"(?s)ignored setmaxnreg.*remark says what prevents it"),
        ("C7510", 0, C7510, r"ptxas serialised wgmma"),
        ("C7514", 0, C7514, r"(?s)ptxas serialised wgmma.*must touch neither the accumulator"),
        (
            "spills",
            96,
            "",
            (
                r"registers spilled to local memory:\n.*96 bytes spill stores.*\n.*Use "
                r"smaller tiles or raise registers="
            ),
        ),
    ],
)
def test_losses_are_errors_unless_allowed(
    monkeypatch: pytest.MonkeyPatch, loss: str, spills: int, extra: str, message: str
) -> None:
    log = LOG.format(spills=spills, extra=extra)
    monkeypatch.setattr(compiler, "nvrtc", lambda *_: (log, b"cubin"))
    kernel = small().finished()
    with pytest.raises(CompileError, match=message):
        cuda.compile(kernel)
    compiled = cuda.compile(kernel, allow=[loss])
    assert (compiled.registers, compiled.spill_bytes) == (168, 2 * spills)


def asking(*registers: int) -> Kernel:
    """A warpgroup for each number, which asks for so many registers."""
    b = Builder()
    b.setup_done()
    for i, n in enumerate(registers):
        with b.role(f"r{i}", warpgroups=1, registers=n):
            b.do(ops.SyncWarp)
    return b.finished()


@pytest.mark.parametrize(
    "registers",
    [(24, 240, 240), (128, 128, 128, 128), (24, 168, 160, 160), (96,) * 5, (24, 240), (256,)],
)
def test_ptxas_launches_with_the_registers_that_were_reckoned_with(
    registers: tuple[int, ...],
) -> None:
    compiled = cuda.compile(asking(*registers))
    assert compiled.registers == min(launch_registers(128 * len(registers)), 255)


def test_a_launch_with_fewer_registers_than_the_roles_ask_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The hole comes back with `monkeypatch.setattr(compiler, "broken_pool_rule", lambda *_:
    None)`.
    """
    monkeypatch.setattr(
        compiler,
        "nvrtc",
        lambda *_: (LOG.format(spills=0, extra="").replace("168", "160"), b"cubin"),
    )
    arithmetic = (
        r"160 registers a thread.*128 × \(24 \+ 240 \+ 240\) = 64,512.*384 × 160 = "
        r"61,440.*the other 3,072 for ever.*sum of 480"
    )
    with pytest.raises(CompileError, match=arithmetic):
        cuda.compile(asking(24, 240, 240))
    assert cuda.compile(asking(24, 224, 232)).registers == 160


@pytest.mark.slow
def test_ptxas_really_ignores_registers_that_are_too_few() -> None:
    """An accumulator of 128 registers in 64: the machine code has no setmaxnreg."""

    @tp.kernel()
    def few(ctx: tp.Context, out: Any) -> None:
        a = ctx.smem((64, 64), "bfloat16", name="a")
        b = ctx.smem((256, 64), "bfloat16", name="b")

        @ctx.role("math", warpgroups=1, registers=64)
        def math() -> None:
            acc = ctx.accumulator((64, 256))
            ctx.mma(acc, a[0], b[0])
            ctx.wgmma_commit()
            ctx.wgmma_wait(0)
            ctx.store_global(out, (0, 0), acc)

        @ctx.role("other", warpgroups=1, registers=40)
        def other() -> None:
            ctx.syncwarp()

    program = few.bind(np.zeros((64, 256), np.float32))
    with pytest.raises(
        CompileError, match=r"(?s)ignored setmaxnreg.*C7507.*role 'math' at [^ ]+: 64, role 'other'"
    ):
        program.compile("sm_90a")
    compiled = cuda.compile(program.kernel, allow=["C7507"])
    assert "(C7507)" in compiled.log


@pytest.mark.slow
def test_ptxas_really_reports_spills() -> None:
    b = Builder()
    tile, out = (
        b.smem("tile", 64, 256, 1, dtypes.float32),
        b.smem("out", 64, 256, 1, dtypes.float32),
    )
    n = b.scalar("n")
    b.setup_done()
    with b.role("math", warpgroups=4):  # 512 threads: 128 registers each
        x, y = b.fragment("x", 64, 256), b.fragment("y", 64, 256)
        b.do(ops.FragmentLoad, x, b.tile(tile))
        b.do(ops.FragmentSet, y, const(0.0))
        with b.loop(n):
            b.do(
                ops.FragmentSet, y, binary("add", b.value(x), binary("mul", b.value(y), b.value(y)))
            )
        b.do(ops.FragmentStore, b.tile(out), b.value(y))
    kernel = b.finished()
    with pytest.raises(CompileError, match="registers spilled to local memory"):
        cuda.compile(kernel)
    assert (cuda.compile(kernel, allow=["spills"]).spill_bytes or 0) > 0


def test_without_the_packages_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    kernel = small().finished()
    assert cuda.source(kernel)
    with pytest.raises(
        UnavailableError,
        match=r"^compiling needs NVRTC, which is not installed: pip install tilepipe\[cuda\]$",
    ):
        cuda.compile(kernel)


@pytest.mark.slow
def test_importing_needs_no_cuda_package() -> None:
    code = (
        "import sys, tilepipe.cuda; print(sorted(m for m in sys.modules if m.split('.')[0] "
        "in ('cuda', 'torch')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
def test_an_empty_log_is_written_into_nothing_that_others_use() -> None:
    """Python has one object for each bytes of length 1, as an empty log with its end is."""
    code = (
        "from tilepipe.cuda.nvrtc import compiler\n"
        "text = 'extern \"C\" __global__ void k(int *p) { *p = 1; }'\n"
        "log, ptx = compiler.nvrtc(text, 'k.cu', 'ptx', ('--gpu-architecture=compute_90a',))\n"
        "assert (log, ptx[:2]) == ('', b'//')\n"
        "assert [bytes([x])[0] for x in range(256)] == list(range(256)), 'Python is damaged'\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
