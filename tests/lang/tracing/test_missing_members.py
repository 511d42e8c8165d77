"""Members that objects of a kernel do not have, under the names of other languages: the error says
what to write, and what it says exists.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tilepipe.lang.tracing import other_names
from tilepipe.lang.tracing.missing_members import plain
from tools.docs.readme import ROOT

TABLES = {
    "CONTEXT": other_names.CONTEXT,
    "FRAGMENT": other_names.FRAGMENT,
    "TILE": other_names.TILE,
    "TENSOR": other_names.TENSOR,
    "VALUE": other_names.VALUE,
}
OBJECTS: dict[str, Any] = {
    "ctx": tp.Context,
    "tp": tp,
    "f": tp.Fragment,
    "tile": tp.SmemTile,
    "tiles": tp.SmemTileArray,
    "v": tp.Var,
    "x": tp.Value,
}


def traced(body: Callable[..., object]) -> None:
    @tp.kernel()
    def kernel(ctx: tp.Context, a: Any) -> None:
        tile = ctx.smem((64, 32), a.dtype, name="tile")[0]

        @ctx.role("one", warpgroups=1)
        def one() -> None:
            f = ctx.fragment(shape=(64, 32), dtype=a.dtype)
            body({"ctx": ctx, "f": f, "tile": tile, "a": a, "x": ctx.thread})

    kernel.bind(np.zeros((64, 32), np.float32))


def said(called: str, name: str) -> str:
    with pytest.raises(tp.MemberError) as caught:
        traced(lambda objects: getattr(objects[called], name))
    assert f"{__file__.rsplit('/', 1)[-1]}:" in str(caught.value)  # the line that asks for it
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("threadIdx", "ctx has no member 'threadIdx': `ctx.thread` is the thread's number in its"),
        ("blockIdx", "`ctx.block_id`"),
        ("__syncthreads", "`ctx.sync_role()` for the threads of a role"),
        ("syncthreads", "`ctx.named_barrier(threads, name)`"),
        ("atomicAdd", "write `ctx.atomic_add`"),
        ("shfl_down", "`ctx.shuffle(x, lane)`"),
        ("__shfl_xor_sync", "`ctx.shuffle_xor(x, mask)`"),
        ("ballot_sync", "write `ctx.ballot`"),
        ("cp_async", "`ctx.tma_load(tensor, coords, tile, mbar)`"),
        ("wgmma", "`ctx.mma(acc, a, b)`"),
        ("tl_dot", "`ctx.mma(acc, a, b)`"),
        ("program_id", "`ctx.block_id`"),
        ("num_programs", "`ctx.num_clusters * ctx.cluster_size`"),
        ("arange", "`ctx.col_index(cols)`"),
        ("cdiv", "`ctx.ceil_div(x, y)`"),
        ("exp", '`ctx.math("exp", x)` of a scalar, `f.apply("exp")` of a fragment'),
        ("expf", '`ctx.math("exp", x)`'),
        ("barrier", "`tp.SharedMemBarrier`"),
        ("warp_specialize", "`@ctx.role(name, warps=)`"),
        ("__threadfence", '`ctx.fence("sc")`'),
        ("load_globl", "it has `ctx.load_global`"),
        ("frobnicate", "docs/reference/language.md has all of `ctx`"),
    ],
)
def test_ctx_says_what_does_it(name: str, words: str) -> None:
    assert words in said("ctx", name)


@pytest.mark.parametrize(
    ("called", "name", "words"),
    [
        ("f", "T", "a fragment has no member 'T': a fragment is loaded from a tile of one order"),
        ("f", "astype", "`f.to(dtype)` converts"),
        ("f", "exp", '`f.apply("exp")`'),
        ("f", "maximun", "it has `f.maximum`"),
        ("tile", "load", "`f.load(tile)` of a fragment"),
        ("a", "T", "bind the kernel to `array.T`"),
        ("a", "ndim", "`a.rank`"),
        ("x", "item", "a traced value has no number before the kernel runs"),
    ],
)
def test_so_do_other_objects(called: str, name: str, words: str) -> None:
    assert words in said(called, name)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("range", "module 'tilepipe' has no attribute 'range': in a kernel, `ctx.range`"),
        ("cdiv", "in a kernel, `ctx.ceil_div(x, y)`"),
        ("nothing_of_this_name", "module 'tilepipe' has no attribute 'nothing_of_this_name'"),
    ],
)
def test_so_does_the_package(name: str, words: str) -> None:
    with pytest.raises(AttributeError, match=re.escape(words)):
        getattr(tp, name)


@pytest.mark.parametrize("table", TABLES)
def test_what_the_tables_recommend_exists(table: str) -> None:
    for name, advice in TABLES[table].items():
        assert name == plain(name) or f"{plain(name)}sync" == name, name
        for called, member in re.findall(r"\b(ctx|tp|f|tiles?|v)\.([A-Za-z]\w*)", advice):
            assert hasattr(OBJECTS[called], member), f"{name}: {called}.{member}"
        for page in re.findall(r"docs/[\w/-]+\.md", advice):
            assert (ROOT / page).exists(), page


@pytest.mark.parametrize(
    ("table", "cls"),
    [
        ("CONTEXT", tp.Context),
        ("FRAGMENT", tp.Fragment),
        ("TILE", tp.SmemTile),
        ("VALUE", tp.Value),
    ],
)
def test_no_table_names_a_member_that_there_is(table: str, cls: type) -> None:
    members = {one for one in dir(cls) if not one.startswith("_")}
    assert not members & set(TABLES[table])


def test_python_asks_in_vain_as_ever() -> None:
    def ask(objects: dict[str, Any]) -> None:
        for one in objects.values():
            assert getattr(one, "nothing_of_this_name", 1) == 1
            with pytest.raises(AttributeError) as caught:
                _ = one._nothing
            assert not isinstance(caught.value, tp.TilepipeError)
            copy.copy(one)

    traced(ask)
