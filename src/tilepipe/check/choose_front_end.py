"""The front end of a launch that is to be decided: of a kernel of this project, or of PTX."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, TypeAlias

from tilepipe.check.engine.front_end import FrontEnd
from tilepipe.check.engine.traced_front_end import TracedFrontEnd
from tilepipe.errors import BindError
from tilepipe.ir import program as ir
from tilepipe.machine.rules import Rules

if TYPE_CHECKING:
    from tilepipe.ptx import Launch as PtxLaunch

AnyLaunch: TypeAlias = "ir.Launch | PtxLaunch"
Made: TypeAlias = "ir.HoldsLaunch | AnyLaunch"  # what a recipe makes


class SourceFrontEnd(FrontEnd, Protocol):
    """A front end with the source of its program, for counterexamples that are kept."""

    @property
    def text(self) -> str:
        """The program as text: launches of the same program have the same."""

    @property
    def lines(self) -> Mapping[str, str]:
        """The lines of source that ops come from, "gemm.py:31" -> its text, as far as it can be
        read.
        """


def launch_of(made: object) -> AnyLaunch | None:
    """The launch that a program holds, or that `made` is; None if it is neither."""
    launch = getattr(made, "launch_args", made)
    if isinstance(launch, ir.Launch):
        return launch
    from tilepipe.ptx import Launch as PtxLaunch

    return launch if isinstance(launch, PtxLaunch) else None


def front_end_of(launch: AnyLaunch, rules: Rules) -> SourceFrontEnd:
    """The front end of a launch.

    Raises:
        BindError: it is no launch; or its arguments do not fit the kernel.
    """
    if isinstance(launch, ir.Launch):
        return TracedFrontEnd(launch, rules)
    from tilepipe.check.engine.ptx_front_end import PtxFrontEnd
    from tilepipe.ptx import Launch as PtxLaunch

    if isinstance(launch, PtxLaunch):
        return PtxFrontEnd(launch, rules)
    raise BindError(
        "check.check takes a launch: call program.check(), check(program.launch_args), or, of a"
        f" kernel of PTX, check(kernel.bind(...)); got {launch!r:.80}"
    )
