"""ops.attention of float8_e4m3: simulated, and on PyTorch tensors with launches emulated on the
CPU.
"""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import tilepipe as tp
from tilepipe.kernels.attention import sm90_bind
from tilepipe.kernels.attention.reference import compare_attention
from tilepipe.ops import attention

Array = npt.NDArray[Any]
FP8 = ml_dtypes.float8_e4m3fn


def operands(s_q: int = 70, s_kv: int = 90, d: int = 64, d_v: int = 0) -> list[Array]:
    rng = np.random.default_rng(0)
    shapes = (2, s_q, 4, d), (2, s_kv, 2, d), (2, s_kv, 2, d_v or d)
    return [rng.standard_normal(shape).astype(FP8) for shape in shapes]


def scales() -> list[Array]:
    return [np.random.default_rng(i).uniform(0.5, 2, (2, 2)).astype(np.float32) for i in range(3)]


def scaled(*arrays: Array) -> dict[str, Any]:
    return dict(zip(("q_scales", "k_scales", "v_scales"), arrays, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
def test_simulated(layout: str) -> None:
    q, k, v = operands()
    of_q, of_k, of_v = scales()
    given = [x if layout == "bshd" else x.swapaxes(1, 2) for x in (q, k, v)]
    out, lse = attention(
        *given, causal=True, q_descale=of_q, k_descale=of_k, v_descale=of_v, return_lse=True,
        layout=layout,
    )  # fmt: skip
    assert out.dtype == ml_dtypes.bfloat16
    got = out if layout == "bshd" else out.swapaxes(1, 2)
    found = compare_attention(got, q, k, v, causal=True, lse=lse, **scaled(of_q, of_k, of_v))
    assert found.ok, found


@pytest.mark.slow
def test_numbers_and_dtypes_of_results() -> None:
    q, k, v = operands(d_v=80)
    out = attention(q, k, v, q_descale=2.0, k_descale=np.float32(0.5), v_descale=4)
    assert out.shape == (2, 70, 4, 80)
    assert np.array_equal(out.astype(np.float32), 4 * attention(q, k, v).astype(np.float32))
    halves = attention(q, k, v, out_dtype="float16")
    assert halves.dtype == np.float16
    given = np.zeros((2, 70, 4, 80), np.float16)
    assert attention(q, k, v, out=given) is given
    assert np.array_equal(halves, given)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("d", "given", "accumulate"),
    [
        (64, {}, "promote"),
        (128, {}, "promote"),
        (192, {}, "fast"),
        (64, {"accumulate": "fast"}, "fast"),
    ],
)
def test_sums_are_promoted_unless_asked_otherwise_or_too_large(
    monkeypatch: pytest.MonkeyPatch, d: int, given: dict[str, Any], accumulate: str
) -> None:
    bind, configs = sm90_bind.bind, []

    def recorded(*args: Any, **options: Any) -> tp.Program:
        configs.append(args[5])
        return bind(*args, **options)

    monkeypatch.setattr(sm90_bind, "bind", recorded)
    attention(*operands(16, 16, d=d), **given)
    assert [cfg.accumulate for cfg in configs] == [accumulate]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"k": ml_dtypes.bfloat16}, "takes q, k and v of float8_e4m3 together, and an out of"),
        ({"q_descale": np.ones(3, np.float32)}, "q_descale is float32 of shape (2, 2), (batch, kv"),
        ({"v_descale": np.ones((2, 2))}, "it is float64 of (2, 2)"),
        (
            {"k_descale": -0.5},
            "k_descale is float32 that broadcasts to (batch, kv_heads), or a num",
        ),
        ({"k_descale": np.full((2, 2), -1, np.float32)}, "k_descale has numbers from 0 to 2^100; "),
        (
            {"v_descale": np.array([[1, np.inf]], np.float32)},
            "of (0, 1), (batch, kv_head), it is inf",
        ),
        (
            {"q_descale": np.array([[1], [np.nan]], np.float32)},
            "of (1, 0), (batch, kv_head), it is nan",
        ),
        (
            {"q_descale": 2.0**60, "k_descale": 2.0**60},
            "scale · q_descale · k_descale is what scores are multiplied with, at most 2^100; scale"
            " is 0.125 here, and the product 1.662e+35: lower q_descale or k_descale",
        ),
        (
            {"q_descale": np.full((2, 1), 2.0**80, np.float32), "k_descale": 2.0**40},
            "scale · q_descale · k_descale is what scores are multiplied with, at most 2^100",
        ),
        (
            {"q_descale": 2.0**60, "scale": 2.0**50},
            "scale is 1.126e+15 here, and the product 1.298e+33",
        ),
        ({"k_descale": True}, "or a number from 0 to 2^100; got True"),
        ({"q_descale": "1"}, "got '1'"),
        (
            {"out_dtype": "float32"},
            "of float8_e4m3 gives bfloat16 or float16; got out_dtype float32",
        ),
        ({"descale_q": 1.0}, "no argument descale_q: write q_descale="),
        (
            {"out": np.zeros((2, 70, 4, 64), np.float16), "out_dtype": "bfloat16"},
            "out is float16 and out_dtype bfloat16",
        ),
        (
            {
                "cu_seqlens_q": np.array([0, 1], np.int32),
                "cu_seqlens_k": np.array([0, 1], np.int32),
            },
            "packed sequences (cu_seqlens) are bfloat16 or float16; of float8_e4m3",
        ),
    ],
)
def test_refused(change: dict[str, Any], words: str) -> None:
    q, k, v = operands()
    if "cu_seqlens_q" in change:
        q, k, v = q[0], k[0], v[0]
    if "k" in change:
        k, change = k.astype(change["k"]), {}
    with pytest.raises(tp.BindError, match=re.escape(words)):
        attention(q, k, v, **change)


def test_descales_and_other_results_are_of_8_bits_alone() -> None:
    q, k, v = (x.astype(np.float16) for x in operands())
    for options in ({"v_descale": 2.0}, {"q_descale": scales()[0]}):
        with pytest.raises(tp.BindError, match="descales say what float8_e4m3 stands for; q, k"):
            attention(q, k, v, **options)
    with pytest.raises(tp.BindError, match="attention of float16 gives float16; out_dtype is of"):
        attention(q, k, v, out_dtype="bfloat16")


@pytest.mark.slow
@pytest.mark.parametrize("zero", ["q_descale", "k_descale"])
@pytest.mark.parametrize("softcap", [0.0, 5.0])
def test_a_descale_of_0_makes_scores_0(zero: str, softcap: float) -> None:
    """As amax / 448 gives it for a head of zeros: a query takes the mean of what it sees, and other
    heads are as without it.
    """
    q, k, v = operands(40, 40)
    descale = np.ones((2, 2), np.float32)
    descale[0, 1] = 0
    options: Any = {"causal": True, "softcap": softcap}
    options |= {zero: descale}
    out, lse = attention(q, k, v, return_lse=True, **options)
    of_head = {"q_descale": "q_scales", "k_descale": "k_scales"}[zero]
    arrays: Any = {"causal": True, "softcap": softcap, of_head: descale}
    found = compare_attention(out, q, k, v, lse=lse, **arrays)
    assert found.ok, found
    mean = np.cumsum(v[0, :, 1].astype(np.float64), axis=0) / np.arange(1, 41)[:, None]
    assert np.allclose(out[0, :, 2].astype(np.float64), mean, atol=0.1)
    q[0, :, 2:] = 0
    assert not np.isnan(attention(q, k, v, **options).astype(np.float32)).any()


@pytest.mark.slow
@pytest.mark.parametrize(
    "given",
    [
        np.array(0.5, np.float32),
        np.array([0.5], np.float32),
        np.array([[0.5], [0.5]], np.float32),
        np.broadcast_to(np.float32(0.5), (2, 2)),
        np.float32(0.5),
        0.5,
    ],
    ids=["0-d", "(1,)", "(2, 1)", "broadcast", "NumPy number", "number"],
)
def test_descales_broadcast(given: Any) -> None:
    q, k, v = operands(20, 20)
    whole = np.full((2, 2), 0.5, np.float32)
    names = "q_descale", "k_descale", "v_descale"
    each: list[dict[str, Any]] = [dict.fromkeys(names, x) for x in (whole, given)]
    want, got = (attention(q, k, v, **options) for options in each)
    assert np.array_equal(got.view(np.uint16), want.view(np.uint16))


@pytest.mark.slow
@pytest.mark.parametrize(("d", "d_v"), [(16, 64), (80, 192), (208, 64), (32, 96)])
def test_heads_that_no_narrow_swizzle_divides(d: int, d_v: int) -> None:
    """K and V are then padded to the widest swizzle, and an output tile would have no whole span:
    the result goes to memory from registers.
    """
    q, k, v = operands(20, 40, d, d_v)
    out, lse = attention(q, k, v, return_lse=True)
    found = compare_attention(out, q, k, v, lse=lse)
    assert found.ok, found


@pytest.mark.slow
@pytest.mark.parametrize("keys", [32, 96, 160])
def test_blocks_of_keys(keys: int) -> None:
    q, k, v = operands(70, 170)
    mask = np.random.default_rng(0).random((1, 1, 2, -(-170 // keys))) < 0.7
    blocks: dict[str, Any] = {"block_mask": mask, "block_size": (64, keys)}
    out = attention(q, k, v, **blocks)
    found = compare_attention(out, q, k, v, **blocks)
    assert found.ok, found


@pytest.mark.parametrize("keys", [16, 48, 272])
def test_blocks_of_keys_that_no_tile_divides(keys: int) -> None:
    """wgmma takes 32 keys of 8 bits at once."""
    q, k, v = operands(70, 16)
    words = f"a multiple of 32 keys, as one MMA takes them; {keys} of block_size=(64, {keys})"
    with pytest.raises(tp.BindError, match=re.escape(words)):
        attention(q, k, v, block_mask=np.ones((1, 1, 2, 1), np.bool_), block_size=(64, keys))
