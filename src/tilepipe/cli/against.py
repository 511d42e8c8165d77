"""What `--against FILE.py:NAME` names: another program, or a function of the kernel's arguments,
whose results are compared with a program's.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import tilepipe as tp
from tilepipe.cli import programs
from tilepipe.errors import BindError
from tilepipe.ir.def_use import tensor_uses
from tilepipe.ir.host_tensors import host_memory, is_host_tensor, is_tensor, tensor_of
from tilepipe.ir.program import TensorArg
from tilepipe.testing.agreement import Agreement, agreement

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Peer:
    """A program, and what stands beside it: `other`, a program with arguments of the same names,
    shapes and dtypes, or `function`, of any of its arguments.
    """

    what: str
    program: tp.Program
    other: tp.Program | None = None
    function: Callable[..., Any] | None = None

    @property
    def written(self) -> list[str]:
        """The outputs, in the order of the parameters."""
        written = tensor_uses(self.program.kernel)[0]
        return [name for name in self.program.launch_args.args if name in written]

    def expected(self, device: str = "sim") -> Expected:
        """What the peer makes of copies of the program's arguments as they are now.

        Args:
            device: where another program runs, "sim" or "cuda".
        """
        arrays = host_arrays(self.program)
        if self.other is not None:
            theirs = host_arrays(self.other)
            for name, array in theirs.items():
                array[...] = arrays[name]
            self.other.run() if device == "sim" else self.other.launch()
            return Expected(self, {name: theirs[name] for name in self.written})
        args = self.program.launch_args.args
        copies = {name: handed(array.copy()) for name, array in arrays.items()}
        found = self.call({name: copies.get(name, arg) for name, arg in args.items()})
        return Expected(self, {name: on_host(x) for name, x in found.items()})

    def call(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """What the function returns of these arguments, by output; what it returns nothing of it
        has written into the arguments.

        Raises:
            BindError: it fails, or returns something else.
        """
        assert self.function is not None
        asked = inspect.signature(self.function).parameters
        given = {name: arguments[name] for name in asked if name in arguments}
        with programs.user_errors(self.what.rpartition(":")[0], f"calling {self.what}"):
            found = self.function(**given)
        if found is None:
            found = {name: given[name] for name in self.written if name in given}
        if not isinstance(found, Mapping):
            if len(self.written) != 1:
                raise BindError(
                    f"{self.what} returns one array, and kernel '{self.program.kernel.name}' writes"
                    f" {', '.join(self.written) or 'nothing'}: return a dict from names to arrays"
                )
            found = {self.written[0]: found}
        unknown = [name for name in found if name not in self.written]
        if unknown or not found:
            raise BindError(
                f"{self.what} returns {', '.join(map(str, unknown)) or 'nothing'}; kernel"
                f" '{self.program.kernel.name}' writes {', '.join(self.written) or 'nothing'}"
            )
        return dict(found)


@dataclass(frozen=True, eq=False)
class Expected:
    """The outputs of a peer, by name."""

    peer: Peer
    outputs: dict[str, Array]

    def compared(self) -> dict[str, Agreement]:
        """How far the outputs of the program, as they are now, are from them."""
        arrays = host_arrays(self.peer.program)
        return {name: agreement(name, arrays[name], x) for name, x in self.outputs.items()}


def peer_of(what: str, program: programs.Made, number: int = 0) -> Peer:
    """What is named, for a program.

    A function whose arguments without a default all have the names of the kernel's is called with
    these; any other makes a program.

    Args:
        number: of the program among those that its target makes; a target that makes as many has
            one for each.

    Raises:
        BindError: there is no such thing, or it does not fit the program.
    """
    if not isinstance(program, tp.Program):
        raise BindError(
            "--against compares what a program writes, by the names of the kernel's arguments; this"
            f" is a launch of PTX, whose arguments have positions: {program}. Compare the arrays"
            " that bind() was given, in Python: launch.run(), then"
            " numpy.testing.assert_allclose(out, expected)"
        )
    if not programs.names_file(what):
        raise BindError(f"--against takes FILE.py:NAME, got {what!r}")
    value = programs.value_of(what)
    if isinstance(value, types.FunctionType) and _takes_arguments(value, program):
        return Peer(what, program, function=value)
    found = programs.target(what, [])
    if number >= len(found.instances):
        raise BindError(
            f"{what} makes {len(found.instances)} programs, and number {number + 1} is compared"
        )
    other = found.instances[number if len(found.instances) > 1 else 0].make()
    if not isinstance(other, tp.Program):
        raise BindError(f"{what} is a launch of PTX; --against takes a program or a function")
    _require_alike(what, program, other)
    return Peer(what, program, other=other)


def _takes_arguments(function: Callable[..., Any], program: tp.Program) -> bool:
    """True if its arguments are those of the kernel: arrays, and not settings."""
    asked = inspect.signature(function).parameters.values()
    needed = [p.name for p in asked if p.default is p.empty]
    return bool(needed) and all(name in program.launch_args.args for name in needed)


def _require_alike(what: str, program: tp.Program, other: tp.Program) -> None:
    ours, theirs = _described(program), _described(other)
    if ours != theirs:
        name = next(x for x in [*ours, *theirs] if ours.get(x) != theirs.get(x))
        raise BindError(
            f"{what} is a program with other arguments: '{name}' is"
            f" {theirs.get(name, 'no argument')} there and {ours.get(name, 'no argument')} here."
            " Both take the same arrays by the same names, or it is a function of them"
        )


def _described(program: tp.Program) -> dict[str, str]:
    """The tensors of a program, each with its shape and dtype."""
    return {
        name: f"{arg.shape} {program_dtype}"
        for name, arg in program.launch_args.args.items()
        if isinstance(arg, TensorArg)
        for program_dtype in [next(p.dtype for p in program.kernel.params if p.name == name)]
    }


def host_arrays(program: tp.Program) -> dict[str, Array]:
    """The arrays of a program by name.

    Raises:
        BindError: one is in a GPU's memory.
    """
    found = {}
    for name, arg in program.launch_args.args.items():
        if isinstance(arg, TensorArg):
            if not isinstance(arg.array, np.ndarray):
                raise BindError(
                    f"argument '{name}' is a {type(arg.array).__name__} in a GPU's memory; give"
                    " NumPy arrays or tensors on the CPU: they are copied to the GPU"
                )
            found[name] = arg.array
    return found


def handed(array: Array) -> Any:
    """An array as a function of the user's gets it: a tensor where PyTorch has been imported."""
    return tensor_of(array) if "torch" in sys.modules else array


def on_host(x: Any) -> Any:
    """A result of a function of the user's, as NumPy has it."""
    if is_tensor(x):
        x = x.detach().cpu()
    return host_memory(x, "a result") if is_host_tensor(x) else x
