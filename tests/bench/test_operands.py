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
