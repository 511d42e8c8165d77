"""Every fault tilepipe reports is a subclass of `TilepipeError`.

A message says what happened, where (file:line of the user's kernel), the arithmetic, and what to
change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilepipe.ir.location import Loc


class TilepipeError(Exception):
    """Base of every error raised on purpose by tilepipe.

    Attributes:
        loc: where in the user's kernel, or None when the fault is not about one line.
    """

    # No `__init__` of its own: torch.compile, which cannot follow one, would speak of `super()`.
    if TYPE_CHECKING:

        def __init__(self, message: str, loc: Loc | None = None) -> None: ...

    @property
    def loc(self) -> Loc | None:
        return self.args[1] if len(self.args) > 1 else None

    def __str__(self) -> str:
        message = str(self.args[0]) if self.args else ""
        return message if self.loc is None else f"{message}\n  at {self.loc}"


@dataclass(frozen=True)
class Padding:
    """What padding an array wants, whose rows, or columns where those are contiguous, are no
    multiple of 16 bytes apart.

    Attributes:
        operand: its name as the kernel's argument; "" where that is not known. extent: of the
            contiguous dimension, which is to be a multiple of `unit`.
    """

    operand: str
    extent: int
    unit: int

    @property
    def padded(self) -> int:
        """The extent that it wants."""
        return -(-self.extent // self.unit) * self.unit


class BindError(TilepipeError):
    """Arguments of a kernel, or a tensor map, that no kernel can be built for (shape, dtype,
    stride, alignment).

    Attributes:
        rule: the rule that is broken, where the message has more than that: advice, or the
            configuration. padding: what padding the array wants that the message is about.
    """

    rule: str = ""
    padding: Padding | None = None


class TraceError(TilepipeError):
    """The kernel function does something that cannot be traced, or that would silently mean
    something else.
    """


class HandleError(TraceError):
    """A linear handle is leaked, released twice, used after release, or released on some paths
    only.
    """


class MemberError(TraceError, AttributeError):
    """A kernel asks for a member that an object does not have, such as `ctx.threadIdx`."""


class CountError(TraceError):
    """An arrival count that contradicts the arrivals the kernel makes."""


class LimitError(TilepipeError):
    """The kernel needs more of something than the chip has (shared memory, threads, registers,
    named barriers).
    """


class CompileError(TilepipeError):
    """NVRTC refused the printed source, or its log shows a silent loss (spills, ignored setmaxnreg,
    serialised wgmma).
    """


class UnavailableError(TilepipeError):
    """The request needs a package, a driver or a GPU that this machine does not have."""


class LaunchError(TilepipeError):
    """The CUDA driver refused to load or to launch a kernel, or the kernel failed on the GPU."""


class ExportError(TilepipeError):
    """A kernel cannot be exported, or an exported one is not as it was written."""


class HangError(TilepipeError):
    """A wait of a debug build's launch did not end on the GPU: which role waits where, for what,
    and who else was waiting.
    """


class PtxError(TilepipeError):
    """PTX text that cannot be read, or that uses what the reader does not model."""


class UnfinishedError(TilepipeError):
    """A run was given a limit of time, and had not ended when the time was over."""


class SimFault(TilepipeError):
    """The simulated machine found a fault while running a kernel.

    Attributes:
        timeline: a `timeline.Timeline` of the run up to the fault, where one was recorded.
    """

    timeline: object = None


class DeadlockError(SimFault):
    """No agent can proceed: who waits for whom, and which arrivals or bytes are missing."""


class NotModelledError(SimFault):
    """Nothing can act, but on a GPU the kernel may go on in a way that the simulated machine does
    not model: lanes of one warp proceed apart, or a loop gives up after some time. Whether it hangs
    is not decided, and a check says undecided.
    """


class RaceError(SimFault):
    """Two accesses to the same bytes, at least one a write, with nothing that orders them.

    Attributes:
        accesses: for the counterexample: of each of the two, in the order in which they came, the
            CTA, the number of the agent in its cluster, and that of the op in the program; ()
            where they are not known.
    """

    accesses: tuple[tuple[int, int, int], ...] = ()


class BarrierError(SimFault):
    """An mbarrier, named barrier or cluster barrier used against its rules (counts, transactions,
    phases, life cycle).
    """


class PoisonError(SimFault):
    """Memory was read that nothing has written, or, in PTX, what was read so decides or leaves."""


class ExitError(SimFault):
    """A CTA exits while a peer, or one of its own asynchronous copies, can still touch its shared
    memory.
    """


class KernelAssertError(SimFault):
    """A `ctx.assert_` did not hold."""
