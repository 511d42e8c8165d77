"""StaticScheduler: batches, clusters, shares and CTAs that split a tile, against a few lines of
Python.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tilepipe as tp
from tests.support.examples import share

Visit = tuple[int, int, int]  # batch, m, n
NONE = -1
ROOM = 400  # tiles that one warp can note


@tp.kernel(grid=lambda ctas: ctas, cluster=lambda size: size)
def visits(
    ctx: tp.Context,
    seen: Any,
    batches: Any,
    m: Any,
    n: Any,
    *,
    ctas: int,
    size: int,
    shape: tuple[int, int] | None,
    raster: str,
    group: int,
    of: int,
    batched: bool,
    early: bool | None = None,
) -> None:
    """seen[CTA, warp, i] = (batch, m, n) of the i-th tile that the warp is given. `early`: by
    `ahead`, with or without asking for the following tile in the body.
    """
    work = tp.StaticScheduler(
        ctx, (batches, m, n) if batched else (m, n), cluster=shape, raster=raster, group=group
    )

    @ctx.role("walk", warps=of)
    def walk() -> None:
        count = ctx.var(0)
        tiles: Any = (
            work.ahead() if early is not None else work.share(ctx.warp, of) if of > 1 else work
        )
        for tile in tiles:
            assert (tile.batch is not None) == batched
            if early:
                assert tile.following() is tile.following()
            with ctx.elect_one():
                for j, x in enumerate((tile.batch if batched else 0, tile.m, tile.n)):
                    ctx.store(seen[ctx.block_id, ctx.warp, count.get(), j], x)
            count += 1


def model(
    batches: int,
    m: int,
    n: int,
    ctas: int,
    size: int,
    shape: tuple[int, int] | None,
    raster: str,
    group: int,
    of: int,
) -> list[list[list[Visit]]]:
    """What each warp of each CTA is given."""
    x, y = shape or (size, 1)
    rows, cols = -(-m // x), -(-n // y)
    if raster == "rows":
        plane = [(i, j) for i in range(rows) for j in range(cols)]
    elif raster == "columns":
        plane = [(i, j) for j in range(cols) for i in range(rows)]
    else:
        plane = [
            (i, j)
            for band in range(0, rows, group)
            for j in range(cols)
            for i in range(band, min(band + group, rows))
        ]
    order = [(b, i, j) for b in range(batches) for i, j in plane]
    given = []
    for cta in range(ctas):
        cluster, rank = divmod(cta, size)
        mine = [
            (b, i * x + rank % x, j * y + rank // x % y)
            for b, i, j in order[cluster :: ctas // size]
        ]
        given.append([mine[warp::of] for warp in range(of)])
    return given


def walked(
    batches: int,
    m: int,
    n: int,
    ctas: int,
    size: int,
    shape: tuple[int, int] | None,
    raster: str,
    group: int,
    of: int,
    early: bool | None = None,
) -> Any:
    seen = np.full((ctas, of, ROOM, 3), NONE, np.int32)
    statics: dict[str, Any] = {
        "ctas": ctas,
        "size": size,
        "shape": shape,
        "raster": raster,
        "group": group,
        "of": of,
        "batched": batches > 0,
        "early": early,
    }
    visits.bind(seen, max(batches, 1), m, n, **statics).run(seed=1)
    return [[[tuple(v) for v in warp.tolist() if v[0] != NONE] for warp in cta] for cta in seen]


SHAPES: dict[int, list[tuple[int, int] | None]] = {
    1: [None, (1, 1)],
    2: [None, (2, 1), (1, 2), (1, 1)],
    4: [(4, 1), (1, 4), (2, 2), (2, 1), (1, 2), (1, 1)],
}


@pytest.mark.slow
@given(
    data=st.data(),
    batches=st.integers(0, 3),
    m=st.integers(1, 9),
    n=st.integers(1, 9),
    clusters=st.integers(1, 5),
)
@settings(max_examples=share(60))
def test_every_tile_exactly_once(
    data: st.DataObject, batches: int, m: int, n: int, clusters: int
) -> None:
    size = data.draw(st.sampled_from(sorted(SHAPES)), "cluster size")
    shape = data.draw(st.sampled_from(SHAPES[size]), "scheduler's cluster")
    raster = data.draw(st.sampled_from(["rows", "columns", "grouped"]), "raster")
    group, of = data.draw(st.integers(1, 4), "group"), data.draw(st.integers(1, 3), "shares")
    settings = (batches, m, n, clusters * size, size, shape, raster, group, of)
    got = walked(*settings)
    assert got == model(max(batches, 1), *settings[1:])
    x, y = shape or (size, 1)
    counted = Counter(visit for cta in got for warp in cta for visit in warp)
    inside = [(b, i, j) for b in range(max(batches, 1)) for i in range(m) for j in range(n)]
    # CTAs that are x · y ranks apart work on the same tile
    assert {visit: counted[visit] for visit in inside} == dict.fromkeys(inside, size // (x * y))
    assert all(i < -(-m // x) * x and j < -(-n // y) * y for _, i, j in counted)


@pytest.mark.slow
@given(
    data=st.data(),
    batches=st.integers(0, 2),
    m=st.integers(1, 7),
    n=st.integers(1, 7),
    clusters=st.integers(1, 4),
    early=st.booleans(),
)
@settings(max_examples=share(30))
def test_tiles_computed_ahead_are_the_same(
    data: st.DataObject, batches: int, m: int, n: int, clusters: int, early: bool
) -> None:
    size = data.draw(st.sampled_from([1, 2]), "cluster size")
    shape = data.draw(st.sampled_from(SHAPES[size]), "scheduler's cluster")
    raster = data.draw(st.sampled_from(["rows", "columns", "grouped"]), "raster")
    settings = (
        batches,
        m,
        n,
        clusters * size,
        size,
        shape,
        raster,
        data.draw(st.integers(1, 4), "group"),
        1,
    )
    assert walked(*settings, early=early) == model(max(batches, 1), *settings[1:])


def test_the_first_tile_is_known_before_the_loop() -> None:
    @tp.kernel(grid=3)
    def first(ctx: tp.Context, out: Any) -> None:
        work = tp.StaticScheduler(ctx, (4, 1))

        @ctx.role("walk", warps=1)
        def walk() -> None:
            tiles = work.ahead()
            ctx.store(out[ctx.block_id], tiles.first.m)
            for tile in tiles:
                ctx.store(out[3 + tile.m], tile.m)

    out = np.full(7, NONE, np.int32)
    first.bind(out).run()
    assert out.tolist() == [0, 1, 2, 0, 1, 2, 3]


@pytest.mark.parametrize("early", [True, False])
def test_no_tiles_ahead(early: bool) -> None:
    assert walked(0, 0, 3, 2, 1, None, "grouped", 2, 1, early) == [[[]], [[]]]


@pytest.mark.parametrize("m", [0, 1])
def test_no_tiles(m: int) -> None:
    assert walked(0, m, 1 - m, 2, 1, None, "grouped", 2, 2) == [[[], []], [[], []]]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"cluster": (3, 1)}, "the scheduler's cluster is 3×1, the kernel's has 2 CTAs"),
        ({"cluster": (2, 2)}, "the scheduler's cluster is 2×2, the kernel's has 2 CTAs"),
        ({"cluster": (0, 1)}, "the scheduler's cluster is 0×1"),
        ({"raster": "zigzag"}, "raster must be one of rows, columns, grouped, got 'zigzag'"),
        ({"group": 0}, "at least 1 tile, got 0"),
        ({"tiles": (-1, 2)}, "tiles= counts tiles along each dimension, got -1"),
        ({"tiles": (True, 2)}, "tiles= counts tiles along each dimension, got True"),
        ({"tiles": (1, 2, 3, 4)}, r"tiles= takes \(rows, columns\) or \(batches, rows, columns\)"),
        ({"of": 0}, "tiles are shared among at least 1, got of=0"),
    ],
)
def test_what_no_schedule_has(arguments: dict[str, Any], words: str) -> None:
    @tp.kernel(grid=2, cluster=2)
    def wrong(ctx: tp.Context) -> None:
        rest = dict(arguments)
        of = rest.pop("of", 1)
        tp.StaticScheduler(ctx, rest.pop("tiles", (2, 2)), **rest).share(0, of)

    with pytest.raises(tp.TraceError, match=words):
        wrong.bind()
