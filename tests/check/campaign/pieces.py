"""What all parts of a generated kernel are made with: its roles and shape, names, barriers, tiles
and tensors.
"""

from __future__ import annotations

from random import Random

from tests.check.campaign.features import TESTING
from tests.check.campaign.lines import Line, Role, Tensor, line


class Pieces:
    """The frame of one kernel. `r`: where every choice comes from."""

    def __init__(self, r: Random, features: frozenset[str]) -> None:
        self.r = r
        self.features = features
        self.cluster = 2 if "cluster" in features else 1
        self.stages = r.choice((1, 1, 2, 2, 3))
        tests = len(features & set(TESTING))
        busy = bool(tests)
        # What is tested in two CTAs, or in several ways, multiplies: then the ring is short.
        if tests > 1 or (busy and self.cluster > 1):
            self.stages = min(self.stages, 2)
        self.steps = (
            4 if self.stages == 3 else r.randint(2, 3 if tests == 1 or self.cluster > 1 else 5)
        )
        if tests > 1 or (busy and self.cluster > 1):
            self.steps = (
                3
                if self.cluster == 1 and tests == 2 and self.stages == 1 and r.random() < 0.3
                else 2
            )
        if busy and self.cluster > 1:
            self.stages = 1
        # a role asks before the ring
        self.begins = "peek" in features and self.cluster == 1 and r.random() < 0.4
        if self.begins:
            self.stages, self.steps = 1, 3 if tests == 1 else 2
        self.unrolled = r.random() < 0.4
        self.setup: list[Line] = []
        self.tensors: dict[str, Tensor] = {}
        self.barriers: set[str] = set()
        self.names = 0
        make, take = self._sizes()
        self.make, self.take = Role("make", make), Role("take", take)
        self.roles = [self.make, self.take]
        self.wide = "group" in (make, take)
        # Of a warpgroup only waits may depend on a test, and four warps that test take long to
        # explore.
        needed = "one" not in (make, take) and bool(features & {"poll", "counter", "peek"})
        if needed or (r.random() < (0.4 if not busy else 0.2) and not (busy and self.cluster > 1)):
            self.roles.append(Role("also", "one"))
        self.takers = self.roles[1:]
        self.before: dict[str, list[Line]] = {role.name: [] for role in self.roles}
        self.after: dict[str, list[Line]] = {role.name: [] for role in self.roles}
        self.asked: set[str] = set()  # roles that ask before the ring
        self.notes: dict[str, str] = {}  # role -> where it notes the answers of its tests
        self.flags = "atomic" in features and self.cluster == 1 and r.random() < 0.5
        self.payload = self._payload()
        self.reads: set[str] = set()
        # the reader of a slot fences, behind its wait, and not the writer
        self.reader_fences = False
        self.used: set[str] = {"cluster"} & features
        self.used |= {"four"} if "four" in (make, take) else set()

    def _sizes(self) -> tuple[str, str]:
        r, f = self.r, self.features
        if "fragment" in f and "four" in f:
            return r.choice((("group", "four"), ("four", "group")))
        if "fragment" in f:
            return r.choice(
                (("group", "one"), ("one", "group"), ("one", "group"), ("group", "group"))
            )
        if "four" in f:
            return r.choice((("four", "one"), ("one", "four")))
        return "one", "one"

    def _payload(self) -> str:
        r, f = self.r, self.features
        if self.cluster == 2 and "tma" in f and r.random() < 0.5:
            return "multicast"
        choices = ["word"]
        if "tma" in f and self.make.size != "four":
            choices += ["copy", "copy"]
        if self.make.size == "group":
            choices = ["fragment", "fragment", *choices[1:]]
        return r.choice(choices)

    def name(self, what: str) -> str:
        self.names += 1
        return f"{what}{self.names}"

    def barrier(self, name: str, count: int) -> str:
        self.setup.append(
            line(
                f'{name} = tp.SharedMemBarrier.allocate(ctx, {{count}}, "{name}")',
                "count",
                count=count,
            )
        )
        return name

    def cell(self, name: str, columns: int = 32, dtype: str = "int32", rows: int = 1) -> str:
        """A tile of shared memory."""
        self.setup.append(
            line(f'{name} = ctx.smem(({rows}, {columns}), tp.{dtype}, swizzle=0, name="{name}")[0]')
        )
        return name

    def tensor(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: str = "int32",
        filled: bool = False,
        box: tuple[int, int] | None = None,
    ) -> str:
        """An argument."""
        self.tensors.setdefault(name, Tensor(name, shape, dtype, filled, box))
        return name

    @property
    def tile(self) -> tuple[int, int]:
        return (64, 8) if self.wide else (1, 32)

    @property
    def dtype(self) -> str:
        return "float32" if self.wide else "int32"

    def source(self) -> str:
        """The tensor whose tile i holds 10 · i."""
        rows, cols = self.tile
        return self.tensor("src", (rows * self.steps, cols), self.dtype, True, self.tile)

    def mine(self, role: Role) -> str:
        """A row of a tensor that has one for each CTA and role."""
        return (
            f"{len(self.roles)} * ctx.block_id + {self.roles.index(role)}"
            if self.cluster > 1
            else str(self.roles.index(role))
        )

    @property
    def places(self) -> int:
        return len(self.roles) * self.cluster
