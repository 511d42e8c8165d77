"""Which calls share a prepared launch: those that are alike, not all that Python calls equal."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

import tilepipe as tp

torch = pytest.importorskip("torch")

from tests.support.ops.device import take_cpu_for_gpu  # noqa: E402
from tests.support.ops.emulated_attention import Emulator, gpu  # noqa: E402
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
