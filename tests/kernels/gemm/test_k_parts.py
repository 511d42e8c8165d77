"""The GEMM whose parts of K meet in global memory: right for every division, the same bits in every
order, verified, compiled; each mistake in the meeting is found, and each in the workspace is said.
"""

from __future__ import annotations

import dataclasses
import zlib
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilepipe as tp
from tests.scenarios.support import refuses
from tilepipe.kernels.gemm import k_parts, sm90 as gemm
from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.registry.catalog import find

BF16 = ml_dtypes.bfloat16
SMALL: dict[str, Any] = {"bm": 64, "bn": 32, "bk": 32, "stages": 2, "consumers": 1}


@dataclasses.dataclass(frozen=True)
class Bound:
    program: tp.Program
    want: Any
    c: Any
    tickets: Any

    def right(self) -> bool:
        """Whether C is the product, and the tickets are 0 again."""
        off = np.abs(self.c.astype(np.float64) - self.want).max() / np.abs(self.want).max()
        return bool(off < 1e-6) and not self.tickets.any()


def bound(
    m: int,
    n: int,
    k: int,
    ctas: int = 132,
    batch: tuple[int, ...] = (),
    tickets: int = 0,
    **settings: Any,
) -> Bound:
    rng = np.random.default_rng(m + n + k)
    a, b = (rng.standard_normal((*batch, rows, k)).astype(BF16) for rows in (m, n))
    c = np.full((*batch, m, n), np.nan, np.float32)
    cfg = GemmConfig(**settings)
    chip = tp.H200 if ctas == 132 else dataclasses.replace(tp.H200, sms=ctas, clusters=())
    sums, numbers = k_parts.workspace_shapes(c.shape, cfg)
    workspace = np.full(sums, np.nan, np.float32), np.full(numbers, tickets, np.int32)
    program = gemm.bind(a, b, c, cfg, workspace=workspace, chip=chip)
    want = a.astype(np.float64) @ b.astype(np.float64).swapaxes(-1, -2)
    return Bound(program, want, c, workspace[1])


@pytest.mark.sampled(4, suite=2)
@pytest.mark.parametrize(
    ("shape", "batch", "settings"),
    [
        ((64, 64, 320), (), SMALL | {"k_parts": 2}),
        ((200, 136, 328), (), {"k_parts": 3, "stages": 3}),  # two warpgroups, ragged edges
        ((64, 72, 64), (), SMALL | {"k_parts": 5, "bn": 72}),  # more parts than steps of K
        ((150, 200, 640), (), SMALL | {"k_parts": 4, "swap": "ab", "bn": 104, "cluster": 2}),
        ((100, 136, 256), (), SMALL | {"k_parts": 2, "cluster_n": 2}),  # a tile is outside of C
        ((72, 40, 200), (3,), SMALL | {"k_parts": 3, "swap": "ab", "early": "b"}),
        ((256, 320, 256), (), {"k_parts": 2, "bn": 320, "stages": 3}),  # two wgmmas
        ((384, 112, 256), (), {"k_parts": 3, "bm": 384, "bn": 112, "stages": 2}),
    ],
)
def test_every_division_is_right(
    shape: tuple[int, int, int], batch: tuple[int, ...], settings: dict[str, Any]
) -> None:
    one = bound(*shape, batch=batch, **settings)
    one.program.run(seed=0)
    assert one.right()
    first = one.c.copy()
    for seed in (1, 2):
        one.c[:] = np.nan
        one.program.run(seed=seed)
        assert (one.c == first).all()
        assert one.right()


@pytest.mark.parametrize("rules", ["practice", "strict"])
@pytest.mark.parametrize("parts", [2, 3])
def test_it_is_verified_with_any_number_of_ctas_at_once(parts: int, rules: Any) -> None:
    for ctas in (1, 2, parts):
        one = bound(64, 32, 32 * 2 * parts, ctas, **SMALL, k_parts=parts)
        verdict = one.program.check(rules=rules)
        assert verdict.ok, verdict.faults or verdict.bound
        assert not verdict.advice


@pytest.mark.slow
def test_its_ptx_is_right() -> None:
    one = bound(64, 32, 128, 2, **SMALL, k_parts=2)
    one.program.ptx("sm_90a").run()
    assert one.right()


@pytest.mark.thorough
@pytest.mark.parametrize("rules", ["practice", "strict"])
def test_its_ptx_is_verified(rules: Any) -> None:
    assert bound(64, 32, 128, 2, **SMALL, k_parts=2).program.ptx("sm_90a").check(rules=rules).ok


class Faulty:
    """A context with one member replaced."""

    def __init__(self, ctx: tp.Context, **replaced: Any) -> None:
        self._ctx, self._replaced = ctx, replaced

    def __getattr__(self, name: str) -> Any:
        return self._replaced.get(name, getattr(self._ctx, name))


def unpublished(ctx: tp.Context) -> Faulty:
    def atomic_add(ref: Any, value: Any, **order: Any) -> Any:
        return ctx.atomic_add(ref, value, order="acquire")

    return Faulty(ctx, atomic_add=atomic_add)


def not_acquired(ctx: tp.Context) -> Faulty:
    def atomic_add(ref: Any, value: Any, **order: Any) -> Any:
        return ctx.atomic_add(ref, value, order="release")

    return Faulty(ctx, atomic_add=atomic_add)


def no_meeting(ctx: tp.Context) -> Faulty:
    return Faulty(ctx, sync_warpgroup=lambda: None)


def faulty(mistake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the meeting use a context with a mistake."""

    class Meeting(k_parts.KParts):
        def __init__(self, ctx: tp.Context, *rest: Any) -> None:
            super().__init__(ctx, *rest)
            self._ctx = mistake(ctx)

    monkeypatch.setattr(gemm, "KParts", Meeting)


@pytest.mark.parametrize("mistake", [unpublished, not_acquired, no_meeting])
def test_mistakes_in_the_meeting_are_found(mistake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    faulty(mistake, monkeypatch)
    # kernels are traced once for each static part: these mistakes have one of their own
    number = 100 + zlib.crc32(mistake.__name__.encode()) % 10_000
    program = bound(64, 32, 128, 2, **SMALL, k_parts=2, group=number).program
    (fault,) = program.check().faults
    assert fault.kind == "RaceError"
    assert "k_parts.py" in fault.message


@pytest.mark.slow
@pytest.mark.parametrize("mistake", [unpublished, not_acquired])
def test_mistakes_in_the_meeting_of_clusters_are_found_in_the_shipped_instances(
    mistake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    faulty(mistake, monkeypatch)
    number = 20_000 + zlib.crc32(mistake.__name__.encode()) % 10_000
    _, instances = find("gemm").instances(SMALL | {"k_parts": 2, "cluster": 2, "group": number})
    faults = [x for i in instances for x in i.make().check().faults]
    assert {x.kind for x in faults} == {"RaceError"}


def test_a_ticket_that_is_not_put_back_is_seen_by_the_next_launch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def kept(ctx: tp.Context) -> Faulty:
        def store(ref: Any, value: Any, **order: Any) -> None:
            if not isinstance(value, int):
                ctx.store(ref, value, **order)

        return Faulty(ctx, store=store)

    faulty(kept, monkeypatch)
    one = bound(64, 32, 128, 2, **SMALL, k_parts=2, group=99)
    one.program.run()
    assert one.tickets.tolist() == [2]
    one.c[:] = np.nan
    one.program.run()
    assert np.isnan(one.c).all()  # nobody is the last
    refuses(
        lambda: bound(64, 32, 128, 2, **SMALL, k_parts=2, tickets=1),
        tp.BindError,
        "gemm: tickets of the workspace must be 0 before a launch",
    )


def test_the_workspace_is_the_callers() -> None:
    a, c, cfg = np.ones((64, 64), BF16), np.zeros((64, 72), np.float32), GemmConfig(**SMALL)
    b, two = np.ones((72, 64), BF16), cfg.changed(k_parts=2)
    sums, tickets = k_parts.workspace_shapes(c.shape, two)
    assert (sums, tickets) == ((3 * 64 * 2, 32), (3,))  # 3 tiles of 64 rows, twice
    turned = two.changed(swap="ab")
    assert k_parts.workspace_shapes(c.shape, turned) == ((4 * 64 * 2, 32), (4,))
    gemm.bind(a, b, c, two).run()  # of NumPy arrays it is made by bind
    assert (c == 64).all()
    workspace = np.zeros(sums, np.float32), np.zeros(tickets, np.int32)
    refuses(
        lambda: gemm.bind(a, b, c, cfg, workspace=workspace),
        tp.BindError,
        "gemm: workspace= is for k_parts above 1; leave it out",
    )
    refuses(
        lambda: gemm.bind(a, b, c, two, workspace=(workspace[0][:64], workspace[1])),
        tp.BindError,
        "gemm: parts of the workspace has shape (64, 32); with k_parts=2 and these tiles it must be"
        " (384, 32)",
    )


@pytest.mark.parametrize(
    ("swap", "extents"),
    [
        ("none", {"a": ("m", "k"), "b": ("n", "k"), "c": ("m", "n")}),
        ("none", {"a": ("m", 64), "c": ("m", 72)}),
        ("ab", {"b": ("n", "k"), "c": ("n", 64)}),
        ("none", {"a": (64, "k"), "b": (72, "k"), "tickets": ("tickets",)}),
        ("none", {"parts": ("lines", 32)}),
    ],
)
def test_an_export_leaves_no_extent_free_that_the_workspace_depends_on(
    swap: Any, extents: Any, tmp_path: Path
) -> None:
    """A launch would write beyond it, which neither launcher sees."""
    program = bound(64, 72, 64, **SMALL, k_parts=2, swap=swap).program
    lines = 512 if swap == "ab" else 384
    named = {"parts": "lines", "tickets": "tickets"}.keys() & extents
    here = (
        f"{'lines' if 'parts' in named else lines} lines and"
        f" {'tickets' if 'tickets' in named else lines // 128} tickets"
    )
    with pytest.raises(tp.ExportError) as error:
        program.export(tmp_path / "out", extents=extents)
    assert str(error.value) == (
        f"gemm: with k_parts=2, parts and tickets have the size that the tiles of one c need, here"
        f" {here}; a c of other tiles would write beyond them. For an export leave c, parts and"
        " tickets out of extents=, so that m, n and the batch are fixed (k may be free), or bind"
        " with k_parts=1, where m and n may be free, too"
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_an_exported_kernel_says_what_its_workspace_is(tmp_path: Path) -> None:
    program = bound(64, 72, 64, **SMALL, k_parts=2).program
    path = program.export(tmp_path, extents={"a": (64, "k"), "b": (72, "k")}, zero=("tickets",))
    x = np.zeros((64, 64), BF16)
    refuses(
        lambda: tp.load_exported(path).launch(a=x, b=x, c=x),
        tp.BindError,
        "exported kernel 'gemm' needs parts: float32 (384, 32); tickets: int32 (3), all 0 before"
        " the first launch; it takes a, b, c, parts, tickets",
    )


def test_workspaces_of_arrays_on_a_gpu_are_asked_for() -> None:
    torch = pytest.importorskip("torch")
    x = torch.zeros(64, 64, dtype=torch.bfloat16)
    refuses(
        lambda: gemm.bind(x, x, x, GemmConfig(**SMALL, k_parts=2), chip=tp.H200),
        tp.BindError,
        "gemm: with k_parts=2, pass workspace=(parts, tickets) where the arrays are on a GPU:"
        " float32 of shape (256, 32), and int32, zeros, of shape (2,)",
    )


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"k_parts": 9}, "k_parts must be at most 8"),
        ({"split_k": 2}, "k_parts above 1 takes split_k 1: both divide K"),
        ({"schedule": "pingpong"}, "k_parts above 1 takes schedule cooperative"),
        ({"source_slots": 2}, "k_parts above 1 takes source_slots 0"),
    ],
)
def test_what_does_not_go_with_it(settings: dict[str, Any], words: str) -> None:
    refuses(lambda: GemmConfig(**({"k_parts": 2} | settings)), tp.BindError, words)


@pytest.mark.slow
@pytest.mark.sampled(suite=3)
@pytest.mark.parametrize(
    "settings",
    [
        {"bn": 256, "k_parts": 2},
        {"bm": 256, "bn": 176, "stages": 3, "k_parts": 2},
        {"bm": 192, "bn": 208, "consumers": 3, "stages": 3, "k_parts": 2},
        {"bn": 200, "swap": "ab", "cluster": 4, "k_parts": 3},
        {"bm": 64, "bn": 224, "swap": "ab", "cluster": 4, "consumers": 1, "k_parts": 5},
        {"bn": 128, "k_parts": 8},
        {"bm": 64, "bn": 224, "consumers": 1, "k_parts": 8},
    ],
    ids=str,
)
def test_it_compiles_without_spills(settings: dict[str, Any]) -> None:
    assert bound(256, 256, 512, **settings).program.compile().spill_bytes == 0
