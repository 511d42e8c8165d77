"""Mistakes that a reader of PTX could have, alone, and in pairs whose errors could cancel.

A witness is what notices one: `foreign NAME`, a kernel that another compiler made; `measured NAME`,
a kernel whose results an H100 has computed.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.mutation.reader.planting import Edit

_M, _I, _N = "tilepipe.machine.", "tilepipe.ptx.isa.", "tilepipe.ptx.numerics."
OPERANDS = _M + "memory.matrix_operands"
LAYOUT = "tilepipe.ir.layout"
IDESC = _M + "memory.instruction_descriptor"
MAPS = _M + "memory.tensor_map"
BOXES = _M + "memory.boxes"
TMA = _M + "units.tma_by_address"
MMA = _M + "units.tcgen05_by_address"
TENSOR = _M + "memory.tensor_operands"
FRAGMENTS = _M + "memory.fragments"
TCGEN05, WGMMA, MATRICES = _I + "tcgen05", _I + "wgmma", _I + "matrices"
PAIR_EDITS = tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class Mistake:
    """A mistake. `pair`: two errors that could cancel. witnesses: what is asked, in this order.
    reason: why nothing notices it.
    """

    name: str
    edits: tuple[Edit, ...]
    witnesses: tuple[str, ...]
    pair: bool = False
    reason: str = ""


_SM100 = ("foreign gluon_product_a_128_b_128_sm100", "foreign gluon_product_a_64_b_64_sm100",
          "foreign gluon_product_a_32_b_32_sm100", "foreign gluon_product_a_columns_b_rows_sm100",
          "foreign gluon_product_a_columns_64_b_rows_64_sm100",
          "foreign gluon_product_a_columns_32_b_rows_32_sm100",
          "foreign cute_product_short_rows_sm100",
          "foreign cute_product_a_columns_sm100")  # fmt: skip
_KINDS = ("foreign gluon_product_fp8_e4m3_e5m2_sm100", "foreign gluon_product_fp8_e5m2_e4m3_sm100",
          "foreign gluon_product_tf32_sm100", "foreign gluon_product_64_rows_sm100")  # fmt: skip
_SCALED = ("foreign gluon_scaled_product_mxf8_sm100", "foreign gluon_scaled_product_nvf4_sm100",
           "foreign gluon_scaled_product_mxf4_sm100", "foreign cute_scaled_copy_sm100",
           "foreign triton_gemm_nvf4_scales_by_tma_sm100",
           "foreign triton_gemm_mxf4_sm100")  # fmt: skip
_LANES = tuple(
    f"foreign gluon_round_trip_{rows}_rows_{a}_{b}_sm100"
    for rows in (128, 64)
    for a, b in (("32x32b", "16x64b"), ("16x64b", "16x128b"), ("16x128b", "16x256b"),
                 ("16x256b", "32x32b"))
)  # fmt: skip
_PAIRED = ("foreign gluon_pair_product_bf16_sm100", "foreign gluon_sent_to_all_sm100",
           "foreign cute_pair_product_sm100", "foreign triton_gemm_tma_two_ctas_sm100")  # fmt: skip
_SM90 = tuple(f"measured wgmma/{n}" for n in range(33))
_LOADS = tuple(f"measured copies/load-{n}" for n in range(60))
_STORES = tuple(f"measured copies/store-{n}" for n in range(60))
_PASSED = tuple(f"foreign gluon_passed_through_{n}_sm100" for n in
                ("2d_bf16_32", "2d_bf16_64", "2d_u8_128", "3d_bf16_128", "4d_bf16_64"))  # fmt: skip
_MULTICAST = tuple(f"measured copies/multicast-{n}" for n in range(6))


def _forms(*names: str) -> tuple[str, ...]:
    return tuple(f"form {name}" for name in names)


def _one(name: str, module: str, old: str, new: str, *witnesses: str) -> Mistake:
    return Mistake(name, (Edit(module, old, new),), witnesses)


def _lost(name: str, reason: str, module: str, old: str, new: str, *witnesses: str) -> Mistake:
    return Mistake(name, (Edit(module, old, new),), witnesses, reason=reason)


def _two(name: str, edits: PAIR_EDITS, *witnesses: str) -> Mistake:
    return Mistake(name, tuple(Edit(*edit) for edit in edits), witnesses, pair=True)


DESCRIPTORS = [
    _one(
        "leading and stride offset swapped, K contiguous, no swizzle",
        OPERANDS,
        "row // CORE_ROWS * d.stride\n            at = at + along // CORE_BYTES * d.leading",
        "row // CORE_ROWS * d.leading\n            at = at + along // CORE_BYTES * d.stride",
        *_SM90,
        *_SM100,
    ),
    _one(
        "leading and stride offset swapped, M or N contiguous",
        OPERANDS,
        "over, down = (d.leading, d.stride) if d.swizzle",
        "over, down = (d.stride, d.leading) if d.swizzle",
        *_SM90,
        *_SM100,
    ),
    _one(
        "leading offset in the place of the stride in the descriptor",
        OPERANDS,
        "for shift in (0, 16, 32)",
        "for shift in (0, 32, 16)",
        *_SM100,
        *_SM90,
    ),
    _one(
        "rows of every swizzle 128 bytes apart",
        OPERANDS,
        "at = row % CORE_ROWS * d.swizzle",
        "at = row % CORE_ROWS * (d.swizzle and 128)",
        *_SM100,
        *_SM90,
    ),
    _one(
        "start address of 13 bits",
        OPERANDS,
        "_FIELD = 0x3FFF",
        "_FIELD = 0x1FFF",
        "foreign triton_gemm_tma_8_warps_sm100",
    ),
    _one(
        "swizzle of the offset, not of the address",
        OPERANDS,
        "else swizzle_offset(at, d.swizzle)",
        "else d.start + swizzle_offset(at - d.start, d.swizzle)",
        *_SM90,
        *_SM100,
    ),
    _one(
        "swizzles of 128 and 64 bytes swapped for wgmma",
        OPERANDS,
        "_WGMMA_SWIZZLES = {0: 0, 1: 128, 2: 64, 3: 32}",
        "_WGMMA_SWIZZLES = {0: 0, 1: 64, 2: 128, 3: 32}",
        *_SM90,
    ),
    _one("swizzle of 64 bytes by one bit", LAYOUT, "64: 0x180", "64: 0x80", *_SM90, *_SM100),
    _one(
        "negated operands are not",
        OPERANDS,
        "return -found if self.negated",
        "return found if self.negated",
        *_SM90,
    ),
    _one(
        "wgmma: the major of B is that of A",
        WGMMA,
        "bool(transposed[-1])",
        "bool(transposed[0])",
        *_SM90,
    ),
    _one(
        "wgmma: adds whatever scale-d says",
        WGMMA,
        "adding = bool(one(site, mask, add))",
        "adding = True",
        *_SM90,
    ),
    _one(
        "wgmma: e4m3 and e5m2 swapped",
        WGMMA,
        '"e4m3": _Kind(dtypes.float8_e4m3, *_FP8), "e5m2": _Kind(dtypes.float8_e5m2',
        '"e4m3": _Kind(dtypes.float8_e5m2, *_FP8), "e5m2": _Kind(dtypes.float8_e4m3',
        *_SM90,
    ),
    _one(
        "wgmma: halves of an accumulator in float16 in another order",
        WGMMA,
        "pairs = values.astype(np.float16).reshape(-1, 2, WARP).transpose(0, 2, 1)",
        "pairs = values.astype(np.float16).reshape(-1, WARP, 2)",
        *_SM90,
    ),
    _one("wgmma: s8 is u8", WGMMA, '"s8": _Kind(dtypes.int8', '"s8": _Kind(dtypes.uint8', *_SM90),
    _one(
        "fragments: rows of an accumulator 8 apart in the wrong register",
        FRAGMENTS,
        "rows = lane // 4 + register // 2 % 2 * 8\n    cols_",
        "rows = lane // 4 + register % 2 * 8\n    cols_",
        *_SM90,
    ),
    _one(
        "fragments: registers of A in another order",
        FRAGMENTS,
        "rows = lane // 4 + register % 2 * 8\n    cols = register // 2 * 4",
        "rows = lane // 4 + register // 2 * 8\n    cols = register % 2 * 4",
        *_SM90,
    ),
    _one(
        "instruction descriptor: types of A and B swapped",
        IDESC,
        'a = fields.type_of("A", 7, 3',
        'a = fields.type_of("A", 10, 3',
        *_KINDS,
    ),
    _one(
        "instruction descriptor: e4m3 and e5m2 swapped",
        IDESC,
        "_F8 = {0: dtypes.float8_e4m3, 1: dtypes.float8_e5m2",
        "_F8 = {1: dtypes.float8_e4m3, 0: dtypes.float8_e5m2",
        *_KINDS,
    ),
    _one(
        "instruction descriptor: majors of A and B swapped",
        IDESC,
        "not fields.at(15, 1), not fields.at(16, 1)",
        "not fields.at(16, 1), not fields.at(15, 1)",
        "foreign cute_product_a_columns_sm100",
        "foreign cute_product_b_rows_sm100",
    ),
    _one(
        "instruction descriptor: M of 4 bits",
        IDESC,
        "fields.at(24, 5) * 16",
        "fields.at(24, 4) * 16",
        *_PAIRED,
    ),
    _one(
        "instruction descriptor: scale factor IDs swapped",
        IDESC,
        "ids = fields.at(29, 2), fields.at(4, 2)",
        "ids = fields.at(4, 2), fields.at(29, 2)",
        "foreign cute_scaled_product_crossed_sm100",
    ),
    _one(
        "instruction descriptor: types of scale factors swapped",
        IDESC,
        "_SCALES = {0: dtypes.float8_e4m3, 1: dtypes.float8_e8m0}",
        "_SCALES = {1: dtypes.float8_e4m3, 0: dtypes.float8_e8m0}",
        *_SCALED,
    ),
    _one(
        "instruction descriptor: negation of A alone",
        IDESC,
        "bool(fields.at(13, 1)) != bool(fields.at(14, 1))",
        "bool(fields.at(13, 1))",
        "foreign cute_product_negated_sm100",
    ),
]

TENSOR_MEMORY = [
    _one(
        "scale factors of a block repeat, not the block",
        MMA,
        "left = a.astype(np.float64) * np.repeat(part.a_scale.values(unit.site), block, axis=1)",
        "left = a.astype(np.float64) * np.tile(part.a_scale.values(unit.site), (1, block))",
        *_SCALED,
    ),
    _one(
        "scale factors of A and B swapped",
        TCGEN05,
        "Scaling(factors[0], factors[1],",
        "Scaling(factors[1], factors[0],",
        *_SCALED,
    ),
    _one(
        "scale factors: rows 4 apart, not 32",
        TENSOR,
        "raw = np.ascontiguousarray(words[:, :, 0]).view(np.uint8).reshape(-1, 4)",
        "raw = np.ascontiguousarray(words[:, :, 0].transpose(0, 2,"
        " 1)).view(np.uint8).reshape(-1, 4)",
        *_SCALED,
    ),
    _one(
        "scale factors: the ID counts words, not bytes",
        TENSOR,
        "raw[:, self.first : self.first + self.vector]",
        "raw[:, : self.vector]",
        *_SCALED,
    ),
    _one(
        "tcgen05.cp .32x128b writes half of the groups of lanes",
        MMA,
        "np.stack([_warps(warp) for warp in range(4)], -1)",
        "np.stack([_warps(warp) for warp in range(2)], -1)",
        *_SCALED,
    ),
    _one(
        "tcgen05.cp .128x128b: groups of lanes in another order",
        MMA,
        '"128x128b": (128, _warps(0, 1, 2, 3)',
        '"128x128b": (128, _warps(0, 2, 1, 3)',
        "foreign cute_copied_to_columns_sm100",
    ),
    _one(
        "tcgen05.cp: descriptor with its offsets swapped",
        MMA,
        "places = operand_places(descriptor, rows, 1, k_major=True)",
        "places = operand_places(descriptor._replace(leading=descriptor.stride,"
        " stride=descriptor.leading), rows, 1, k_major=True)",
        *_SCALED,
    ),
    _lost(
        "fp4: nibbles in the other order",
        "equivalent: it exchanges two places along K of A, and the same two of B",
        TENSOR,
        "np.stack([raw & 15, raw >> 4], -1)",
        "np.stack([raw >> 4, raw & 15], -1)",
        *_SCALED,
    ),
    _one(
        "tf32 keeps all bits",
        TENSOR,
        "return truncated(raw)",
        "return raw.view(np.float32)",
        "foreign gluon_product_tf32_sm100",
        "foreign cute_product_tf32_sm100",
    ),
    _one(
        "64 rows in the lower half of each 32 lanes, whatever the lane",
        TENSOR,
        "lanes = row // 16 * 32 + row % 16 + lane",
        "lanes = row // 16 * 32 + row % 16",
        "foreign gluon_two_products_64_rows_sm100",
    ),
    _one(
        "64 rows in the first 64 lanes",
        TENSOR,
        "lanes = row // 16 * 32 + row % 16 + lane",
        "lanes = row + lane",
        "foreign gluon_product_64_rows_sm100",
    ),
    _one(
        "a pair's 64 rows: halves of the columns swapped",
        TENSOR,
        "words = np.concatenate(np.split(words, self.folds, axis=1))",
        "words = np.concatenate(np.split(words, self.folds, axis=1)[::-1])",
        "foreign cute_pair_product_128_rows_sm100",
    ),
    _one(
        "an MMA of a pair takes B of its own CTA alone",
        MMA,
        "b = np.concatenate([part.b.values() for part in unit.parts])",
        "b = np.concatenate([unit.parts[0].b.values() for part in unit.parts])",
        *_PAIRED,
    ),
    _one(
        "tcgen05.mma adds whatever its predicate says",
        MMA,
        "if adds:\n            product = acc.words().view(np.float32)",
        "if True:\n            product = acc.words().view(np.float32)",
        *_SM100,
    ),
    _one(
        "tcgen05.ld: column of 8 bits",
        MMA,
        "lane, column = address >> 16, address & 0xFFFF\n    quarter",
        "lane, column = address >> 16, address & 0xFF\n    quarter",
        "foreign gluon_far_apart_sm100",
    ),
    _one(
        "ld and st of 16x64b: rows of odd and even lanes swapped",
        TCGEN05,
        "_LANE // 4 + 8 * (_LANE % 2), wide * group + _LANE // 2 % 2",
        "_LANE // 4 + 8 * (_LANE // 2 % 2), wide * group + _LANE % 2",
        *_LANES,
    ),
    _one(
        "ld and st of 16x128b: the second register 4 columns on",
        TCGEN05,
        "rows, cols = _LANE // 4 + 8 * within, wide * group + _LANE % 4",
        "rows, cols = _LANE // 4 + 8 * (1 - within), wide * group + _LANE % 4",
        *_LANES,
    ),
    _one(
        "ld and st of 16x256b: the second register 8 rows down",
        TCGEN05,
        "rows = _LANE // 4 + 8 * (within // 2)\n        cols = wide * group + 2 * (_LANE %"
        " 4) + within % 2",
        "rows = _LANE // 4 + 8 * (within % 2)\n        cols = wide * group + 2 * (_LANE % 4)"
        " + within // 2",
        *_LANES,
    ),
    _one(
        "ld and st of 16x32bx2: halves of the columns interleaved",
        TCGEN05,
        "rows, cols = _LANE % 16, register + count * (_LANE // 16)",
        "rows, cols = _LANE % 16, 2 * register + _LANE // 16",
        "foreign triton_gemm_tma_64_rows_sm100",
        "foreign gluon_product_64_rows_by_halves_sm100",
    ),
    _one(
        "commit: a multicast names the CTA itself alone",
        TCGEN05,
        "return unit.tcgen05_commit, (site, mask, offset, one(site, mask, ctas))",
        "return unit.tcgen05_commit, (site, mask, offset, 1 << w.rank)",
        *_PAIRED,
        "foreign cute_persistent_pair_product_sm100",
    ),
]

COPIES = [
    _one(
        "swizzle by the next bits of the address",
        MAPS,
        "at = flipped ^ (at >> 7 & mask) << low",
        "at = flipped ^ (at >> 8 & mask) << low",
        *_LOADS,
        *_PASSED,
    ),
    _one(
        "swizzle of 64 bytes by three bits",
        MAPS,
        "bits = {16: swizzle, 32: 2",
        "bits = {16: swizzle and swizzle | 1, 32: 2",
        *_LOADS,
    ),
    _one(
        "rows narrower than the swizzle lie close",
        MAPS,
        "return max(self.line_bytes, SPANS[self.swizzle])",
        "return self.line_bytes",
        *_LOADS,
    ),
    _one(
        "traversal strides: counts are rounded down",
        MAPS,
        "*(-(-n // step) for n, step",
        "*(n // step for n, step",
        *_LOADS,
    ),
    _one(
        "traversal strides: the start is rounded down",
        BOXES,
        "first = -(min(at, 0) // step)",
        "first = -min(at, 0) // step",
        *_LOADS,
    ),
    _one(
        "boxes in the reverse order of dimensions",
        MAPS,
        "tuple(field(440 + 8 * i, 8) + 1 for i in range(rank))",
        "tuple(field(440 + 8 * i, 8) + 1 for i in reversed(range(rank)))",
        *_LOADS,
    ),
    _one(
        "strides of the dimensions swapped",
        MAPS,
        "<< 4 for i in range(rank - 1)),",
        "<< 4 for i in reversed(range(rank - 1))),",
        *_LOADS,
    ),
    _one(
        "out of bounds reads as zero, not as NaN",
        MAPS,
        "nan=bool(field(79, 1))",
        "nan=False",
        *_LOADS,
    ),
    _one(
        "a box before the start begins at the start",
        BOXES,
        "first, end = max(-at, 0), min(map_.box[0], map_.shape[0] - at)",
        "first, end = 0, min(map_.box[0], map_.shape[0] - at)",
        *_LOADS,
    ),
    _one(
        "the last element of a row is out of bounds",
        BOXES,
        "min(map_.box[0], map_.shape[0] - at)",
        "min(map_.box[0], map_.shape[0] - at - 1)",
        *_LOADS,
    ),
    _one(
        "stores end where the tensor does",
        BOXES,
        "over += min(-over % UNIT, room, map_.row_bytes - over)",
        "over += 0",
        *_STORES,
    ),
    _one(
        "transactions: a box counts what it has in shared memory",
        MAPS,
        "return self.row_bytes * self.rows",
        "return self.smem_bytes",
        *_LOADS,
    ),
    _one(
        "tf32 is not rounded",
        MAPS,
        "words + 0xFFF + (words >> 13 & 1) & 0xFFFFE000",
        "words & 0xFFFFE000",
        *_LOADS,
    ),
    _one(
        "multicast: all copies credit the barrier of the CTA that issues",
        TMA,
        "rank = cta.rank & ~1 | to.rank & 1 if to.pair else cta.rank",
        "rank = cta.rank & ~1 | to.rank & 1 if to.pair else ag.cta.rank",
        *_MULTICAST,
    ),
    _one(
        "cta_group::2: the barrier of the other CTA",
        TMA,
        "rank = cta.rank & ~1 | to.rank & 1 if to.pair",
        "rank = cta.rank & ~1 | ~to.rank & 1 if to.pair",
        *_PAIRED,
    ),
    _one(
        "reductions: operands swapped in inc and dec",
        BOXES,
        "given = reduction(there.copy().reshape(-1), flat)",
        "given = reduction(flat, there.copy().reshape(-1))",
        *_STORES,
    ),
    _one(
        "cp.async: the size of the source is the whole",
        _I + "thread_copies",
        "np.where(per_lane(n).astype(bool), 0, nbytes) if ignores else per_lane(n)",
        "np.where(per_lane(n).astype(bool), 0, nbytes) if ignores else 0 * per_lane(n) + nbytes",
        "measured copies/cp.async",
    ),
    _one(
        "cp.async: ignore-src the other way round",
        _I + "thread_copies",
        "np.where(per_lane(n).astype(bool), 0, nbytes)",
        "np.where(per_lane(n).astype(bool), nbytes, 0)",
        "measured copies/cp.async",
    ),
]

_LDST = ("measured loads/shared", "measured loads/global", "measured stores/shared")
_PROGRAMS = tuple(f"program {n}" for n in range(60))
_WARP_PRODUCTS = ("measured matrices/mma-0", "measured matrices/mma-1", "measured matrices/mma-6",
                  "measured matrices/mma-12", "measured matrices/mma-18")  # fmt: skip

REGISTERS = [
    _one(
        "addc forgets the carry",
        _N + "carry",
        "with_carry = total + carry.astype(a.dtype)",
        "with_carry = total",
        *_forms("add.cc.u32;addc.u32"),
    ),
    _one(
        "the carry out of addc is that of the operands alone",
        _N + "carry",
        "return with_carry, out | (with_carry < total)",
        "return with_carry, out",
        "call tests.ptx.isa.test_arithmetic test_carries_make_numbers_of_128_bits add False",
    ),
    _one(
        "subc borrows where there was no borrow",
        _I + "arithmetic",
        "*(~c for c in carried)",
        "*carried",
        *_forms("sub.cc.u32;subc.u32"),
    ),
    _one(
        "prmt: bit 3 of a selector is not the sign",
        _N + "logic",
        "np.where(choice & 8, sign, chosen)",
        "chosen",
        *_forms("prmt.b32"),
    ),
    _one(
        "prmt.b4e with two modes swapped",
        _N + "logic",
        '"b4e": (0x5670, 0x6701',
        '"b4e": (0x6701, 0x5670',
        *_forms("prmt.b32.b4e"),
    ),
    _one(
        "prmt.ecl is ecr",
        _N + "logic",
        '"ecl": (0x3210, 0x3211, 0x3222, 0x3333)',
        '"ecl": (0x0000, 0x1110, 0x2210, 0x3210)',
        *_forms("prmt.b32.ecl"),
    ),
    _one(
        "shf.clamp wraps",
        _N + "logic",
        "np.minimum(amount, 32)",
        "amount & 31",
        *_forms("shf.l.clamp.b32"),
    ),
    _one(
        "bfe.s32 takes the sign above the field",
        _N + "bits",
        "np.minimum(start + width - one, top)",
        "np.minimum(start + width, top)",
        *_forms("bfe.s32"),
    ),
    _one(
        "bfind.shiftamt gives the position",
        _N + "bits",
        "position = bits - found if shiftamt else found - 1",
        "position = found - 1",
        *_forms("bfind.shiftamt.u32"),
    ),
    _one(
        "mul.hi: a bit too many",
        _N + "integer",
        "np.multiply(a, b, dtype=wide) >> width)",
        "np.multiply(a, b, dtype=wide) >> width - 1)",
        *_forms("mul.hi.u32"),
    ),
    _one(
        "relu before rounding loses NaN",
        _N + "modifiers",
        "np.maximum(values, zero) + zero",
        "np.fmax(values, zero) + zero",
        *_forms("fma.rn.relu.f16"),
    ),
    _one(
        "sat gives 1 for NaN",
        _N + "modifiers",
        "np.fmin(np.fmax(values, zero) + zero, one)",
        "np.fmax(np.fmin(values, one) + zero, zero)",
        *_forms("add.sat.f32"),
    ),
    _one(
        "ftz flushes to +0",
        _N + "modifiers",
        "np.copysign(values.dtype.type(0), values)",
        "values.dtype.type(0)",
        *_forms("mul.ftz.f32", "abs.ftz.f32", "neg.ftz.f32"),
    ),
    _one(
        "cvt of a pair: the first to the low half",
        _N + "narrow",
        "both[..., 0] = b\n    both[..., 1] = a",
        "both[..., 0] = a\n    both[..., 1] = b",
        *_forms("cvt.rn.f16x2.f32"),
    ),
    _one(
        "cvt of NaN to 64 bits gives zero",
        _N + "conversions",
        'if source == "f64" or TYPES[to].bits == 64:',
        'if source == "f64":',
        *_forms("cvt.rzi.s64.f32"),
    ),
    _one(
        "cvt to an integer: rmi rounds to zero",
        _N + "conversions",
        '"rmi": np.floor',
        '"rmi": np.trunc',
        *_forms("cvt.rmi.s32.f32"),
    ),
    _one(
        "shfl.up counts lanes from the end",
        _I + "warp",
        "valid = lane >= most\n",
        "valid = lane > most\n",
        *_PROGRAMS,
    ),
    _one(
        "shfl: segments are ignored",
        _I + "warp",
        "least = _LANE & segment",
        "least = _LANE & 0",
        *_PROGRAMS,
    ),
    _one(
        "vote.all of lanes that are not there",
        _I + "warp",
        "return _all(bool(votes.all()), np.bool_)",
        "return _all(bool(value.all()), np.bool_)",
        *_PROGRAMS,
    ),
    _one(
        "match.any counts lanes that are not there",
        _I + "warp",
        "equal = (value[:, None] == value[None, :]) & active[None, :]",
        "equal = value[:, None] == value[None, :]",
        *_PROGRAMS,
    ),
    _one(
        "red.inc wraps one too late",
        _I + "combining",
        "np.where(there >= given, there ^ there",
        "np.where(there > given, there ^ there",
        "measured atomics/atom-global-1",
        "measured atomics/atom-global-2",
        "measured atomics/red-global-0",
        "measured atomics/red-global-1",
    ),
    _one(
        "cas gives the operands in the other order",
        _I + "combining",
        "expected, new = np.split(given, 2)",
        "new, expected = np.split(given, 2)",
        "measured atomics/atom-global-0",
        "measured atomics/atom-shared-0",
        "measured atomics/atom-global-1",
    ),
    _one(
        "atomic sums of float32 on global memory keep subnormal numbers",
        _I + "combining",
        "flush(flush(there) + flush(given)) if flushes else",
        "there + given if flushes else",
        "measured atomics/atom-global-2",
        "measured atomics/atom-global-3",
    ),
    _one(
        "ldmatrix.trans is not",
        MATRICES,
        "row, byte = 2 * pair + _BYTE // 2, 2 * quad + _BYTE % 2",
        "row, byte = quad + 0 * _BYTE, 4 * pair + _BYTE",
        "measured matrices/ldmatrix-x1.trans",
    ),
    _lost(
        "mma.sync: lanes of a row along K reversed, in A and B",
        "equivalent: it exchanges places along K of A, and the same of B",
        MATRICES,
        "along = 4 * each * (register // blocks) + lane % 4 * each + part",
        "along = 4 * each * (register // blocks) + (3 - lane % 4) * each + part",
        *_WARP_PRODUCTS,
    ),
    _one(
        "movmatrix copies",
        MATRICES,
        "np.ascontiguousarray(matrix.T)",
        "np.ascontiguousarray(matrix)",
        "measured matrices/movmatrix",
    ),
    _one("setp.num is nan", _N + "compare", '"num"', '"nan_"', *_forms("setp.num.f32")),
]

PAIRS = [
    _two(
        "descriptor and TMA swizzle by the next bits",
        (
            (
                LAYOUT,
                "128: 0x380}[swizzle]\n    return offset ^ ((offset & mask) >> 3)",
                "128: 0x380}[swizzle]\n    return offset ^ ((offset >> 1 & mask) >> 3)",
            ),
            (
                MAPS,
                "at = flipped ^ (at >> 7 & mask) << low",
                "at = flipped ^ (at >> 8 & mask) << low",
            ),
        ),
        "foreign triton_gemm_bf16_sm90",
        "foreign triton_gemm_tma_sm90",
        *_LOADS,
        *_SM90,
    ),
    _two(
        "loads and stores by TMA swizzle by the next bits",
        (
            (
                MAPS,
                "at = flipped ^ (at >> 7 & mask) << low",
                "at = flipped ^ (at >> 8 & mask) << low",
            ),
        ),
        *_PASSED,
        *_LOADS,
    ),
    _two(
        "tcgen05.ld and .st: lanes of 16x256b in another order",
        (
            (
                TCGEN05,
                "rows = _LANE // 4 + 8 * (within // 2)\n",
                "rows = _LANE % 8 + 8 * (within // 2)\n",
            ),
            (
                TCGEN05,
                "cols = wide * group + 2 * (_LANE % 4) + within % 2",
                "cols = wide * group + 2 * (_LANE // 8) + within % 2",
            ),
        ),
        *_LANES,
    ),
    _two(
        "tcgen05.ld and .st: lanes of 16x128b in another order",
        (
            (
                TCGEN05,
                "rows, cols = _LANE // 4 + 8 * within, wide * group + _LANE % 4",
                "rows, cols = _LANE % 8 + 8 * within, wide * group + _LANE // 8",
            ),
        ),
        *_LANES,
    ),
    _two(
        "cp and mma: scale factors of rows in another order",
        (
            (
                MMA,
                "raw = np.ascontiguousarray(space.memory[places])\n",
                "raw = np.ascontiguousarray(space.memory[places][::-1])\n",
            ),
            (
                TENSOR,
                "raw = np.ascontiguousarray(words[:, :, 0]).view(np.uint8).reshape(-1, 4)",
                "raw = np.ascontiguousarray(words[:, :, 0][...,"
                " ::-1]).view(np.uint8).reshape(-1, 4)",
            ),
        ),
        "foreign triton_gemm_nvf4_sm100",
        "foreign triton_gemm_mxf8_sm100",
        *_SCALED,
    ),
    _two(
        "cp and mma: bytes of a word of scale factors reversed",
        (
            (
                MMA,
                "words = raw.view(np.uint32)  # (rows, columns)",
                "words = raw.view(np.uint32).byteswap()",
            ),
            (
                TENSOR,
                "codes = np.ascontiguousarray(raw[:, self.first",
                "codes = np.ascontiguousarray(raw[:, ::-1][:, self.first",
            ),
        ),
        "foreign triton_gemm_nvf4_sm100",
        "foreign triton_gemm_mxf8_sm100",
        *_SCALED,
    ),
    _two(
        "accumulator and tcgen05.ld: lanes of 64 rows from 0",
        (
            (
                TENSOR,
                "lanes = row // 16 * 32 + row % 16 + lane",
                "lanes = row // 16 * 32 + 15 - row % 16 + lane",
            ),
            (
                TCGEN05,
                "rows, cols = _LANE % 16, register + count * (_LANE // 16)",
                "rows, cols = 15 - _LANE % 16, register + count * (_LANE // 16)",
            ),
        ),
        "foreign triton_gemm_tma_64_rows_sm100",
        "foreign gluon_product_64_rows_sm100",
        *_LANES,
    ),
    _two(
        "majors of A and B inverted in the instruction descriptor and the layout",
        (
            (
                IDESC,
                "majors = not fields.at(15, 1), not fields.at(16, 1)",
                "majors = bool(fields.at(15, 1)), bool(fields.at(16, 1))",
            ),
            (OPERANDS, "    if k_major:\n        along", "    if not k_major:\n        along"),
        ),
        *_SM90,
        *_SM100,
    ),
    _two(
        "descriptor: offsets swapped when read and when used",
        (
            (OPERANDS, "for shift in (0, 16, 32)", "for shift in (0, 32, 16)"),
            (
                OPERANDS,
                "row // CORE_ROWS * d.stride\n            at = at + along // CORE_BYTES *"
                " d.leading",
                "row // CORE_ROWS * d.leading\n            at = at + along // CORE_BYTES *"
                " d.stride",
            ),
        ),
        *_SM100,
        *_SM90,
    ),
    _two(
        "accumulators of wgmma and mma.sync: columns of a pair swapped in all registers",
        (
            (
                FRAGMENTS,
                "cols_ = register // 4 * 8 + lane % 4 * 2 + register % 2",
                "cols_ = register // 4 * 8 + lane % 4 * 2 + 1 - register % 2",
            ),
        ),
        *_SM90,
        *_WARP_PRODUCTS,
    ),
    _two(
        "ldmatrix and stmatrix: bytes of a row in another order",
        (
            (
                MATRICES,
                "row, byte = quad + 0 * _BYTE, 4 * pair + _BYTE",
                "row, byte = quad + 0 * _BYTE, 4 * (3 - pair) + _BYTE",
            ),
        ),
        "measured matrices/ldmatrix-x1",
        "measured matrices/stmatrix-x1",
    ),
    _two(
        "ldmatrix and mma.sync: places along K reversed",
        (
            (
                MATRICES,
                "row, byte = quad + 0 * _BYTE, 4 * pair + _BYTE",
                "row, byte = quad + 0 * _BYTE, 4 * (3 - pair) + _BYTE",
            ),
            (
                MATRICES,
                "along = 4 * each * (register // blocks) + lane % 4 * each + part",
                "along = 4 * each * (register // blocks) + (3 - lane % 4) * each + part",
            ),
        ),
        "foreign triton_gemm_bf16_sm90",
        "measured matrices/ldmatrix-x1",
    ),
    _two(
        "mov packs and unpacks the other way round",
        (
            (
                _I + "moves",
                "whole = whole | value.astype(to) << to.type(part * place)",
                "whole = whole << to.type(part) | value.astype(to)",
            ),
            (
                _I + "moves",
                "found = tuple(parts[:, i].copy() for i in kept)",
                "found = tuple(parts[:, count - 1 - i].copy() for i in kept)",
            ),
        ),
        *_PROGRAMS,
    ),
    _two(
        "cvt packs a pair, and mov takes it apart, the other way round",
        (
            (
                _N + "narrow",
                "both[..., 0] = b\n    both[..., 1] = a",
                "both[..., 0] = a\n    both[..., 1] = b",
            ),
            (
                _I + "moves",
                "found = tuple(parts[:, i].copy() for i in kept)",
                "found = tuple(parts[:, count - 1 - i].copy() for i in kept)",
            ),
        ),
        *_forms("cvt.rn.f16x2.f32"),
        *_PROGRAMS,
    ),
    _two(
        "tensor maps are written and read with the box reversed",
        (
            (
                MAPS,
                "[(440 + 8 * i, n - 1) for i, n in enumerate(map_.box)]",
                "[(440 + 8 * i, n - 1) for i, n in enumerate(reversed(map_.box))]",
            ),
            (
                MAPS,
                "tuple(field(440 + 8 * i, 8) + 1 for i in range(rank))",
                "tuple(field(440 + 8 * i, 8) + 1 for i in reversed(range(rank)))",
            ),
        ),
        "maps",
    ),
    _two(
        "sub.cc and subc: borrow in the place of the carry",
        (
            (_I + "arithmetic", "*(~c for c in carried)", "*carried"),
            (_I + "arithmetic", "return difference, ~borrow", "return difference, borrow"),
        ),
        *_forms("sub.cc.u32;addc.u32", "add.cc.u32;subc.u32"),
    ),
    _two(
        "vectors are loaded and stored in reverse",
        (
            (
                _I + "memory",
                "return tuple(values[:, i] for i in range(count))",
                "return tuple(values[:, count - 1 - i] for i in range(count))",
            ),
            (
                _I + "memory",
                "elements(instruction, source, access.length)",
                "elements(instruction, source, access.length)[::-1]",
            ),
        ),
        *_LDST,
    ),
]

MISTAKES: list[Mistake] = [*DESCRIPTORS, *TENSOR_MEMORY, *COPIES, *REGISTERS, *PAIRS]
