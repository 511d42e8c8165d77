"""What a measured launch is given."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tilepipe.bench.operands import in_turn  # noqa: E402


def test_a_launch_keeps_the_tensors_of_its_sets() -> None:
    """Memory of a counter that nobody else holds would be given to another tensor."""
    launcher: Any = SimpleNamespace(tensors=("q", "counter"))
    q, counter = [torch.zeros(2), torch.zeros(2)], torch.zeros(1)
    held = weakref.ref(counter)
    launch = in_turn(launcher, {"q": q, "counter": [counter] * 2})
    del counter
    gc.collect()
    assert held() is not None
    del launch
    gc.collect()
    assert held() is None


def test_a_gemm_whose_parts_of_k_meet_gets_one_workspace_for_all_sets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whichever benchmark launches the GEMM that is chosen: launches follow each other."""
    monkeypatch.setattr(
        torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=7), raising=False
    )
    calls: list[tuple[tuple[int, ...], int]] = []

    class Launches:
        tensors = "a", "b", "c", "parts", "tickets"
        shapes = dict.fromkeys("abc", (8, 8)) | {"parts": (16, 8), "tickets": (2,)}

        def __call__(self, addresses: tuple[int, ...], stream: int) -> None:
            calls.append((addresses, stream))

    made: Any = Launches()
    tensors = {name: [torch.zeros(8, 8) for _ in range(3)] for name in "abc"}
    launch = in_turn(made, tensors)
    for i in range(3):
        launch(i)
    assert [stream for _, stream in calls] == [7, 7, 7]
    for i, (addresses, _) in enumerate(calls):
        assert addresses[:3] == tuple(tensors[name][i].data_ptr() for name in "abc")
    assert len({addresses[3:] for addresses, _ in calls}) == 1
    assert len({*calls[0][0]}) == 5
