"""NVRTC in processes of its own: the same code, the same errors, and no less where one is
killed.
"""

from __future__ import annotations

import os
import signal

import pytest

import tilepipe as tp
from tilepipe.cuda.nvrtc import compiler, processes

pytestmark = pytest.mark.slow
GOOD = 'extern "C" __global__ void k(int* x) { *x = 3; }'
ASKED = "k.cu", "ptx", ("--gpu-architecture=compute_90a",)


def killed(code: str, filename: str, emit: str, given: tuple[str, ...]) -> tuple[str, bytes]:
    """NVRTC in a process that is killed, unless it is the first."""
    if os.environ.get("STARTED_BY") != str(os.getpid()):
        os.kill(os.getpid(), signal.SIGKILL)
    return compiler.nvrtc(code, filename, emit, given)


def test_what_is_compiled_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "processors", lambda: 2)
    here = compiler.nvrtc(GOOD, *ASKED)
    with processes.side_by_side(5) as count:
        assert count == 2, "as many as there are processors"
        assert processes.compiled(compiler.nvrtc, GOOD, *ASKED) == here
        with pytest.raises(tp.CompileError, match="NVRTC refused the printed source"):
            processes.compiled(compiler.nvrtc, "this is no code", *ASKED)
        with processes.side_by_side(5) as inner:
            assert inner == 2, "the same processes"
    assert processes.compiled(compiler.nvrtc, GOOD, *ASKED) == here


def test_one_that_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "processors", lambda: 2)
    monkeypatch.setenv("STARTED_BY", str(os.getpid()))
    with processes.side_by_side(2):
        assert processes.compiled(killed, GOOD, *ASKED) == compiler.nvrtc(GOOD, *ASKED)


def test_one_kernel_needs_no_process() -> None:
    with processes.side_by_side(1) as count:
        assert count == 1
        assert processes._pool is None
