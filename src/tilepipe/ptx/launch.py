"""Loading PTX, binding arguments to a kernel of it, and running it on the simulated machine."""

from __future__ import annotations

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
from tilepipe.ir import dtypes
from tilepipe.ir.chip import B200, H200, Chip
from tilepipe.ir.dtypes import DType
from tilepipe.ir.facts import SHARED_BY_CLUSTERS
from tilepipe.ir.location import Loc
from tilepipe.machine.actors import Role
from tilepipe.machine.agents import Agent
from tilepipe.machine.clusters import one_after_another, quiet_numbers, together
from tilepipe.machine.machine import Machine, World
from tilepipe.machine.memory import tensor_map
from tilepipe.machine.memory.device_memory import DeviceMemory
from tilepipe.machine.memory.global_memory import GlobalTensor, PlainTensor
from tilepipe.machine.program import AgentPlan, Program
from tilepipe.machine.rules import LOADED_REGISTERS, Rules, require_rules
from tilepipe.machine.sites import Site
from tilepipe.ptx import isa as isa  # registers what each opcode does
from tilepipe.ptx.address_spaces import GLOBAL_START, RANK_SHIFT, SYSTEM_SMEM
from tilepipe.ptx.compiler.segments import CompiledFunction, compiled
from tilepipe.ptx.definition import where
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

Extents = tuple[int, int, int]
_NAMED_BARRIERS = 16
_MOST_CTAS = 1 << 22
_AXES = "xyz"


@dataclass(frozen=True, eq=False)
class TensorMap:
    """A tensor map as an argument: what `cuTensorMapEncodeTiled` is given.

    Attributes:
        array: the tensor, in its logical shape, innermost dimension last; strides as NumPy has
        them. box: extents of a copy in elements, in the order of the array's dimensions. swizzle:
        in bytes: 0, 32, 64 or 128.
    """

    array: npt.NDArray[Any]
    box: tuple[int, ...]
    swizzle: int = 0


Argument = int | float | bytes | TensorMap | npt.NDArray[Any]


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
        module, file = parser.parse(text), str(path)
    else:
        module, file = parser.parse(source), "<ptx>"
    return {f.name: Kernel(module, f, file) for f in module.entries}


@dataclass(eq=False)
class Launch:
    """A kernel with arguments.

    Attributes:
        parameters: the bytes of its parameters. tensor_maps: offset among them -> map.
        tensors: of the launch, those of tensor maps. smem_bytes: of each CTA's shared memory,
            with what the system has of it. addresses: of variables. rules, advice: of the latest
            run; advice is what only the strict rules refuse.
    """

    kernel: Kernel
    args: tuple[Argument, ...]
    grid: Extents
    block: Extents
    cluster: Extents
    smem: int
    parameters: bytes = field(init=False)
    tensor_maps: dict[int, tensor_map.TensorMap] = field(init=False, default_factory=dict)
    tensors: list[GlobalTensor] = field(init=False, default_factory=list)
    addresses: dict[Variable, int] = field(init=False, default_factory=dict)
    smem_bytes: int = field(init=False)
    local_bytes: int = field(init=False, default=0)
    memory: DeviceMemory = field(init=False)
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

    def _place_variables(self) -> None:
        """Variables in global and constant memory, with their initial values, and local ones."""
        for variable in self.kernel.module.variables.values():
            if variable.space in ("global", "const"):
                array = np.zeros(max(variable.nbytes, 1), np.uint8)
                self.addresses[variable] = self.memory.address_of(variable.name, array)
                _initialise(variable, array)
        for variable in self.kernel.code.function.variables:
            if variable.space == "local":
                at = -(-self.local_bytes // variable.align) * variable.align
                self.addresses[variable] = at
                self.local_bytes = at + variable.nbytes

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
            raw += self._bytes_of(variable, argument, len(raw))
        self.parameters = bytes(raw)

    def _bytes_of(self, variable: Variable, argument: Argument, at: int) -> bytes:
        size = variable.nbytes
        match argument:
            case bytes():
                found = argument
            case TensorMap():
                self.tensor_maps[at] = self._machine_map(variable.name, argument)
                found = bytes(128)
            case np.ndarray():
                found = self.memory.address_of(variable.name, argument).to_bytes(8, "little")
            case float():
                found = np.array([argument], f"f{size}").tobytes()
            case int():
                found = (argument & ((1 << 8 * size) - 1)).to_bytes(size, "little")
            case _:
                raise BindError(f"parameter '{variable.name}': {type(argument).__name__}")
        if len(found) != size:
            raise BindError(
                f"parameter '{variable.name}' has {size} bytes, and its argument {len(found)}"
            )
        return found

    def _machine_map(self, name: str, given: TensorMap) -> tensor_map.TensorMap:
        dtype = _dtype_of(given.array.dtype)
        plain = PlainTensor(name, dtype, given.array.ndim)
        self.tensors.append(GlobalTensor(plain, given.array, written=True, read_too=True))
        return tensor_map.TensorMap(len(self.tensors) - 1, dtype, given.box, given.swizzle)

    # -- running -----------------------------------------------------------------------

    def run(self, seed: int = 0, *, rules: Rules = "practice", timeout: float | None = None) -> int:
        """Runs the launch and writes into the arrays of its arguments. Returns the steps taken.

        Args:
            seed: 0 is one fixed order; any other picks an interleaving.
            rules: "practice", what shipped compilers rely on, or "strict", the PTX ISA to the
                letter.
            timeout: seconds after which a run that has not ended is given up.

        Raises:
            SimFault: a fault of the program.
            UnfinishedError: the time is over.
        """
        code = self.kernel.code
        self.rules = require_rules(rules)
        sites = [self._site(s.number, s.instruction, s.perform) for s in code.sites.values()]
        warps = -(-prod(self.block) // WARP)
        role = Role("warp", warpgroups=False, alone=warps == 1)
        program = Program(
            prod(self.cluster),
            [AgentPlan(role, warp, warp, 1) for warp in range(warps)],
            sites,
            named=[(f"barrier {i}", prod(self.block)) for i in range(_NAMED_BARRIERS)],
            smem_bytes=self.smem_bytes,
            addressed=True,
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

        clock = Clock.of(timeout)

        def body(m: Machine, agent: Agent) -> Warp:
            warp = self._warp(m, agent, sites)
            warp.clock = clock
            return warp

        tensors = [*self.tensors, *self.memory.tensors]
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
            if program.shares_work:
                resident = max(world.chip.resident_clusters(program.cluster_size), 1)
                return together(world, order, resident, random, lambda m: None)[0]
            return one_after_another(world, order, random, lambda m: None)[0]

    def _chip(self) -> Chip:
        targets = self.kernel.module.targets
        return B200 if targets and targets[0].startswith("sm_10") else H200

    def _site(self, number: int, instruction: Any, perform: Any) -> Site:
        return Site(
            number, self._loc(instruction), instruction.name, str(instruction), "warp",
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
        warp = Warp(self.kernel.code, live)
        warp.sites = sites
        warp.launch = self
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


def _dtype_of(dtype: np.dtype[Any]) -> DType:
    for candidate in vars(dtypes).values():
        if isinstance(candidate, DType) and candidate.numpy == dtype and candidate.bits >= 8:
            return candidate
    raise BindError(f"a tensor map of {dtype}")
