"""Arrivals on each barrier in the sm_100 GEMM: derived counts against formulas, arrivals of the
simulated machine, masks against brute force.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.kernels.gemm.sm100_cases import CLUSTERS, Problem, counts, shape_of
from tests.scenarios.support import faults, refuses
from tests.support.accumulators import who_arrives
from tests.support.ring_kernels import counts_of
from tilepipe.kernels.common.multicast import ClusterShares
from tilepipe.kernels.gemm import sm100
from tools.docs.readme import ROOT

TILES = 3  # steps of the schedule of one cluster, in the runs
STEPS = 5  # of K


@pytest.mark.parametrize("scheduler", ["clc", "static"])
@pytest.mark.parametrize("cluster", CLUSTERS, ids=str)
def test_derived_counts(cluster: tuple[int, int, int], scheduler: str) -> None:
    program = Problem(512, 512, 256, scheduler=scheduler, **shape_of(cluster)).program
    assert counts_of(program) == counts(*cluster, clc=scheduler == "clc")


def test_the_formulas_written_out() -> None:
    """Input empty, accumulator empty and scheduler empty of the clusters that everybody looks
    up.
    """
    numbers = {c: counts(*c, clc=True) for c in CLUSTERS}
    assert {c: n["inputs.empty"] for c, n in numbers.items()} == {
        (1, 1, 1): 1,
        (2, 1, 1): 2,
        (1, 2, 1): 2,
        (2, 2, 1): 3,
        (4, 1, 1): 4,
        (4, 2, 1): 5,
        (2, 1, 2): 1,
        (2, 2, 2): 2,
        (4, 1, 2): 2,
        (4, 2, 2): 3,
    }
    assert {n["outputs.empty"] for c, n in numbers.items() if c[2] == 1} == {128}
    assert {n["outputs.empty"] for c, n in numbers.items() if c[2] == 2} == {256}
    assert [numbers[c]["work.empty"] for c in ((1, 1, 1), (2, 1, 1), (4, 2, 1))] == [224, 416, 1568]


def at(cluster: int, rank: int) -> tuple[int, int]:
    """A CTA's place along M and N."""
    return rank % cluster, rank // cluster


def told(x: int, y: int, group: int, rank: int) -> list[int]:
    """The CTAs whose copies land in the slots that the MMAs of CTA `rank` read: its own, and of a
    pair also its peer's.
    """
    readers = range(rank // group * group, rank // group * group + group)
    found = set()
    for reader, other in itertools.product(readers, range(x * y)):
        (m, n), (om, on) = at(x, reader), at(x, other)
        if om == m or (on == n and om % group == m % group):
            found.add(other)
    return sorted(found)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("cluster", CLUSTERS, ids=str)
def test_arrivals(cluster: tuple[int, int, int]) -> None:
    """Everybody's arrivals in a run, on every barrier of every CTA of the one cluster."""
    x, y, group = cluster
    size = x * y
    problem = Problem(
        128 * x * TILES,
        128 * y,
        64 * STEPS,
        clusters=1,
        stages=3,
        scheduler="static",
        **shape_of(cluster),
    )
    found = who_arrives(problem.program, seed=7)
    leaders = range(0, size, group)
    tiles, steps = TILES, TILES * STEPS
    want = {("inputs.full", rank, "load", rank): steps for rank in leaders}
    for issuer in leaders:
        want |= {("inputs.empty", rank, "mma", issuer): steps for rank in told(x, y, group, issuer)}
        want |= {
            ("outputs.full", rank, "mma", issuer): tiles for rank in range(issuer, issuer + group)
        }
        for source in range(issuer, issuer + group):
            want["outputs.empty", issuer, "epilogue", source] = 128 * tiles
            want |= {
                ("tmem_dealloc", rank, "epilogue", source): 128
                for rank in range(issuer, issuer + group)
            }
    assert found == want


@pytest.mark.slow
@pytest.mark.parametrize("cluster", CLUSTERS, ids=str)
def test_arrivals_of_the_schedule(cluster: tuple[int, int, int]) -> None:
    """One cluster that takes over the work of the others. Only CTA 0 asks, and everybody tells it
    when a response is read.
    """
    x, y, _ = cluster
    size = x * y
    problem = Problem(
        128 * x * TILES, 128 * y, 64, clusters=1, stages=3, scheduler="clc", **shape_of(cluster)
    )
    found = {key: n for key, n in who_arrives(problem.program).items() if key[0].startswith("work")}
    asked = TILES  # each tile's successor; the last response says that there is none
    want = {("work.full", rank, "schedule", 0): asked for rank in range(size)}
    want |= {
        ("work_throttle.full", 0, "load", 0): 32 * asked,
        ("work_throttle.empty", 0, "schedule", 0): 32 * asked,
    }
    want["work.empty", 0, "schedule", 0] = 32 * asked
    for rank, (role, threads) in itertools.product(
        range(size), (("load", 32), ("mma", 32), ("epilogue", 128))
    ):
        want["work.empty", 0, role, rank] = threads * asked
    assert found == want


@pytest.mark.slow
@pytest.mark.parametrize("cluster", CLUSTERS, ids=str)
def test_every_arrival_belongs_to_a_complete_phase(cluster: tuple[int, int, int]) -> None:
    problem = Problem(
        128 * cluster[0] * TILES,
        128 * cluster[1],
        64 * STEPS,
        clusters=1,
        stages=4,
        scheduler="static",
        **shape_of(cluster),
    )
    arrived = who_arrives(problem.program, seed=3)
    run = problem.right(seed=3)
    for name, count in counts_of(problem.program).items():
        for rank, completions in enumerate(run.completions[name]):
            total = sum(
                n for (array, to, _, _), n in arrived.items() if (array, to) == (name, rank)
            )
            assert count is not None
            assert total == count * sum(completions), (name, rank)


# -- masks -----------------------------------------------------------------------------


def shares(x: int, y: int, group: int, parts: int = 1) -> dict[str, list[int]]:
    """What ClusterShares gives each CTA: `a`, `b`: multicast masks; `a_part`, `b_part`; `release`:
    whom a commit tells. `parts`: of K, which as many times x · y CTAs share.
    """
    size = x * y * parts
    names = ("a", "b", "a_part", "b_part", "release")
    out = np.zeros((size, len(names)), np.int32)

    @tp.kernel(grid=size, cluster=size)
    def k(ctx: tp.Context, out: Any) -> None:
        found = ClusterShares.of(ctx, x, y, group)
        own = 1 << ctx.cta_rank

        @ctx.role("one", warps=1)
        def one() -> None:
            with ctx.elect_one():
                values = [s.mask if s.mask is not None else own for s in (found.a, found.b)]
                values += [
                    found.a.part,
                    found.b.part,
                    found.release if found.release is not None else own,
                ]
                for i, value in enumerate(values):
                    ctx.store(out[ctx.cta_rank, i], value)

    k.bind(out).run()
    return {name: out[:, i].tolist() for i, name in enumerate(names)}


ALL = [
    (x, y, g)
    for x, y, g in itertools.product((1, 2, 4, 8), (1, 2, 4, 8), (1, 2))
    if x * y <= 8 and x % g == 0
]


@pytest.mark.parametrize(("x", "y", "group"), ALL)
def test_masks_against_brute_force(x: int, y: int, group: int) -> None:
    got, size = shares(x, y, group), x * y
    bits = {
        name: [{c for c in range(size) if mask >> c & 1} for mask in got[name]]
        for name in ("a", "b", "release")
    }
    for rank in range(size):
        m, n = at(x, rank)
        same_a = {c for c in range(size) if at(x, c)[0] == m}
        same_b = {c for c in range(size) if at(x, c)[1] == n and at(x, c)[0] % group == m % group}
        assert bits["a"][rank] == same_a
        assert bits["b"][rank] == same_b
        if rank % group == 0:
            assert bits["release"][rank] == set(told(x, y, group, rank))
    for rank in range(size):  # every part of a tile that a CTA holds is loaded by somebody, once
        for name, parts in (("a", y), ("b", x // group)):
            senders = [c for c in range(size) if rank in bits[name][c]]
            assert sorted(got[f"{name}_part"][c] for c in senders) == list(range(parts))


@pytest.mark.parametrize(
    ("x", "y", "group", "parts"),
    [(*place, parts) for place in ALL for parts in (2, 4, 8) if place[0] * place[1] * parts <= 8],
)
def test_ctas_that_split_k_share_within_their_part(x: int, y: int, group: int, parts: int) -> None:
    """As in a cluster of one part, further on by the CTAs of the parts before."""
    one, got, size = shares(x, y, group), shares(x, y, group, parts), x * y
    for part in range(parts):
        for rank in range(size):
            at = part * size + rank
            for name in ("a", "b", "release"):
                assert got[name][at] == one[name][rank] << part * size
            if y > 1:
                assert got["a_part"][at] == one["a_part"][rank]
            if x > group:
                assert got["b_part"][at] == one["b_part"][rank]


def test_the_page_says_how_pairs_share_b() -> None:
    """docs/reference/accumulators.md, of a cluster of 4: who loads which rows of B for whom."""
    page = (ROOT / "docs" / "reference" / "accumulators.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d) \| (\S.*?) to (\S.*?) \| (0b\d+) \|", page, re.MULTILINE)
    got = shares(4, 1, 2)
    bn = 128
    places = {"0": 0, "BN / 4": bn // 4, "BN / 2": bn // 2, "3 BN / 4": 3 * bn // 4, "BN": bn}
    assert [int(cta) for cta, *_ in rows] == list(range(4))
    for cta, first, end, mask in rows:
        rank = int(cta)
        begin = rank % 2 * bn // 2 + got["b_part"][rank] * bn // 4
        assert (places[first], places[end]) == (begin, begin + bn // 4)
        assert int(mask, 2) == got["b"][rank]
        assert got["release"][rank] == 0b1111


@pytest.mark.parametrize(("x", "y", "group"), ALL)
def test_the_masks_give_the_counts(x: int, y: int, group: int) -> None:
    release = shares(x, y, group)["release"]
    for rank in range(x * y):
        assert (
            sum(release[issuer] >> rank & 1 for issuer in range(0, x * y, group))
            == counts(x, y, group, clc=False)["inputs.empty"]
        )


@pytest.fixture
def forgetful(
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[[Callable[[ClusterShares], Any]], None]]:
    """`forgetful(release)`: the kernel's commits tell `release(shares)`."""
    whole = ClusterShares.of

    def replace_release(release: Callable[[ClusterShares], Any]) -> None:
        def of(ctx: tp.Context, x: int, y: int, cta_group: int = 1) -> ClusterShares:
            made = whole(ctx, x, y, cta_group)
            return replace(made, release=release(made))

        monkeypatch.setattr(ClusterShares, "of", of)
        sm100.gemm.forget()

    yield replace_release
    sm100.gemm.forget()


@pytest.mark.slow
def test_a_mask_that_forgets_a_reader(forgetful: Any) -> None:
    """The MMAs of a CTA do not tell the CTAs that copy A into its slots: their copies come while it
    still reads.
    """
    forgetful(lambda shares: shares.b.mask)
    program = Problem(512, 512, 640, stages=2, cluster=2, cluster_n=2).program
    assert counts_of(program)["inputs.empty"] == 2
    faults(program, tp.SimFault, "inputs", seeds=range(6))
    words = (
        "race on inputs_",
        "is multicast into CTA",
        "role 'load' of CTA",
        "every CTA that copies into them",
        "ctx.mma_commit",
        "mask=",
    )
    faults(program, tp.RaceError, *words, seeds=[0])


def test_a_mask_that_forgets_the_peer(forgetful: Any) -> None:
    forgetful(lambda shares: None)
    words = (
        "consumer stage of 'inputs'",
        "in CTA rank 0 of the cluster and not in rank 1",
        "mask=outputs.mma_complete_mask",
    )
    refuses(lambda: Problem(512, 512, 640, cluster=2, cta_group=2), tp.CountError, *words)
