"""Where a launch has its variables and parameters, and what they hold at its start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from tilepipe.errors import BindError, PtxError
from tilepipe.machine.memory import tensor_map
from tilepipe.machine.memory.device_memory import DeviceMemory
from tilepipe.machine.shared_names import SharedNames, SharedVariable
from tilepipe.ptx.address_spaces import GLOBAL_START, RANK_SHIFT, SYSTEM_SMEM
from tilepipe.ptx.arguments.values import Argument, bytes_of
from tilepipe.ptx.names import named_kernel, parameter_name, variable_names
from tilepipe.ptx.syntax.nodes import (
    TYPE_BYTES,
    Float,
    Function,
    Integer,
    Module,
    Operand,
    Sum,
    Variable,
    leaves,
)

_WORKSPACE = 16  # bytes: its size, a counter
_MOST_LOCAL = 512 << 10  # bytes of each thread (PTX ISA, "Local State Space"; CUDA's limit)
_MOST_PARAMETERS = 32764  # bytes (CUDA C++ Programming Guide, "Kernel parameters")
_MOST_CONSTANT = 64 << 10  # bytes of constant memory of a module (PTX ISA, "Constant State Space")
_MOST_VARIABLES = 1 << 30  # bytes of a module's global and constant variables


class Placement:
    """The memory of a launch.

    Attributes:
        memory: the GPU's, with the arrays of the arguments. addresses: of variables; those of
            parameters count from the first. parameters: their bytes. smem_bytes: of each CTA's
            shared memory, with what the system has of it. local_bytes: of each thread.
    """

    def __init__(
        self, module: Module, function: Function, args: Sequence[Argument], smem: int, room: int
    ) -> None:
        """`smem`: bytes of dynamic shared memory. `room`: that a CTA can have in all.

        Raises:
            BindError: an argument does not fit its parameter, or memory is too small.
            PtxError: a variable begins with what is not modelled.
        """
        self._module = module
        self._function = function
        self._smem = smem
        self.memory = DeviceMemory(GLOBAL_START)
        self.addresses: dict[Variable, int] = {}
        self.local_bytes = 0
        self.workspace = 0
        self._place_shared(smem, room)
        self._place_variables()
        self._place_parameters(args)

    def add_workspace(self) -> None:
        """Memory in which the CTAs of a cooperative launch count who has come to a barrier of the
        grid. The driver gives it, zeroed.
        """
        space = np.zeros(_WORKSPACE, np.uint8)
        self.workspace = self.memory.address_of("the workspace of the grid", space)

    def _place_shared(self, smem: int, room: int) -> None:
        """Static variables first, in their order; dynamic ones after them, all at one address."""
        declared = [*self._module.variables.values(), *self._function.variables]
        shared = [v for v in declared if v.space == "shared"]
        at = SYSTEM_SMEM
        for variable in shared:
            if variable.external:
                continue
            at = -(-at // variable.align) * variable.align
            self.addresses[variable] = at
            at += variable.nbytes
        dynamic = [v for v in shared if v.external]
        align = max((v.align for v in dynamic), default=1)
        at = -(-at // align) * align
        for variable in dynamic:
            self.addresses[variable] = at
        self.smem_bytes = at + smem
        if self.smem_bytes - SYSTEM_SMEM > room:
            raise BindError(
                f"{named_kernel(self._function.name)}: {at - SYSTEM_SMEM:,} bytes of static shared"
                f" memory and {smem:,} of dynamic; a CTA has {room:,}"
            )

    @property
    def shared_names(self) -> SharedNames:
        """What messages call the bytes of shared memory. Dynamic variables are all at one address:
        there the first that the code names gives the name.
        """
        shared = [v for v in self.addresses if v.space == "shared"]
        if sum(v.external for v in shared) > 1:
            code = (
                leaf for i in self._function.instructions for o in i.operands for leaf in leaves(o)
            )
            used = {leaf for leaf in code if isinstance(leaf, Variable)}
            shared.sort(key=lambda v: v not in used)
        said = variable_names(dict.fromkeys(v.name for v in shared))
        found = [
            SharedVariable(
                f"'{said[v.name]}'", self.addresses[v], self._smem if v.external else v.nbytes
            )
            for v in shared
        ]
        if self._smem and not any(v.external for v in shared):
            start = self.smem_bytes - self._smem
            found.append(SharedVariable("dynamic shared memory", start, self._smem))
        return SharedNames(found)

    def _place_variables(self) -> None:
        """Variables in global and constant memory, with their initial values, and local ones."""
        kept = [v for v in self._module.variables.values() if v.space in ("global", "const")]
        if (total := sum(v.nbytes for v in kept)) > _MOST_VARIABLES:
            raise BindError(
                f"the module's variables in global memory have {total:,} bytes; at most"
                f" {_MOST_VARIABLES:,} are simulated"
            )
        if (total := sum(v.nbytes for v in kept if v.space == "const")) > _MOST_CONSTANT:
            raise PtxError(
                f"the module's variables in constant memory have {total:,} bytes; at most"
                f" {_MOST_CONSTANT:,}"
            )
        arrays = []
        said = variable_names(v.name for v in kept)
        for variable in kept:
            array = np.zeros(max(variable.nbytes, 1), np.uint8)
            self.addresses[variable] = self.memory.address_of(said[variable.name], array)
            arrays.append((variable, array))
        for variable, array in arrays:
            _initialise(variable, array, self.addresses)
        for variable in self._function.variables:
            if variable.space == "local":
                at = -(-self.local_bytes // variable.align) * variable.align
                self.addresses[variable] = at
                self.local_bytes = at + variable.nbytes
        if self.local_bytes > _MOST_LOCAL:
            raise BindError(
                f"{named_kernel(self._function.name)}: {self.local_bytes:,} bytes of local memory"
                f" for each thread; at most {_MOST_LOCAL:,}"
            )

    def _place_parameters(self, args: Sequence[Argument]) -> None:
        declared = self._function.parameters
        size = sum(v.nbytes for v in declared)
        if size > _MOST_PARAMETERS:
            raise BindError(
                f"{named_kernel(self._function.name)} has {size:,} bytes of parameters; at most"
                f" {_MOST_PARAMETERS:,}"
            )
        raw = bytearray()
        for variable, argument in zip(declared, args, strict=True):
            raw += bytes(-len(raw) % variable.align)
            self.addresses[variable] = len(raw)
            raw += bytes_of(variable, argument, self.memory)
        self.parameters = bytes(raw)

    def map_bytes(self, address: int) -> tuple[bytes, str]:
        """The 128 bytes at an offset among the parameters, and what messages call them."""
        for variable in self._function.parameters:
            begin = self.addresses[variable]
            if begin <= address < begin + variable.nbytes:
                raw = self.parameters[address : address + tensor_map.MAP_BYTES]
                return raw, f"the tensor map '{parameter_name(variable.name)}'"
        return b"", "no parameter"


class Addresses:
    """The addresses of the variables that the code names, as this warp sees them."""

    def __init__(self, placed: Placement, variables: Sequence[Variable], rank: int) -> None:
        self._placed = placed.addresses
        self._variables = variables
        self._shared = rank << RANK_SHIFT

    def __getitem__(self, number: int) -> int:
        variable = self._variables[number]
        address = self._placed.get(variable)
        if address is None:
            raise PtxError(f"variable '{variable.name}': .{variable.space} memory is not modelled")
        return address + (self._shared if variable.space == "shared" else 0)


def _initialise(
    variable: Variable, array: npt.NDArray[np.uint8], addresses: Mapping[Variable, int]
) -> None:
    """Writes the initial values of a variable into its memory.

    Raises:
        PtxError: there are more than it has elements, or one is none of its type.
    """
    size = TYPE_BYTES[variable.type]
    what = f"PTX line {variable.line}: variable '{variable.name}'"
    if size * len(variable.initial) > variable.nbytes:
        count = variable.nbytes // size
        raise PtxError(f"{what} has {count:,} elements, and {len(variable.initial):,} values")
    raw = b"".join([_raw(value, size, what, addresses) for value in variable.initial])
    array[: len(raw)] = np.frombuffer(raw, np.uint8)


def _raw(value: Operand, size: int, what: str, addresses: Mapping[Variable, int]) -> bytes:
    """The bytes of an initial value: a number, or an address in global or constant memory."""
    match value:
        case Integer(found):
            return (found & ((1 << 8 * size) - 1)).to_bytes(size, "little")
        case Float(bits, width):
            if width == 64 and size == 4:  # a decimal constant
                return np.uint64(bits).view(np.float64).astype(np.float32).tobytes()
            if width == 8 * size:
                return bits.to_bytes(size, "little")
        case Variable() | Sum(base=Variable()):
            base, offset = (value.base, value.offset) if isinstance(value, Sum) else (value, 0)
            if isinstance(base, Variable) and base in addresses and size == 8:
                return ((addresses[base] + offset) & ((1 << 64) - 1)).to_bytes(8, "little")
    raise PtxError(f"{what} begins with {value}, which is not modelled")
