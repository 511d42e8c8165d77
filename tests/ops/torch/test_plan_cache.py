"""Which calls share a prepared launch: those that are alike, not all that Python calls equal."""

from __future__ import annotations

import gc
from typing import Any, NamedTuple

import pytest

import tilepipe as tp

torch = pytest.importorskip("torch")

from tests.support.ops.device import take_cpu_for_gpu  # noqa: E402
from tests.support.ops.emulated_attention import Emulator, gpu  # noqa: E402
from tilepipe.ops.torch import device  # noqa: E402
from tilepipe.ops.torch.plan_cache import Key, PlanCache, as_written  # noqa: E402

__all__ = ["gpu"]


class Prepared(NamedTuple):
    option: object
    ordinal: int = -1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((True,), (1,)),
        ((1,), (1.0,)),
        ((0.0,), (-0.0,)),
        ((None, (True, 3)), (None, (1, 3))),
        (((0.0,),), ((-0.0,),)),
        (((("bm", 1), ("early", True)),), ((("bm", 1), ("early", 1)),)),
    ],
)
def test_options_that_are_equal_and_not_of_one_type_differ(one: Any, other: Any) -> None:
    assert one == other
    assert as_written(one) != as_written(other)
    assert as_written(one) == as_written(tuple(one))
    assert hash(as_written(one)) == hash(as_written(tuple(one)))


def test_what_is_refused_is_refused_after_an_equal_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the operation, for its key has two parts, of which the cache makes the second."""
    take_cpu_for_gpu(monkeypatch)

    def key(call: object) -> Key:
        return "tensors", (call,)

    def prepare(call: object) -> Prepared:
        if type(call) is not bool:
            raise tp.BindError(f"True or False, not {call}")
        return Prepared(call)

    plans: PlanCache[object, Prepared, object] = PlanCache(
        key, prepare, lambda plan, call: plan.option, lambda call: None
    )
    assert plans.run(True) is True
    for value in (1, 1.0):
        with pytest.raises(tp.BindError, match=f"not {value}"):
            plans.run(value)
    assert plans.run(True) is True
    assert len(plans.plans) == 1


@pytest.mark.slow
def test_a_window_of_truth_values_is_refused_after_one_of_numbers(gpu: Emulator) -> None:
    q, k, v = (torch.zeros(1, 24, 2, 64, dtype=torch.bfloat16) for _ in range(3))
    window: Any = (True, False)
    tp.ops.attention(q, k, v, window=(1, 0))
    with pytest.raises(tp.BindError, match=r"window"):
        tp.ops.attention(q, k, v, window=window)


@pytest.mark.parametrize("captures", [True, False])
def test_no_garbage_is_collected_while_a_graph_captures_a_first_call(
    captures: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_cpu_for_gpu(monkeypatch)
    monkeypatch.setattr(device, "capturing", lambda: captures)
    monkeypatch.setattr(gc, "isenabled", lambda: True)
    states: list[str] = []
    monkeypatch.setattr(gc, "disable", lambda: states.append("off"))
    monkeypatch.setattr(gc, "enable", lambda: states.append("on"))
    refused = True

    def prepare(call: object) -> Prepared:
        states.append("prepare")
        if refused:
            raise tp.BindError("no")
        return Prepared(call)

    plans: PlanCache[object, Prepared, object] = PlanCache(
        lambda call: ("tensors", (call,)), prepare, lambda plan, call: 3, lambda call: None
    )
    around = ["off", "prepare", "on"] if captures else ["prepare"]
    with pytest.raises(tp.BindError):
        plans.run(1)
    assert states == around
    refused = False
    assert plans.run(1) == plans.run(1) == 3
    assert states == around * 2


@pytest.mark.parametrize("on", [True, False])
def test_garbage_waits_for_the_last_of_several_captures(
    on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of several threads, which may end in any order."""
    monkeypatch.setattr(device, "capturing", lambda: True)
    was_on = gc.isenabled()
    try:
        (gc.enable if on else gc.disable)()
        one, other = device.capture_kept(), device.capture_kept()
        one.__enter__()
        other.__enter__()
        one.__exit__(None, None, None)
        assert not gc.isenabled()
        other.__exit__(None, None, None)
        assert gc.isenabled() == on
    finally:
        (gc.enable if was_on else gc.disable)()
