"""Where a launch has its variables and parameters, and what they hold at its start."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tilepipe.errors import BindError, PtxError
from tilepipe.machine.memory import tensor_map
from tilepipe.machine.memory.device_memory import DeviceMemory
from tilepipe.ptx.address_spaces import GLOBAL_START, RANK_SHIFT, SYSTEM_SMEM
from tilepipe.ptx.arguments.values import Argument, bytes_of
from tilepipe.ptx.syntax.nodes import TYPE_BYTES, Float, Function, Integer, Module, Variable

_MOST_LOCAL = 512 << 10  # bytes of each thread (PTX ISA, "Local State Space"; CUDA's limit)
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
        self.memory = DeviceMemory(GLOBAL_START)
        self.addresses: dict[Variable, int] = {}
        self.local_bytes = 0
        self._place_shared(smem, room)
        self._place_variables()
        self._place_parameters(args)

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
                f"kernel '{self._function.name}': {at - SYSTEM_SMEM:,} bytes of static shared"
                f" memory and {smem:,} of dynamic; a CTA has {room:,}"
            )

    def _place_variables(self) -> None:
        """Variables in global and constant memory, with their initial values, and local ones."""
        kept = [v for v in self._module.variables.values() if v.space in ("global", "const")]
        if (total := sum(v.nbytes for v in kept)) > _MOST_VARIABLES:
            raise BindError(
                f"the module's variables in global memory have {total:,} bytes; at most"
                f" {_MOST_VARIABLES:,} are simulated"
            )
        for variable in kept:
            array = np.zeros(max(variable.nbytes, 1), np.uint8)
            self.addresses[variable] = self.memory.address_of(variable.name, array)
            _initialise(variable, array)
        for variable in self._function.variables:
            if variable.space == "local":
                at = -(-self.local_bytes // variable.align) * variable.align
                self.addresses[variable] = at
                self.local_bytes = at + variable.nbytes
        if self.local_bytes > _MOST_LOCAL:
            raise BindError(
                f"kernel '{self._function.name}': {self.local_bytes:,} bytes of local memory for"
                f" each thread; at most {_MOST_LOCAL:,}"
            )

    def _place_parameters(self, args: Sequence[Argument]) -> None:
        declared = self._function.parameters
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
                return raw, f"the tensor map '{variable.name}'"
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


def _initialise(variable: Variable, array: npt.NDArray[np.uint8]) -> None:
    """Writes the initial values of a variable into its memory."""
    size = TYPE_BYTES[variable.type]
    for number, value in enumerate(variable.initial):
        match value:
            case Integer(found):
                raw = (found & ((1 << 8 * size) - 1)).to_bytes(size, "little")
            case Float(bits, width):
                raw = bits.to_bytes(width // 8, "little")
            case _:
                raise PtxError(
                    f"PTX line {variable.line}: variable '{variable.name}' begins with the address"
                    f" {value}, which is not modelled"
                )
        array[size * number : size * (number + 1)] = np.frombuffer(raw, np.uint8)
