"""A kernel bound to its arguments, and what the readers make of it."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tilepipe.errors import BindError, SimFault
from tilepipe.host_arguments import (
    plain_int,
    require_bool,
    require_function,
    shown,
)
from tilepipe.ir import printer
from tilepipe.ir.program import Kernel, Launch
from tilepipe.program.arguments import check_zeros
from tilepipe.program.counters import Moved, as_bound, remembered

if TYPE_CHECKING:
    from pathlib import Path

    from tilepipe.check import Bounds, Fault, Reductions, Verdict
    from tilepipe.check.sensitivity import Sensitivity
    from tilepipe.cuda import Compiled
    from tilepipe.cuda.runtime.launching import Launcher
    from tilepipe.cuda.runtime.loading import BoundLaunch
    from tilepipe.description import Description
    from tilepipe.machine.recorder import OnEvent
    from tilepipe.machine.rules import Rules
    from tilepipe.ptx.launch import Launch as PtxLaunch
    from tilepipe.sim import Run
    from tilepipe.timeline import Timeline

TIMEOUT_MS = 2000


@dataclass(frozen=True, eq=False)
class GridFunction:
    """`grid=` of a kernel. `given`: a number, a tuple or a function; `known`: what it may ask for,
    by name.
    """

    given: Any
    known: Mapping[str, Any]


@dataclass(frozen=True, eq=False, repr=False)
class Program:
    """A traced kernel with its arguments. `print(program)` shows the ops, their source lines and
    the thread layout.
    """

    kernel: Kernel
    launch_args: Launch
    grid_function: GridFunction | None = field(default=None, repr=False)
    # each copy has its own of both
    _moved: Moved = field(default_factory=dict, init=False, repr=False)
    _bounds: dict[tuple[bool, bool], BoundLaunch] = field(
        default_factory=dict, init=False, repr=False
    )

    def run(
        self,
        seed: int = 0,
        *,
        rules: Rules = "practice",
        progress: Callable[[int, int], None] | None = None,
        on_event: OnEvent | None = None,
        timeline: bool | int = False,
    ) -> Run:
        """Runs the program on the simulated GPU, in place on its arguments: NumPy arrays, or
        tensors of PyTorch on the CPU.

        Args:
            seed: 0 is one deterministic order; any other picks an interleaving. Same seed, same
                run.
            rules: "practice", what shipped compilers rely on, or "strict", the PTX ISA to the
                letter: docs/reference/rules.md.
            progress: called with (CTAs done, CTAs of the grid).
            on_event: called with (agent, site, start, end) for each asynchronous unit, times in
                cycles since its CTA started.
            timeline: record when copies, MMAs and waits happen, of all CTAs, or of so many, from
                the first on: `Run.timeline`, docs/reference/timeline.md.

        Raises:
            SimFault: a deadlock, race, wrong count, poison read, ...: the message explains it.
        """
        from tilepipe import sim

        require_function(progress, "progress=")
        require_function(on_event, "on_event=")
        check_zeros(self.launch_args)
        with remembered(self.launch_args, self._moved):
            return sim.run(
                self.launch_args,
                seed=seed,
                rules=rules,
                progress=progress,
                on_event=on_event,
                timeline=timeline,
            )

    def check(
        self,
        *,
        explore: bool = False,
        bounds: Bounds | None = None,
        reductions: Reductions | None = None,
        rules: Rules = "practice",
        instance: str = "",
        progress: Callable[[int, int], None] | None = None,
    ) -> Verdict:
        """Checks every interleaving of the program for these arguments: verified, a fault with its
        counterexample, or undecided.

        The arrays are left as they are. Arrays the kernel both reads and writes, such as counters,
        are checked with the values they had before `run`, unless modified since. What "verified"
        covers, and what it does not, is in docs/verification-gaps.md.

        Args:
            explore: explore even where the facts of one execution would do.
            bounds: when to give up, undecided.
            reductions: what an exploration may leave out.
            rules: as for `run`.
            instance: what the verdict calls it.
            progress: called with (executions done, executions that are known to be left).

        Raises:
            BindError: an argument that is not of its type.
        """
        from tilepipe import check

        explore = require_bool(explore, "explore=")
        check_zeros(self.launch_args)
        return check.check(
            as_bound(self.launch_args, self._moved),
            explore=explore,
            bounds=check.Bounds() if bounds is None else bounds,
            reductions=check.Reductions() if reductions is None else reductions,
            rules=rules,
            instance=instance,
            progress=progress,
        )

    def replay(self, fault: Fault | Verdict, *, rules: Rules = "practice") -> SimFault | None:
        """Executes the schedule of a fault that `check` found, on the simulated GPU: the fault it
        ends in, or None.

        Args:
            fault: it, or the verdict that has it. A file of `tilepipe check --save` is replayed
                with `tilepipe replay`.
            rules: as it was checked.

        Raises:
            BindError: no fault, or a verdict that has not exactly one.
        """
        from tilepipe import check
        from tilepipe.check.verdict import fault_to_replay

        return check.replay(
            as_bound(self.launch_args, self._moved), fault_to_replay(fault).schedule, rules=rules
        )

    def sensitivity(self, **options: Any) -> Sensitivity:
        """What each fence, wait, syncwarp, arrive and commit of it is for, and how few stages still
        verify: see `check.sensitivity.report`, which takes the options.
        """
        from tilepipe.check.sensitivity import report

        return report(self, **options)

    def launch(
        self,
        stream: Any = None,
        *,
        debug: bool = False,
        perturb: int | None = None,
        timeout_ms: float = TIMEOUT_MS,
    ) -> None:
        """Runs the program on the GPU. The first call compiles and loads the kernel; further ones
        cost a few microseconds.

        Arguments in GPU memory (PyTorch, CuPy, `__cuda_array_interface__`, DLPack) are used where
        they lie, and the call returns as soon as the kernel is queued; a CUDA graph can capture it.
        NumPy arrays and tensors on the CPU are copied to device 0, and what the kernel writes is
        copied back.

        Args:
            stream: an integer (CUstream), or a stream of PyTorch, CuPy or cuda.core; the current
                stream of the arrays' framework unless given.
            debug: a build whose waits are bounded, and wait for the kernel: a hang becomes a
                `HangError`.
            perturb: a build that waits a while at random at every synchronisation point; the number
                is the seed.
            timeout_ms: how long a wait of a debug build may take.

        Raises:
            UnavailableError: no driver, no GPU, or one that no code is printed for. BindError:
            arrays on different devices. CompileError, LaunchError: compiling, loading or launching
            failed. HangError: see `debug`.
        """
        if debug is not False or perturb is not None or timeout_ms is not TIMEOUT_MS:
            debug = require_bool(debug, "debug=")
            _check_debugging(perturb, timeout_ms)
        if self.kernel.requirements:
            check_zeros(self.launch_args)
        self._bound(bool(debug), perturb is not None)(
            stream, seed=perturb or 0, timeout_ms=timeout_ms
        )

    def record(
        self, stream: Any = None, *, ctas: int = 4, room: int = 4096, launches: int = 2
    ) -> Timeline:
        """Runs it on the GPU in a build in which each warp notes when it comes to a wait, an
        arrival, a copy or an MMA, and when a wait lets it go on: docs/reference/timeline.md. Other
        builds have none of that code.

        Args:
            stream: as for `launch`.
            ctas: of how many CTAs, from the first on; of whole clusters.
            room: notes that each of their warps has memory for, of 8 bytes; `Timeline.measured`
                says how many more there were. All of them together have at most 16 GiB.
            launches: the last of so many launches is recorded. The first finds cold caches. Each
                finds tensors that the kernel both reads and writes (counters, sums) as they are
                now, and they are left as after one launch: they are copied on the device
                meanwhile, where there are several launches.

        Raises:
            What `launch` does. BindError: there is room for more notes than a build counts.
            LaunchError: also where there is no memory for these copies.
            LimitError: there is more to note than a build can name.
        """
        from tilepipe.program.recording import record

        return record(self.launch_args, stream, ctas=ctas, room=room, launches=launches)

    def launcher(self) -> Launcher:
        """The compiled kernel on its arrays' device, to be called with other addresses for the same
        shapes and strides. Raises what `launch` does.
        """
        return self._bound(False, False).launcher

    def _bound(self, debug: bool, perturbed: bool) -> BoundLaunch:
        bound = self._bounds.get((debug, perturbed))
        if bound is None:
            from tilepipe.cuda.runtime.loading import BoundLaunch

            bound = self._bounds[debug, perturbed] = BoundLaunch(
                self.launch_args, debug=debug, perturbed=perturbed
            )
        return bound

    def source(self, arch: str | None = None) -> str:
        """The kernel as CUDA C++, for sm_90a, or sm_100a, sm_100f, sm_103a or sm_103f: sm_90a or
        sm_100a, whichever has its ops, unless given.
        """
        from tilepipe import cuda

        return cuda.source(self.kernel, arch)

    def compile(self, arch: str | None = None, emit: str = "cubin") -> Compiled:
        """Compiles it with NVRTC; needs no GPU. `arch`: as for `source`. `emit`: "cuda", "ptx" or
        "cubin".
        """
        from tilepipe import cuda

        return cuda.compile(self.kernel, arch=arch, emit=emit)

    def export(
        self,
        directory: str | os.PathLike[str],
        *,
        name: str | None = None,
        extents: Mapping[str, Sequence[int | str]] | None = None,
        zero: Sequence[str] = (),
        arch: str | None = None,
        replace: bool = False,
    ) -> Path:
        """Compiles it, and writes what it takes to launch it without Python or a compiler: a
        cubin, a launcher in C99 that needs the CUDA driver alone, and a manifest, which
        `tp.load_exported` reads. Needs no GPU. docs/how-to/export.md shows both.

        Args:
            directory: made where it is not there.
            name: of the files and of the functions in C; the kernel's unless given.
            extents: of tensors by name, outermost first: a name where the extent is chosen at each
                launch, the same name where extents are equal; a number where it is fixed, as all
                extents are of tensors that are not mentioned: `{"a": ("m", "k"), "b": ("n", "k"),
                "c": ("m", "n")}`. What `bind` asks of shapes beyond that is not checked again.
            zero: tensors that hold zeros before the first launch, and again after each; those of a
                `tp.AtomicScheduler` are known. The manifest and the header say so.
            arch: as for `source`.
            replace: files of that name may be there, of another kernel or of none.

        Returns:
            The path of the manifest.

        Raises:
            ExportError: the grid cannot be expressed by extents, the names contradict the arrays,
                files of that name are there that are not of the same kernel, or one cannot be
                written. CompileError: NVRTC refuses it.
        """
        from tilepipe.program.exporting import export

        return export(
            self,
            directory,
            name=name,
            extents={} if extents is None else extents,
            zero=zero,
            arch=arch,
            replace=replace,
        )

    def ptx(self, arch: str | None = None) -> PtxLaunch:
        """The PTX that NVRTC makes of its printed CUDA, bound to its arguments: `.run(seed=)` runs
        it on the simulated machine, instruction by instruction, and writes into the same arrays.

        The reader of PTX shares no code with the printer, so that a result which is right here as
        well says that what is printed is right. `arch`: as for `source`.

        Raises:
            BindError: an argument is no NumPy array. PtxError: the reader does not model an
            instruction.
        """
        from tilepipe.program.printed import printed_launch

        if self.kernel.requirements:
            check_zeros(self.launch_args)
        return printed_launch(self.launch_args, arch)

    def describe(self) -> Description:
        """What it is made of: roles, rings and barriers with who arrives and who waits, shared
        memory, arguments; `.svg()` draws it. A notebook shows it for a program.
        """
        from tilepipe.description import describe

        return describe(self.launch_args)

    def __str__(self) -> str:
        return printer.text(self.kernel)

    def __repr__(self) -> str:
        k, grid = self.kernel, self.launch_args.grid
        roles = ", ".join(role.name for role in k.roles) or "no roles"
        ctas = f"{grid:,} CTA{'' if grid == 1 else 's'} of {k.threads} threads"
        return f"<Program '{k.name}' ({roles}), {ctas}, {k.smem_bytes:,} bytes of shared memory>"

    def _repr_html_(self) -> str:
        return self.describe().html()


def _check_debugging(perturb: object, timeout_ms: object) -> None:
    if perturb is not None and plain_int(perturb) is None:
        raise BindError(f"perturb= is a seed, an integer; got {shown(perturb)}")
    if (
        isinstance(timeout_ms, bool)
        or not isinstance(timeout_ms, int | float | np.integer | np.floating)
        or not 0 < timeout_ms < math.inf
    ):
        raise BindError(
            "timeout_ms is how long a wait may block, in milliseconds above 0; got"
            f" {shown(timeout_ms)}"
        )
