"""Kernels and programs: a function marked as a kernel, bound to arguments, and given to the
readers.
"""

from __future__ import annotations

import functools
import inspect
import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tilepipe.errors import BindError
from tilepipe.host_arguments import did_you_mean, plain_int, require_bool, require_function, shown
from tilepipe.ir import printer
from tilepipe.ir.chip import CHIPS, H200, Chip
from tilepipe.ir.def_use import tensor_uses
from tilepipe.ir.launch import Arg, Launch, TensorArg
from tilepipe.ir.program import Kernel
from tilepipe.lang.arguments.launch_preconditions import check_conditions, check_zeros
from tilepipe.lang.arguments.tensor_map import TensorMap, tensor_map
from tilepipe.lang.tracing.kernel import explain_none, trace

if TYPE_CHECKING:
    from tilepipe.check import Bounds, Fault, Reductions, Verdict
    from tilepipe.check.sensitivity import Sensitivity
    from tilepipe.cuda import Compiled
    from tilepipe.cuda.runtime.launching import Launcher
    from tilepipe.cuda.runtime.loading import BoundLaunch
    from tilepipe.errors import SimFault
    from tilepipe.machine.machine import OnEvent
    from tilepipe.machine.rules import Rules
    from tilepipe.sim import Run

Argument = TensorMap | int | float | None
MAX_GRID = 2**31 - 1
TIMEOUT_MS = 2000
FLOAT32_MAX = float(np.finfo(np.float32).max)


@dataclass(frozen=True, eq=False)
class Program:
    """A traced kernel with its arguments. `print(program)` shows the ops, their source lines and
    the thread layout.
    """

    kernel: Kernel
    launch_args: Launch
    _moved: dict[str, tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] = field(
        default_factory=dict, init=False, repr=False
    )
    # each copy has its own
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
    ) -> Run:
        """Runs it on the simulated GPU, in place on its NumPy arguments.

        Args:
            seed: 0 is one deterministic order; any other picks an interleaving. Same seed, same
                run.
            rules: "practice", what shipped compilers rely on, or "strict", the PTX ISA to the
                letter: docs/reference/rules.md.
            progress: called with (CTAs done, CTAs of the grid).
            on_event: called with (agent, site, start, end) for each asynchronous unit, times in
                cycles since its CTA started.

        Raises:
            SimFault: a deadlock, race, wrong count, poison read, ...: the message has the story.
        """
        from tilepipe import sim

        require_function(progress, "progress=")
        require_function(on_event, "on_event=")
        check_zeros(self.launch_args)
        before = {name: array.copy() for name, array in self._counters().items()}
        try:
            return sim.run(
                self.launch_args, seed=seed, rules=rules, progress=progress, on_event=on_event
            )
        finally:
            for name, array in self._counters().items():
                known = self._moved.get(name)
                first = (
                    known[0]
                    if known is not None and _same_bytes(before[name], known[1])
                    else before[name]
                )
                self._moved[name] = first, array.copy()

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
        """Decides it over all its interleavings, for these arguments: verified, a fault with its
        counterexample, or undecided.

        The arrays are left as they are. Those that the kernel reads and writes, such as counters,
        count as they were before `run` moved them, so that a check after a run is of the same
        instance; unless something else has changed them since. What "verified" covers, and what it
        does not, is in docs/verification-gaps.md.

        Args:
            explore: explore even where the facts of one execution would do.
            bounds: when to give up, undecided. reductions: what an exploration may leave out.
            rules: as for `run`. instance: what the verdict calls it.
            progress: called with (executions done, executions that are known to be left).

        Raises:
            BindError: an argument that is not of its type.
        """
        from tilepipe import check

        explore = require_bool(explore, "explore=")
        check_zeros(self.launch_args)
        return check.check(
            self._as_bound(), explore=explore, bounds=check.Bounds() if bounds is None else bounds,
            reductions=check.Reductions() if reductions is None else reductions,
            rules=rules, instance=instance, progress=progress,
        )  # fmt: skip

    def _counters(self) -> dict[str, np.ndarray[Any, Any]]:
        """The NumPy arguments that the kernel both reads and writes: a run moves what the next one
        starts from.
        """
        written, read = tensor_uses(self.kernel)
        args = {
            name: getattr(self.launch_args.args.get(name), "array", None) for name in written & read
        }
        return {name: array for name, array in args.items() if isinstance(array, np.ndarray)}

    def _as_bound(self) -> Launch:
        """The launch with such arrays as they were before `run` moved them, unless they have been
        changed since.
        """
        args = dict(self.launch_args.args)
        for name, array in self._counters().items():
            known = self._moved.get(name)
            if known is not None and _same_bytes(array, known[1]):
                args[name] = TensorArg(known[0], getattr(args[name], "shape", array.shape))
        return replace(self.launch_args, args=args)

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

        return check.replay(self._as_bound(), fault_to_replay(fault).schedule, rules=rules)

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
        """Runs it on the GPU. The first call compiles and loads the kernel; further ones cost a few
        microseconds.

        Arguments in GPU memory (PyTorch, CuPy, `__cuda_array_interface__`, DLPack) are used where
        they lie, and the call returns as soon as the kernel is queued; a CUDA graph can capture it.
        NumPy arguments are copied to device 0, and what the kernel writes is copied back.

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

    def __str__(self) -> str:
        return printer.text(self.kernel)


class KernelFunction:
    """A function marked with `@tp.kernel`: bind arguments to get a `Program`."""

    def __init__(self, function: Callable[..., object], grid: Any, cluster: Any) -> None:
        if not inspect.isfunction(function):
            raise BindError(
                f"@tp.kernel(...) marks a function, `def name(ctx, ...)`; got {shown(function)}"
            )
        functools.update_wrapper(self, function)
        self.function = function
        self.name = function.__name__
        self._grid = grid
        self._cluster = cluster
        self._traces: dict[object, Kernel] = {}
        self._lock = threading.Lock()
        first, *parameters = inspect.signature(function).parameters.values() or (None,)
        if first is None or any(
            p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in (first, *parameters)
        ):
            raise BindError(
                f"kernel '{self.name}' takes ctx first, then its arguments by name; *args and"
                " **kwargs are not bound"
            )
        self._positional = [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]
        self._static = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}

    def bind(self, *args: Any, chip: Chip | None = None, **static: Any) -> Program:
        """Traces the kernel for these arguments, once for each static part, and returns it with
        them.

        Args:
            args: for each positional parameter a `tp.tensor_map(...)`, an array (for ordinary loads
                and stores), a number, or None: the kernel sees None, and decides by it while it is
                traced.
            static: the keyword-only parameters.
            chip: whose limits to hold it to; unless given, the GPU that the arrays are on; of NumPy
                arrays an H200, or a B200 for a kernel with ops of Blackwell.

        Raises:
            BindError: missing, superfluous or unusable arguments. TraceError, LimitError: from
                tracing.
        """
        if chip is not None and not isinstance(chip, Chip):
            raise BindError(f"chip= takes a tp.Chip, such as tp.H200; got {shown(chip)}")
        named = {
            name: _argument(name, arg) for name, arg in zip(self._positional, args, strict=False)
        }
        if len(args) != len(self._positional):
            raise BindError(
                f"kernel '{self.name}' takes {len(self._positional)} arguments"
                f" ({', '.join(self._positional)}), got {len(args)}"
            )
        unknown = [name for name in static if name not in self._static]
        near = [close for name in unknown for close in did_you_mean(name, self._static)]
        missing = [
            n
            for n, default in self._static.items()
            if default is inspect.Parameter.empty and n not in static
        ]
        if unknown or missing:
            problem = (
                f"does not know {', '.join(unknown)}" if unknown else f"needs {', '.join(missing)}"
            )
            raise BindError(
                f"kernel '{self.name}' {problem}; its static parameters are"
                f" {', '.join(self._static) or 'none'}"
                + (f". Did you mean {', '.join(f'{name}=' for name in near)}?" if near else "")
            )
        everything = {
            n: d for n, d in self._static.items() if d is not inspect.Parameter.empty
        } | static
        known = _chip_of(named) if chip is None else chip
        chip, cluster = self._cluster_for(everything, known or H200)
        kernel = self._trace(named, everything, cluster, chip)
        # which has the same limits, so that the trace will do
        if known is None and kernel.arch != chip.arch:
            chip, other = self._cluster_for(everything, CHIPS[kernel.arch])
            kernel = kernel if other == cluster else self._trace(named, everything, other, chip)
        _refuse_shared_memory(kernel, named)
        grid = self._grid_size(named, everything, kernel, chip)
        check_conditions(
            kernel, grid, {n: a.shape if isinstance(a, TensorMap) else a for n, a in named.items()}
        )
        return Program(
            kernel,
            Launch(
                kernel, grid, {n: _launch_arg(a) for n, a in named.items() if a is not None}, chip
            ),
        )

    def forget(self) -> None:
        """Drops every trace: the next `bind` traces again."""
        with self._lock:
            self._traces.clear()

    def _cluster_for(self, static: dict[str, Any], chip: Chip) -> tuple[Chip, tuple[int, int, int]]:
        return chip, _cluster(_resolve(self._cluster, "cluster", static | {"chip": chip}), chip)

    def _trace(
        self,
        named: dict[str, Argument],
        static: dict[str, Any],
        cluster: tuple[int, int, int],
        chip: Chip,
    ) -> Kernel:
        facts = tuple(a.static if isinstance(a, TensorMap) else type(a) for a in named.values())
        try:
            key = (facts, _by_type((*static.items(), cluster, chip)))
        except TypeError:
            return trace(self.function, named, static, cluster, chip)
        with self._lock:
            kernel = self._traces.get(key)
        if kernel is None:
            kernel = trace(self.function, named, static, cluster, chip)
            with self._lock:
                kernel = self._traces.setdefault(key, kernel)
        return kernel

    def _grid_size(
        self, named: dict[str, Argument], static: dict[str, Any], kernel: Kernel, chip: Chip
    ) -> int:
        occupancy = (
            max(1, chip.smem_per_cta // max(kernel.smem_bytes, 1)) if kernel.smem_bytes else 8
        )
        occupancy = min(occupancy, 2048 // kernel.threads)
        known = static | named | {"chip": chip, "occupancy": occupancy}
        found = _resolve(self._grid, "grid", known)
        extents = [
            plain_int(extent)
            for extent in (found if isinstance(found, tuple) and found else (found,))
        ]
        grid = math.prod(0 if extent is None else extent for extent in extents)
        if not 1 <= grid <= MAX_GRID or any(
            extent is not None and extent < 1 for extent in extents
        ):
            raise BindError(
                f"the grid of kernel '{self.name}' must be 1..{MAX_GRID} CTAs, got {shown(found)}"
            )
        if grid % kernel.cluster_size:
            raise BindError(
                f"a grid of {grid} CTAs is not a whole number of clusters of {kernel.cluster_size}"
            )
        return grid

    def __call__(self, *args: Any, **static: Any) -> None:
        raise BindError(
            f"kernel '{self.name}' is not called: `{self.name}.bind(...)` gives a program, which"
            " can `.run()` or `.compile()`"
        )


def kernel(grid: Any = 1, cluster: Any = 1) -> Callable[[Callable[..., object]], KernelFunction]:
    """Marks a function `f(ctx, *arguments, *, static)` as a kernel.

    Args:
        grid: CTAs, as an int, a tuple, or a function of any of the kernel's parameters, `chip` and
            `occupancy`, by
            name: `grid=lambda c, cfg, chip: min(tiles(c.shape, cfg), chip.sms)`.
        cluster: CTAs of a cluster, an int, a tuple (x, y, z), or a function of static parameters
            and `chip`, by name.
    """
    if inspect.isfunction(grid) and next(iter(inspect.signature(grid).parameters), "") == "ctx":
        raise BindError(
            f"the decorator of kernel '{grid.__name__}' has parentheses: @tp.kernel(), or"
            " @tp.kernel(grid=...)"
        )
    return lambda function: KernelFunction(function, grid, cluster)


def _same_bytes(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    return a.shape == b.shape and a.tobytes() == b.tobytes()


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


def _by_type(x: Any) -> object:
    """A key that is equal for values of equal types only, all the way down: not 1, 1.0 and True,
    nor 0.0 and -0.0.

    Raises:
        TypeError: `x` has no hash.
    """
    hash(x)
    if isinstance(x, tuple):
        return type(x), tuple(map(_by_type, x))
    if isinstance(x, frozenset):
        return type(x), frozenset(map(_by_type, x))
    if is_dataclass(x) and not isinstance(x, type) and x.__dataclass_params__.eq:  # type: ignore[attr-defined]
        return type(x), tuple(_by_type(getattr(x, f.name)) for f in fields(x))
    if isinstance(x, float | complex | np.generic):
        return type(x), x, np.asarray(x).tobytes()
    return type(x), x


def _resolve(what: Any, name: str, known: Mapping[str, Any]) -> Any:
    if not callable(what):
        return what
    may = f"a function of any of {', '.join(known)}, by name"
    try:
        parameters = inspect.signature(what).parameters.values()
    except (TypeError, ValueError):  # a class, or a function of C, does not say
        raise BindError(
            f"{name}= is {may}; the parameters of {shown(what)} are not known"
        ) from None
    if any(p.kind in (p.POSITIONAL_ONLY, p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
        raise BindError(
            f"{name}= is {may}, not of *args, **kwargs or what stands before a slash: {shown(what)}"
        )
    unknown = [p.name for p in parameters if p.name not in known and p.default is p.empty]
    if unknown:
        raise BindError(f"{name}= asks for {', '.join(unknown)}; it may use {', '.join(known)}")
    given = {p.name: known[p.name] for p in parameters if p.name in known}
    with explain_none(f"{name}=", given):
        return what(**given)


def _cluster(value: Any, chip: Chip) -> tuple[int, int, int]:
    shape = tuple(value) if isinstance(value, tuple | list) else (value,)
    extents = [n for n in map(plain_int, shape[:4]) if n is not None and n >= 1]
    if not 1 <= len(shape) <= 3 or len(extents) != len(shape):
        raise BindError(
            f"a cluster is (x,), (x, y) or (x, y, z) of positive integers, got {shown(value)}"
        )
    x, y, z = (*extents, 1, 1)[:3]
    if x * y * z > chip.max_cluster:
        raise BindError(
            f"a cluster of {x}×{y}×{z} = {x * y * z} CTAs; {chip.name} takes at most"
            f" {chip.max_cluster}"
        )
    return x, y, z


def _argument(name: str, arg: Any) -> Argument:
    if isinstance(arg, TensorMap):
        if arg.array is None:
            raise BindError(f"argument '{name}': the tensor map has no array")
        return arg
    if arg is None:
        return None
    if isinstance(arg, np.integer | np.floating):
        arg = arg.item()
    if isinstance(arg, bool | np.bool_ | str):
        raise BindError(
            f"argument '{name}': expected a tensor map, an array or a number, got {shown(arg)}"
        )
    if isinstance(arg, int):
        if not -(2**31) <= arg < 2**31:
            raise BindError(f"argument '{name}': {arg} does not fit in int32")
        return arg
    if isinstance(arg, float):
        if math.isfinite(arg) and abs(arg) > FLOAT32_MAX:
            raise BindError(
                f"argument '{name}': {arg} does not fit in float32, which holds up to"
                f" {FLOAT32_MAX:.4g} (or inf)"
            )
        return arg
    try:
        return tensor_map(arg)
    except BindError as error:
        raise BindError(f"argument '{name}': {error}") from None


def _refuse_shared_memory(kernel: Kernel, named: Mapping[str, Argument]) -> None:
    """Raises BindError when an argument that the kernel writes overlaps another one: each is taken
    for memory of its own.
    """
    arrays = {
        n: a.array
        for n, a in named.items()
        if isinstance(a, TensorMap) and isinstance(a.array, np.ndarray)
    }
    for written in sorted(tensor_uses(kernel)[0] & arrays.keys()):
        for other, array in arrays.items():
            if other != written and np.shares_memory(arrays[written], array):
                raise BindError(
                    f"arguments '{written}', which kernel '{kernel.name}' writes, and '{other}'"
                    " share memory: accesses through the two"
                    " would not be ordered against each other. Pass one argument for both, or a"
                    " copy."
                )


def _chip_of(named: Mapping[str, Argument]) -> Chip | None:
    """The GPU whose memory the arguments are in; None where they are NumPy arrays."""
    arrays = [
        a.array
        for a in named.values()
        if isinstance(a, TensorMap) and not isinstance(a.array, np.ndarray)
    ]
    if not arrays:
        return None
    from tilepipe.cuda.runtime import driver, interop

    ordinal = interop.device_of(arrays)
    return H200 if ordinal is None else driver.chip(ordinal)


def _launch_arg(arg: TensorMap | int | float) -> Arg:
    return TensorArg(arg.array, arg.shape) if isinstance(arg, TensorMap) else arg
