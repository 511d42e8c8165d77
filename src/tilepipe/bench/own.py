"""Programs of a user's file on a GPU, beside others: on the same arguments, results compared before
anything is timed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

import tilepipe as tp
from tilepipe.bench import timing
from tilepipe.bench.report import Table
from tilepipe.bench.timing import Step
from tilepipe.errors import BindError
from tilepipe.ir.def_use import tensor_uses
from tilepipe.ir.host_tensors import host_memory, tensor_of
from tilepipe.ir.program import TensorArg
from tilepipe.testing.agreement import Agreement, agreement

OURS = "tilepipe"
DEVICE = "cuda"
MAX_SETS = 512

Results = dict[str, Any]  # tensors by output
Function = Callable[[Mapping[str, Any]], Results]  # of the kernel's arguments by name


class Arguments:
    """Copies of a program's arrays in GPU memory, with their strides: sets of them, through which
    launches rotate.

    Attributes:
        tensors: by name, one for each set. nbytes: of one set.
    """

    def __init__(self, program: tp.Program) -> None:
        args = program.launch_args.args
        self._first = {
            name: _as_tensor(name, arg.array)
            for name, arg in args.items()
            if isinstance(arg, TensorArg)
        }
        self._numbers = {n: x for n, x in args.items() if not isinstance(x, TensorArg)}
        self.nbytes = sum(x.numel() * x.element_size() for x in self._first.values())
        self.sets = min(timing.sets_for(max(self.nbytes, 1)), MAX_SETS)
        self.tensors = {
            name: [_copied(name, x) for _ in range(self.sets)] for name, x in self._first.items()
        }

    def reset(self, i: int) -> None:
        """Puts back what was in set `i` at first."""
        for name, x in self._first.items():
            self.tensors[name][i].copy_(x)

    def of(self, i: int) -> dict[str, Any]:
        """Set `i` and the numbers, by name."""
        return {name: x[i] for name, x in self.tensors.items()} | self._numbers


def _as_tensor(name: str, array: Any) -> torch.Tensor:
    if isinstance(array, torch.Tensor):
        return array
    try:
        found: torch.Tensor = tensor_of(array)
    except (ValueError, TypeError) as error:  # strides below zero, a dtype without a tensor
        raise BindError(f"argument '{name}': no tensor has this array's memory ({error})") from None
    return found


def _copied(name: str, x: torch.Tensor) -> torch.Tensor:
    try:
        made = torch.empty_strided(tuple(x.shape), x.stride(), dtype=x.dtype, device=DEVICE)
        return made.copy_(x)
    except RuntimeError as error:  # elements that share memory; more than the GPU holds
        raise BindError(f"argument '{name}' is not copied to the GPU: {error}") from None


@dataclass(frozen=True, eq=False)
class Contest:
    """A program, and who stands beside it: by name, another program with the same tensors, or a
    function of the arguments that returns the outputs.
    """

    instance: str
    program: tp.Program
    peers: Mapping[str, tp.Program | Function]


@dataclass(frozen=True)
class Line:
    """One contest in one regime. `us`: medians in microseconds by side, ours first; nothing where
    results differ, which are not timed. `spreads`: relative. `nbytes`: of all arguments.
    `agreements`: by peer and output.
    """

    instance: str
    regime: str
    us: Mapping[str, float]
    spreads: Mapping[str, float]
    nbytes: int
    agreements: Mapping[str, Mapping[str, Agreement]]

    @property
    def right(self) -> bool:
        """All results agree."""
        return all(x.ok for found in self.agreements.values() for x in found.values())

    def ratio(self, peer: str) -> float:
        """The peer's time over ours: above 1 we are faster."""
        return self.us[peer] / self.us[OURS]

    @property
    def gbytes_per_s(self) -> float:
        """GB/s, if each argument is moved once."""
        return self.nbytes / self.us[OURS] * 1e-3

    def report(self) -> dict[str, Any]:
        """The line as `--json` prints it."""
        return {
            "instance": self.instance,
            "regime": self.regime,
            "ok": self.right if self.agreements else None,
            "us": dict(self.us),
            "spread": dict(self.spreads),
            "ratio": {name: self.ratio(name) for name in self.us if name != OURS},
            "gbytes_per_s": self.gbytes_per_s if self.us else None,
            "outputs": {
                peer: {name: x.report() for name, x in found.items()}
                for peer, found in self.agreements.items()
            },
        }


@dataclass(frozen=True, eq=False)
class _Side:
    """`launch`: as timing wants it. `results`: what a launch with a set has written."""

    launch: timing.Launch
    results: Callable[[int], Results]


def measure(contest: Contest, regimes: Sequence[str], repeats: int, step: Step) -> list[Line]:
    """A line for each regime.

    Raises:
        BindError: a launch changes integers that the next one reads, such as a counter; a peer
            cannot be captured in a CUDA graph.
        TilepipeError: a kernel cannot be built.
    """
    arguments = Arguments(contest.program)
    sides = {
        name: _side(x, arguments) for name, x in {OURS: contest.program, **contest.peers}.items()
    }
    found = {name: _outputs(side, arguments) for name, side in sides.items()}
    _require_repeatable(contest.program, arguments)
    agreements = {
        peer: {name: agreement(name, found[OURS][name], x) for name, x in found[peer].items()}
        for peer in contest.peers
    }
    lines = [
        Line(contest.instance, regime, {}, {}, arguments.nbytes, agreements) for regime in regimes
    ]
    if not lines[0].right:
        for _ in regimes:
            step(contest.instance)
        return lines
    blocks = {name: _block(name, side, arguments.sets) for name, side in sides.items()}
    lines = []
    for regime in regimes:
        samples = timing.timed(blocks, regime, repeats)
        us = {name: sample.us for name, sample in samples.items()}
        spreads = {name: sample.spread() for name, sample in samples.items()}
        lines.append(Line(contest.instance, regime, us, spreads, arguments.nbytes, agreements))
        step(f"{contest.instance}, {regime}")
    return lines


def _side(what: tp.Program | Function, arguments: Arguments) -> _Side:
    if isinstance(what, tp.Program):
        return _program(what, arguments)
    return _Side(lambda i: what(arguments.of(i)), lambda i: what(arguments.of(i)))


def _program(program: tp.Program, arguments: Arguments) -> _Side:
    launcher = program.launcher()
    places = [
        tuple(arguments.tensors[name][i].data_ptr() for name in launcher.tensors)
        for i in range(arguments.sets)
    ]
    written = tensor_uses(program.kernel)[0]

    def launch(i: int) -> None:
        launcher(places[i], stream())

    def results(i: int) -> Results:
        launch(i)
        return {name: x[i] for name, x in arguments.tensors.items() if name in written}

    return _Side(launch, results)


def stream() -> int:
    """The current stream."""
    return int(torch.cuda.current_stream().cuda_stream)


def wait() -> None:
    """Waits for the GPU."""
    torch.cuda.synchronize()


def _outputs(side: _Side, arguments: Arguments) -> dict[str, npt.NDArray[Any]]:
    """What a side makes of the first set, in the host's memory."""
    arguments.reset(0)
    found = side.results(0)
    wait()
    return {name: _on_host(name, x) for name, x in found.items()}


def _on_host(name: str, x: Any) -> npt.NDArray[Any]:
    if not isinstance(x, torch.Tensor):
        raise BindError(f"output '{name}' is a tensor; the function returns {type(x).__name__}")
    return np.array(host_memory(x.detach().cpu(), f"output '{name}'"))


def _require_repeatable(program: tp.Program, arguments: Arguments) -> None:
    """Asserts that a launch leaves the integers as they are which it also reads. Floats may be
    accumulated: that takes as long each time.
    """
    written, read = tensor_uses(program.kernel)
    _outputs(_program(program, arguments), arguments)
    now = arguments.of(0)
    left = {name: now[name].clone() for name in written & read}
    arguments.reset(0)
    for name, after in left.items():
        before = arguments.tensors[name][0]
        if not before.is_floating_point() and not torch.equal(before, after):
            raise BindError(
                f"a launch changes the integers of '{name}', which the next one reads: launches in"
                " a loop would do other work. Have the kernel set them back at its end"
            )


def _block(name: str, side: _Side, sets: int) -> timing.Block:
    try:
        return timing.block(side.launch, sets)
    except (RuntimeError, BindError) as error:
        raise BindError(
            f"{name} cannot be captured in a CUDA graph, in which launches are timed: {error}. It"
            " must neither wait for the GPU nor copy to the host"
        ) from None


def table(lines: Sequence[Line], regime: str, peers: Sequence[str]) -> Table:
    """All lines of one regime."""
    columns = ["instance", "µs", "GB/s"]
    for peer in peers:
        columns += [f"{peer} µs", "peer / ours"]
    rows = []
    for line in (x for x in lines if x.regime == regime):
        if not line.us:
            rows.append((line.instance, "not timed", *[""] * (len(columns) - 2)))
            continue
        beside = [
            text for peer in peers for text in (f"{line.us[peer]:.1f}", f"{line.ratio(peer):.3f}")
        ]
        rows.append((line.instance, f"{line.us[OURS]:.1f}", f"{line.gbytes_per_s:,.0f}", *beside))
    notes, groups = tuple(_notes(lines, regime)), (2,) * (1 + len(peers))
    return Table(regime, tuple(columns), tuple(rows), notes, groups=groups)


def _notes(lines: Sequence[Line], regime: str) -> list[str]:
    mine = [line for line in lines if line.regime == regime]
    notes = ["GB/s: the bytes of all arguments, each moved once"]
    for line in mine:
        for peer, found in line.agreements.items():
            for name, x in found.items():
                wrong = "" if x.ok else "WRONG: "
                notes.append(f"{wrong}{line.instance}, {peer}, {name}: {x}")
    timed = [x for line in mine for x in line.spreads.values()]
    if timed:
        notes.append(f"spread (half the interquartile range): at most {max(timed):.1%}")
    return notes
