"""The sm_100 GEMM whose CTAs split K: right for every shape, the same bits in every order of events
and from the printed PTX; its barriers by formula; mistakes in the exchange of sums are found.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.kernels.gemm.sm100_cases import BF16, E4M3, Problem, counts, simulate
from tests.scenarios.support import faults, refuses
from tests.support.accumulators import who_arrives
from tests.support.ring_kernels import counts_of
from tilepipe import check, cuda
from tilepipe.kernels.common import sm100_gemm, split_k as exchanges
from tilepipe.kernels.gemm import sm100
from tilepipe.kernels.gemm.config import Sm100GemmConfig
from tilepipe.kernels.gemm.model import Problem as Product
from tilepipe.kernels.gemm.sm100_heuristics import choose
from tilepipe.kernels.gemm_block_scaled.config import BlockScaledGemmConfig

# (cluster, cluster_n, cta_group, split_k)
CLUSTERS = [
    (1, 1, 1, 2),
    (1, 1, 1, 4),
    (1, 1, 1, 8),
    (2, 1, 1, 2),
    (1, 2, 1, 4),
    (2, 2, 1, 2),
    (2, 1, 2, 2),
    (2, 1, 2, 4),
    (4, 1, 2, 2),
    (2, 2, 2, 2),
]


def shape_of(cluster: tuple[int, int, int, int]) -> dict[str, Any]:
    """An entry of CLUSTERS as settings."""
    return dict(zip(("cluster", "cluster_n", "cta_group", "split_k"), cluster, strict=True))


@pytest.mark.slow
@pytest.mark.sampled(suite=3)
@pytest.mark.parametrize("scheduler", ["clc", "static"])
@pytest.mark.parametrize("cluster", CLUSTERS, ids=str)
def test_clusters(cluster: tuple[int, int, int, int], scheduler: str) -> None:
    """Ragged at every edge, several tiles a cluster, parts of K that are not equally long."""
    settings = shape_of(cluster) | {"scheduler": scheduler, "stages": 2, "bn": 128}
    simulate(392, 296, 520, seed=3, clusters=1, **settings)


SHAPES = [
    (1, 8, 8),
    (8, 8, 72),
    (127, 120, 56),
    (129, 136, 192),
    (200, 64, 1032),
    (64, 264, 776),
]


@pytest.mark.slow
@pytest.mark.sampled(suite=3)
@pytest.mark.parametrize("parts", [2, 4, 8])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes(shape: tuple[int, int, int], parts: int) -> None:
    """Smaller than a tile, K of fewer steps than there are CTAs, K that no part divides."""
    for settings in ({}, {"bm": 64, "scheduler": "static"}, {"k_group_size": 2, "stages": 2}):
        simulate(*shape, seed=parts, clusters=1, split_k=parts, **settings)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("steps", range(1, 10))
def test_parts_of_k(steps: int) -> None:
    """Of 4 CTAs: those without a step of their own take one beyond the end of K, so that each has
    sums to send; two tiles, so that the tiles of the exchange are used again.
    """
    settings: dict[str, Any] = {"bn": 64, "stages": 2, "split_k": 4, "scheduler": "static"}
    problem = Problem(256, 64, steps * 64 - 8, clusters=1, **settings)
    run = problem.right(seed=1)
    share = -(-steps // 4)
    taken = [max(min(steps - part * share, share), 1) for part in range(4)]
    assert [sum(cta) for cta in run.completions["inputs.full"]] == [2 * own for own in taken]
    assert [sum(cta) for cta in run.completions["sums.full"]] == [2] * 4
    assert [sum(cta) for cta in run.completions["sums.empty"]] == [2] * 4


@pytest.mark.slow
@pytest.mark.parametrize("cluster", [(1, 1, 1, 2), (1, 1, 1, 4), (2, 1, 2, 2)], ids=str)
def test_the_bits_do_not_depend_on_the_order_of_events(
    cluster: tuple[int, int, int, int],
) -> None:
    problem = Problem(136, 72, 392, out=np.float32, clusters=1, bn=64, **shape_of(cluster))
    found = set()
    for seed in range(4):
        problem.right(seed)
        found.add(problem.c.tobytes())
    assert len(found) == 1


def test_every_owner_adds_the_parts_in_the_same_order() -> None:
    """The parts of each element are 1, 1, 2**24 and 1. In this order their sum in float32 is 2**24
    + 4; a CTA that began with its own would get 2**24.
    """
    problem = Problem(128, 128, 256, out=np.float32, split_k=4)
    problem.a[...], problem.b[...] = 0, 0
    problem.a[:, ::64] = problem.b[:, ::64] = 1
    problem.a[:, 128] = problem.b[:, 128] = 2**12
    problem.program.run()
    assert (problem.c == 2**24 + 4).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"dtypes": (E4M3, E4M3), "out": np.float16, "bk": 128},
        {"dtypes": (np.float16, np.float16), "orders": "FF"},
        {"out": np.float32, "bn": 96, "split_k": 2},
        {"bn": 256, "stages": 2, "store_slots": 1, "bm": 64, "split_k": 2},
        {"accumulators": 1, "store_slots": 1, "activation": "none"},
        {"cta_group": 2, "cluster": 2, "bn": 64, "orders": "CF"},
    ],
    ids=str,
)
def test_other_settings(settings: dict[str, Any]) -> None:
    simulate(264, 200, 592, seed=5, **({"split_k": 4} | settings))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("parts", [2, 8])
def test_terms_are_added_by_the_owner_of_the_columns(parts: int) -> None:
    m, n = 136, 200
    rng = np.random.default_rng(2)
    bias, source = rng.standard_normal(n).astype(BF16), rng.standard_normal((m, n)).astype(BF16)
    rows, columns = (rng.uniform(0.2, 0.9, x).astype(np.float32) for x in (m, n))
    extras = {"bias": bias, "source": source, "beta": 0.5, "alpha": 2.0}
    extras |= {"a_scale": rows, "b_scale": columns}
    p = Problem(m, n, 520, out=np.float32, extras=extras, split_k=parts, activation="relu")
    p.program.run(seed=1)
    product = p.a.astype(np.float64) @ p.b.astype(np.float64).T
    want = 2.0 * rows[:, None] * columns * product
    want = np.maximum(want + bias.astype(np.float64) + 0.5 * source.astype(np.float64), 0)
    np.testing.assert_allclose(p.c, want, rtol=2e-5, atol=2e-4)


# -- barriers --------------------------------------------------------------------------


@pytest.mark.parametrize("scheduler", ["clc", "static"])
@pytest.mark.parametrize("cluster", CLUSTERS, ids=str)
def test_derived_counts(cluster: tuple[int, int, int, int], scheduler: str) -> None:
    """As without a split, but for a response of the scheduler, which more CTAs read, and the sums
    of every part.
    """
    x, y, group, parts = cluster
    settings = shape_of(cluster) | {"scheduler": scheduler, "stages": 2}
    clc = scheduler == "clc"
    want = counts(x, y, group, clc) | {"sums.full": parts, "sums.empty": parts}
    if clc:
        want["work.empty"] = 32 + x * y * parts * (32 + 32 + 128)
    assert counts_of(Problem(512, 512, 256, **settings).program) == want


@pytest.mark.sampled(2)
@pytest.mark.parametrize("cluster", CLUSTERS, ids=str)
def test_arrivals_of_the_exchange(cluster: tuple[int, int, int, int]) -> None:
    """Every CTA tells all that have the same tile, and no other, once a tile."""
    x, y, _, parts = cluster
    size, tiles = x * y, 3
    settings = shape_of(cluster) | {"scheduler": "static", "stages": 2, "clusters": 1}
    found = who_arrives(Problem(128 * x * tiles, 128 * y, 192, **settings).program)
    assert {key: n for key, n in found.items() if key[0].startswith("sums")} == {
        (f"sums.{event}", to, "epilogue", source): tiles
        for event in ("full", "empty")
        for to in range(size * parts)
        for source in range(to % size, size * parts, size)
    }


# -- decided, compiled, read back ------------------------------------------------------


@pytest.mark.sampled(suite=5)
@pytest.mark.slow
@pytest.mark.parametrize("cluster", CLUSTERS, ids=str)
def test_every_cluster_compiles_without_spills(cluster: tuple[int, int, int, int]) -> None:
    code = cuda.compile(Problem(512, 512, 512, **shape_of(cluster)).program.kernel, arch="sm_100a")
    assert (code.spill_bytes, code.stack_bytes) == (0, 0)
    assert "C75" not in code.log  # MMAs that the assembler has serialised


@pytest.mark.sampled(suite=4)
@pytest.mark.slow
@pytest.mark.parametrize(
    "cluster", [(2, 1, 2, 2), (1, 1, 1, 2), (1, 1, 1, 8), (2, 2, 1, 2)], ids=str
)
def test_the_printed_ptx_computes_the_same_bits(cluster: tuple[int, int, int, int]) -> None:
    """Of whole numbers, whose sums are exact however a tensor core groups them. The first cluster
    has pairs and parts of K; `make test-all` adds those that have less, or more of one.
    """
    problem = Problem(136, 72, 200, out=np.float32, clusters=1, **shape_of(cluster))
    rng = np.random.default_rng(0)
    for x in (problem.a, problem.b):
        x[...] = rng.integers(-4, 5, x.shape)
    problem.program.run(seed=1)
    want = problem.c.copy()
    problem.c[...] = np.nan
    problem.program.ptx("sm_100a").run(2)
    assert (problem.c == want).all()
    assert (want == problem.a.astype(np.float64) @ problem.b.astype(np.float64).T).all()


# -- mistakes --------------------------------------------------------------------------


@dataclass(frozen=True)
class Mistake:
    """`old` of the module replaced by `new`; the error, and what its message must contain."""

    old: str
    new: str
    error: type[tp.TilepipeError]
    said: tuple[str, ...]


MEETING = "        ctx = self._ctx\n        ctx.sync_warpgroup()\n"
MISTAKES = {
    "sums are sent before those of the tile before have been read": Mistake(
        "        self._sums.wait_consumer()\n",
        "",
        tp.RaceError,
        (
            "race on parts[",
            "fragment_load parts[",
            "fragment_store -> parts[",
            "After the read, role 'epilogue' of CTA",
            "must arrive on a barrier that role 'epilogue' of CTA",
        ),
    ),
    "nobody says that the sums have been read": Mistake(
        "            self._read()\n        return total",
        "            self._sums.consumer_step()\n        return total",
        tp.DeadlockError,
        ("no op of the kernel arrives on sums.empty: a commit, an arrive or",),
    ),
    "one CTA is not told": Mistake(
        "        for part in range(self._cfg.split_k):\n            other",
        "        for part in range(1, self._cfg.split_k):\n            other",
        tp.DeadlockError,
        (
            "sums.full of CTA 0 gets 0 of the 2 arrivals of a phase",
            "reaches only the copy in CTA rank 1",
        ),
    ),
    "the sums are not waited for": Mistake(
        "        self._sums.wait_producer()\n        return self",
        "        return self",
        tp.RaceError,
        ("parts[",),
    ),
    "the warpgroup does not meet before it tells": Mistake(
        MEETING, "        ctx = self._ctx\n", tp.RaceError, ("race on parts[",)
    ),
    "all parts arrive in one place": Mistake(
        "self._parts[part_rank(self._ctx, self._cfg)]",
        "self._parts[0]",
        tp.RaceError,
        ("race on parts[0]",),
    ),
    "a CTA leaves while its peers still tell it": Mistake(
        "        self._sums.drain_producer()\n", "        pass\n", tp.ExitError, ("sums.empty",)
    ),
}


@pytest.fixture
def planted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str, str], None]]:
    """`planted(old, new)`: the kernel exchanges sums by a copy of the module with that change."""

    def plant(old: str, new: str) -> None:
        text = Path(exchanges.__file__).read_text(encoding="utf-8")
        assert text.count(old) == 1, text.count(old)
        path = tmp_path / "split_k.py"
        path.write_text(text.replace(old, new), encoding="utf-8")
        spec = importlib.util.spec_from_file_location("planted_split_k", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        monkeypatch.setattr(sm100_gemm, "TmemExchange", module.TmemExchange)
        sm100.gemm.forget()

    yield plant
    sm100.gemm.forget()


def small() -> tp.Program:
    """Three tiles of one cluster of two CTAs."""
    settings: dict[str, Any] = {"bn": 32, "bk": 32, "stages": 2, "split_k": 2, "clusters": 1}
    return Problem(384, 32, 128, scheduler="static", **settings).program


@pytest.mark.slow
@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name: str, planted: Callable[[str, str], None]) -> None:
    """Each is found with any seed and by the checker, and none by a wrong result."""
    mistake = MISTAKES[name]
    planted(mistake.old, mistake.new)
    faults(small(), mistake.error, *mistake.said, "split_k.py", seeds=range(2))


def test_the_exchange_that_mistakes_are_planted_in_is_right(
    planted: Callable[[str, str], None],
) -> None:
    planted("gcd(self._share, SLICE)", "gcd(SLICE, self._share)")
    verdict = check.check(small().launch_args)
    assert (verdict.verdict, verdict.method) == ("verified", "single-execution")


@pytest.mark.slow
def test_the_printed_ptx_is_decided_alike(planted: Callable[[str, str], None]) -> None:
    """Verified as it is; without the wait for what has been read, a race on the same memory."""
    verdict = small().ptx("sm_100a").check()
    assert (verdict.verdict, verdict.faults) == ("verified", [])
    mistake = MISTAKES["sums are sent before those of the tile before have been read"]
    planted(mistake.old, mistake.new)
    program = small().ptx("sm_100a")
    for seed in range(2):
        with pytest.raises(tp.RaceError) as caught:
            program.run(seed)
        assert re.search(
            r"ld\.shared.*\n.*writes.*st\.shared::cluster", str(caught.value), re.DOTALL
        )


# -- configurations --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"split_k": 3}, "cluster · cluster_n · split_k must be 1, 2, 4 or 8"),
        ({"split_k": 4, "cluster": 4}, "cluster · cluster_n · split_k must be 1, 2, 4 or 8"),
        (
            {"split_k": 8, "bn": 64},
            "bn / split_k must be a multiple of 16, the columns that each CTA stores: 64 / 8 = 8",
        ),
        ({"split_k": 2, "cta_group": 2}, "cta_group 2 takes an even cluster, cluster=2 at least"),
        ({"split_k": 0}, "split_k must be at least 1"),
    ],
    ids=str,
)
def test_refused(settings: dict[str, Any], words: str) -> None:
    refuses(lambda: Sm100GemmConfig(**settings), tp.BindError, words)


def test_no_room_for_the_sums_is_said_with_the_bytes() -> None:
    refuses(
        lambda: Problem(256, 256, 256, bn=256, stages=2, split_k=2),
        tp.LimitError,
        "parts: 2 × 128×128 float32 = 131,072",
        "Use fewer stages or smaller tiles",
    )


def test_the_other_gemms_for_blackwell_have_no_such_setting() -> None:
    assert "split_k" not in BlockScaledGemmConfig.names()
    with pytest.raises(tp.BindError, match=r"^cluster · cluster_n must be 1, 2, 4 or 8"):
        BlockScaledGemmConfig(cluster=3)


@pytest.mark.parametrize(
    ("product", "split_k"),
    [
        ((16, 1024, 16384), 4),
        ((128, 4096, 4096), 4),
        ((128, 6144, 4096), 2),  # 48 tiles: 192 CTAs would be more than 148 SMs
        ((128, 4096, 1024), 2),  # 16 steps: 4 for each of four CTAs would not fill the ring twice
        ((128, 4096, 512), 1),
        ((1024, 2048, 4096), 1),
        ((4096, 4096, 4096), 1),
    ],
    ids=str,
)
def test_k_is_split_where_there_are_far_fewer_tiles_than_sms(
    product: tuple[int, int, int], split_k: int
) -> None:
    m, n, k = product
    for dtype in (tp.bfloat16, tp.float8_e4m3):
        problem = Product(m, n, k * 2 // dtype.nbytes, dtype=dtype)
        assert choose(problem, tp.B200) == Sm100GemmConfig(bk=128 // dtype.nbytes, split_k=split_k)


@pytest.mark.parametrize(("batch", "split_k"), [(1, 4), (2, 4), (9, 4), (10, 2), (18, 2), (19, 1)])
def test_k_is_not_split_where_a_batch_fills_the_chip(batch: int, split_k: int) -> None:
    """Four tiles for each product; a B200 has room for 37 clusters of four CTAs, 74 of two."""
    problem = Product(256, 256, 8192, batch, dtype=tp.bfloat16)
    assert choose(problem, tp.B200).split_k == split_k


@pytest.mark.slow
@pytest.mark.parametrize("out", [BF16, np.float32], ids=["bfloat16", "float32"])
def test_what_is_chosen_fits(out: Any) -> None:
    """Beside the tiles of the exchange there is room for the default stages and store slots."""
    for k in (1024, 2048):
        cfg = choose(Product(64, 264, k))
        assert cfg.split_k == k // 512
        settings: dict[str, Any] = cfg.as_dict()
        simulate(64, 264, k, out=out, **settings)
