"""Hand-built kernels with tensor memory, for the tests of its simulation."""

from __future__ import annotations

import pytest

from tests.scenarios.support import SEEDS, matrix
from tests.support.build import Builder, binary
from tilepipe.ir import dtypes, ops
from tilepipe.ir.expressions import Const, Expr, const
from tilepipe.ir.fragment import Fragment
from tilepipe.ir.memory import BarrierArray, SmemBuffer, Tmem


class Tensor(Builder):
    """A builder of kernels with tensor memory; `words`: shared memory for addresses."""

    def __init__(self, cluster: int = 1, group: int = 1) -> None:
        super().__init__(cluster)
        self.kernel.cta_group = self.group = group
        self.words: list[SmemBuffer] = []

    def word(self, name: str = "address") -> SmemBuffer:
        return self.smem(name, 1, 1, dtype=dtypes.uint32)

    def alloc(
        self, word: SmemBuffer, columns: int, free: bool = True, *, sync: bool = True
    ) -> Expr:
        """Allocates, reads the address, after a `sync` of the warp; `free`: and frees."""
        self.do(ops.TmemAlloc, self.tile(word), columns, self.group)
        if sync:
            self.do(ops.SyncWarp)
        address = self.load(self.element(self.tile(word), 0, 0))
        if free:
            self.free(address, columns)
        return address

    def free(self, address: object, columns: int) -> None:
        x = (
            address
            if isinstance(address, Expr)
            else Const(dtypes.uint32, nonneg=True, value=address)  # type: ignore[arg-type]
        )
        self.do(ops.TmemDealloc, x, columns, self.group)

    def matrix(self, address: object, rows: int, cols: int, offset: int = 0) -> Tmem:
        x = (
            address
            if isinstance(address, Expr)
            else Const(dtypes.uint32, nonneg=True, value=address)  # type: ignore[arg-type]
        )
        at = binary("add", x, Const(dtypes.uint32, nonneg=True, value=offset))
        return Tmem(at, rows, cols, dtypes.float32)

    def registers(self, rows: int, cols: int, fill: float | None = None) -> Fragment:
        f = Fragment(
            f"f{self.n}", dtypes.float32, rows, cols, layout="tmem" if rows == 128 else "wgmma"
        )
        self.n += 1
        self.do(ops.FragmentDefine, f)
        if fill is not None:
            self.do(ops.FragmentSet, f, const(fill))
        return f


class Core(Builder):
    """A kernel whose role 'mma', of one warp, holds all of tensor memory, has loaded A (64, 16) and
    B (8, 16) and issues what `body` appends; `count`: arrivals that end a phase of `done`, `more`:
    likewise of further barriers.
    """

    def __init__(self, count: int = 1, cluster: int = 1, **more: int) -> None:
        super().__init__(cluster)
        self.kernel.cta_group = 1
        a, b = self.tensor("a", box=(64, 16)), self.tensor("b", box=(8, 16))
        self.a, self.b = (
            self.smem("a_tile", 64, 16, swizzle=32),
            self.smem("b_tile", 8, 16, swizzle=32),
        )
        self.word = self.smem("address", 1, 1, dtype=dtypes.uint32)
        self.full, self.done = self.barriers("full"), self.barriers("done", 1, count)
        self.more = {name: self.barriers(name, 1, n) for name, n in more.items()}
        self.operands = (a, b)
        self.setup_done()

    def begin(self) -> Expr:
        """Allocates, loads the operands, waits for them."""
        self.do(ops.TmemAlloc, self.tile(self.word), 512, 1)
        self.do(ops.SyncWarp)
        address = self.load(self.element(self.tile(self.word), 0, 0))
        with self.elect():
            self.expect(self.bar(self.full), 72 * 32)
            self.load_tile(self.operands[0], (0, 0), self.tile(self.a), self.bar(self.full))
            self.load_tile(self.operands[1], (0, 0), self.tile(self.b), self.bar(self.full))
        self.wait(self.bar(self.full), 0)
        return address

    def mma(self, address: Expr, col: int = 0, adds: bool = False) -> None:
        at_ = binary("add", address, Const(dtypes.uint32, nonneg=True, value=col))
        self.do(
            ops.Tcgen05Mma,
            Tmem(at_, 64, 8, dtypes.float32),
            self.tile(self.a),
            self.tile(self.b),
            const(adds),
            1,
        )

    def commit(
        self, bar: BarrierArray | None = None, mask: object = None, cta: object = None
    ) -> None:
        ref = self.bar(bar or self.done, 0, cta)
        self.do(ops.Tcgen05Commit, ref, 1, None if mask is None else const(mask))  # type: ignore[arg-type]

    def end(self, address: Expr) -> None:
        self.do(ops.TmemDealloc, address, 512, 1)

    def try_(self, kind: type[Exception], *words: str, grid: int = 1) -> None:
        """Every seed ends in that fault."""
        for seed in SEEDS:
            with pytest.raises(kind) as caught:
                self.run(grid, seed, a=matrix(64, 16), b=matrix(8, 16))
            missing = [word for word in words if word not in str(caught.value)]
            assert not missing, f"seed {seed}: the message lacks {missing}:\n{caught.value}"
