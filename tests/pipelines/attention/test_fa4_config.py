"""FA4Config: the arithmetic of an attention kernel's shape, and what it says of one that does not
fit.
"""

from __future__ import annotations

from typing import Any

import pytest

import tilepipe as tp
from tests.support.tracing import refused
from tilepipe.pipelines.attention.fa4_config import FA4Config


def config(**changes: Any) -> FA4Config:
    given: dict[str, Any] = {"qkv_dtype": "bfloat16", "depth": 128} | changes
    return FA4Config(**given)


@pytest.mark.parametrize(
    ("changes", "want"),
    [  # BN, BK0, BK1, MMA_K, parts, padded depths
        ({"use_fused_kv": False}, (128, 64, 128, 16, 2, 128, 128)),
        ({"use_fused_kv": True}, (128, 128, 128, 16, 1, 128, 128)),
        ({"depth": 64, "use_fused_kv": False}, (192, 64, 192, 16, 1, 64, 64)),
        ({"depth": 96, "use_fused_kv": False}, (128, 64, 128, 16, 2, 128, 128)),
        ({"depth": 64, "page_size": 128}, (128, 64, 128, 16, 1, 64, 64)),
        ({"qkv_dtype": "float8_e4m3", "use_fused_kv": False}, (128, 128, 128, 32, 1, 128, 128)),
        (
            {"qkv_dtype": "float8_e4m3", "swizzle_mode": 64, "use_fused_kv": False},
            (128, 64, 128, 32, 2, 128, 128),
        ),
        ({"depth": 128, "rope_depth": 64, "BN": 64}, (64, 192, 64, 16, 1, 192, 128)),
        ({"depth": 192, "ov_depth": 128, "BN": 64}, (64, 192, 64, 16, 1, 192, 128)),
    ],
)
def test_extents(changes: dict[str, Any], want: tuple[int, ...]) -> None:
    c = config(**changes)
    assert (
        c.BN,
        c.BK0,
        c.BK1,
        c.MMA_K,
        c.num_qk_stages,
        c.padded_qk_depth,
        c.padded_ov_depth,
    ) == want


@pytest.mark.parametrize(
    ("pair", "rows", "cols", "mma_m"), [(False, 128, 128, 128), (True, 64, 64, 256)]
)
def test_what_a_cta_of_a_pair_loads(pair: bool, rows: int, cols: int, mma_m: int) -> None:
    c = config(pair_cta=pair)
    assert (c.k_rows_per_cta(), c.v_cols_per_cta(), c.MMA_M) == (rows, cols, mma_m)


@pytest.mark.parametrize(("bm", "tiles"), [(256, 2), (128, 1), (64, 1), (32, 1)])
def test_tiles_of_q(bm: int, tiles: int) -> None:
    c = config(BM=bm)
    assert (c.num_qo, c.num_pv_stages, c.num_threads) == (tiles, 2, 512)


def test_the_ring_of_a_known_shape() -> None:
    """depth 128, two tiles of Q: 232,448 - 65,536 leave 5 slots of 32,768 bytes, an odd number: one
    ring for K and V in turn.
    """
    c = config()
    assert (c.bytes_of_q, c.bytes_per_kv, c.bytes_per_k, c.bytes_per_v) == (
        65536,
        32768,
        32768,
        32768,
    )
    assert (c.use_fused_kv, c.num_kv_stages, c.num_qk_stages) == (True, 5, 1)
    assert c.smem_used() == 65536 + 5 * 32768 + 8 * (2 * 2 + 2 + 4 + 2 + 1 + 2) + 4 + 2 * 8 * 5
    assert c.tmem_used() == 512
    assert c.supported()
    assert c.broken_rule() is None


def test_an_even_number_of_slots_is_two_rings() -> None:
    c = config(depth=64)
    assert (c.use_fused_kv, c.num_kv_stages) == (False, 4)
    assert c.smem_used() <= tp.B200.smem_per_cta < c.smem_used() + 2 * c.bytes_per_kv


def test_scales_count_for_every_other_slot() -> None:
    """A slot more costs a tile and, every other time, the scales of a K tile."""
    plain, scaled = (
        config(qkv_dtype="float8_e4m3"),
        config(qkv_dtype="float8_e4m3", scale_dtype="float32"),
    )
    assert (plain.scale_dtype, scaled.scale_dtype) == (None, tp.float32)
    assert scaled.bytes_per_k - plain.bytes_per_k == 128 * 4
    assert scaled.bytes_per_kv == plain.bytes_per_kv


def test_parts_are_given_up_where_their_barriers_do_not_fit() -> None:
    """Of two rings of 2 stages, the second part of K wants 8 × (2 · 2 + 1) bytes more."""
    wanted = config(use_fused_kv=False, num_kv_stages=2)
    assert wanted.num_qk_stages == 2
    tight = tp.Chip("tight", "sm_100a", smem_per_cta=wanted.smem_used() - 8)
    given_up = config(use_fused_kv=False, num_kv_stages=2, chip=tight)
    assert (given_up.num_qk_stages, given_up.supported()) == (1, True)


def test_hopper_with_every_number_given() -> None:
    c = config(BM=192, BN=96, num_kv_stages=2, num_qk_stages=1, chip=tp.H200)
    assert (c.BM, c.BN, c.BK0, c.BK1, c.num_kv_stages, c.num_qk_stages, c.use_fused_kv) == (
        192,
        96,
        128,
        96,
        2,
        1,
        False,
    )
    assert (c.MMA_M, c.num_qo, c.tmem_used(), c.supported()) == (64, 1, 0, True)
    assert c.smem_used() == 192 * 256 + 2 * 2 * 96 * 256 + 8 + 16 * 2 * 2


@pytest.mark.parametrize("name", ["qkv_dtype", "rope_dtype", "scale_dtype"])
def test_types_by_name(name: str) -> None:
    assert getattr(config(**{name: "float16"}), name) is tp.float16


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"BM": 96}, ("BM = 96 is none of 256, 128, 32, 64",)),
        ({"BM": 96, "chip": tp.H200}, ("BM = 96 is none of 64, 128, 192, 256",)),
        ({"BN": 40}, ("BN = 40 must be a multiple of 16 up to 256",)),
        ({"num_qk_stages": 3}, ("128, is not divisible by num_qk_stages = 3",)),
        (
            {"num_qk_stages": 4, "use_fused_kv": False},
            ("128 / 4 = 32 deep", "64 elements that swizzle_mode = 128 spans"),
        ),
        (
            {"depth": 64, "pair_cta": True},
            ("pair_cta halves", "32 columns of V are no multiple of the 64"),
        ),
        ({"BN": 96, "page_size": 64}, ("BN = 96 and page_size = 64: one must divide the other",)),
        (
            {"rope_depth": 64, "rope_dtype": "float8_e4m3"},
            ("rope of float8_e4m3 beside K of bfloat16: a K tile has one type",),
        ),
        ({"use_fused_kv": True, "num_qk_stages": 2}, ("num_qk_stages must be 1, not 2",)),
        (
            {"num_kv_stages": 1},
            ("num_kv_stages = 1: a ring needs at least 2", "wait for each other"),
        ),
        (
            {"BM": 64, "num_kv_stages": 3},
            ("num_kv_stages = 3: a ring of packed rows needs at least 4",),
        ),
        (
            {"depth": 256},
            ("tensor memory: 2 × S + 2 × O = 2 × 16 + 2 × 256 = 544 columns, more than 512",),
        ),
        (
            {"num_kv_stages": 4},
            (
                "shared memory: Q 65,536 + 4 stages of K and V (32,768 + 32,768)",
                "more than the 232,448 of a CTA (B200)",
            ),
        ),
    ],
)
def test_what_does_not_fit(changes: dict[str, Any], words: tuple[str, ...]) -> None:
    c = config(**changes)
    assert not c.supported()
    said = c.broken_rule() or ""
    assert [w for w in (*words, f"BM {c.BM}, BN {c.BN}") if w not in said] == [], said


@pytest.mark.parametrize(
    "changes",
    [{"depth": 0}, {"BM": -1}, {"BN": 1.5}, {"num_kv_stages": True}, {"swizzle_mode": 48}],
)
def test_numbers_that_are_none(changes: dict[str, Any]) -> None:
    (name,) = changes
    with refused(
        tp.BindError, "FA4Config: numbers are integers of at least 0", f"{name} = {changes[name]}"
    ):
        config(**changes)


def test_an_unknown_type() -> None:
    with refused(tp.BindError, "unknown dtype 'fp3'"):
        config(qkv_dtype="fp3")


@pytest.mark.parametrize("wrong", [{"chip": "H200"}, {"chip": None}, {"qkv_dtype": None}], ids=str)
def test_no_chip_or_no_dtype(wrong: dict[str, Any]) -> None:
    with pytest.raises(
        tp.BindError, match=r"qkv_dtype is a dtype, chip a Chip such as tp\.H200; got"
    ):
        config(BM=64, BN=32, **wrong)
