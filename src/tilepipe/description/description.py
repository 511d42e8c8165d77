"""What a kernel is made of, as data: roles, rings and barriers, shared memory, arguments."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Does = Literal["arrives", "expects", "copies", "commits", "waits", "tests"]
SETUP = "set-up"


@dataclass(frozen=True)
class Role:
    """A role, or the set-up, which all warps run.

    Attributes:
        name: "set-up" of the set-up.
        setup: it is the set-up.
        first_warp, warps: of the CTA; warpgroups: how many those are, 0 of single warps.
        registers: what each thread requests, None where it keeps what it is launched with.
        does: its copies, MMAs and accesses to global memory, "tma_load a, b".
        at: the line where it is declared.
    """

    name: str
    setup: bool
    first_warp: int
    warps: int
    warpgroups: int
    registers: int | None
    does: tuple[str, ...]
    at: str

    @property
    def threads(self) -> str:
        """Its warps in words: "2 warpgroups, warps 0..7"."""
        if self.setup:
            return f"all {self.warps} warps"
        count, what = (self.warpgroups, "warpgroup") if self.warpgroups else (self.warps, "warp")
        last = self.first_warp + self.warps - 1
        which = f"warp {last}" if self.warps == 1 else f"warps {self.first_warp}..{last}"
        return f"{count} {what}{'s' if count > 1 else ''}, {which}"


@dataclass(frozen=True)
class Action:
    """What a role does to a barrier.

    Attributes:
        role: its number among the roles.
        does: "arrives"; "expects", it arrives and announces bytes; "copies", it issues copies that
            bring them; "commits", its MMAs arrive when they have finished; "waits"; "tests",
            without waiting.
        far: on barriers of other CTAs of the cluster, too.
        at: the lines, in the order of the program.
    """

    role: int
    does: Does
    far: bool
    at: tuple[str, ...]

    @property
    def waits(self) -> bool:
        """It waits for a phase, or tests one, and brings nothing."""
        return self.does in ("waits", "tests")


@dataclass(frozen=True)
class Barrier:
    """An array of mbarriers.

    Attributes:
        size: barriers of it. offset: in shared memory.
        count: arrivals that complete a phase, None where the program itself gives counts.
        bytes: what is announced in a phase, each as it is written; nothing where no bytes are.
        sources: the tensors whose copies bring them.
        actions: of the roles, in their order.
    """

    name: str
    size: int
    offset: int
    count: int | None
    bytes: tuple[str, ...]
    sources: tuple[str, ...]
    actions: tuple[Action, ...]

    @property
    def about(self) -> str:
        """In words: "barrier, 128 arrivals"."""
        return f"{'barrier' if self.size == 1 else f'{self.size} barriers'}, {self.needs}"

    @property
    def needs(self) -> str:
        """What completes a phase: "1 arrival + 32,768 bytes of a, b"."""
        if self.count is None:
            text = "arrivals as initialised"
        else:
            text = f"{self.count} arrival{'' if self.count == 1 else 's'}"
        if any(action.does == "commits" for action in self.actions):
            text += " of finished MMAs"
        if self.bytes:
            text += f" + {' or '.join(self.bytes)} bytes"
        return text + (f" of {', '.join(self.sources)}" if self.sources else "")


@dataclass(frozen=True)
class Ring:
    """A ring of stages: the producer fills one when it is empty, the consumer frees it.

    Attributes:
        full, empty: its barriers, one of each for a stage.
        buffers: what copies that report to it fill in shared memory, nbytes of all its stages.
    """

    name: str
    stages: int
    full: Barrier
    empty: Barrier
    buffers: tuple[str, ...]
    nbytes: int

    @property
    def about(self) -> str:
        """In words: "ring of 4 stages, 131,072 bytes in inputs_a, inputs_b"."""
        text = f"ring of {self.stages} stage{'' if self.stages == 1 else 's'}"
        if not self.buffers:
            return text
        return f"{text}, {self.nbytes:,} bytes in {', '.join(self.buffers)}"


@dataclass(frozen=True)
class NamedBarrier:
    """A hardware barrier, `bar.sync`; or that of the cluster.

    Attributes:
        ids: "1", or "1..2" where each warpgroup has its own; "" of the cluster's.
        threads: that meet. actions: "arrives", and "waits" where it stays.
    """

    name: str
    ids: str
    threads: int
    actions: tuple[Action, ...]

    @property
    def about(self) -> str:
        """In words: "hardware barrier 1..2, 128 threads"."""
        what = f"hardware barrier {self.ids}" if self.ids else "barrier of the cluster"
        return f"{what}, {self.needs}"

    @property
    def needs(self) -> str:
        """What completes a phase: "128 threads"."""
        return f"{self.threads} threads"


@dataclass(frozen=True)
class Memory:
    """A part of shared memory.

    Attributes:
        kind: "tiles", "barriers", or "free", which the chip has left.
        views: other names of the same bytes, with shapes of their own.
    """

    name: str
    kind: Literal["tiles", "barriers", "free"]
    offset: int
    nbytes: int
    what: str
    views: tuple[str, ...] = ()


@dataclass(frozen=True)
class Argument:
    """An argument of the launch.

    Attributes:
        what: "2-d bfloat16, row order, box 128×64, swizzle 128".
        value: its shape, or the number.
        use: "read", "written", "read and written", or "".
    """

    name: str
    what: str
    value: str
    use: str


@dataclass(frozen=True)
class Description:
    """A kernel with the launch that it is bound to.

    Attributes:
        at: the line where it is defined. arch, chip: whose limits it keeps.
        grid: CTAs. cluster: its extents. threads: of a CTA.
        smem_bytes, smem_limit: that a CTA takes, and may take.
        tmem_columns: of tensor memory that it allocates, of 512.
        memory: all of shared memory, by offset.
    """

    name: str
    at: str
    arch: str
    chip: str
    grid: int
    cluster: tuple[int, int, int]
    threads: int
    smem_bytes: int
    smem_limit: int
    tmem_columns: int
    roles: tuple[Role, ...]
    rings: tuple[Ring, ...]
    barriers: tuple[Barrier, ...]
    named_barriers: tuple[NamedBarrier, ...]
    memory: tuple[Memory, ...]
    arguments: tuple[Argument, ...]

    @property
    def size(self) -> str:
        """The size of the launch in words."""
        x, y, z = self.cluster
        text = f"{self.grid:,} CTA{'' if self.grid == 1 else 's'} of {self.threads} threads"
        if x * y * z > 1:
            text += f" in clusters of {'×'.join(map(str, self.cluster))}"
        tmem = f", {self.tmem_columns} of 512 columns of tensor memory" if self.tmem_columns else ""
        return f"{text}, {self.smem_bytes:,} of {self.smem_limit:,} bytes of shared memory{tmem}"

    @property
    def target(self) -> str:
        """The architecture and the chip: "sm_90a, H200"."""
        return f"{self.arch}, {self.chip}"

    @property
    def launch(self) -> str:
        """Size and target."""
        return f"{self.size}; {self.target}"

    @property
    def lone_barriers(self) -> list[Barrier | NamedBarrier]:
        """Those of no ring, and the hardware's."""
        return [*self.barriers, *self.named_barriers]

    @property
    def every_barrier(self) -> list[Barrier | NamedBarrier]:
        """Those of the rings, and the others."""
        of_rings = [x for ring in self.rings for x in (ring.full, ring.empty)]
        return [*of_rings, *self.lone_barriers]

    def report(self) -> dict[str, Any]:
        """As JSON data: docs/reference/command-line.md has its fields."""
        return asdict(self)

    def svg(self) -> str:
        """The pipeline graph as a picture that needs nothing else: roles as columns, and for each
        ring and barrier who brings what to whom.
        """
        from tilepipe.description.picture import picture

        return picture(self)

    def html(self) -> str:
        """The graph beside tables, as a part of a page."""
        from tilepipe.description.page import part

        return part(self)
