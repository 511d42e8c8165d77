"""A function marked as a kernel: traced once for each static part, and bound to arguments."""

from __future__ import annotations

import functools
import inspect
import math
import threading
from collections.abc import Callable
from typing import Any

from tilepipe.errors import BindError
from tilepipe.host_arguments import by_type, did_you_mean, plain_int, shown
from tilepipe.ir.arrays import byte_strides, refuse_shared_memory
from tilepipe.ir.chip import CHIPS, H200, Chip
from tilepipe.ir.def_use import tensor_uses
from tilepipe.ir.program import Kernel, Launch
from tilepipe.lang.arguments.tensor_map import TensorMap
from tilepipe.lang.tracing.kernel import trace
from tilepipe.program.arguments import (
    MAX_GRID,
    Argument,
    check_conditions,
    chip_of,
    cluster_extents,
    cta_count,
    launch_argument,
    plain_argument,
    resolved,
)
from tilepipe.program.program import GridFunction, Program


class KernelFunction:
    """A function marked with `@tp.kernel`: bind arguments to get a `Program`."""

    def __init__(
        self,
        function: Callable[..., object],
        grid: Any,
        cluster: Any,
        cooperative: bool = False,
        ctas_per_sm: Any = 1,
    ) -> None:
        if not inspect.isfunction(function):
            raise BindError(
                f"@tp.kernel(...) marks a function, `def name(ctx, ...)`; got {shown(function)}"
            )
        functools.update_wrapper(self, function)
        self.function = function
        self.name = function.__name__
        self._grid = grid
        self._cluster = cluster
        self._cooperative = cooperative
        self._ctas_per_sm = ctas_per_sm
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
            chip: whose limits to hold it to; unless given, the GPU that the arrays are on; for
                NumPy arrays, an H200, or a B200 for a kernel with ops of Blackwell.

        Raises:
            BindError: missing, superfluous or unusable arguments.
            TraceError, LimitError: from tracing.
        """
        if chip is not None and not isinstance(chip, Chip):
            raise BindError(f"chip= takes a tp.Chip, such as tp.H200; got {shown(chip)}")
        named = {
            name: plain_argument(name, arg)
            for name, arg in zip(self._positional, args, strict=False)
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
        known = chip_of(named) if chip is None else chip
        chip, cluster = self._cluster_for(everything, known or H200)
        kernel = self._trace(named, everything, cluster, chip)
        # which has the same limits, so that the trace will do
        if known is None and kernel.arch != chip.arch:
            chip, other = self._cluster_for(everything, CHIPS[kernel.arch])
            kernel = kernel if other == cluster else self._trace(named, everything, other, chip)
        arrays = {n: a.array for n, a in named.items() if isinstance(a, TensorMap)}
        refuse_shared_memory(kernel.name, tensor_uses(kernel)[0], arrays, byte_strides)
        known_to_grid = _known_to_grid(named, everything, kernel, chip)
        grid = self._grid_size(known_to_grid, kernel, chip)
        check_conditions(
            kernel, grid, {n: a.shape if isinstance(a, TensorMap) else a for n, a in named.items()}
        )
        return Program(
            kernel,
            Launch(
                kernel,
                grid,
                {n: launch_argument(a) for n, a in named.items() if a is not None},
                chip,
            ),
            GridFunction(self._grid, known_to_grid),
        )

    def __repr__(self) -> str:
        from tilepipe.program import kernel_page

        call = kernel_page.bind_call(self.function)
        at = kernel_page.place(self.function)
        return f"<KernelFunction '{self.name}' ({at}): {call} is a program>"

    def _repr_html_(self) -> str:
        from tilepipe.program import kernel_page

        return kernel_page.part(self.function)

    def forget(self) -> None:
        """Drops every trace: the next `bind` traces again."""
        with self._lock:
            self._traces.clear()

    def _cluster_for(self, static: dict[str, Any], chip: Chip) -> tuple[Chip, tuple[int, int, int]]:
        return chip, cluster_extents(
            resolved(self._cluster, "cluster", static | {"chip": chip}), chip
        )

    def _trace(
        self,
        named: dict[str, Argument],
        static: dict[str, Any],
        cluster: tuple[int, int, int],
        chip: Chip,
    ) -> Kernel:
        facts = tuple(a.static if isinstance(a, TensorMap) else type(a) for a in named.values())
        found = resolved(self._ctas_per_sm, "ctas_per_sm", static | {"chip": chip})
        ctas = cta_count(self.name, found)
        options = self._cooperative, ctas
        try:
            key = (facts, by_type((*static.items(), cluster, chip, ctas)))
        except TypeError:
            return trace(self.function, named, static, cluster, chip, *options)
        with self._lock:
            kernel = self._traces.get(key)
        if kernel is None:
            kernel = trace(self.function, named, static, cluster, chip, *options)
            with self._lock:
                kernel = self._traces.setdefault(key, kernel)
        return kernel

    def _grid_size(self, known: dict[str, Any], kernel: Kernel, chip: Chip) -> int:
        occupancy = known["occupancy"]
        found = resolved(self._grid, "grid", known)
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
        most = chip.resident_clusters(kernel.cluster_size) * kernel.cluster_size * occupancy
        if kernel.cooperative and grid > most:
            raise BindError(
                f"kernel '{self.name}' is cooperative, so all of its CTAs run at once; {chip.name}"
                f" holds {most} of them ({occupancy} on an SM), and the grid has {grid}. Let each"
                " CTA do the work of several: grid=lambda chip, occupancy: chip.sms * occupancy."
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


def kernel(
    grid: Any = 1, cluster: Any = 1, cooperative: bool = False, ctas_per_sm: Any = 1
) -> Callable[[Callable[..., object]], KernelFunction]:
    """Marks a function `f(ctx, *arguments, *, static)` as a kernel.

    Args:
        grid: CTAs, as an int, a tuple, or a function of any of the kernel's parameters, `chip` and
            `occupancy`, by
            name: `grid=lambda c, cfg, chip: min(tiles(c.shape, cfg), chip.sms)`.
        cluster: CTAs of a cluster, an int, a tuple (x, y, z), or a function of static parameters
            and `chip`, by name.
        cooperative: all CTAs of the grid run at once, or the launch is refused: for kernels whose
            CTAs wait for each other. Such a kernel starts after the one before it has ended.
        ctas_per_sm: CTAs for which the registers of an SM must do, an int or a function of static
            parameters and `chip`, by name: ptxas gives each thread no more than its share.
    """
    if inspect.isfunction(grid) and next(iter(inspect.signature(grid).parameters), "") == "ctx":
        raise BindError(
            f"the decorator of kernel '{grid.__name__}' has parentheses: @tp.kernel(), or"
            " @tp.kernel(grid=...)"
        )
    for name, extents in (("grid", grid), ("cluster", cluster)):
        parts = extents if isinstance(extents, tuple | list) else (extents,)
        if not callable(extents) and any(plain_int(part) is None for part in parts):
            raise BindError(
                f"@tp.kernel: {name}= is a number of CTAs, a tuple of extents, or a function of"
                f" parameters; got {shown(extents)}"
            )
    if not isinstance(cooperative, bool):
        raise BindError(f"@tp.kernel: cooperative= is True or False, got {shown(cooperative)}")
    return lambda function: KernelFunction(function, grid, cluster, cooperative, ctas_per_sm)


def _known_to_grid(
    named: dict[str, Argument], static: dict[str, Any], kernel: Kernel, chip: Chip
) -> dict[str, Any]:
    """The names that `grid=` may ask for."""
    occupancy = max(1, chip.smem_per_cta // max(kernel.smem_bytes, 1)) if kernel.smem_bytes else 8
    occupancy = min(occupancy, 2048 // kernel.threads)
    return static | named | {"chip": chip, "occupancy": occupancy}
