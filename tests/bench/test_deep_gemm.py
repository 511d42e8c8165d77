"""DeepGEMM as a peer, by a stand-in of its functions on the host: what it is given, when it is left
out, and the columns of the table.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

import tilepipe as tp

pytest.importorskip("torch")

from tilepipe.bench import deep_gemm, grouped_blockwise, k_grouped_blockwise, operands, timing
from tilepipe.kernels.gemm.heuristics import Problem
from tilepipe.kernels.gemm_k_grouped_blockwise.heuristics import KGroupedBlockwiseProblem
from tilepipe.registry.gemm_grouped_blockwise import (
    GEMM_GROUPED_BLOCKWISE,
    problem as product_of,
)

Pair = tuple[Any, Any]


def scaled(values: Any, scales: Any, rows: int) -> Any:
    """Values (.., m, k) times scales of `rows`×128 blocks."""
    wide = scales.repeat_interleave(128, -1).repeat_interleave(rows, -2)
    return values.float() * wide[..., : values.shape[-2], : values.shape[-1]]


def fp8_gemm_nt(a: Pair, b: Pair, d: Any) -> None:
    """As DeepGEMM's, which takes scales (m, k blocks) with M contiguous and (n blocks, k blocks)
    with K contiguous.
    """
    assert a[1].stride(0) == 1
    assert a[1].stride(1) % 4 == 0
    assert b[1].is_contiguous()
    d.copy_(scaled(*a, 1) @ scaled(*b, 128).t())


def contiguous(a: Pair, b: Pair, d: Any, groups: Any) -> None:
    """m_grouped_fp8_gemm_nt_contiguous: each row names its group, -1 for none."""
    left, right = scaled(*a, 1), scaled(*b, 128)
    for row, group in enumerate(groups.tolist()):
        if group >= 0:
            d[row] = left[row] @ right[group].t()


def masked(a: Pair, b: Pair, d: Any, counts: Any, expected: int) -> None:
    """m_grouped_fp8_gemm_nt_masked."""
    assert expected == -(-int(counts.sum()) // len(counts))
    left, right = scaled(*a, 1), scaled(*b, 128)
    for group, count in enumerate(counts.tolist()):
        d[group, :count] = left[group, :count] @ right[group].t()


def of_k(a: Pair, b: Pair, d: Any, extents: list[int], on_gpu: Any, c: Any) -> None:
    """k_grouped_fp8_gemm_nt_contiguous: A and B of each group one after the other, and what is
    there is added to.
    """
    assert on_gpu.tolist() == extents
    assert c.data_ptr() == d.data_ptr()
    at = 0
    for group, extent in enumerate(extents):
        blocks = slice(at // 128, (at + extent) // 128)
        left, right = (
            scaled(values[at * n : (at + extent) * n].view(n, extent), scales[:, blocks], 1)
            for (values, scales), n in ((a, d.shape[1]), (b, d.shape[2]))
        )
        d[group] += left @ right.t()
        at += extent


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """DeepGEMM's functions, and operands in memory of the host, two sets of them."""
    module: Any = ModuleType("deep_gemm")
    module.fp8_gemm_nt = fp8_gemm_nt
    module.m_grouped_fp8_gemm_nt_contiguous = contiguous
    module.m_grouped_fp8_gemm_nt_masked = masked
    module.k_grouped_fp8_gemm_nt_contiguous = of_k
    module.set_mk_alignment_for_contiguous_layout = lambda rows: None
    monkeypatch.setitem(sys.modules, "deep_gemm", module)
    on_the_host(monkeypatch)


def on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    for place in (operands, grouped_blockwise, k_grouped_blockwise):
        monkeypatch.setattr(place, "DEVICE", "cpu")
    monkeypatch.setattr(timing, "sets_for", lambda nbytes: 2)


def product(out: tp.DType = tp.bfloat16) -> operands.BlockwiseOperands:
    problem = Problem(72, 200, 272, dtype=tp.float8_e4m3, out_dtype=out, scales="block")
    return operands.BlockwiseOperands(problem, 0)


def test_its_result_is_the_product(installed: None) -> None:
    x = product()
    able, missing = x.other_peers()
    ((name, (launch, results)),) = able.items()
    assert missing == {}
    assert name == "DeepGEMM"
    launch(1)
    assert x.check(results, 1).right


def test_it_writes_bfloat16_only(installed: None) -> None:
    assert product(tp.float32).other_peers() == ({}, {"DeepGEMM": "it writes bfloat16"})


def test_without_it_the_reason_stands_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deep_gemm", None)
    on_the_host(monkeypatch)
    able, missing = product().other_peers()
    assert able == {}
    assert "deep_gemm" in missing["DeepGEMM"]


def test_a_product_that_it_refuses(installed: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*given: Any) -> None:
        raise RuntimeError("Assertion error: n % 8 == 0")

    monkeypatch.setattr(sys.modules["deep_gemm"], "fp8_gemm_nt", refuses)
    assert product().other_peers() == ({}, {"DeepGEMM": "Assertion error: n % 8 == 0"})


def groups(form: str, split: str, m: int = 384) -> grouped_blockwise.GroupedBlockwiseOperands:
    given: dict[str, int | str] = {"m": m, "n": 136, "k": 272, "experts": 3}
    settings, _ = GEMM_GROUPED_BLOCKWISE.configure(given | {"form": form, "split": split}, tp.H200)
    return grouped_blockwise.GroupedBlockwiseOperands(product_of(settings), settings, 0)


@pytest.mark.parametrize("form", ["rows", "padded"])
def test_groups(form: str, installed: None) -> None:
    x = groups(form, "even")
    launch = x.peers()[deep_gemm.NAME]
    assert not isinstance(launch, str)
    launch(1)
    assert x.check(deep_gemm.NAME, 1).right
    assert not x.check(deep_gemm.NAME, 0).right  # not written


def test_groups_that_it_does_not_take(installed: None) -> None:
    why = groups("rows", "random").peers()[deep_gemm.NAME]
    assert why == "it takes groups of a multiple of 128 rows, such as those of split even"


def test_groups_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deep_gemm", None)
    on_the_host(monkeypatch)
    assert "deep_gemm" in str(groups("rows", "even").peers()[deep_gemm.NAME])


def along_k(
    k: int = 1024, out: tp.DType = tp.float32
) -> k_grouped_blockwise.KGroupedBlockwiseOperands:
    problem = KGroupedBlockwiseProblem(136, 200, k, 3, out)
    return k_grouped_blockwise.KGroupedBlockwiseOperands(problem, "random", 2)


@pytest.mark.parametrize("times", [1, 3])
def test_groups_along_k_to_which_it_adds(times: int, installed: None) -> None:
    x = along_k()
    launch = x.peers()[deep_gemm.NAME]
    assert not isinstance(launch, str)
    x.wipe()
    for _ in range(times):
        launch(1)
    assert x.check(deep_gemm.NAME, 1).right
    assert not x.check(deep_gemm.NAME, 0).right  # nothing was added
    x.c[deep_gemm.NAME][1][x.bounds[0][0]] *= 1.5  # not a whole number of products
    assert not x.check(deep_gemm.NAME, 1).right


@pytest.mark.parametrize(
    ("k", "out", "why"),
    [
        (1024, tp.bfloat16, "it adds to float32: -s out_dtype=float32"),
        (1008, tp.float32, "it takes groups of a multiple of 128 elements of K"),
    ],
)
def test_groups_along_k_that_it_does_not_take(
    k: int, out: tp.DType, why: str, installed: None
) -> None:
    assert along_k(k, out).peers()[deep_gemm.NAME] == why


def test_groups_along_k_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deep_gemm", None)
    on_the_host(monkeypatch)
    assert "deep_gemm" in str(along_k().peers()[deep_gemm.NAME])
