"""Programs of tilepipe as launches of the PTX that NVRTC makes of their printed CUDA."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilepipe import cuda, ptx
from tilepipe.cuda.nvrtc.compiler import nvrtc, options
from tilepipe.program import Program
from tilepipe.program.printed import launch_of


@dataclass(frozen=True)
class Printed:
    """A program, printed and compiled to PTX: it is launched as often as wanted.

    Attributes:
        text: the PTX; tests change it.
    """

    program: Program
    text: str
    smem_bytes: int

    def launch(self) -> ptx.Launch:
        """A launch on the program's arrays."""
        return launch_of(self.program.launch_args, self.text, self.smem_bytes)

    def run(self, seed: int = 0, timeout: float | None = 120) -> None:
        """Runs it once, on the program's arrays."""
        self.launch().run(seed, timeout=timeout)


def printed(
    program: Program, arch: str | None = None, patch: Callable[[str], str] = lambda source: source
) -> Printed:
    """A program's PTX for an architecture. `patch`: changes the CUDA before it is compiled."""
    made = cuda.compile(program.kernel, arch, "cuda")
    _, text = nvrtc(patch(made.source), "kernel.cu", "ptx", options(made.arch, "ptx"))
    return Printed(program, text.decode(), made.smem_bytes)
