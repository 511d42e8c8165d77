"""What `tilepipe bench gemm_grouped` and `gemm_k_grouped` measure: shapes from texts and settings.
No GPU: nothing is opened.
"""

from __future__ import annotations

from typing import Any

import pytest

import tilepipe as tp

pytest.importorskip("torch")

from tilepipe.bench import (
    grouped,
    grouped_blockwise,
    groups,
    k_grouped,
    k_grouped_blockwise,
    operands,
    timing,
)
from tilepipe.bench.beside import OURS
from tilepipe.kernels.gemm_blockwise.config import BlockwiseGemmConfig
from tilepipe.kernels.gemm_grouped.heuristics import GroupedProblem
from tilepipe.kernels.gemm_grouped_blockwise import sm90 as gemm_grouped_blockwise
from tilepipe.kernels.gemm_k_grouped.heuristics import KGroupedProblem
from tilepipe.kernels.gemm_k_grouped_blockwise import sm90 as gemm_k_grouped_blockwise
from tilepipe.kernels.gemm_k_grouped_blockwise.config import KGroupedBlockwiseGemmConfig
from tilepipe.kernels.gemm_k_grouped_blockwise.heuristics import KGroupedBlockwiseProblem
from tilepipe.registry.gemm_grouped_blockwise import (
    GEMM_GROUPED_BLOCKWISE,
    problem as product_of,
)


def test_shapes_from_texts() -> None:
    assert groups.parse("512,256,128,4", "gemm_grouped") == (512, 256, 128, 4, "random")
    assert groups.parse("512,256,128,4,one", "gemm_grouped") == (512, 256, 128, 4, "one")


@pytest.mark.parametrize(
    "text", ["512,256,128", "512,256,128,0", "512,256,128,4,odd", "a,b,c,d", "1,2,3,4,even,5", ""]
)
def test_texts_that_are_no_shape(text: str) -> None:
    with pytest.raises(
        tp.BindError,
        match=r"--shapes of gemm_grouped takes M,N,K,GROUPS\[,random\|even\|skewed\|one\], or "
        r"standard",
    ):
        groups.parse(text, "gemm_grouped")


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


def test_contests_of_fp8_with_groups_along_k() -> None:
    found = k_grouped_blockwise.contests({}, [], tp.H200, 0)
    assert len(found) == len(k_grouped_blockwise.STANDARD)
    (one,) = k_grouped_blockwise.contests({"m": 512}, [], tp.H200, 0)
    assert one.problem == "512×512×2048, 4 groups, random"


def test_a_form_that_is_not_measured() -> None:
    with pytest.raises(tp.BindError, match="gemm_grouped measures form=rows, got form=padded"):
        grouped.contests({"form": "padded"}, [], tp.H200, 0)


@pytest.fixture
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operands in memory of the host, two sets of them."""
    for module in (operands, grouped, grouped_blockwise, k_grouped, k_grouped_blockwise):
        monkeypatch.setattr(module, "DEVICE", "cpu")
    monkeypatch.setattr(timing, "sets_for", lambda nbytes: 2)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["rows", "padded"])
def test_the_check_of_fp8_takes_what_the_kernel_computes(form: str, on_the_cpu: None) -> None:
    """And sees what was not written, and one wrong element."""
    given: dict[str, int | str] = {"m": 130, "n": 200, "k": 272, "experts": 3, "form": form}
    settings, _ = GEMM_GROUPED_BLOCKWISE.configure(given, tp.H200)
    x = grouped_blockwise.GroupedBlockwiseOperands(product_of(settings), settings, 0)
    assert not x.check(OURS).right
    c = x.c[OURS][0]
    arrays = x.a[0], x.b[0], x.a_scales, x.b_scales, c, x.offsets
    gemm_grouped_blockwise.bind(*arrays, BlockwiseGemmConfig()).run()
    assert x.check(OURS).right
    (c[0] if form == "padded" else c)[0, 3] += 100 * c.nan_to_num().float().std()
    assert not x.check(OURS).right


def test_the_check_of_fp8_with_groups_along_k_takes_what_the_kernel_computes(
    on_the_cpu: None,
) -> None:
    problem = KGroupedBlockwiseProblem(136, 200, 992, 3)
    x = k_grouped_blockwise.KGroupedBlockwiseOperands(problem, "random", 0)
    assert not x.check(OURS).right
    c = x.c[OURS][0]
    arrays = x.a[0], x.b[0], x.a_scales, x.b_scales, c, x.offsets
    gemm_k_grouped_blockwise.bind(*arrays, KGroupedBlockwiseGemmConfig()).run()
    assert x.check(OURS).right
    c[0, 0, 3] += 100 * c.float().std()
    assert not x.check(OURS).right


@pytest.mark.parametrize("of_k", [False, True], ids=["rows", "k"])
def test_the_check_of_16_bits_takes_what_the_loop_computes(of_k: bool, on_the_cpu: None) -> None:
    """And sees one wrong element, and a set that was not written."""
    x: Any
    if of_k:
        x = k_grouped.KGroupedOperands(KGroupedProblem(40, 72, 96, 3), "one")
    else:
        x = grouped.GroupedOperands(GroupedProblem(96, 72, 40, 3), "skewed")
    x.wipe()
    assert not x.check(grouped.LOOP).right
    x.loop(0)
    assert x.check(grouped.LOOP).right
    assert not x.check(grouped.LOOP, 1).right
    c = x.c[grouped.LOOP][0]
    start = next(i for i, bounds in enumerate(x.bounds) if bounds[-2] < bounds[-1]) if of_k else 0
    (c[start] if of_k else c)[0, 3] += 100 * c.float().std()
    assert not x.check(grouped.LOOP).right
