"""What `tilepipe bench gemm_grouped` and `gemm_k_grouped` measure: shapes from texts and settings.
No GPU: nothing is opened.
"""

from __future__ import annotations

import pytest

import tilepipe as tp

pytest.importorskip("torch")

from tilepipe.bench import grouped, grouped_blockwise, k_grouped


def test_shapes_from_texts() -> None:
    assert grouped.parse("512,256,128,4") == (512, 256, 128, 4, "random")
    assert grouped.parse("512,256,128,4,one") == (512, 256, 128, 4, "one")


@pytest.mark.parametrize(
    "text", ["512,256,128", "512,256,128,0", "512,256,128,4,odd", "a,b,c,d", "1,2,3,4,even,5", ""]
)
def test_texts_that_are_no_shape(text: str) -> None:
    with pytest.raises(
        tp.BindError,
        match=r"--shapes of gemm_grouped takes M,N,K,GROUPS\[,random\|even\|skewed\|one\], or "
        r"standard",
    ):
        grouped.parse(text)


def test_contests() -> None:
    found = grouped.contests({}, [], tp.H200, 0)
    assert len(found) == len(grouped.STANDARD)
    assert found[0].flop == 2.0 * 32768 * 4096 * 4096
    assert "8 groups, even" in found[0].problem
    (one,) = grouped.contests({"m": 512, "experts": 3}, [], tp.H200, 0)
    assert one.problem == "512×512×512, 3 groups, random"
    assert [
        x.problem
        for x in grouped.contests({"bn": 64}, ["64,64,64,2", "64,64,64,2,even"], tp.H200, 0)
    ] == [
        "64×64×64, 2 groups, random",
        "64×64×64, 2 groups, even",
    ]


def test_a_contest_that_there_cannot_be() -> None:
    with pytest.raises(tp.BindError, match="bm must be 64 or 128 rows"):
        grouped.contests({"bm": 96}, [], tp.H200, 0)


def test_contests_with_groups_along_k() -> None:
    found = k_grouped.contests({}, [], tp.H200, 0)
    assert len(found) == len(k_grouped.STANDARD)
    assert found[0].flop == 2.0 * 32768 * 4096 * 4096
    (one,) = k_grouped.contests({"m": 512, "experts": 3}, [], tp.H200, 0)
    assert one.problem == "512×512×1024, 3 groups, random"
    with pytest.raises(tp.BindError, match="--shapes of gemm_k_grouped takes M,N,K,GROUPS"):
        k_grouped.contests({}, ["1,2,3"], tp.H200, 0)


def test_contests_of_fp8() -> None:
    found = grouped_blockwise.contests({}, [], tp.H200, 0)
    assert len(found) == len(grouped_blockwise.STANDARD)
    assert found[0].flop == 2.0 * 32768 * 4096 * 7168
    (one,) = grouped_blockwise.contests({"form": "padded"}, ["64,512,256,3,even"], tp.H200, 0)
    assert one.problem == "64×512×256, 3 groups, even, padded"
