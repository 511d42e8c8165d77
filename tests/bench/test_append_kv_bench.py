"""What `tilepipe bench append_kv` measures, and how what is written is judged; launches of our
kernel need a GPU.
"""

from __future__ import annotations

from typing import Any

import pytest

import tilepipe as tp
from tests.support.tracing import refused
from tilepipe.ir.host_tensors import host_memory
from tilepipe.kernels.append_kv import sm90
from tilepipe.registry.append_kv import APPEND_KV, problem

bench = pytest.importorskip("tilepipe.bench.append_kv", exc_type=ImportError)
torch = pytest.importorskip("torch", exc_type=ImportError)
SMALL = {"batch": 3, "tokens": 2, "kv_heads": 2, "s": 32, "d": 16}


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "DEVICE", "cpu")
    monkeypatch.setattr(bench.timing, "sets_for", lambda nbytes: 3)


def operands(**given: Any) -> Any:
    return bench.Operands(problem(APPEND_KV.configure(SMALL | given, None)[0]), 0)


def test_contests() -> None:
    found = bench.contests({}, [], tp.H200, 0)
    assert [x.problem for x in found[1:]] == [
        "B=64 tokens=1 8 heads S=4096",
        "B=256 tokens=1 8 heads S=1024",
        "B=8 tokens=512 8 heads S=8192",
    ]
    assert found[1].moves == 2 * 2 * 64 * 8 * 128 * 2
    given = {"batch": 2, "page": 16, "cache": "float8_e4m3"}
    (one,) = bench.contests(given, [], tp.H200, 0)
    assert one.problem == "B=2 tokens=1 2 heads S=256 pages of 16 bfloat16 to float8_e4m3"
    assert one.moves == 2 * 2 * 2 * 128 * 3
    with refused(tp.BindError, "--shapes of append_kv takes standard or quick"):
        bench.contests({}, ["8,300"], tp.H200, 0)
    with refused(tp.BindError, "bench append_kv has lengths of its own"):
        bench.contests({"lengths": "random"}, [], tp.H200, 0)


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("page", [0, 8])
def test_what_pytorch_writes_is_right_and_anything_else_is_not(page: int) -> None:
    made = operands(page=page)
    sides = {bench.PUT: made.put()} | ({} if page else {bench.SLICE: made.slices()})
    for side, launch in sides.items():
        assert not made.check(side, 0).right
        for i in range(made.sets):
            launch(i)
            assert made.check(side, i).right
        k, _ = made.caches[side]
        kept = k.clone()
        for place in (0, 1):  # a key that was there before, and a new one
            made._key(k, place)[...] = 1
            if page:  # of which `_key` has made a copy
                k[made.table[:, 0].long(), place] = 1
            assert not made.check(side, 0).right
            k.copy_(kept)
        assert made.check(side, 0).right
        made.wipe(side)
        assert not made.check(side, 1).right


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize(
    "given",
    [{}, {"page": 8}, {"cache": "float8_e4m3"}, {"dtype": "float32", "cache": "float16"}],
    ids=str,
)
def test_what_our_kernel_writes_is_right(
    given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours as it is bound for a launch, simulated in the memory of each set in turn."""
    made, bind = operands(**given), sm90.bind
    options: dict[str, Any] = {}

    class Bound:
        def __init__(self, *views: Any, **rest: Any) -> None:
            options.update(rest)

        def launcher(self) -> None:
            return None

    monkeypatch.setattr(bench.kernel, "bind", Bound)
    monkeypatch.setattr(bench, "in_turn", lambda launcher, named: named)
    named = made.ours()
    options["block_table"] = None if made.table is None else made.table.numpy()
    for i in range(made.sets):
        names = "k_cache", "v_cache", "k", "v", "lengths"
        bind(*(host_memory(named[name][i], name) for name in names), **options).run()
        assert made.check(bench.OURS, i).right


@pytest.mark.usefixtures("on_cpu")
def test_a_cache_without_room() -> None:
    with refused(tp.BindError, "bench append_kv: s=2 has no room for 2 tokens behind 1 key"):
        operands(s=2)
