"""The counters from which launches on PyTorch tensors draw their tiles."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from tests.support.ops.device import take_cpu_for_gpu  # noqa: E402
from tilepipe.ops.torch import counters, device  # noqa: E402


def test_launches_of_one_stream_share_a_counter(monkeypatch: pytest.MonkeyPatch) -> None:
    take_cpu_for_gpu(monkeypatch)
    monkeypatch.setattr(counters, "_counters", {})
    first = counters.counter(0, 7)
    assert (first.dtype, first.tolist()) == (torch.int32, [0])
    assert counters.counter(0, 7) is first
    others = [counters.counter(0, 8), counters.counter(1, 7)]
    assert len({x.data_ptr() for x in (first, *others)}) == 3


def test_a_launch_that_a_graph_captures_has_a_counter_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its replays may run beside launches of the stream, and beside other graphs."""
    take_cpu_for_gpu(monkeypatch)
    monkeypatch.setattr(counters, "_counters", {})
    eager = counters.counter(0, 7)
    monkeypatch.setattr(device, "capturing", lambda: True)
    captured = [counters.counter(0, 7) for _ in range(2)]
    assert len({x.data_ptr() for x in (eager, *captured)}) == 3
    assert [x.tolist() for x in captured] == [[0], [0]]
