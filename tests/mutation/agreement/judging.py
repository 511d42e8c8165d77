"""The verdicts on one launch: on the traced program, and on the PTX of its printed CUDA."""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.support.time_limit import TimeLimitExceeded, time_limit
from tilepipe import cuda, sim
from tilepipe.check import Bounds, check
from tilepipe.check.choose_front_end import AnyLaunch
from tilepipe.check.mutation.outcomes import outcome_of
from tilepipe.cuda.nvrtc import cache
from tilepipe.cuda.nvrtc.compiler import nvrtc, nvrtc_version, options
from tilepipe.errors import TilepipeError
from tilepipe.ir.program import Kernel, Launch, architecture
from tilepipe.program.printed import launch_of

# An execution of more steps counts as an endless loop; one of PTX has more than one of a program.
# A mutant may have an endless loop; a kernel as it is gets more steps (`run.judge`).
TRACED = Bounds(traces=20_000, seconds=20.0, steps=6_000)
PRINTED = Bounds(traces=20_000, seconds=20.0, steps=60_000)
SLACK = 10  # seconds for what the bounds do not count: compiling, and one long step


@dataclass(frozen=True, slots=True)
class Side:
    """What one front end says.

    Attributes:
        verdict: "verified", "fault" or "undecided"; "refused" where the simulator cannot start the
            program, or it cannot be printed; "error" where a tool ends in anything but one of
            its own errors.
        kind, message: of the fault, or of what bounds the search.
        executions, states: the size of the search. seconds: the time that it took.
    """

    verdict: str
    kind: str = ""
    message: str = ""
    executions: int = 0
    states: int = 0
    seconds: float = 0.0

    @property
    def refuted(self) -> bool:
        """Whether it says that the launch is wrong."""
        return self.verdict in ("fault", "refused")


@dataclass(frozen=True, slots=True)
class Pair:
    """The verdicts on one launch from both front ends.

    Attributes:
        group: "shipped", "families", "examples" or "mutants". subject: the kernel and its
            configuration. instance: which of its instances.
        operator, what, loc: of a mutant; empty for a kernel as it is. number: of the mutant among
            those of its kernel, -1 for a kernel as it is.
    """

    group: str
    subject: str
    instance: str
    traced: Side
    printed: Side
    operator: str = ""
    what: str = ""
    loc: str = ""
    number: int = -1

    @property
    def key(self) -> tuple[str, str, str, int]:
        """What identifies it among stored results."""
        return self.group, self.subject, self.instance, self.number

    @property
    def agrees(self) -> bool:
        """Whether both decide, and alike."""
        sides = (self.traced, self.printed)
        return self.traced.refuted == self.printed.refuted and not any(
            s.verdict in ("undecided", "error") for s in sides
        )

    @classmethod
    def of(cls, stored: dict[str, Any]) -> Pair:
        """The pair of which `asdict` made `stored`."""
        sides = {name: Side(**stored[name]) for name in ("traced", "printed")}
        return cls(**{**stored, **sides})


def traced(launch: Launch, bounds: Bounds = TRACED) -> Side:
    """The verdict on the program."""

    def made() -> AnyLaunch:
        sim.source(launch.kernel)
        return launch

    return _side(made, bounds)


def printed(launch: Launch, bounds: Bounds = PRINTED) -> Side:
    """The verdict on the PTX of its printed CUDA."""

    def made() -> AnyLaunch:
        found = launch_of(launch, *printed_text(launch.kernel))
        found.kernel.code  # compiled here, since the seconds of a search are bounded  # noqa: B018
        return found

    return _side(made, bounds)


def printed_text(kernel: Kernel) -> tuple[str, int]:
    """The PTX of a kernel's printed CUDA, and its bytes of shared memory. NVRTC runs once for each
    text: a directory of the user keeps what it made.
    """
    arch = architecture(kernel)
    made = cuda.compile(kernel, arch, "cuda")
    given = options(arch, "ptx")
    name = cache.key(made.source, "kernel.cu", nvrtc_version(), *given)
    found = cache.read(name)
    if found is None:
        found = nvrtc(made.source, "kernel.cu", "ptx", given)
        cache.write(name, *found)
    return found[1].decode(), made.smem_bytes


def _side(made: Callable[[], AnyLaunch], bounds: Bounds) -> Side:
    """The verdict on the launch that is made."""
    launch = None
    begun = time.process_time()
    try:
        with time_limit(bounds.seconds + SLACK), contextlib.redirect_stdout(io.StringIO()):
            launch = made()
            begun = time.process_time()
            verdict = check(launch, bounds=bounds, shorten=False)
    except TilepipeError as error:
        refused = "refused" if launch is None else "error"
        return Side(refused, type(error).__name__, str(error))
    except (Exception, TimeLimitExceeded) as error:
        late = isinstance(error, TimeLimitExceeded)
        return Side("undecided" if late else "error", type(error).__name__, str(error))
    found = outcome_of(verdict, bounds)
    return Side(
        {"redundant": "verified"}.get(found.fate, found.fate),
        found.kind,
        found.message,
        verdict.traces,
        verdict.states,
        round(time.process_time() - begun, 2),
    )
