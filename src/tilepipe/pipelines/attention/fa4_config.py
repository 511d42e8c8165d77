"""FA4Config: the shape of an attention kernel, and what fits a chip."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import gcd

from tilepipe.errors import BindError
from tilepipe.ir import dtypes
from tilepipe.ir.chip import B200, Chip
from tilepipe.ir.dtypes import DType
from tilepipe.ir.hardware import tensor_memory
from tilepipe.ir.hardware.operand_tiles import MMA_K_BYTES

BARRIER_BYTES = 8
MAX_BN = 256
PACKED_ROWS = (32, 64)  # BM in which the rows of several warps share tensor memory


@dataclass(frozen=True, kw_only=True)
class FA4Config:
    """Tile extents, depths and ring sizes of an attention kernel; numbers left at 0 are derived.

    Attributes:
        qkv_dtype: of Q, K and V.
        rope_dtype, rope_depth: elements of the depth that carry positions beside `depth`, and their
            type (that of K unless given).
        scale_dtype: of one scale for each key, loaded with K; None: none.
        depth: of Q and K without rope. ov_depth: of V and the output; depth unless given.
        BM: rows of Q of a CTA. On Blackwell 256 (two tiles of 128), 128 (one), or 64 or 32
            (packed); on Hopper a multiple of 64.
        BN: keys of a tile; derived: what tensor memory leaves beside two outputs.
        num_kv_stages: stages of the ring of K, and of that of V; derived from shared memory.
        num_qk_stages: parts of a K stage along the depth; derived.
        swizzle_mode: bytes, of all tiles.
        page_size: keys of a page of a paged cache, 0: not paged. BN is then a power of two that
            divides it, or that it divides.
        pair_cta: pairs of CTAs: each loads half the keys of K and half the columns of V.
        use_fused_kv: one ring for K and V in turn, of num_kv_stages slots (`KVTiles`); None:
            derived.
        chip: whose limits hold.
    """

    qkv_dtype: DType
    depth: int
    ov_depth: int = 0
    rope_depth: int = 0
    rope_dtype: DType | None = None
    scale_dtype: DType | None = None
    BM: int = 256
    BN: int = 0
    num_kv_stages: int = 0
    num_qk_stages: int = 0
    swizzle_mode: int = 128
    page_size: int = 0
    pair_cta: bool = False
    use_fused_kv: bool | None = None
    chip: Chip = B200

    num_pv_stages = 2  # parts of P that the MMA P · V waits for

    def __post_init__(self) -> None:
        for name in ("qkv_dtype", "rope_dtype", "scale_dtype"):
            given = getattr(self, name)
            self._set(name, None if given is None else dtypes.dtype(given))
        if self.qkv_dtype is None or not isinstance(self.chip, Chip):
            raise BindError(
                "FA4Config: qkv_dtype is a dtype, chip a Chip such as tp.H200; got"
                f" {self.qkv_dtype!r} and {self.chip!r}"
            )
        numbers = [f.name for f in fields(self) if f.type == "int"]
        wrong = [
            f"{name} = {getattr(self, name)!r}"
            for name in numbers
            if type(getattr(self, name)) is not int or getattr(self, name) < 0
        ]
        if wrong or not self.depth or not self.BM or self.swizzle_mode not in (0, 32, 64, 128):
            wrong = wrong or [
                f"depth = {self.depth}, BM = {self.BM}, swizzle_mode = {self.swizzle_mode}"
            ]
            raise BindError(
                "FA4Config: numbers are integers of at least 0, depth and BM of at least 1,"
                f" swizzle_mode one of 0, 32, 64, 128; got {', '.join(wrong)}"
            )
        self._set("ov_depth", self.ov_depth or self.depth)
        self._set("BN", self.BN or self._derived_bn())
        rings = self._derived_rings()
        for name in ("use_fused_kv", "num_kv_stages", "num_qk_stages"):
            self._set(name, rings[name])

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    # -- extents -----------------------------------------------------------------------

    @property
    def is_blackwell(self) -> bool:
        """True if sums are in tensor memory."""
        return self.chip.arch.startswith("sm_10")

    @property
    def MMA_K(self) -> int:
        """Depth of one MMA: 16 of 16 bits, 32 of 8."""
        return MMA_K_BYTES // self.qkv_dtype.nbytes

    @property
    def MMA_M(self) -> int:
        """Rows of one MMA: 128, of a pair 256; of wgmma 64."""
        return (256 if self.pair_cta else 128) if self.is_blackwell else 64

    @property
    def num_qo(self) -> int:
        """Tiles of Q that a CTA holds."""
        return max(self.BM // (128 if self.is_blackwell else self.BM), 1)

    @property
    def num_threads(self) -> int:
        """Threads of a CTA on Blackwell: two warpgroups of softmax, one of correction, four warps
        for MMA, loads and others.
        """
        return 512

    @property
    def swizzle_elems(self) -> int:
        """Elements in the swizzle's span; of an MMA where tiles are not swizzled."""
        return self.swizzle_mode // self.qkv_dtype.nbytes or self.MMA_K

    @property
    def v_k_major(self) -> bool:
        """True if V tiles have their keys contiguous: those of 8 bits on Hopper, where wgmma reads
        no other.
        """
        return self.qkv_dtype.nbytes == 1 and not self.is_blackwell

    @property
    def v_swizzle_mode(self) -> int:
        """The swizzle of V tiles: `swizzle_mode`, or, where their keys are contiguous, the widest
        that divides the BK1 of them.
        """
        widths = (128, 64, 32) if self.v_k_major and self.swizzle_mode else (self.swizzle_mode,)
        nbytes = self.BK1 * self.qkv_dtype.nbytes
        return next((width for width in widths if width and nbytes % width == 0), widths[-1])

    @property
    def padded_qk_depth(self) -> int:
        """The depth of Q and K in shared memory, rope included where it has K's type, as whole
        spans of the swizzle.
        """
        return _up(self.depth + (0 if self._rope_apart else self.rope_depth), self.swizzle_elems)

    @property
    def padded_ov_depth(self) -> int:
        """The depth of V in shared memory."""
        return _up(self.ov_depth, self.swizzle_elems)

    @property
    def BK0(self) -> int:
        """Depth of one part of K: padded_qk_depth / num_qk_stages."""
        return self.padded_qk_depth // self.num_qk_stages

    @property
    def BK1(self) -> int:
        """Keys of a V tile: BN."""
        return self.BN

    def k_rows_per_cta(self) -> int:
        """Keys of a K tile that a CTA loads."""
        return self.BN // 2 if self.pair_cta else self.BN

    def v_cols_per_cta(self) -> int:
        """Columns of a V tile that a CTA loads."""
        return self.padded_ov_depth // 2 if self.pair_cta else self.padded_ov_depth

    @property
    def _rope_apart(self) -> bool:
        return self.rope_depth > 0 and self.rope_dtype not in (None, self.qkv_dtype)

    def _derived_bn(self) -> int:
        """Two tiles of S and two of O take 2 · BN + 2 · depth of the 512 columns."""
        bn = min(
            MAX_BN, (MAX_BN - max(self.depth, self.padded_ov_depth)) // self.MMA_K * self.MMA_K
        )
        if bn > 0 and self.page_size:
            bn = 1 << bn.bit_length() - 1
        return max(bn, self.MMA_K)

    # -- rings -------------------------------------------------------------------------

    @property
    def bytes_per_k(self) -> int:
        """Bytes of a stage of K: its parts, rope of another type, scales."""
        return self.k_rows_per_cta() * self.padded_qk_depth * self.qkv_dtype.nbytes + self._k_extra

    @property
    def bytes_per_v(self) -> int:
        """Bytes of a stage of V."""
        return self.BK1 * self.v_cols_per_cta() * self.qkv_dtype.nbytes

    @property
    def _k_extra(self) -> int:
        rope = (
            self.rope_depth * self.rope_dtype.nbytes if self._rope_apart and self.rope_dtype else 0
        )
        return self.k_rows_per_cta() * (rope + (self.scale_dtype.nbytes if self.scale_dtype else 0))

    @property
    def bytes_per_kv(self) -> int:
        """Bytes of a slot that holds a tile of K or one of V, without what only K has."""
        return max(self.bytes_per_k - self._k_extra, self.bytes_per_v)

    @property
    def bytes_of_q(self) -> int:
        """Bytes of the Q tiles of a CTA."""
        rope = (
            self.rope_depth * self.rope_dtype.nbytes if self._rope_apart and self.rope_dtype else 0
        )
        return self.BM * (self.padded_qk_depth * self.qkv_dtype.nbytes + rope)

    def _ring_bytes(self, fused: bool, stages: int, parts: int) -> int:
        tiles = (
            stages * self.bytes_per_kv + -(-stages // 2) * self._k_extra
            if fused
            else stages * (self.bytes_per_k + self.bytes_per_v)
        )
        return tiles + 2 * BARRIER_BYTES * stages * (1 if fused else parts + 1)

    def _fixed_bytes(self, parts: int) -> int:
        """Q, the barriers beside the rings, and the word with the address of tensor memory.

        Barriers on Blackwell: S handed over (2 · num_pv_stages back, 2 forth), correction (4),
        order (2), a second Q (one a part), outputs (2). On Hopper: Q.
        """
        s_and_o = 2 * self.num_pv_stages + 2 + 4 + 2 + (parts if self.num_qo == 2 else 0) + 2
        return self.bytes_of_q + (
            BARRIER_BYTES * s_and_o + 4 if self.is_blackwell else BARRIER_BYTES
        )

    def _derived_rings(self) -> dict[str, int | bool]:
        """As many slots of K or V as fit: an odd number is one ring for both in turn, an even one
        is two rings of half as many.
        """
        rope = self.rope_depth > 0 or self.depth != self.ov_depth
        best = (
            1
            if rope or self.use_fused_kv
            else gcd(self.padded_qk_depth // self.swizzle_elems, self.padded_qk_depth // self.MMA_K)
        )
        for parts in (self.num_qk_stages,) if self.num_qk_stages else (best, 1):
            free = self.chip.smem_per_cta - self._fixed_bytes(parts)
            slots = max(2 * free // (2 * self.bytes_per_kv + self._k_extra), 1)
            fused = (
                bool(self.is_blackwell and slots % 2 and not self.num_kv_stages)
                if self.use_fused_kv is None
                else self.use_fused_kv
            )
            stages = self.num_kv_stages or max(slots if fused else slots // 2, 1)
            if self._ring_bytes(fused, stages, parts) <= free:
                break
        return {
            "use_fused_kv": fused,
            "num_kv_stages": stages,
            "num_qk_stages": 1 if fused and not self.num_qk_stages else parts,
        }

    # -- limits ------------------------------------------------------------------------

    def smem_used(self) -> int:
        """Bytes of shared memory: Q, the rings, the barriers."""
        return self._fixed_bytes(self.num_qk_stages) + self._ring_bytes(
            bool(self.use_fused_kv), self.num_kv_stages, self.num_qk_stages
        )

    def tmem_used(self) -> int:
        """Columns of tensor memory: S0 | S1 | O0 | O1, P in the place of S."""
        return 2 * self.BN + 2 * self.padded_ov_depth if self.is_blackwell else 0

    def supported(self) -> bool:
        """True if a kernel of this shape can run; `broken_rule` says why not."""
        return self.broken_rule() is None

    def broken_rule(self) -> str | None:
        """The rule that a kernel of this shape breaks, with the arithmetic; None if it can run."""
        rows = (256, 128, *PACKED_ROWS) if self.is_blackwell else tuple(range(64, 257, 64))
        packed = self.is_blackwell and self.BM in PACKED_ROWS
        least, why = (4, " of packed rows") if packed else (2, "")
        fused, limit = self.use_fused_kv, self.chip.smem_per_cta
        qk = self.padded_qk_depth
        rules = {
            f"BM = {self.BM} is none of {', '.join(map(str, rows))}": self.BM in rows,
            f"BN = {self.BN} must be a multiple of 16 up to {MAX_BN}": self.BN % 16 == 0
            and 16 <= self.BN <= MAX_BN,
            f"the padded depth of Q and K, {qk}, is not divisible by num_qk_stages ="
            f" {self.num_qk_stages}": qk % self.num_qk_stages == 0,
            f"a part of K is {qk} / {self.num_qk_stages} = {self.BK0} deep, which is no multiple of"
            f" the {self.swizzle_elems} elements that swizzle_mode = {self.swizzle_mode}"
            " spans": self.BK0 % self.swizzle_elems == 0,
            f"pair_cta halves BN = {self.BN} and the depth {self.padded_ov_depth};"
            f" {self.v_cols_per_cta()} columns of V are no multiple of the {self.swizzle_elems}"
            f" elements that swizzle_mode = {self.swizzle_mode}"
            " spans": not self.pair_cta or self.v_cols_per_cta() % self.swizzle_elems == 0,
            f"BN = {self.BN} and page_size = {self.page_size}: one must divide the"
            " other": not self.page_size
            or self.page_size % self.BN == 0
            or self.BN % self.page_size == 0,
            f"rope of {self.rope_dtype} beside K of {self.qkv_dtype}: a K tile has one"
            " type": not self._rope_apart,
            "one ring for K and V has whole tiles: num_qk_stages must be 1, not"
            f" {self.num_qk_stages}": not fused or self.num_qk_stages == 1,
            f"num_kv_stages = {self.num_kv_stages}: a ring{why} needs at least {least}, or the load"
            " of the next tile and the MMAs of this one wait for each"
            " other": self.num_kv_stages >= least,
            f"tensor memory: 2 × S + 2 × O = 2 × {self.BN} + 2 × {self.padded_ov_depth} ="
            f" {self.tmem_used()} columns, more than"
            f" {tensor_memory.COLUMNS}": self.tmem_used() <= tensor_memory.COLUMNS,
            f"shared memory: Q {self.bytes_of_q:,} + {self.num_kv_stages} stages of"
            f" {'K or V' if fused else 'K and V'}"
            f" ({self.bytes_per_k:,}{' or ' if fused else ' + '}{self.bytes_per_v:,}) + barriers"
            f" = {self.smem_used():,} bytes, more than"
            f" the {limit:,} of a CTA ({self.chip.name})": self.smem_used() <= limit,
        }
        return next(
            (
                f"{rule} (FA4Config: depth {self.depth}, BM {self.BM}, BN {self.BN})"
                for rule, holds in rules.items()
                if not holds
            ),
            None,
        )


def _up(n: int, unit: int) -> int:
    return -(-n // unit) * unit
