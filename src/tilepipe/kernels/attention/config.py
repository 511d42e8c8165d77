"""Settings of attention on each architecture, the rules that they obey, and which are chosen for a
problem.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

import tilepipe as tp
from tilepipe.kernels.common.settings import Settings
from tilepipe.kernels.common.tiling import ACCUMULATES

ROWS = 64  # of Q for each consumer warpgroup on Hopper: of one wgmma
SCHEDULES = ("persistent", "single", "dynamic")
STORES = ("registers", "tile")
ORDERS = ("turns", "free")
# consumers -> registers of a thread of the load warp's warpgroup, and of a consumer: the sums are
# 128 * (24 + 2 * 240) and 128 * (32 + 3 * 160) of the 65,536 that an SM has.
REGISTERS = {1: (24, 240), 2: (24, 240), 3: (32, 160)}
SM100_ROWS = 128  # queries of a tile on Blackwell: the lanes of tensor memory
SM100_TILES = 2  # of queries in a CTA: one is multiplied while the softmax of the other runs
SM100_PART = 64  # elements of the depth of Q and K that have barriers of their own: a swizzle span
NARROW_STEP = 32  # keys that a tile of operands of 8 bits has a multiple of: K of one wgmma
OCTAVES = 8  # weights of 8 bits are 2^8 times as large: e4m3 holds up to 448
SLACK = 1024  # bytes of shared memory: barriers of turns, alignment
# Registers of scores, probabilities and output that leave room for the rest, by consumers. Found by
# compiling: with one more step of bn ptxas spills.
ROOM = {1: 200, 2: 200, 3: 128}
ROOM_OF_8_BITS = {1: 208, 2: 208, 3: 128}


@dataclass(frozen=True)
class AttentionConfig(Settings):
    """Settings of attention on Hopper.

    Attributes:
        bn: keys of a tile.
        stages: tiles of K, and of V, in their rings. qk_stages: parts of a K tile along d, each
            with barriers of its own.
        consumers: warpgroups, each with 64 queries; a CTA works on 64 · consumers of one head.
        order: "turns": the warpgroups issue their MMAs one after the other, so that one multiplies
            while another takes its softmax; "free": as it comes.
        schedule: "persistent": a CTA goes on to the next tile of a fixed share, whose loads begin
            during this one's end; "dynamic": to the next that no CTA has taken, by a counter in GPU
            memory, for tiles that differ in length; "single": one tile a CTA, the longest first.
        store: "tile": the output goes through shared memory by TMA; "registers": from registers,
            without a tile for it.
        group: heads whose tiles are dealt out together; their K and V should stay in L2.
        q_stages: tiles of queries in their ring: with 2 the next tile's are loaded during this one.
        accumulate: of operands of 8 bits: "fast": weights · V of all keys are added up by the
            tensor cores, which keep about 14 bits; "promote": those of a tile of keys, and tiles in
            float32, which takes registers for as many sums again.
    """

    bn: int = 128
    stages: int = 2
    qk_stages: int = 1
    consumers: int = 2
    order: str = "turns"
    schedule: str = "persistent"
    store: str = "registers"
    group: int = 1
    q_stages: int = 1
    accumulate: str = "fast"

    def _rules(self) -> dict[str, bool]:
        return {
            f"accumulate must be one of {', '.join(ACCUMULATES)}": self.accumulate in ACCUMULATES,
            "consumers must be 1, 2 or 3": self.consumers in ROOM,
            "bn must be a multiple of 16 up to 256": self.bn % 16 == 0 and self.bn <= 256,
            "stages must be at least 2: the MMAs of two tiles are in flight": self.stages >= 2,
            "qk_stages must be 1 or 2": self.qk_stages <= 2,
            "q_stages must be 1 or 2": self.q_stages <= 2,
            f"order must be one of {', '.join(ORDERS)}": self.order in ORDERS,
            f"schedule must be one of {', '.join(SCHEDULES)}": self.schedule in SCHEDULES,
            f"store must be one of {', '.join(STORES)}": self.store in STORES,
        }

    @property
    def q_tiles(self) -> int:
        """Tiles of queries that shared memory holds: one where a CTA has one."""
        return 1 if self.schedule == "single" else self.q_stages

    @property
    def bm(self) -> int:
        """Queries of a CTA's tile."""
        return ROWS * self.consumers

    @property
    def registers(self) -> tuple[int, int]:
        """What setmaxnreg gives a thread of the load warp's warpgroup, and of a consumer."""
        return REGISTERS[self.consumers]

    def tiles(self, dtype: tp.DType, d: int, d_v: int = 0) -> tp.FA4Config:
        """The extents of the tiles for a dtype and heads of d elements, of V d_v (d unless given).

        Raises:
            BindError: they do not fit the registers of a thread, or shared memory.
        """
        d_v, packed = d_v or d, 8 // dtype.nbytes
        twice = " · 2" if self.accumulate == "promote" else ""
        out = d_v if twice else d_v // 2
        held = self.bn // 2 + self.bn // packed + out
        room = (ROOM if dtype.nbytes > 1 else ROOM_OF_8_BITS)[self.consumers]
        if held > room:
            raise self.broken(
                f"scores, probabilities and output take bn / 2 + bn / {packed} + d_v / 2{twice}"
                f" = {self.bn // 2} + {self.bn // packed} + {out} = {held}"
                f" registers of a thread; with {self.consumers} consumers at most"
                f" {room} leave room for the rest: lower bn"
            )
        found = tp.FA4Config(
            qkv_dtype=dtype,
            depth=d,
            ov_depth=d_v,
            BM=self.bm,
            BN=self.bn,
            num_kv_stages=self.stages,
            num_qk_stages=self.qk_stages,
            swizzle_mode=swizzle_of(dtype, d, d_v),
            use_fused_kv=False,
            chip=tp.H200,
        )
        broken = found.broken_rule()
        if self.accumulate == "promote" and dtype.nbytes > 1:
            broken = f'accumulate="promote" is of operands of 8 bits, and these are {dtype}'
        if broken is None and self.bn % found.MMA_K:
            broken = f"bn = {self.bn} must be a multiple of {found.MMA_K}, the keys of one wgmma"
        if self.store == "tile" and not has_whole_spans(dtype, d, d_v):
            raise self.broken(
                f"an output tile has whole spans of {found.swizzle_elems} columns, and heads of"
                f' V have {d_v}: use store="registers"'
            )
        columns = (self.q_tiles - 1) * found.padded_qk_depth
        rest = self.bm * columns * dtype.nbytes
        if self.store == "tile":
            rest += self.bm * found.padded_ov_depth * 2
        if broken is None and found.smem_used() + rest + SLACK > found.chip.smem_per_cta:
            broken = (
                f"shared memory: Q, K, V and barriers {found.smem_used():,} + other tiles of Q and"
                f" the output's {rest:,} = {found.smem_used() + rest:,}"
                f" bytes, more than {found.chip.smem_per_cta - SLACK:,}"
            )
        if broken is not None:
            cure = "; lower stages, q_stages or bn" if broken.startswith("shared memory") else ""
            raise self.broken(f"{broken}{cure}")
        return found


def swizzle_of(dtype: tp.DType, d: int, d_v: int) -> int:
    """Bytes of the swizzle of tiles of K and V: of operands of 8 bits the widest that divides heads
    of both; where none does, and of 16 bits, the widest of all, to which they are padded.
    """
    widths = (128, 64, 32) if dtype.nbytes == 1 else ()
    return next((width for width in widths if gcd(d, d_v) * dtype.nbytes % width == 0), 128)


def has_whole_spans(dtype: tp.DType, d: int, d_v: int) -> bool:
    """True if heads of V fill spans of the swizzle, as a tile of the output (store="tile") must."""
    return d_v * dtype.nbytes % swizzle_of(dtype, d, d_v) == 0


@dataclass(frozen=True)
class Sm100AttentionConfig(Settings):
    """Static settings of attention on Blackwell.

    Attributes:
        bn: keys of a block. Tensor memory holds S and O of two tiles, 2 · (bn + d) columns of 512;
            a row of S is in registers at once.
        stages: K tiles, and as many V tiles, in shared memory.
        rescale_above: the output of a row is rescaled where its maximum has grown by more than this
            power of 2. P may be so large.
    """

    bn: int = 128
    stages: int = 2
    rescale_above: int = 8

    def _rules(self) -> dict[str, bool]:
        return {
            "bn must be a multiple of 32 in 32..128": self.bn % 32 == 0 and self.bn <= 128,
            "stages must be at least 2: a V tile is held until the next block has been begun": (
                self.stages >= 2
            ),
            "rescale_above must be at most 15: float16 holds P up to 2^15": (
                self.rescale_above <= 15
            ),
        }

    def fa4(self, dtype: tp.DType, d: int) -> tp.FA4Config:
        """The shape of the kernel for heads of d elements."""
        return tp.FA4Config(
            qkv_dtype=dtype,
            depth=d,
            BM=SM100_TILES * SM100_ROWS,
            BN=self.bn,
            num_kv_stages=self.stages,
            num_qk_stages=d // SM100_PART,
            use_fused_kv=False,
        )
