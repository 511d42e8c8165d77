"""Block-scaled MMAs in the simulator: values, and what a wrong use of scale factors is told as."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.cases.block_scales import CASES, Case, elements, exact, factors, packed, pieces
from tests.cases.tensor_memory import Handover, empty
from tests.support.case_classes import by_name
from tilepipe.errors import PoisonError, RaceError, SimFault

Array = np.ndarray[Any, Any]


@pytest.mark.sampled(suite=39, classes=by_name)
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_the_simulator_computes_like_numpy(case: Case) -> None:
    for seed in (0, 1, 2):
        program, c, reference, tolerance = case.make(np.random.default_rng(seed))
        assert not program.run(seed=seed).advice
        assert np.abs(c.astype(np.float64) - reference).max() <= tolerance
        assert np.abs(reference).max() > 1


@tp.kernel()
def one_product(
    ctx: tp.Context, a: Any, b: Any, sfa: Any, sfb: Any, c: Any, *, block: int, wrong: str
) -> None:
    """C = (A · sfa) (B · sfb)ᵀ of one tile; `wrong`: what is done badly."""
    n = b.box[0]
    tiles = [
        ctx.smem(x.box[-2:], x.dtype, swizzle=x.swizzle, name=name)[0]
        for x, name in zip((a, b, sfa, sfb), ("a", "b", "sfa", "sfb"), strict=True)
    ]
    full = tp.SharedMemBarrier.allocate(ctx, count=1, name="full")
    h = Handover(ctx, 256)
    blocks = a.box[1] // block

    @ctx.role("mma", warps=1)
    def mma() -> None:
        h.allocate()
        scales = [
            h.tmem.scales((rows, blocks), sfa.dtype, col=col)
            for rows, col in ((128, 128), (n, 192))
        ]
        with ctx.elect_one():
            full.expect_bytes(sum(t.nbytes for t in tiles))
            for x, tile in zip((a, b, sfa, sfb), tiles, strict=True):
                ctx.tma_load(x, (0,) * x.rank, tile, full)
        if wrong != "tiles are read before they are there":
            full.wait(0)
        ctx.tcgen05_fence_after()
        acc = h.tmem.tensor((128, n))
        with ctx.elect_one():
            ctx.tmem_copy(scales[0], tiles[2])
            if wrong != "sfb is not copied":
                ctx.tmem_copy(scales[1], tiles[3])
        if wrong == "another lane multiplies":
            with ctx.when(ctx.lane == 7):
                ctx.mma(acc, *tiles[:2], accumulate=False, sfa=scales[0], sfb=scales[1])
                ctx.mma_commit(h.done)
        else:
            with ctx.elect_one():
                ctx.mma(acc, *tiles[:2], accumulate=False, sfa=scales[0], sfb=scales[1])
                if wrong == "the next scale factors are copied behind the MMA":  # in order: right
                    ctx.tmem_copy(scales[0], tiles[2])
                if wrong == "tiles are loaded anew before they are read":
                    full.expect_bytes(tiles[2].nbytes)
                    ctx.tma_load(sfa, (0, 0, 0), tiles[2], full)
                ctx.mma_commit(h.done)
        h.over.complete_dealloc(h.tmem)

    @ctx.role("epilogue", warpgroups=1)
    def epilogue() -> None:
        h.find()
        h.wait()
        h.store(c, 128, n)


def operands(kind: str = "mxfp8", n: int = 32, seed: int = 0) -> dict[str, Any]:
    """A and B with their scale factors: of 128 bytes of K."""
    left, scale, block = {
        "mxfp8": ("float8_e4m3", "float8_e8m0", 32),
        "nvfp4": ("float4_e2m1", "float8_e4m3", 16),
    }[kind]
    rng, k = np.random.default_rng(seed), 1024 // tp.dtype(left).bits
    found: dict[str, Any] = {"block": block, "dtype": left}
    for name, rows in (("a", 128), ("b", n)):
        found[name], found[f"sf{name}"] = (
            elements(rng, (rows, k), left),
            factors(rng, (rows, k // block), scale),
        )
    return found


def program(x: dict[str, Any], wrong: str = "nothing") -> tuple[tp.Program, Array]:
    """`one_product` of operands, and its C."""
    rows, k = x["b"].shape
    fp4 = x["dtype"] == "float4_e2m1"
    maps = [
        tp.tensor_map(packed(m) if fp4 else m, box=(len(m), k), dtype=x["dtype"] if fp4 else None)
        for m in (x["a"], x["b"])
    ]
    along = -(-x["sfa"].shape[1] // 4)
    maps += [
        tp.tensor_map(pieces(s, along), box=(1, 32 * along, 16), swizzle=0)
        for s in (x["sfa"], x["sfb"])
    ]
    c = empty(128, rows)
    return one_product.bind(*maps, c, block=x["block"], wrong=wrong), c


@pytest.mark.parametrize("kind", ["mxfp8", "nvfp4"])
@pytest.mark.parametrize("wrong", ["nothing", "the next scale factors are copied behind the MMA"])
def test_the_order_of_issue_is_the_order(kind: str, wrong: str) -> None:
    x = operands(kind)
    p, c = program(x, wrong)
    for seed in (0, 1, 2):
        assert not p.run(seed=seed).advice
        np.testing.assert_array_equal(c, exact(x["a"], x["sfa"], x["b"], x["sfb"], x["block"]))


@pytest.mark.parametrize(
    ("wrong", "fault", "words"),
    [
        (
            "sfb is not copied",
            PoisonError,
            ("column 192)", "mma", "nothing when they are allocated"),
        ),
        ("tiles are read before they are there", RaceError, ("sfa", "tmem_copy sfa", "tma_load")),
        (
            "another lane multiplies",
            RaceError,
            ("race on tensor memory", "columns 128..131", "tmem_copy sfa"),
        ),
        (
            "tiles are loaded anew before they are read",
            RaceError,
            ("sfa", "tma_load sfa", "tmem_copy sfa", "until a commit by the same thread"),
        ),
    ],
)
def test_faults(wrong: str, fault: type[Exception], words: tuple[str, ...]) -> None:
    # another seed may elect lane 7, and then it is right
    for seed in (0, 1, 2) if wrong != "another lane multiplies" else (0,):
        with pytest.raises(fault) as caught:
            program(operands(), wrong)[0].run(seed=seed)
        missing = [word for word in words if word not in str(caught.value)]
        assert not missing, f"the message lacks {missing}:\n{caught.value}"


@pytest.mark.parametrize(("kind", "code"), [("mxfp8", 0xFF), ("nvfp4", 0x7F)])
def test_a_scale_factor_that_is_no_number_makes_its_row_none(kind: str, code: int) -> None:
    x = operands(kind)
    x["sfa"].view(np.uint8)[5, 2] = x["sfb"].view(np.uint8)[9, 0] = code
    p, c = program(x)
    p.run()
    wanted = exact(x["a"], x["sfa"], x["b"], x["sfb"], x["block"])
    assert np.isnan(wanted).sum() == 128 + 32 - 1
    np.testing.assert_array_equal(c, wanted)


def test_scale_factors_of_the_largest_exponents_meet_in_the_middle() -> None:
    x = operands()
    x["sfa"].view(np.uint8)[...], x["sfb"].view(np.uint8)[...] = 254, 0  # 2^127 and 2^-127
    p, c = program(x)
    p.run()
    np.testing.assert_array_equal(c, x["a"].astype(np.float64) @ x["b"].astype(np.float64).T)


def test_a_negative_scale_factor() -> None:
    x = operands("nvfp4")
    x["sfb"][3, 5] = -0.5
    with pytest.raises(
        SimFault,
        match=r"scale factor of row 3, block 5 is 0xb0, a negative float8_e4m3; the tensor "
        r"core reads ue4m3",
    ):
        program(x)[0].run()


@tp.kernel()
def not_copied(ctx: tp.Context, a: Any, c: Any, *, beyond: bool) -> None:
    """Scale factors that are stored by a warpgroup, each lane its own; `beyond`: they lie outside
    of what is allocated.
    """
    tile = ctx.smem(a.box, a.dtype, swizzle=a.swizzle, name="tile")[0]
    full, there = (
        tp.SharedMemBarrier.allocate(ctx, count=n, name=name)
        for n, name in ((1, "full"), (128, "there"))
    )
    h = Handover(ctx, 128)

    @ctx.role("mma", warps=1)
    def mma() -> None:
        h.allocate()
        with ctx.elect_one():
            full.expect_bytes(tile.nbytes)
            ctx.tma_load(a, (0, 0), tile, full)
        full.wait(0)
        there.wait(0)
        ctx.tcgen05_fence_after()
        with ctx.elect_one():
            col: Any = ctx.block_id + 126 if beyond else 64
            scales = h.tmem.scales((128, 4), col=col)
            ctx.mma(
                h.tmem.tensor((128, 32)),
                tile,
                tile.rows(0, 32),
                accumulate=False,
                sfa=scales,
                sfb=h.tmem.scales((32, 4), col=64),
            )
            ctx.mma_commit(h.done)
        h.over.complete_dealloc(h.tmem)

    @ctx.role("epilogue", warpgroups=1)
    def epilogue() -> None:
        h.find()
        h.tmem.tensor((128, 8), col=64).store(ctx.load_global(c, (0, 0), (128, 8), layout="tmem"))
        ctx.tmem_wait_store()
        ctx.tcgen05_fence_before()
        there.arrive()
        h.wait()
        h.store(c, 128, 32)


def test_lanes_that_hold_other_scale_factors() -> None:
    a = tp.tensor_map(np.zeros((128, 128), tp.float8_e4m3.numpy), box=(128, 128))
    c = np.full((128, 32), 1.0, np.float32)
    c[70, 1] = 2.0
    with pytest.raises(SimFault) as caught:
        not_copied.bind(a, c, beyond=False).run()
    assert "row 38, block 2 is 0x80 in lanes 0..31 of tensor memory and 0x0 in lanes 64..95" in str(
        caught.value
    )
    assert "all four groups of 32 lanes must hold the same" in str(caught.value)


def test_scale_factors_outside_of_the_allocation() -> None:
    a = tp.tensor_map(np.zeros((128, 128), tp.float8_e4m3.numpy), box=(128, 128))
    with pytest.raises(SimFault) as caught:
        not_copied.bind(a, np.ones((128, 32), np.float32), beyond=True).run()
    for word in (
        "scale factors of 128 rows × 4 blocks take 4 columns",
        "columns 0..127 by role 'mma'",
        "126 + 4 = 130 is 2 too many",
    ):
        assert word in str(caught.value)
