"""The GEMM whose CTAs share tiles along K: right for every division of the steps, the same bits for
every order, verified with every number of CTAs that run at once; and each mistake in its exchange
of sums is found.
"""

from __future__ import annotations

import dataclasses
import zlib
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilepipe as tp
from tests.scenarios.support import refuses
from tilepipe import cuda
from tilepipe.export.rules import value
from tilepipe.kernels.gemm import stream_k
from tilepipe.kernels.gemm.config import StreamKConfig
from tilepipe.program.grid_rule import grid_rule
from tilepipe.testing import compare_matmul

BF16 = ml_dtypes.bfloat16
SMALL: dict[str, Any] = {"bm": 64, "bn": 32, "bk": 32, "stages": 2, "consumers": 1}


@dataclasses.dataclass(frozen=True)
class Bound:
    program: tp.Program
    a: Any
    b: Any
    c: Any
    flags: Any

    def right(self) -> bool:
        """Whether C is the product, and the flags are 0 again."""
        return compare_matmul(self.c, self.a, self.b.T).ok and not self.flags.any()


def bound(m: int, n: int, k: int, ctas: int, **settings: Any) -> Bound:
    rng = np.random.default_rng(m + n + k)
    a, b = (rng.standard_normal((rows, k)).astype(BF16) for rows in (m, n))
    c = np.full((m, n), np.nan, np.float32)
    cfg, chip = StreamKConfig(**settings), dataclasses.replace(tp.H200, sms=ctas)
    shapes = stream_k.workspace_shapes(a, c, cfg, chip)
    parts, flags = np.full(shapes[0], np.nan, np.float32), np.zeros(shapes[1], np.int32)
    program = stream_k.bind(a, b, c, cfg, workspace=(parts, flags), chip=chip)
    return Bound(program, a, b, c, flags)


@pytest.mark.sampled(6, suite=2)
@pytest.mark.parametrize(
    ("shape", "ctas", "settings"),
    [
        ((192, 256, 192), 4, {"bm": 64, "consumers": 1, "stages": 2}),  # as the module draws it
        ((64, 64, 512), 5, {"bm": 64, "bn": 64, "consumers": 1, "stages": 2}),  # one tile
        ((200, 136, 328), 3, {"stages": 3}),  # two warpgroups, ragged edges
        ((128, 64, 128), 16, SMALL),  # fewer steps than CTAs might take
        ((128, 128, 64), 4, SMALL | {"group": 1}),  # whole tiles alone
        ((64, 320, 256), 3, {"bm": 64, "bn": 160, "consumers": 1, "stages": 2}),
    ],
)
def test_every_division_of_the_steps_is_right(
    shape: tuple[int, int, int], ctas: int, settings: dict[str, Any]
) -> None:
    one = bound(*shape, ctas, **settings)
    one.program.run(seed=0)
    assert one.right()
    first = one.c.copy()
    one.c[:] = np.nan
    one.program.run(seed=1)
    assert (one.c == first).all()
    assert one.right()


@pytest.mark.parametrize("rules", ["practice", "strict"])
@pytest.mark.parametrize("ctas", [2, 3])
def test_it_is_verified(rules: Any, ctas: int) -> None:
    """With two CTAs, one waits; with three, two hand over to one."""
    verdict = bound(64, 32, 96, ctas, **SMALL).program.check(rules=rules)
    assert verdict.ok, verdict.faults or verdict.bound
    assert not verdict.advice


@pytest.mark.slow
def test_its_ptx_is_right() -> None:
    one = bound(64, 32, 96, 2, **SMALL)
    one.program.ptx("sm_90a").run()
    assert one.right()


@pytest.mark.thorough
@pytest.mark.parametrize("rules", ["practice", "strict"])
def test_its_ptx_is_verified(rules: Any) -> None:
    assert bound(64, 32, 96, 2, **SMALL).program.ptx("sm_90a").check(rules=rules).ok


class Faulty:
    """A context with one member replaced."""

    def __init__(self, ctx: tp.Context, **replaced: Any) -> None:
        self._ctx, self._replaced = ctx, replaced

    def __getattr__(self, name: str) -> Any:
        return self._replaced.get(name, getattr(self._ctx, name))


def dropped_flag(ctx: tp.Context) -> Faulty:
    def store(ref: Any, value: Any, **order: Any) -> None:
        if value == 0:
            ctx.store(ref, value, **order)

    return Faulty(ctx, store=store)


def relaxed_flag(ctx: tp.Context) -> Faulty:
    return Faulty(ctx, store=lambda ref, value, **order: ctx.store(ref, value, order="relaxed"))


def relaxed_wait(ctx: tp.Context) -> Faulty:
    def wait_until(ref: Any, condition: Any) -> None:
        ctx.wait_until(ref, condition, order="relaxed")

    return Faulty(ctx, wait_until=wait_until)


def no_meeting(ctx: tp.Context) -> Faulty:
    return Faulty(ctx, sync_warpgroup=lambda: None)


@pytest.mark.parametrize(
    ("mistake", "kind", "words"),
    [
        (dropped_flag, "DeadlockError", "'flags[1, 0]'"),
        (relaxed_flag, "RaceError", "tensor 'parts'"),
        (relaxed_wait, "RaceError", "tensor 'parts'"),
        (no_meeting, "RaceError", "tensor 'parts'"),
    ],
)
def test_mistakes_in_the_exchange_are_found(
    mistake: Any, kind: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sums = stream_k.WorkspaceSums
    monkeypatch.setattr(stream_k, "WorkspaceSums", lambda ctx, *rest: sums(mistake(ctx), *rest))
    # kernels are traced once for each static part: these mistakes have one of their own
    number = 100 + zlib.crc32(mistake.__name__.encode()) % 10_000
    (fault,) = bound(64, 32, 96, 2, **SMALL, group=number).program.check().faults
    assert fault.kind == kind
    assert words in fault.message
    assert "stream_k.py" in fault.message


def test_there_are_no_more_ctas_than_places_in_the_workspace() -> None:
    """An exported kernel may get larger matrices with the workspace that it was exported for."""
    a, b, c = np.ones((64, 128), BF16), np.ones((64, 128), BF16), np.zeros((64, 64), np.float32)
    parts, flags = np.zeros((3, 64, 32), np.float32), np.zeros((3, 1), np.int32)
    program = stream_k.bind(a, b, c, StreamKConfig(**SMALL), workspace=(parts, flags))
    assert program.launch_args.grid == 3  # of 8 steps
    program.run()
    assert (c == 128).all()
    grid = program.grid_function
    assert grid is not None
    named: dict[str, tuple[int | str, ...]] = {
        "a": ("m", "k"),
        "b": ("n", "k"),
        "c": ("m", "n"),
        "parts": (3, 64, 32),
        "flags": (3, 1),
    }
    rule = grid_rule(grid.given, grid.known, named, ())
    small, large = ({"m": 64, "n": 32, "k": k} for k in (64, 6400))
    assert (value(rule, small), value(rule, large)) == (2, 3)


def test_the_workspace_is_the_callers() -> None:
    a, c, cfg = np.zeros((64, 64), BF16), np.zeros((64, 64), np.float32), StreamKConfig(**SMALL)
    assert stream_k.workspace_shapes(a, c, cfg, tp.H200) == ((4, 64, 32), (4, 1))
    stream_k.bind(a + 1, a + 2, c, cfg).run()  # of NumPy arrays it is made by bind
    assert (c == 2 * 64).all()
    refuses(
        lambda: stream_k.bind(a, a, np.zeros((2, 64, 64), np.float32), cfg),
        tp.BindError,
        "gemm_stream_k multiplies matrices",
    )
    refuses(lambda: StreamKConfig(bn=24), tp.BindError, "bn must be a multiple of 16")


@pytest.mark.slow
@pytest.mark.sampled(suite=3)
@pytest.mark.parametrize("settings", [{"bn": 256}, {}, {"bm": 256, "stages": 3}], ids=str)
def test_it_compiles_without_spills(settings: dict[str, Any]) -> None:
    program = bound(256, 256, 512, 4, **settings).program
    compiled = cuda.compile(program.kernel)
    assert compiled.spill_bytes == 0
    assert "warning" not in compiled.log
