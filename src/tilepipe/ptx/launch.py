"""Loading PTX, binding arguments to a kernel of it, and running it on the simulated machine."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from tilepipe.errors import BindError, PtxError, SimFault
from tilepipe.ir.chip import B200, H200, Chip
from tilepipe.ir.facts import SHARED_BY_CLUSTERS
from tilepipe.ir.location import Loc
from tilepipe.machine.actors import Role
from tilepipe.machine.agents import Agent
from tilepipe.machine.clusters import one_after_another, quiet_numbers, together
from tilepipe.machine.machine import Machine, World
from tilepipe.machine.memory import tensor_map
from tilepipe.machine.memory.device_memory import DeviceMemory
from tilepipe.machine.program import AgentPlan, Program
from tilepipe.machine.rules import LOADED_REGISTERS, Rules, require_rules
from tilepipe.machine.scheduler import advance
from tilepipe.machine.sites import Site
from tilepipe.ptx import isa as isa  # registers what each opcode does
from tilepipe.ptx.address_spaces import GLOBAL_START, RANK_SHIFT, SYSTEM_SMEM
from tilepipe.ptx.compiler.segments import CompiledFunction, compiled
from tilepipe.ptx.definition import Perform, where
from tilepipe.ptx.execution.clocks import SpecialValues
from tilepipe.ptx.execution.warp import Clock, Warp
from tilepipe.ptx.lanes import LANES, WARP
from tilepipe.ptx.syntax import parser
from tilepipe.ptx.syntax.nodes import (
    TYPE_BYTES,
    Float,
    Function,
    Instruction,
    Integer,
    Module,
    Variable,
)
from tilepipe.ptx.wording import PTX

Extents = tuple[int, int, int]
_NAMED_BARRIERS = 16
_MOST_CTAS = 1 << 22
_MOST_LOCAL = 512 << 10  # bytes of each thread (PTX ISA, "Local State Space"; CUDA's limit)
_MOST_VARIABLES = 1 << 30  # bytes of a module's global and constant variables
_AXES = "xyz"


@dataclass(frozen=True, eq=False)
class TensorMap:
    """A tensor map as an argument: what `cuTensorMapEncodeTiled` is given.

    All tuples are in the order of the array's dimensions, the contiguous one last; the driver's
    call has them in the reverse order.

    Attributes:
        array: memory that the tensor lies in. box: extents of a copy in elements.
        swizzle: in bytes, 0, 32, 64 or 128; with the bytes that stay together where these are not
            16: "128/32", "128/64", or "128/32 flipped".
        element: its type as PTX names it ("u8", "bf16", "tf32", "b4x16_p64"); that of the array
            unless given.
        shape: extents in elements, strides: in bytes; the array's unless given.
        before: bytes from the tensor's first element to the array's.
        steps: traversal strides, in elements. nan: what lies out of bounds reads as NaN.
        promotion: bytes that L2 fetches: 0, 64, 128 or 256.
    """

    array: npt.NDArray[Any]
    box: tuple[int, ...]
    swizzle: int | str = 0
    element: str | None = None
    shape: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None
    before: int = 0
    steps: tuple[int, ...] | None = None
    nan: bool = False
    promotion: int = 0

    def at(self, address: int, name: str) -> tensor_map.TensorMap:
        """The tensor map, given the address of the array.

        Raises:
            BindError: there is no such tensor map.
        """
        element = tensor_map.BY_NAME.get(self.element or _element(self.array.dtype, name))
        code = _SWIZZLES.get(str(self.swizzle))
        if element is None or code is None or self.promotion not in _PROMOTIONS:
            known = ", ".join(tensor_map.BY_NAME)
            raise BindError(
                f"parameter '{name}': a tensor map has an element type of {known}, a swizzle of"
                f" {', '.join(_SWIZZLES)} and fetches 0, 64, 128 or 256 bytes; got {self.element},"
                f" {self.swizzle}, {self.promotion}"
            )
        found = tensor_map.TensorMap(
            element,
            address - self.before,
            tuple(reversed(self.array.shape if self.shape is None else self.shape)),
            tuple(reversed((self.array.strides if self.strides is None else self.strides)[:-1])),
            tuple(reversed(self.box)),
            tuple(reversed(self.steps or ())),
            swizzle=code[0],
            atom=code[1],
            nan=self.nan,
            promotion=_PROMOTIONS.index(self.promotion),
            name=f"the tensor map '{name}'",
        )
        if broken := found.broken_rule():
            raise BindError(f"parameter '{name}': no such tensor map is possible: {broken}")
        return found


# What a swizzle is called -> its code, and that of what it keeps together
_SWIZZLES = {
    "0": (0, 0), "32": (1, 0), "64": (2, 0), "128": (3, 0), "128/32": (3, 1),
    "128/32 flipped": (3, 2), "128/64": (3, 3),
}  # fmt: skip
_PROMOTIONS = (0, 64, 128, 256)


def _element(dtype: np.dtype[Any], name: str) -> str:
    """The element type of an array: one of 8 bits where tensor maps have none of its own."""
    if dtype.itemsize == 1:
        return "u8"
    kind = dtype.name if dtype.name == "bfloat16" else f"{dtype.kind}{8 * dtype.itemsize}"
    found = {
        "bfloat16": "bf16", "f16": "f16", "f32": "f32", "f64": "f64", "u16": "u16", "i16": "u16",
        "u32": "u32", "i32": "s32", "u64": "u64", "i64": "s64",
    }.get(kind)  # fmt: skip
    if found is None:
        raise BindError(f"parameter '{name}': a tensor map has no elements of {dtype}")
    return found


Argument = int | float | bytes | np.generic | TensorMap | npt.NDArray[Any]


@dataclass(frozen=True)
class Kernel:
    """An entry point of a module.

    Attributes:
        module: that it is in. function: its parsed form. file: the path of the text, or "<ptx>".
    """

    module: Module
    function: Function
    file: str

    @property
    def name(self) -> str:
        return self.function.name

    @cached_property
    def code(self) -> CompiledFunction:
        """The function, compiled.

        Raises:
            PtxError: it uses an instruction that is not modelled.
        """
        return compiled(self.function, self.module.functions)

    def bind(
        self,
        args: Sequence[Argument],
        *,
        grid: int | Sequence[int],
        block: int | Sequence[int] | None = None,
        cluster: int | Sequence[int] | None = None,
        smem: int = 0,
    ) -> Launch:
        """A launch with these arguments.

        Args:
            args: in the order of the parameters: arrays and tensor maps, numbers, raw bytes.
            grid, block, cluster: extents in CTAs, threads and CTAs; what the kernel itself
                requires (`.maxntid`, `.reqntid`, `.reqnctapercluster`) where not given.
            smem: bytes of dynamic shared memory.

        Raises:
            BindError: an argument does not fit its parameter, or extents do not fit each other.
        """
        directives = self.function.directives
        threads = _extents(block or directives.get("reqntid") or directives.get("maxntid") or 0)
        size = _extents(cluster or directives.get("reqnctapercluster") or 1)
        return Launch(self, tuple(args), _extents(grid), threads, size, smem)


def load(source: str | Path) -> dict[str, Kernel]:
    """The kernels of a PTX file, or of a PTX text, by name.

    Raises:
        PtxError: the text cannot be read.
    """
    if isinstance(source, Path) or "\n" not in source:
        path = Path(source)
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise PtxError(f"{path}: {error.strerror}") from None
        try:
            module, file = parser.parse(text), str(path)
        except PtxError as error:
            raise PtxError(f"{path}: {error}") from None
    else:
        module, file = parser.parse(source), "<ptx>"
    return {f.name: Kernel(module, f, file) for f in module.entries}


@dataclass(eq=False)
class Launch:
    """A kernel with arguments.

    Attributes:
        parameters: the bytes of its parameters. smem_bytes: of each CTA's shared memory, with
            what the system has of it. addresses: of variables. rules, advice: of the latest run;
            advice is what only the strict rules refuse. fenced_maps: (CTA, address of a tensor
            map) -> how many accesses to its allocation there had been at the CTA's last
            fence.proxy.tensormap on it.
    """

    kernel: Kernel
    args: tuple[Argument, ...]
    grid: Extents
    block: Extents
    cluster: Extents
    smem: int
    parameters: bytes = field(init=False)
    addresses: dict[Variable, int] = field(init=False, default_factory=dict)
    smem_bytes: int = field(init=False)
    local_bytes: int = field(init=False, default=0)
    memory: DeviceMemory = field(init=False)
    fenced_maps: dict[tuple[int, int], int] = field(init=False, default_factory=dict)
    rules: Rules = field(init=False, default="practice")
    printed: list[str] = field(init=False, default_factory=list)
    advice: list[str] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        threads = prod(self.block)
        if not 1 <= threads <= 1024:
            raise BindError(f"block {self.block}: {threads} threads; a CTA has 1 to 1024")
        if any(g % c for g, c in zip(self.grid, self.cluster, strict=True)):
            raise BindError(f"grid {self.grid} is no multiple of the cluster {self.cluster}")
        if prod(self.grid) > _MOST_CTAS:
            raise BindError(
                f"grid {self.grid}: {prod(self.grid):,} CTAs; the simulated machine, which runs"
                f" thousands in a second at best, takes {_MOST_CTAS:,}"
            )
        self.memory = DeviceMemory(GLOBAL_START)
        self._place_shared()
        self._place_variables()
        self._place_parameters()

    def _place_shared(self) -> None:
        """Static variables first, in their order; dynamic ones after them, all at one address."""
        declared = [*self.kernel.module.variables.values(), *self.kernel.code.function.variables]
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
        self.smem_bytes = at + self.smem
        room = self._chip().smem_per_cta
        if self.smem_bytes - SYSTEM_SMEM > room:
            raise BindError(
                f"kernel '{self.kernel.name}': {at - SYSTEM_SMEM:,} bytes of static shared memory"
                f" and {self.smem:,} of dynamic; a CTA has {room:,}"
            )

    def _place_variables(self) -> None:
        """Variables in global and constant memory, with their initial values, and local ones."""
        kept = [v for v in self.kernel.module.variables.values() if v.space in ("global", "const")]
        if (total := sum(v.nbytes for v in kept)) > _MOST_VARIABLES:
            raise BindError(
                f"the module's variables in global memory have {total:,} bytes; at most"
                f" {_MOST_VARIABLES:,} are simulated"
            )
        for variable in kept:
            array = np.zeros(max(variable.nbytes, 1), np.uint8)
            self.addresses[variable] = self.memory.address_of(variable.name, array)
            _initialise(variable, array)
        for variable in self.kernel.code.function.variables:
            if variable.space == "local":
                at = -(-self.local_bytes // variable.align) * variable.align
                self.addresses[variable] = at
                self.local_bytes = at + variable.nbytes
        if self.local_bytes > _MOST_LOCAL:
            raise BindError(
                f"kernel '{self.kernel.name}': {self.local_bytes:,} bytes of local memory for each"
                f" thread; at most {_MOST_LOCAL:,}"
            )

    def _place_parameters(self) -> None:
        declared = self.kernel.function.parameters
        if len(self.args) != len(declared):
            raise BindError(
                f"kernel '{self.kernel.name}' has {len(declared)} parameters, and"
                f" {len(self.args)} arguments are given"
            )
        raw = bytearray()
        for variable, argument in zip(declared, self.args, strict=True):
            raw += bytes(-len(raw) % variable.align)
            self.addresses[variable] = len(raw)
            raw += self._bytes_of(variable, argument)
        self.parameters = bytes(raw)

    def _bytes_of(self, variable: Variable, argument: Argument) -> bytes:
        size, name = variable.nbytes, variable.name
        argument = _of_type(variable, argument)
        match argument:
            case bytes():
                found = argument
            case TensorMap():
                at = self.memory.address_of(name, argument.array)
                found = tensor_map.encode(argument.at(at, name))
            case np.ndarray():
                found = self.memory.address_of(name, argument).to_bytes(8, "little")
            case np.generic():
                found = argument.tobytes()
            case bool() | int():
                if not -(1 << 8 * size - 1) <= argument < 1 << 8 * size:
                    raise BindError(
                        f"parameter '{name}' (.{variable.type}, {size} bytes): {argument} does not"
                        " fit"
                    )
                found = (argument & ((1 << 8 * size) - 1)).to_bytes(size, "little")
            case float():
                if size not in (2, 4, 8):
                    raise BindError(
                        f"parameter '{name}' has {size} bytes, and a floating-point number 2, 4 or"
                        " 8"
                    )
                found = np.array([argument], f"f{size}").tobytes()
            case _:
                raise BindError(
                    f"parameter '{name}' ({size} bytes): expected an array, a ptx.TensorMap, a"
                    f" number or bytes; got {type(argument).__name__}"
                )
        if len(found) != size:
            raise BindError(
                f"parameter '{name}' has {size} bytes, and its argument"
                f" ({type(argument).__name__}) {len(found)}"
            )
        return found

    # -- tensor maps -------------------------------------------------------------------

    def map_bytes(self, address: int) -> tuple[bytes, str]:
        """The 128 bytes at an offset among the parameters, and what messages call them."""
        for variable in self.kernel.function.parameters:
            begin = self.addresses[variable]
            if begin <= address < begin + variable.nbytes:
                raw = self.parameters[address : address + tensor_map.MAP_BYTES]
                return raw, f"the tensor map '{variable.name}'"
        return b"", "no parameter"

    # -- running -----------------------------------------------------------------------

    def run(self, seed: int = 0, *, rules: Rules = "practice", timeout: float | None = None) -> int:
        """Runs the launch and writes into the arrays of its arguments. Returns the steps taken.

        Args:
            seed: 0 is one fixed order; any other picks an interleaving.
            rules: "practice", what shipped compilers rely on, or "strict", the PTX ISA to the
                letter.
            timeout: seconds of processor time after which a run that has not ended is given up.

        Raises:
            SimFault: a fault of the program.
            UnfinishedError: the time is over.
        """
        code = self.kernel.code
        self.rules = require_rules(rules)
        sites = [self._site(s.number, s.instruction, s.perform) for s in code.sites.values()]
        warps = -(-prod(self.block) // WARP)
        role = Role("warp", warpgroups=False, alone=warps == 1, unnamed=True)
        program = Program(
            prod(self.cluster),
            [AgentPlan(role, warp, warp, 1) for warp in range(warps)],
            sites,
            named=[(f"barrier {i}", prod(self.block)) for i in range(_NAMED_BARRIERS)],
            smem_bytes=self.smem_bytes,
            addressed=True,
            words=PTX,
            tensor_memory=any(s.instruction.opcode == "tcgen05" for s in code.sites.values()),
            commits=any(
                s.instruction.name.startswith("tcgen05.commit") for s in code.sites.values()
            ),
            shares_work=any(
                s.perform.facts.takes in SHARED_BY_CLUSTERS for s in code.sites.values()
            ),
            waits_itself=any(
                s.instruction.name == "griddepcontrol.wait" for s in code.sites.values()
            ),
            pairs=any("cta_group::2" in s.instruction.modifiers for s in code.sites.values()),
        )
        count = prod(self.grid)
        self.memory.forget()
        self.fenced_maps.clear()

        clock = Clock.of(timeout)

        def body(m: Machine, agent: Agent) -> Warp:
            warp = self._warp(m, agent, sites)
            warp.clock = clock
            return warp

        tensors = self.memory.tensors
        world = World(program, body, self._chip(), count, tensors, self.rules)
        self.advice, self.printed = world.advice, world.printed
        for instruction, register in code.early_uses:
            finding = f"{where(instruction)}: {instruction}: {register} is used before its wait"
            cure = "Put tcgen05.wait::ld before the first use of what tcgen05.ld loads."
            world.finding(LOADED_REGISTERS, finding, self._loc(instruction), cure, SimFault)
        order = list(range(count // program.cluster_size))
        random = Random(seed) if seed else None
        if random is not None:
            random.shuffle(order)
        with quiet_numbers():
            try:
                if program.shares_work:
                    resident = max(world.chip.resident_clusters(program.cluster_size), 1)
                    return together(world, order, resident, random, lambda m: None)[0]
                return one_after_another(world, order, random, lambda m: None)[0]
            except (TypeError, AttributeError, ValueError, OverflowError, IndexError) as error:
                raise self._explained(error) from error

    def _explained(self, error: Exception) -> Exception:
        """What an error in the machine says of the program: the request that it carried out has an
        operand from a register that holds nothing.
        """
        for frame, _ in traceback.walk_tb(error.__traceback__):
            if frame.f_code is advance.__code__ and "args" in frame.f_locals:
                warp: Warp = frame.f_locals["ag"].body
                number = frame.f_locals["args"][0].id
                for site in self.kernel.code.sites.values():
                    if site.number == number:
                        return warp.explained_request(error, site.instruction)
        return error

    def _chip(self) -> Chip:
        targets = self.kernel.module.targets
        return B200 if targets and targets[0].startswith("sm_10") else H200

    def _site(self, number: int, instruction: Instruction, perform: Perform) -> Site:
        what = str(instruction)
        if instruction.position is not None:  # else the line of the location is that of the text
            what += f" (PTX line {instruction.line})"
        return Site(
            number, self._loc(instruction), instruction.name, what, "warp",
            perform.facts, perform.sync, relaxed=perform.relaxed,
            **{"parity": True, **dict(perform.site)},
        )  # fmt: skip

    def _loc(self, instruction: Instruction) -> Loc:
        """The line of source that an instruction comes from."""
        position = instruction.position
        if position is None:
            return Loc(self.kernel.file, instruction.line)
        return Loc(position.file, position.line)

    def _warp(self, m: Machine, agent: Agent, sites: list[Site]) -> Warp:
        """A warp at the start of the kernel."""
        threads = prod(self.block)
        first = agent.first_warp * WARP
        live = (1 << min(threads - first, WARP)) - 1
        warp = Warp(self.kernel.code, live, self)
        warp.sites = sites
        warp.local = np.zeros((WARP, self.local_bytes), np.uint8)
        rank = warp.rank = agent.cta.rank
        places = _unravel(
            agent.cta.block_id // prod(self.cluster), _divided(self.grid, self.cluster)
        )
        inside = _unravel(rank, self.cluster)
        warp.special = SpecialValues(agent, m.world.chip.clock_ghz)
        values = {
            "%ntid": self.block,
            "%nctaid": self.grid,
            "%cluster_nctaid": self.cluster,
            "%clusterid": places,
            "%cluster_ctaid": inside,
            "%nclusterid": _divided(self.grid, self.cluster),
            "%ctaid": tuple(
                p * c + i for p, c, i in zip(places, self.cluster, inside, strict=True)
            ),
        }
        for name, extents in values.items():
            for axis, value in zip(_AXES, extents, strict=True):
                warp.special[f"{name}.{axis}"] = value
        warp.special |= {
            "%cluster_ctarank": rank, "%cluster_nctarank": prod(self.cluster),
            "%warpid": agent.first_warp, "%nwarpid": -(-threads // WARP), "%smid": 0,
            "%nsmid": 1, "%gridid": 0, "%is_explicit_cluster": int(prod(self.cluster) > 1),
            "%dynamic_smem_size": self.smem, "%total_smem_size": self.smem_bytes, "WARP_SZ": WARP,
            "%aggr_smem_size": self.smem_bytes, "%reserved_smem_offset_begin": 0,
            "%reserved_smem_offset_end": SYSTEM_SMEM, "%reserved_smem_offset_cap": SYSTEM_SMEM,
        }  # fmt: skip
        number = first + LANES
        x, y, _ = self.block
        lanes = {"%tid.x": number % x, "%tid.y": number // x % y, "%tid.z": number // (x * y)}
        bits = np.uint32(1) << LANES
        lanes |= {
            "%laneid": LANES, "%lanemask_eq": bits, "%lanemask_lt": bits - np.uint32(1),
            "%lanemask_le": bits | (bits - np.uint32(1)),
            "%lanemask_gt": ~(bits | (bits - np.uint32(1))), "%lanemask_ge": ~(bits - np.uint32(1)),
        }  # fmt: skip
        warp.lanes_of = {name: value.astype(np.uint32) for name, value in lanes.items()}
        warp.addresses = _Addresses(self, warp)
        return warp


class _Addresses:
    """The addresses of the variables that the code names, as this warp sees them."""

    def __init__(self, launch: Launch, warp: Warp) -> None:
        self._launch = launch
        self._shared = warp.rank << RANK_SHIFT

    def __getitem__(self, number: int) -> int:
        variable = self._launch.kernel.code.variables[number]
        address = self._launch.addresses.get(variable)
        if address is None:
            raise PtxError(f"variable '{variable.name}': .{variable.space} memory is not modelled")
        return address + (self._shared if variable.space == "shared" else 0)


def _of_type(variable: Variable, argument: Argument) -> Argument:
    """A number as its parameter has it: an integer for a floating-point one is converted.

    Raises:
        BindError: a floating-point number for a parameter of an integer type.
    """
    kind = variable.type
    if variable.shape or isinstance(argument, bool):
        return argument
    if isinstance(argument, int) and kind in ("f16", "f32", "f64"):
        return float(argument)
    if isinstance(argument, float) and kind[0] in "us":
        raise BindError(
            f"parameter '{variable.name}' is .{kind}, and {argument} is a floating-point number"
        )
    return argument


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


def _extents(given: int | Sequence[int]) -> Extents:
    found = (given,) if isinstance(given, int) else tuple(given)
    if not 1 <= len(found) <= 3 or any(n < 1 for n in found):
        raise BindError(f"extents are one to three numbers of at least 1; got {given}")
    x, y, z = (*found, 1, 1)[:3]
    return x, y, z


def _unravel(number: int, extents: Extents) -> Extents:
    x, y, _ = extents
    return number % x, number // x % y, number // (x * y)


def _divided(a: Extents, b: Extents) -> Extents:
    x, y, z = (i // j for i, j in zip(a, b, strict=True))
    return x, y, z
